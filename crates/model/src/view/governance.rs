//! What the governed scheduler shows: decisions, approvals, dead letters, the policy, tenants.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{JobView, OriginView};
use crate::dead_letter::DeadLetter;
use crate::id::{Attempt, JobId, RunnerId};
use crate::job::{Artifact, AttemptRecord, End, Job, LogRef, Original};
use crate::json::Json;
use crate::parked::ParkedWord;
use crate::spec::{Digest, JobSpec, Sandbox};
use crate::state::State;
use crate::time::{Millis, Timestamp};
use crate::verdict::{
    Approval, Constraints, Decision, FindingCount, OutputDecision, OutputVerdict, Phase, PolicyVersion, Verdict,
};

/// Whether the newest result of a job, its files and its output are kept from everybody.
pub fn is_hidden(job: &Job) -> bool {
    match job.state {
        State::Scanning | State::Quarantined => true,
        State::Succeeded => false,
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Denied
        | State::Abandoned => job.last_attempt().is_some_and(|attempt| is_withheld(job, attempt)),
    }
}

/// Whether the output of an attempt is kept from everybody: a success that the policy looks at counts as one only when
/// its job does. What was quarantined stays so when its job is tried again, and so does what was cancelled unseen.
pub fn is_withheld(job: &Job, attempt: &AttemptRecord) -> bool {
    let is_looked_at = job.hold_until_scanned || !job.output_decisions().is_empty();
    let is_newest = attempt.attempt == job.attempt;
    match job.state {
        State::Scanning | State::Quarantined if is_newest => true,
        State::Succeeded if is_newest => false,
        State::Scanning
        | State::Quarantined
        | State::Succeeded
        | State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Denied
        // What is held is shown after it was looked at, and what did not succeed never is.
        | State::Abandoned => job.hold_until_scanned || (is_looked_at && attempt.end == Some(End::Succeeded)),
    }
}

/// A digest as people hand it on: 32 hexadecimal digits.
pub fn digest_as_text(digest: Digest) -> String {
    digest.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What [`digest_as_text`] has made.
pub fn digest_of_text(text: &str) -> Option<Digest> {
    let mut bytes = [0; 16];
    if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(Digest(bytes))
}

/// What the policy limits. Absent: as the job itself says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConstraintsView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_runtime_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_artifact_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
}

impl From<&Constraints> for ConstraintsView {
    fn from(constraints: &Constraints) -> Self {
        let Constraints { max_runtime, max_retries, max_artifact_bytes, max_concurrent, sandbox, network } =
            *constraints;
        let max_runtime_ms = max_runtime.map(|Millis(millis)| millis);
        Self { max_runtime_ms, max_retries, max_artifact_bytes, max_concurrent, sandbox, network }
    }
}

/// What a policy said of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionView {
    pub at: Timestamp,
    pub verdict: String,
    pub rule: String,
    pub message: Option<String>,
    /// The set of rules that has spoken.
    #[serde(default)]
    pub policy: Option<PolicyVersion>,
    /// What limits the job, at once or when it is approved.
    #[serde(default)]
    pub constraints: Option<ConstraintsView>,
    /// With a throttle: when the policy is asked again.
    #[serde(default)]
    pub until: Option<Timestamp>,
}

impl From<&Decision> for DecisionView {
    fn from(decision: &Decision) -> Self {
        let (constraints, until) = match &decision.verdict {
            Verdict::AllowWith(constraints) => (Some(constraints.into()), None),
            Verdict::RequireApproval => (decision.constraints.as_deref().map(Into::into), None),
            Verdict::Throttle(until) => (None, Some(Timestamp(*until))),
            Verdict::Allow | Verdict::Deny => (None, None),
        };
        Self {
            at: Timestamp(decision.at),
            verdict: decision.verdict.as_str().to_owned(),
            rule: decision.rule.clone(),
            message: decision.message.clone(),
            policy: decision.policy,
            constraints,
            until,
        }
    }
}

/// A person's word on a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalWordView {
    /// Absent where nobody said who they are.
    pub by: Option<String>,
    pub approved: bool,
    pub comment: Option<String>,
    pub at: Timestamp,
    /// The rule that had asked.
    pub rule: String,
}

impl From<&Approval> for ApprovalWordView {
    fn from(approval: &Approval) -> Self {
        Self {
            by: (!approval.by.is_empty()).then(|| approval.by.clone()),
            approved: approval.approved,
            comment: approval.comment.clone(),
            at: Timestamp(approval.at),
            rule: approval.rule.clone(),
        }
    }
}

/// What a policy said of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputDecisionView {
    pub at: Timestamp,
    pub phase: Phase,
    pub verdict: OutputVerdict,
    pub rule: String,
    pub message: Option<String>,
    pub policy: Option<PolicyVersion>,
    /// What was found where and how often, without the thing itself.
    pub findings: Vec<FindingCount>,
}

impl From<&OutputDecision> for OutputDecisionView {
    fn from(decision: &OutputDecision) -> Self {
        Self {
            at: Timestamp(decision.at),
            phase: decision.phase,
            verdict: decision.verdict,
            rule: decision.rule.clone(),
            message: decision.message.clone(),
            policy: decision.policy,
            findings: decision.findings.clone(),
        }
    }
}

/// A job that waits for a person's word, or has waited for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalView {
    pub id: JobId,
    pub topic: String,
    pub tenant: String,
    pub submitter: Option<String>,
    /// The rule that asks.
    pub rule: String,
    pub message: Option<String>,
    pub asked_at: Timestamp,
    /// When it is too late; absent once the job does not wait any more.
    pub expires_at: Option<Timestamp>,
    /// Of the job's content. An approval that names it is good for nothing else.
    pub hash: String,
    pub labels: BTreeMap<String, String>,
    /// The task of a workflow that it does.
    #[serde(default)]
    pub origin: Option<OriginView>,
}

impl ApprovalView {
    /// Nothing where the policy never asked for anybody's word. `expiry` is how long it waits for one.
    pub fn new(job: &Job, spec: &JobSpec, expiry: Millis) -> Option<Self> {
        let asks = |decision: &&Decision| decision.verdict == Verdict::RequireApproval;
        let asked = job.decisions.iter().rev().find(asks)?;
        let waits = job.state == State::ApprovalRequired;
        Some(Self {
            id: job.id,
            topic: spec.topic.clone(),
            tenant: spec.tenant.clone(),
            submitter: job.submitter.as_deref().map(str::to_owned),
            rule: asked.rule.clone(),
            message: asked.message.clone(),
            asked_at: Timestamp(if waits { job.since() } else { asked.at }),
            expires_at: waits.then(|| Timestamp(job.since() + expiry)),
            hash: digest_as_text(job.digest),
            labels: spec.labels.clone(),
            origin: job.origin.as_deref().map(OriginView::new),
        })
    }
}

/// The same with the whole job and everything the policy has said of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalDetailView {
    #[serde(flatten)]
    pub approval: ApprovalView,
    pub job: JobView,
    pub decisions: Vec<DecisionView>,
}

/// The body of an approval or a rejection. All of it may be left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalWord {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The content that was looked at: if the job is another by now, it is not approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The rule that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// What is kept of a job that ended undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterView {
    /// The job's.
    pub id: JobId,
    /// When it ended.
    pub at: Timestamp,
    pub state: State,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub topic: String,
    pub tenant: String,
}

impl LetterView {
    pub fn new(id: JobId, letter: DeadLetter) -> Self {
        let DeadLetter { at, state, reason, message, topic, tenant } = letter;
        let reason = reason.map(|code| code.as_str().to_owned());
        Self { id, at: Timestamp(at), state, reason, message, topic, tenant }
    }
}

/// A runner's word that could not be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedView {
    pub at: Timestamp,
    pub runner: RunnerId,
    pub job: JobId,
    pub attempt: Attempt,
    /// What is wrong with it.
    pub why: String,
}

impl From<ParkedWord> for ParkedView {
    fn from(word: ParkedWord) -> Self {
        let ParkedWord { at, runner, job, attempt, why, .. } = word;
        Self { at: Timestamp(at), runner, job, attempt, why }
    }
}

/// The same with the whole job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LetterDetailView {
    #[serde(flatten)]
    pub letter: LetterView,
    pub job: JobView,
}

/// What came of a purge of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgedView {
    pub purged: u64,
    /// There are others like them: ask again.
    pub more: bool,
}

/// What a redacted copy has replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginalView {
    pub result: Option<Json>,
    pub artifacts: Vec<Artifact>,
    pub log: Option<LogRef>,
}

impl From<Original> for OriginalView {
    fn from(original: Original) -> Self {
        let Original { result, artifacts, log } = original;
        Self { result, artifacts, log }
    }
}

/// Who decides about jobs, and how that is going.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyView {
    /// `none`, `rules` or `kernel`.
    pub mode: String,
    /// What happens to jobs while the policy cannot be asked: `closed` or `open`.
    pub fail_mode: String,
    /// The set of rules in force, as far as it is known.
    pub version: Option<PolicyVersion>,
    /// Jobs allowed because the policy could not be asked, since the start.
    pub failed_open: u64,
    pub rules: Option<RulesView>,
    /// The kernel's state and numbers.
    pub kernel: Option<Json>,
}

/// The rules in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RulesView {
    pub directory: String,
    pub files: Vec<String>,
    pub loaded_at: Timestamp,
    /// Why what is in the directory now is not in force.
    pub error: Option<String>,
    /// Whether answers can be remembered for jobs that are alike.
    pub cacheable: bool,
    /// The parts of their input that the rules for jobs read.
    pub reads: Vec<String>,
    pub has_output_rules: bool,
}

/// What the policy would say of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckView {
    /// Who was asked: `none`, `rules` or `kernel`.
    pub mode: String,
    pub verdict: String,
    pub rule: String,
    pub message: Option<String>,
    pub until: Option<Timestamp>,
    pub constraints: Option<ConstraintsView>,
    pub policy: Option<PolicyVersion>,
    /// Every rule that spoke.
    pub spoke: Vec<SpokenView>,
    /// What rules printed on the way, or the kernel's own account.
    pub trace: Vec<String>,
}

/// One verdict of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpokenView {
    pub verdict: String,
    pub rule: String,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConstraintsView>,
}

/// A tenant that has work or limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantView {
    pub tenant: String,
    /// Its jobs that have not ended.
    pub live: u64,
    pub limits: TenantLimitsView,
}

/// What a tenant may have. Absent: as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TenantLimitsView {
    pub max_running: Option<u32>,
    pub max_live: Option<u32>,
    pub submits_per_second: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Attempt, Incarnation, QueueId, RunnerId};
    use crate::job::Birth;
    use crate::spec::{EchoRun, Run};

    #[test]
    fn a_digest_reads_back_from_its_text_and_from_no_other() {
        let digest = Digest::of(b"content");
        assert_eq!(digest_of_text(&digest_as_text(digest)), Some(digest));
        for text in ["", "0", &"g".repeat(32), &"0".repeat(31), &"0".repeat(33), &"+1".repeat(16), &"é".repeat(16)] {
            assert_eq!(digest_of_text(text), None, "{text}");
        }
    }

    /// A job whose only attempt has succeeded, with a result, under a topic that holds results until they were scanned.
    fn held(state: State) -> Job {
        let spec = JobSpec::new(Run::Echo(EchoRun::default())).pack();
        let (id, queue, now) = (JobId(1), QueueId(1), Millis(0));
        let birth = Birth { id, queue, seq: 1, now, queue_max_retries: 0, runtime_max: None };
        let attempt = AttemptRecord::new(Attempt(1), RunnerId(1), Incarnation(1), now);
        let mut job = Job::new(birth, spec);
        job.state = state;
        job.attempt = Attempt(1);
        job.attempts = vec![AttemptRecord { end: Some(End::Succeeded), ..attempt }];
        job.result = Some(Json::null());
        job.hold_until_scanned = true;
        job
    }

    #[test]
    fn a_held_result_is_seen_only_once_its_job_has_succeeded() {
        for state in State::ALL {
            let job = held(state);
            assert_eq!(is_hidden(&job), state != State::Succeeded, "{state}");
            let shown = JobView::new(&job, job.decode_spec().unwrap());
            assert_eq!(shown.result.is_none(), state != State::Succeeded, "{state}");
        }
    }

    #[test]
    fn what_was_quarantined_in_an_earlier_try_stays_withheld() {
        let mut job = held(State::Succeeded);
        let second = AttemptRecord::new(Attempt(2), RunnerId(1), Incarnation(1), Millis(5));
        job.attempts.push(AttemptRecord { end: Some(End::Succeeded), ..second });
        job.attempt = Attempt(2);
        assert!(is_withheld(&job, &job.attempts[0]) && !is_withheld(&job, &job.attempts[1]));
        assert!(!is_hidden(&job));
    }

    #[test]
    fn results_that_nobody_looks_at_are_shown_whatever_became_of_the_job() {
        let job = Job { hold_until_scanned: false, ..held(State::Cancelled) };
        assert!(!is_hidden(&job));
        assert!(is_hidden(&Job { state: State::Quarantined, ..job }), "and quarantined is quarantined");
    }

    #[test]
    fn nobody_in_particular_is_no_name() {
        let approval = Approval {
            at: Millis(5),
            by: String::new(),
            approved: true,
            comment: None,
            digest: Digest::of(b""),
            rule: "r".to_owned(),
        };
        assert_eq!(ApprovalWordView::from(&approval).by, None);
    }
}
