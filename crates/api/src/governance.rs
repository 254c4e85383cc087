//! Policy decisions, approvals, dead letters, the policy, tenants.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::visibility::digest_as_text;
use crate::{JobView, OriginView};
use model::dead_letter::{DeadLetter, UnsubmittedCompensation};
use model::id::{Attempt, JobId, RunnerId, WorkflowId};
use model::job::{Artifact, Job, LogRef, Original};
use model::json::Json;
use model::rejected::RejectedMessage;
use model::spec::{JobSpec, Sandbox};
use model::state::State;
use model::time::{Millis, Timestamp};
use model::verdict::{
    Approval, Constraints, Decision, FindingCount, OutputDecision, OutputVerdict, Phase, PolicyVersion, Verdict,
};

/// Limits set by the policy. Absent fields leave the values of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Constraints)]
#[serde(default)]
pub struct ConstraintsView {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub max_runtime_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub max_retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub max_artifact_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub max_concurrent: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub sandbox: Option<Sandbox>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
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

/// A policy decision about a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Decision)]
pub struct DecisionView {
    pub at: Timestamp,
    pub verdict: String,
    pub rule: String,
    pub message: Option<String>,
    /// Version of the policy that decided.
    #[serde(default)]
    pub policy: Option<PolicyVersion>,
    /// Constraints on the job; with `require_approval` they apply once it is approved.
    #[serde(default)]
    pub constraints: Option<ConstraintsView>,
    /// End of a throttle.
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

/// Approval or rejection of a job by a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ApprovalDecision)]
pub struct ApprovalDecisionView {
    /// Null for requests without `Outlast-Actor`.
    pub by: Option<String>,
    pub approved: bool,
    pub comment: Option<String>,
    pub at: Timestamp,
    /// The rule that required the approval.
    pub rule: String,
}

impl From<&Approval> for ApprovalDecisionView {
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

/// A policy decision about a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OutputDecision)]
pub struct OutputDecisionView {
    pub at: Timestamp,
    pub phase: Phase,
    pub verdict: OutputVerdict,
    pub rule: String,
    pub message: Option<String>,
    pub policy: Option<PolicyVersion>,
    /// Number of findings by pattern and place, without the found text.
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

/// A job that requires or required an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Approval)]
pub struct ApprovalView {
    pub id: JobId,
    pub topic: String,
    pub tenant: String,
    pub submitter: Option<String>,
    /// The rule that requires the approval.
    pub rule: String,
    pub message: Option<String>,
    pub asked_at: Timestamp,
    /// Deadline of the approval; null once the job no longer waits.
    pub expires_at: Option<Timestamp>,
    /// Hash of the job's content. An approval that names it applies to that content only.
    pub hash: String,
    pub labels: BTreeMap<String, String>,
    /// The task of a workflow that the job executes.
    #[serde(default)]
    pub origin: Option<OriginView>,
}

impl ApprovalView {
    /// None if no approval was ever required. `expiry` is how long a job waits for one.
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

/// A job that requires or required an approval, with all policy decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ApprovalDetail)]
pub struct ApprovalDetailView {
    #[serde(flatten)]
    pub approval: ApprovalView,
    pub job: JobView,
    pub decisions: Vec<DecisionView>,
}

/// Request to approve or reject a job. The body is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub comment: Option<String>,
    /// Hash of the reviewed content. The request fails with `other_content` if the job has another.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub hash: Option<String>,
    /// Rule of the approval. The request fails with `other_rule` if another rule requires it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rule: Option<String>,
}

/// The record of a job that failed for good, or of a compensation whose job could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DeadLetter)]
pub struct DeadLetterView {
    /// Id of the job. A compensation without a job gets a job of this id when it is retried.
    pub id: JobId,
    /// When the job ended.
    pub at: Timestamp,
    pub state: State,
    pub reason: Option<String>,
    pub message: Option<String>,
    /// Empty for a compensation without a job.
    pub topic: String,
    pub tenant: String,
    /// The compensation that could not be submitted. Null for a job.
    pub compensation: Option<UnsubmittedCompensationView>,
}

/// A compensation whose job could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = UnsubmittedCompensation)]
pub struct UnsubmittedCompensationView {
    pub workflow: WorkflowId,
    /// Name of the task, with the number of the item if any.
    pub task: String,
}

impl DeadLetterView {
    pub fn new(id: JobId, letter: DeadLetter) -> Self {
        let DeadLetter { at, state, reason, message, topic, tenant, compensation } = letter;
        let reason = reason.map(|code| code.as_str().to_owned());
        let compensation = compensation
            .map(|UnsubmittedCompensation { workflow, task }| UnsubmittedCompensationView { workflow, task });
        Self { id, at: Timestamp(at), state, reason, message, topic, tenant, compensation }
    }
}

/// A message of a runner that broke a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RejectedMessage)]
pub struct RejectedMessageView {
    pub at: Timestamp,
    pub runner: RunnerId,
    pub job: JobId,
    pub attempt: Attempt,
    /// The broken limit.
    pub why: String,
}

impl From<RejectedMessage> for RejectedMessageView {
    fn from(message: RejectedMessage) -> Self {
        let RejectedMessage { at, runner, job, attempt, why, .. } = message;
        Self { at: Timestamp(at), runner, job, attempt, why }
    }
}

/// A dead letter with its job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = DeadLetterDetail)]
pub struct DeadLetterDetailView {
    #[serde(flatten)]
    pub letter: DeadLetterView,
    /// Null for a compensation without a job.
    pub job: Option<JobView>,
}

/// Result of a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Purged)]
pub struct PurgedView {
    pub purged: u64,
    /// More dead letters match: repeat the request.
    pub more: bool,
}

/// The original of a redacted result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Original)]
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

/// Policy backend and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Policy)]
pub struct PolicyView {
    /// Policy backend: `none`, `rules` or `kernel` (a policy service).
    pub mode: String,
    /// What happens to jobs while the policy is unavailable: `closed` or `open`.
    pub fail_mode: String,
    /// Version of the policy in force, if known.
    pub version: Option<PolicyVersion>,
    /// Number of jobs allowed because the policy was unavailable, since the start.
    pub failed_open: u64,
    pub rules: Option<RulesView>,
    /// State and counters of the policy service.
    #[serde(rename = "kernel")]
    pub service: Option<Json>,
}

/// The rules in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Rules)]
pub struct RulesView {
    pub directory: String,
    pub files: Vec<String>,
    pub loaded_at: Timestamp,
    /// Why the files in the directory are not in force.
    pub error: Option<String>,
    /// Whether decisions can be cached.
    pub cacheable: bool,
    /// The parts of the input that the rules for jobs read.
    pub reads: Vec<String>,
    pub has_output_rules: bool,
}

/// The decision of a policy check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Check)]
pub struct CheckView {
    /// Policy backend: `none`, `rules` or `kernel` (a policy service).
    pub mode: String,
    pub verdict: String,
    pub rule: String,
    pub message: Option<String>,
    pub until: Option<Timestamp>,
    pub constraints: Option<ConstraintsView>,
    pub policy: Option<PolicyVersion>,
    /// Verdicts of all rules that apply.
    pub spoke: Vec<RuleVerdictView>,
    /// Output of `print` in rules, or the trace of the policy service.
    pub trace: Vec<String>,
}

/// A verdict of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RuleVerdict)]
pub struct RuleVerdictView {
    pub verdict: String,
    pub rule: String,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub for_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub constraints: Option<ConstraintsView>,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Tenant)]
pub struct TenantView {
    pub tenant: String,
    /// Number of jobs that have not ended.
    pub live: u64,
    pub limits: TenantLimitsView,
}

/// Limits of a tenant. Null for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = TenantLimits)]
pub struct TenantLimitsView {
    pub max_running: Option<u32>,
    pub max_live: Option<u32>,
    pub submits_per_second: Option<u32>,
}
