//! What every act and every end leaves behind: dead letters and the audit log.

use engine::Setup;
use model::audit::{Action, Broken, Entry, Head};
use model::dead_letter::{DeadLetter, is_dead};
use model::id::{JobId, QueueId, ShardId};
use model::job::Job;
use model::key;
use model::machine::FAIL_OPEN_RULE;
use model::queue::QueueState;
use model::reason::ReasonCode;
use model::spec::decode_owner;
use model::state::State;
use model::verdict::{Decision, OutputDecision, OutputVerdict, PolicyVersion, Verdict};

use super::{Checked, Violation, appended, describe, entered, require};

/// A job that ended undone leaves a letter that says how, from the very commit in which it ended, as long as it is on
/// record; no other job has one.
pub fn invariant_what_ends_undone_leaves_a_letter(
    id: JobId,
    record: Option<&Job>,
    letter: Option<&DeadLetter>,
) -> Checked {
    let dead = record.filter(|job| is_dead(job.state));
    let expected = dead.map(|job| {
        let (topic, tenant) = decode_owner(&job.spec).unwrap_or_default();
        DeadLetter::new(job, topic, tenant)
    });
    require(expected.as_ref() == letter, "invariant_what_ends_undone_leaves_a_letter", || {
        let record = record.map_or_else(|| "no record".to_owned(), describe);
        format!("{id} has the letter {letter:?} instead of {expected:?}: {record}")
    })
}

/// The audit log of a shard is one unbroken chain from its start, each entry in its place.
pub fn invariant_the_chain_is_unbroken(
    shard: ShardId,
    followed: Result<Entry, Broken>,
    place: &[u8],
) -> Result<Entry, Violation> {
    const NAME: &str = "invariant_the_chain_is_unbroken";
    let broken = |broken: Broken| Violation { invariant: NAME, detail: format!("shard {shard}: {broken}") };
    let entry = followed.map_err(broken)?;
    let in_place = key::audit(entry.number) == place;
    require(in_place, NAME, || format!("shard {shard}: entry {} stands in another's place", entry.number))?;
    Ok(entry)
}

/// And what the shard takes for its end is its end.
pub fn invariant_the_chain_ends_where_the_shard_says(shard: ShardId, end: Head, stored: Option<Head>) -> Checked {
    let holds = stored.unwrap_or(Head::START) == end;
    require(holds, "invariant_the_chain_is_unbroken", || {
        format!("shard {shard}: the chain ends with {end:?}, its head says {stored:?}")
    })
}

const NAME: &str = "invariant_every_act_has_one_entry";

fn count(entries: &[&Entry], actions: &[Action]) -> usize {
    entries.iter().filter(|entry| actions.contains(&entry.action)).count()
}

type Said = (Action, Option<String>, Option<PolicyVersion>);

fn said(entry: &Entry) -> Said {
    (entry.action, entry.rule.clone(), entry.policy)
}

fn entry_of(decision: &Decision) -> Said {
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

fn entry_of_output(decision: &OutputDecision) -> Said {
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

/// Every decision, every approval and every act that a commit has changed a job's record by has exactly one entry in the
/// same commit, and nothing else has one.
pub fn invariant_every_act_has_one_entry(before: Option<&Job>, after: &Job, entries: &[&Entry]) -> Checked {
    let about = |what: &str| format!("{what}: {entries:?} for {}", describe(after));
    let told = |actions: &[Action]| -> Vec<Said> {
        entries.iter().filter(|entry| actions.contains(&entry.action)).map(|entry| said(entry)).collect()
    };
    let known = before.map_or(&[][..], |before| &before.decisions);
    if let Some(new) = appended(known, &after.decisions) {
        let expected: Vec<Said> = new.iter().map(entry_of).collect();
        require(told(&DECISIONS) == expected, NAME, || about("decisions"))?;
    }
    let known = before.map_or(&[][..], Job::output_decisions);
    if let Some(new) = appended(known, after.output_decisions()) {
        let expected: Vec<Said> = new.iter().map(entry_of_output).collect();
        require(told(&OUTPUTS) == expected, NAME, || about("decisions about results"))?;
    }
    let pairs = entered(before, after);
    let went = |fits: &dyn Fn(State, State) -> bool| pairs.iter().filter(|(from, to)| fits(*from, *to)).count();
    let approved = went(&|from, to| from == State::ApprovalRequired && to == State::Pending);
    require(count(entries, &[Action::Approved]) == approved, NAME, || about("approvals"))?;
    let refused = went(&|from, to| from == State::ApprovalRequired && to == State::Denied);
    let refusals = count(entries, &[Action::Rejected, Action::ApprovalExpired]);
    require(refusals == refused, NAME, || about("rejections"))?;
    let retried = went(&|from, to| from.is_terminal() && to == State::Pending);
    require(count(entries, &[Action::Retried]) == retried, NAME, || about("retries"))?;
    let released = went(&|from, to| from == State::Quarantined && to == State::Succeeded);
    require(count(entries, &[Action::Released]) == released, NAME, || about("releases"))?;
    require(cancels_fit(&pairs, after, entries), NAME, || about("cancels"))?;
    let retracted =
        before.is_some_and(|before| !before.retracting && before.attempt == after.attempt) && after.retracting;
    require(!retracted || count(entries, &[Action::Retracted]) > 0, NAME, || about("retracts"))?;
    let removals = count(entries, &[Action::Removed, Action::LetterPurged]);
    require(removals == 0, NAME, || about("removed, but still there"))
}

/// Others stop jobs, too: deadlines, and cancels of whole queues. Why the last one was stopped is on record.
fn cancels_fit(pairs: &[(State, State)], job: &Job, entries: &[&Entry]) -> bool {
    let stops = |(from, to): &&(State, State)| {
        *to == State::Cancelling || (*to == State::Cancelled && *from != State::Cancelling)
    };
    let stopped = pairs.iter().filter(stops).count();
    let told = count(entries, &[Action::Cancelled]);
    let is_stopped = matches!(job.state, State::Cancelled | State::Cancelling);
    let reason = job.reason.as_ref().map(|reason| reason.code).filter(|_| is_stopped);
    let least = if reason == Some(ReasonCode::CancelRequested) { stopped.min(1) } else { 0 };
    let most = stopped - if reason == Some(ReasonCode::QueueCancelled) { stopped.min(1) } else { 0 };
    (least..=most).contains(&told)
}

/// A job that somebody took off the records has one entry for that, one that was too old has none.
pub fn invariant_removals_have_one_entry(job: &Job, due: bool, entries: &[&Entry]) -> Checked {
    let told = count(entries, &[Action::Removed, Action::LetterPurged]);
    require(told == 1 || (due && told == 0), NAME, || format!("removals: {entries:?} for {}", describe(job)))
}

/// The same for what is done to a queue.
pub fn invariant_every_act_on_a_queue_has_one_entry(
    id: QueueId,
    before: Option<QueueState>,
    after: Option<QueueState>,
    entries: &[&Entry],
) -> Checked {
    let drained = count(entries, &[Action::QueueDrained]);
    let cancelled = count(entries, &[Action::QueueCancelled]);
    let removed = count(entries, &[Action::QueueRemoved]);
    let was = before.unwrap_or(QueueState::Active);
    let holds = match after {
        Some(QueueState::Active) => drained + cancelled == 0,
        // One that came back after it had expired drains without anybody's doing.
        Some(QueueState::Draining) if before.is_none() => cancelled == 0 && drained <= 1,
        Some(QueueState::Draining) => cancelled == 0 && drained == usize::from(was == QueueState::Active),
        Some(QueueState::Cancelled) => {
            cancelled == usize::from(was != QueueState::Cancelled) && drained <= usize::from(was == QueueState::Active)
        }
        None => drained <= 1 && cancelled <= 1,
    };
    let gone = removed <= usize::from(after.is_none());
    require(holds && gone, NAME, || format!("{id} went from {before:?} to {after:?}: {entries:?}"))
}

/// A policy that comes into force has one entry for each time that it does.
pub fn invariant_every_policy_has_one_entry(setups: &[std::sync::Arc<Setup>], told: usize) -> Checked {
    let changes = setups.windows(2).filter(|pair| pair[0].gate != pair[1].gate).count();
    require(changes == told, NAME, || format!("{changes} changes of the policy have {told} entries"))
}

/// Nobody is said to have done what nobody asked for.
pub fn invariant_acts_are_never_invented(entry: &Entry, asked: bool) -> Checked {
    let needs_somebody = match entry.action {
        Action::Approved
        | Action::Rejected
        | Action::Released
        | Action::Cancelled
        | Action::Retracted
        | Action::Retried
        | Action::Removed
        | Action::LetterPurged
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
        | Action::PolicyChanged => false,
    };
    require(!needs_somebody || asked, "invariant_acts_are_never_invented", || format!("{entry:?}"))
}
