//! Invariants of dead letters and of the audit log.

use engine::{Settings, SignRequest};
use model::audit::{Action, AuditEntry, Broken, Head, SignedCheckpoint};
use model::dead_letter::{DeadLetter, is_dead};
use model::id::{JobId, QueueId, ShardId};
use model::job::Job;
use model::key;
use model::machine::FAIL_OPEN_RULE;
use model::queue::QueueState;
use model::reason::ReasonCode;
use model::spec::decode_owner;
use model::state::State;
use model::time::Millis;
use model::verdict::{Decision, OutputDecision, OutputVerdict, PolicyVersion, Verdict};

use super::{Checked, Violation, appended, describe, entered, require};
use crate::signer;

/// A job that failed for good has a dead letter, from the commit of its end until its removal. No other job has one.
pub fn invariant_failed_jobs_have_a_dead_letter(
    id: JobId,
    record: Option<&Job>,
    letter: Option<&DeadLetter>,
) -> Checked {
    let dead = record.filter(|job| is_dead(job.state));
    let expected = dead.map(|job| {
        let (topic, tenant) = decode_owner(&job.spec).unwrap_or_default();
        DeadLetter::new(job, topic, tenant)
    });
    require(expected.as_ref() == letter, "invariant_failed_jobs_have_a_dead_letter", || {
        let record = record.map_or_else(|| "no record".to_owned(), describe);
        format!("{id} has the dead letter {letter:?} instead of {expected:?}: {record}")
    })
}

/// A compensation that could not be submitted has a dead letter until it is retried or purged. `expected`: according to
/// its task; unknown while the workflow is being removed.
pub fn invariant_unsubmitted_compensations_have_a_dead_letter(
    id: JobId,
    expected: Option<bool>,
    letter: Option<&DeadLetter>,
) -> Checked {
    let holds = expected.is_none_or(|expected| expected == letter.is_some());
    require(holds, "invariant_unsubmitted_compensations_have_a_dead_letter", || {
        format!("{id} has the dead letter {letter:?}; expected one: {expected:?}")
    })
}

/// The audit log of a shard is an unbroken hash chain, each entry under its own key.
pub fn invariant_the_audit_chain_is_unbroken(
    shard: ShardId,
    followed: Result<AuditEntry, Broken>,
    entry_key: &[u8],
) -> Result<AuditEntry, Violation> {
    const NAME: &str = "invariant_the_audit_chain_is_unbroken";
    let broken = |broken: Broken| Violation { invariant: NAME, detail: format!("shard {shard}: {broken}") };
    let entry = followed.map_err(broken)?;
    let right_key = key::audit(entry.number) == entry_key;
    require(right_key, NAME, || format!("shard {shard}: entry {} is under the key of another one", entry.number))?;
    Ok(entry)
}

/// The stored head of the audit log is the end of the chain.
pub fn invariant_the_audit_head_is_the_end_of_the_chain(shard: ShardId, end: Head, stored: Option<Head>) -> Checked {
    let holds = stored.unwrap_or(Head::START) == end;
    require(holds, "invariant_the_audit_chain_is_unbroken", || {
        format!("shard {shard}: the chain ends with {end:?}, the stored head is {stored:?}")
    })
}

/// An entry of the audit log that was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedEntry {
    /// Its number and its link.
    pub head: Head,
    pub at: Millis,
}

/// What a commit removes of the audit log.
#[derive(Debug)]
pub struct Shortening<'a> {
    pub shard: ShardId,
    /// The end of the part that was removed before.
    pub before: Head,
    pub removed: &'a [RemovedEntry],
    /// The checkpoint on record after the commit.
    pub signed: Option<SignedCheckpoint>,
    /// Entries about a removal in the commit.
    pub logged: usize,
    pub retention: Option<Millis>,
    pub now: Millis,
}

/// Only entries on record are removed, each once.
pub fn invariant_removed_audit_entries_were_on_record(
    shard: ShardId,
    entry_key: &[u8],
    known: Option<RemovedEntry>,
) -> Result<RemovedEntry, Violation> {
    known.ok_or_else(|| Violation {
        invariant: "invariant_the_audit_log_is_shortened_in_order",
        detail: format!("shard {shard}: there was no entry under the removed key {entry_key:?}"),
    })
}

/// Entries of the audit log are removed oldest first, not before their retention, and together with a signed checkpoint
/// and one entry about it.
pub fn invariant_the_audit_log_is_shortened_in_order(shortening: &Shortening<'_>) -> Checked {
    const NAME: &str = "invariant_the_audit_log_is_shortened_in_order";
    let Shortening { shard, before, removed, signed, logged, retention, now } = shortening;
    let about = |what: &str| format!("{what}: {shortening:?}");
    let numbers = removed.iter().map(|entry| entry.head.number);
    require(numbers.eq((before.number + 1..).take(removed.len())), NAME, || about("not the oldest entries"))?;
    let is_old = |entry: &RemovedEntry| retention.is_some_and(|retention| entry.at + retention < *now);
    require(removed.iter().all(is_old), NAME, || about("an entry was removed before its retention"))?;
    let end = removed.last().map_or(*before, |entry| entry.head);
    let start = signed.map_or(Head::START, |signed| signed.checkpoint.head());
    require(start == end, NAME, || about("the checkpoint is not the end of the removed entries"))?;
    let genuine = |signed: SignedCheckpoint| signer::is_valid(&signed) && signed.checkpoint.shard == *shard;
    require(signed.is_none_or(genuine), NAME, || about("the checkpoint has no valid signature"))?;
    require(*logged == usize::from(!removed.is_empty()), NAME, || about("entries about the removal"))
}

/// A signature is requested only for a checkpoint of the shard, after a validly signed one with a smaller number.
pub fn invariant_checkpoints_follow_valid_ones(shard: ShardId, request: &SignRequest) -> Checked {
    let follows = |previous: SignedCheckpoint| {
        signer::is_valid(&previous) && previous.checkpoint.number < request.checkpoint.number
    };
    let holds = request.checkpoint.shard == shard && request.previous.is_none_or(follows);
    require(holds, "invariant_checkpoints_follow_valid_ones", || format!("shard {shard}: {request:?}"))
}

const NAME: &str = "invariant_every_operation_has_one_audit_entry";

fn count(entries: &[&AuditEntry], actions: &[Action]) -> usize {
    entries.iter().filter(|entry| actions.contains(&entry.action)).count()
}

/// The audited parts of a decision: action, rule and policy version.
type AuditFacts = (Action, Option<String>, Option<PolicyVersion>);

fn facts(entry: &AuditEntry) -> AuditFacts {
    (entry.action, entry.rule.clone(), entry.policy)
}

fn expected_entry(decision: &Decision) -> AuditFacts {
    let action = match &decision.verdict {
        Verdict::Allow | Verdict::AllowWith(_) if decision.rule == FAIL_OPEN_RULE => Action::FailedOpen,
        Verdict::Allow => Action::Allowed,
        Verdict::AllowWith(_) => Action::Constrained,
        Verdict::RequireApproval => Action::ApprovalAsked,
        Verdict::Deny => Action::Denied,
        Verdict::Throttle(_) => Action::Throttled,
    };
    (action, Some(decision.rule.clone()), decision.policy)
}

fn expected_output_entry(decision: &OutputDecision) -> AuditFacts {
    let action = match decision.verdict {
        OutputVerdict::Allow if decision.rule == model::machine::UNCHECKED_RULE => Action::OutputUnchecked,
        OutputVerdict::Allow => Action::OutputAllowed,
        OutputVerdict::Quarantine => Action::OutputQuarantined,
        OutputVerdict::Deny => Action::OutputDenied,
        OutputVerdict::Redact => Action::OutputRedacted,
    };
    (action, Some(decision.rule.clone()), decision.policy)
}

const DECISIONS: [Action; 6] = [
    Action::Allowed,
    Action::Constrained,
    Action::ApprovalAsked,
    Action::Denied,
    Action::Throttled,
    Action::FailedOpen,
];

const OUTPUTS: [Action; 5] = [
    Action::OutputAllowed,
    Action::OutputQuarantined,
    Action::OutputDenied,
    Action::OutputRedacted,
    Action::OutputUnchecked,
];

/// Every decision, approval and operation that changed a job's record has exactly one entry in the same commit. There
/// are no other entries.
pub fn invariant_every_operation_has_one_audit_entry(
    before: Option<&Job>,
    after: &Job,
    entries: &[&AuditEntry],
) -> Checked {
    let about = |what: &str| format!("{what}: {entries:?} for {}", describe(after));
    let logged = |actions: &[Action]| -> Vec<AuditFacts> {
        entries.iter().filter(|entry| actions.contains(&entry.action)).map(|entry| facts(entry)).collect()
    };
    let known = before.map_or(&[][..], |before| &before.decisions);
    if let Some(new) = appended(known, &after.decisions) {
        let expected: Vec<AuditFacts> = new.iter().map(expected_entry).collect();
        require(logged(&DECISIONS) == expected, NAME, || about("decisions"))?;
    }
    let known = before.map_or(&[][..], Job::output_decisions);
    if let Some(new) = appended(known, after.output_decisions()) {
        let expected: Vec<AuditFacts> = new.iter().map(expected_output_entry).collect();
        require(logged(&OUTPUTS) == expected, NAME, || about("decisions about results"))?;
    }
    let pairs = entered(before, after);
    let transitions = |fits: &dyn Fn(State, State) -> bool| pairs.iter().filter(|(from, to)| fits(*from, *to)).count();
    let approved = transitions(&|from, to| from == State::ApprovalRequired && to == State::Pending);
    require(count(entries, &[Action::Approved]) == approved, NAME, || about("approvals"))?;
    let refused = transitions(&|from, to| from == State::ApprovalRequired && to == State::Denied);
    let refusals = count(entries, &[Action::Rejected, Action::ApprovalExpired]);
    require(refusals == refused, NAME, || about("rejections"))?;
    let retried = transitions(&|from, to| from.is_terminal() && to == State::Pending);
    require(count(entries, &[Action::Retried]) == retried, NAME, || about("retries"))?;
    let released = transitions(&|from, to| from == State::Quarantined && to == State::Succeeded);
    require(count(entries, &[Action::Released]) == released, NAME, || about("releases"))?;
    require(cancels_match(&pairs, after, entries), NAME, || about("cancels"))?;
    let retracted =
        before.is_some_and(|before| !before.retracting && before.attempt == after.attempt) && after.retracting;
    require(!retracted || count(entries, &[Action::Retracted]) > 0, NAME, || about("retracts"))?;
    let abandoned = transitions(&|_, to| to == State::Abandoned);
    require(count(entries, &[Action::Abandoned]) == abandoned, NAME, || about("abandoned jobs"))?;
    let removals = count(entries, &[Action::Removed, Action::DeadLetterPurged]);
    require(removals == 0, NAME, || about("an entry of a removal, but the job is still on record"))
}

/// Deadlines and cancelled queues stop jobs too, without an entry. Only the reason of the last stop is on record.
fn cancels_match(pairs: &[(State, State)], job: &Job, entries: &[&AuditEntry]) -> bool {
    let stops = |(from, to): &&(State, State)| {
        *to == State::Cancelling || (*to == State::Cancelled && *from != State::Cancelling)
    };
    let stopped = pairs.iter().filter(stops).count();
    let logged = count(entries, &[Action::Cancelled]);
    let is_stopped = matches!(job.state, State::Cancelled | State::Cancelling);
    let reason = job.reason.as_ref().map(|reason| reason.code).filter(|_| is_stopped);
    let least = if reason == Some(ReasonCode::CancelRequested) { stopped.min(1) } else { 0 };
    let most = stopped - if reason == Some(ReasonCode::QueueCancelled) { stopped.min(1) } else { 0 };
    (least..=most).contains(&logged)
}

/// A removal on request has one entry, a removal by retention none.
pub fn invariant_removals_have_one_audit_entry(job: &Job, due: bool, entries: &[&AuditEntry]) -> Checked {
    let logged = count(entries, &[Action::Removed, Action::DeadLetterPurged]);
    require(logged == 1 || (due && logged == 0), NAME, || format!("removals: {entries:?} for {}", describe(job)))
}

/// Every operation on a queue has exactly one entry.
pub fn invariant_queue_operations_have_one_audit_entry(
    id: QueueId,
    before: Option<QueueState>,
    after: Option<QueueState>,
    entries: &[&AuditEntry],
) -> Checked {
    let drained = count(entries, &[Action::QueueDrained]);
    let cancelled = count(entries, &[Action::QueueCancelled]);
    let removed = count(entries, &[Action::QueueRemoved]);
    let was = before.unwrap_or(QueueState::Active);
    let holds = match after {
        Some(QueueState::Active) => drained + cancelled == 0,
        // A queue recreated after its expiry drains without a request.
        Some(QueueState::Draining) if before.is_none() => cancelled == 0 && drained <= 1,
        Some(QueueState::Draining) => cancelled == 0 && drained == usize::from(was == QueueState::Active),
        Some(QueueState::Cancelled) => {
            cancelled == usize::from(was != QueueState::Cancelled) && drained <= usize::from(was == QueueState::Active)
        }
        None => drained <= 1 && cancelled <= 1,
    };
    let gone = removed <= usize::from(after.is_none());
    require(holds && gone, NAME, || format!("{id} changed from {before:?} to {after:?}: {entries:?}"))
}

/// Every change of the policy in force has one entry.
pub fn invariant_policy_changes_have_one_audit_entry(settings: &[std::sync::Arc<Settings>], logged: usize) -> Checked {
    let changes = settings.windows(2).filter(|pair| pair[0].policy != pair[1].policy).count();
    require(changes == logged, NAME, || format!("{changes} changes of the policy have {logged} entries"))
}

/// Audited operations of people were requested.
pub fn invariant_audited_operations_were_requested(entry: &AuditEntry, requested: bool) -> Checked {
    let needs_request = match entry.action {
        Action::Approved
        | Action::Rejected
        | Action::Released
        | Action::Cancelled
        | Action::Retracted
        | Action::Abandoned
        | Action::Retried
        | Action::Removed
        | Action::DeadLetterPurged
        | Action::OriginalRead
        | Action::WorkflowCancelled
        | Action::WorkflowPaused
        | Action::WorkflowResumed
        | Action::WorkflowRerun
        | Action::WorkflowRemoved
        | Action::ScheduleCreated
        | Action::SchedulePaused
        | Action::ScheduleResumed
        | Action::ScheduleRemoved
        | Action::ScheduleTriggered => true,
        Action::Allowed
        | Action::Constrained
        | Action::ApprovalAsked
        | Action::Denied
        | Action::Throttled
        | Action::FailedOpen
        | Action::ApprovalExpired
        | Action::OutputAllowed
        | Action::OutputQuarantined
        | Action::OutputDenied
        | Action::OutputRedacted
        | Action::OutputUnchecked
        | Action::QueueDrained
        | Action::QueueCancelled
        | Action::QueueRemoved
        | Action::PolicyChanged
        | Action::AuditShortened => false,
    };
    require(!needs_request || requested, "invariant_audited_operations_were_requested", || format!("{entry:?}"))
}
