//! The invariants, one function each. They check committed records, answers and messages, never the engine's internal
//! state.
//!
//! Numbers group them: 1 nothing is lost, 2 terminal states are final, 3 single writer per shard, 4 policy before start,
//! 5 limits and order, 6 rollback, 7 exclusive jobs, 8 counters.

mod audit;
mod input_policy;
mod nodes;
mod output_policy;
mod tasks;
mod workflows;

pub use audit::*;
pub use input_policy::*;
pub use nodes::*;
pub use output_policy::*;
pub use tasks::*;
pub use workflows::*;

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::{Anomaly, Answer, Fetched, Settings, TenantLimits};
use model::batch::Keyspace;
use model::id::{Epoch, Incarnation, JobId, RunnerId, ShardId, Shards};
use model::job::Job;
use model::json::Json;
use model::key::{CreatedObject, KeyEntry};
use model::limits;
use model::message::AttemptRef;
use model::partition::Partition;
use model::queue::{Counters, Queue, QueueState};
use model::reason::ReasonCode;
use model::spec::{Run, decode_run};
use model::state::State;
use model::time::Millis;
use model::verdict::OutputVerdict;

use crate::ledger::{LostAttempt, TenantUsage};

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Name of the function.
    pub invariant: &'static str,
    pub detail: String,
}

pub type Checked = Result<(), Violation>;

fn require(holds: bool, invariant: &'static str, detail: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation { invariant, detail: detail() }) }
}

/// Every record belongs to a slot of its shard, or to the shard as a whole: queues, jobs, keys and schedules of a slot
/// move together.
pub fn invariant_records_belong_to_their_shard(
    shard: ShardId,
    shards: Shards,
    keyspace: Keyspace,
    partition: Option<Partition>,
) -> Checked {
    let belongs = match partition {
        Some(Partition::Slot(slot)) => shards.owner(slot) == shard,
        Some(Partition::Shard) => true,
        None => false,
    };
    require(belongs, "invariant_records_belong_to_their_shard", || {
        format!("shard {shard} has a record of {} in {partition:?}", keyspace.name())
    })
}

/// A read answers with a state that the job had at some time between request and answer.
pub fn invariant_reads_are_linearizable(id: JobId, since: u64, observed: Option<&Job>, is_possible: bool) -> Checked {
    require(is_possible, "invariant_reads_are_linearizable", || {
        let observed = observed.map_or_else(|| "unknown".to_owned(), describe);
        format!("{id} was never like this since commit {since}: {observed}")
    })
}

/// A list has each job at most once, as it was at some time between request and answer of its page, and every job that
/// matched the filter all the time.
pub fn invariant_lists_are_linearizable(defect: Option<String>) -> Checked {
    let holds = defect.is_none();
    require(holds, "invariant_lists_are_linearizable", || defect.unwrap_or_default())
}

/// Whatever was committed can be read by the owner that comes after.
pub fn invariant_records_can_be_read(unreadable: u32) -> Checked {
    require(unreadable == 0, "invariant_records_can_be_read", || format!("{unreadable} unreadable records"))
}

/// The same for records that are read later.
pub fn invariant_fetched_records_can_be_read(fetched: &Fetched) -> Checked {
    let is_readable = match fetched {
        Fetched::UnreadableJob { .. } | Fetched::UnreadableKeys { .. } | Fetched::UnreadableWorkflow { .. } => false,
        Fetched::Job { .. }
        | Fetched::Keys { .. }
        | Fetched::Finished { .. }
        | Fetched::OldKeys { .. }
        | Fetched::OldAudit { .. }
        | Fetched::Workflow { .. }
        | Fetched::FinishedWorkflows { .. }
        | Fetched::WorkflowRows { .. }
        | Fetched::UnusedDefinitions { .. } => true,
    };
    require(is_readable, "invariant_fetched_records_can_be_read", || format!("{fetched:?}"))
}

/// No fault of the simulated store is fatal for a node.
pub fn invariant_errors_are_transient(error: &shard::Error) -> Checked {
    require(error.is_transient(), "invariant_errors_are_transient", || error.to_string())
}

/// The shard finds its own memory consistent. Debug builds panic instead.
pub fn invariant_no_anomalies(found: &[(Anomaly, &'static str)]) -> Checked {
    require(found.is_empty(), "invariant_no_anomalies", || format!("{found:?}"))
}

/// A step writes little more than its limit: what the input that filled it writes.
pub fn invariant_commits_are_bounded(bytes: usize, step_bytes_max: usize) -> Checked {
    const INPUT_BYTES_MAX: usize = 512 << 10;
    require(bytes <= step_bytes_max + INPUT_BYTES_MAX, "invariant_commits_are_bounded", || {
        format!("a commit of {bytes} bytes, although steps end at {step_bytes_max} bytes")
    })
}

/// The jobs of a tenant on all shards together stay within its limits.
pub fn invariant_tenants_stay_within_their_limits(tenant: &str, limits: TenantLimits, usage: TenantUsage) -> Checked {
    let within = |used: i64, most: Option<u32>| most.is_none_or(|most| used <= i64::from(most));
    let holds = within(usage.running, limits.max_running) && within(usage.live, limits.max_live);
    require(holds, "invariant_tenants_stay_within_their_limits", || format!("{tenant} uses {usage:?} of {limits:?}"))
}

/// 1: after faults have stopped, every committed job ends; none is lost.
pub fn invariant_every_job_ends<'a>(left: impl Iterator<Item = &'a Job>, healed_for: u64) -> Checked {
    let left: Vec<&Job> = left.collect();
    require(left.is_empty(), "invariant_every_job_ends", || {
        let shown: Vec<String> = left.iter().take(3).map(|job| describe(job)).collect();
        format!("{} jobs have not ended {healed_for} ms after the last fault: {}", left.len(), shown.join("; "))
    })
}

/// 1: an acknowledged job is on record. Its record is removed only after it has ended, on request or after its
/// retention.
pub fn invariant_no_job_is_removed_early(job: &Job, requested: bool, now: Millis, retention: Millis) -> Checked {
    let due = job.ended_at().is_some_and(|ended| ended + retention < now);
    require(job.state.is_terminal() && (requested || due), "invariant_no_job_is_removed_early", || {
        format!("removed at {}: {}", now.0, describe(job))
    })
}

/// 2: state transitions follow the state machine (`is_transition`). A terminal state is left only by a reopen transition:
/// quarantine by a content scan, release, or a reschedule that uses a retry. A terminal record does not change otherwise.
pub fn invariant_terminal_is_final(before: &Job, after: &Job) -> Checked {
    const NAME: &str = "invariant_terminal_is_final";
    let added = states_ever(after).saturating_sub(states_ever(before));
    if added == 0 {
        let same = before.state == after.state && (!before.state.is_terminal() || has_same_outcome(before, after));
        return require(same, NAME, || format!("{} became {}", describe(before), describe(after)));
    }
    let tail = &after.states[after.states.len().saturating_sub(added + 1)..];
    let mut reopened = 0;
    for pair in tail.windows(2) {
        let (from, to) = (pair[0].state, pair[1].state);
        let ended_while_cancelling = after.origin.is_some() && from == State::Cancelling;
        let holds = is_transition(from, to) || (ended_while_cancelling && is_transition(State::Running, to));
        require(holds, NAME, || format!("{} went from {from} to {to}", after.id))?;
        reopened += u32::from(from.is_terminal() && to == State::Pending);
    }
    let first = tail.first().map(|entry| entry.state);
    require(added >= tail.len() || first == Some(before.state), NAME, || {
        format!("{} was {} and its new history starts with {first:?}", after.id, before.state)
    })?;
    require(after.retries >= before.retries + reopened, NAME, || {
        format!("a reschedule did not use a retry: {}", describe(after))
    })
}

/// 7: no two attempts of an exclusive job run at the same time.
pub fn invariant_exclusive_attempts_run_alone(attempt_ref: AttemptRef, beside: Option<AttemptRef>) -> Checked {
    require(beside.is_none(), "invariant_exclusive_attempts_run_alone", || {
        let AttemptRef { job, attempt } = attempt_ref;
        format!("attempt {attempt} of {job} starts while attempt {} runs", beside.map_or(0, |it| it.attempt.0))
    })
}

/// Number of states a job has entered, including those its record no longer lists.
pub fn states_ever(job: &Job) -> usize {
    job.states.len() + job.states_dropped as usize
}

/// The transitions of a commit: pairs of states.
fn entered(before: Option<&Job>, after: &Job) -> Vec<(State, State)> {
    let added = states_ever(after).saturating_sub(before.map_or(1, states_ever));
    let tail = &after.states[after.states.len().saturating_sub(added + 1)..];
    tail.windows(2).map(|pair| (pair[0].state, pair[1].state)).collect()
}

/// The entries appended to a list. `None` if the list is full: a full list drops entries from its middle.
fn appended<'a, T>(before: &[T], after: &'a [T]) -> Option<&'a [T]> {
    after.get(before.len()..).filter(|_| after.len() < limits::HISTORY_ENTRIES_MAX)
}

/// Whether two records of an ended job differ at most by a later scan of a shown result: its decision, and a redacted
/// copy if the decision says so.
fn has_same_outcome(before: &Job, after: &Job) -> bool {
    let without_spec = |job: &Job| Job { spec: bytes::Bytes::new(), ..job.clone() };
    let new = appended(before.output_decisions(), after.output_decisions()).unwrap_or(after.output_decisions());
    let without_decisions = |job: &Job| Job { output_decisions: None, ..without_spec(job) };
    let without_result = |job: &Job| Job {
        result: None,
        result_form: None,
        artifacts: None,
        original: None,
        reason: None,
        ..without_decisions(job)
    };
    if new.is_empty() || before.state != State::Succeeded {
        without_spec(before) == without_spec(after)
    } else if new.iter().any(|decision| decision.verdict == OutputVerdict::Redact) {
        without_result(before) == without_result(after)
    } else {
        without_decisions(before) == without_decisions(after)
    }
}

fn is_transition(from: State, to: State) -> bool {
    use State::{
        Abandoned, ApprovalRequired, Blocked, Cancelled, Cancelling, Denied, Dispatched, Failed, Pending, Quarantined,
        Running, Scanning, Scheduled, Succeeded, TimedOut,
    };
    match from {
        Pending => matches!(to, Scheduled | ApprovalRequired | Denied | Cancelled | TimedOut | Abandoned),
        Blocked => matches!(to, Pending | Cancelled | TimedOut | Abandoned),
        ApprovalRequired => matches!(to, Pending | Denied | Cancelled | TimedOut | Abandoned),
        // The last three: the success of an attempt that was lost with its runner.
        Scheduled => matches!(
            to,
            Pending | Dispatched | Failed | Cancelled | TimedOut | Abandoned | Scanning | Succeeded | Quarantined
        ),
        Dispatched if to == Running => true,
        Dispatched | Running => {
            matches!(to, Scheduled | Scanning | Succeeded | Quarantined | Failed | TimedOut | Cancelling | Abandoned)
        }
        Cancelling => matches!(to, Cancelled | TimedOut | Abandoned),
        Scanning => matches!(to, Succeeded | Quarantined | Cancelled | Abandoned),
        Succeeded => to == Quarantined,
        Quarantined => matches!(to, Succeeded | Pending),
        Failed | TimedOut | Abandoned => to == Pending,
        Cancelled | Denied => false,
    }
}

/// 3: only the owner with the newest epoch commits. Each epoch has one owner.
pub fn invariant_only_the_owner_commits(
    shard: ShardId,
    (epoch, newest): (Epoch, Epoch),
    (process, owner): (u64, Option<u64>),
) -> Checked {
    require(epoch == newest && owner == Some(process), "invariant_only_the_owner_commits", || {
        let (epoch, newest) = (epoch.0, newest.0);
        format!(
            "shard {shard}: process {process} committed in epoch {epoch}; the newest is {newest}, its owner {owner:?}"
        )
    })
}

/// 3: the store contains exactly the committed records.
pub fn invariant_the_store_equals_the_commits(difference: Option<String>) -> Checked {
    let holds = difference.is_none();
    require(holds, "invariant_the_store_equals_the_commits", || difference.unwrap_or_default())
}

/// 4: a runner receives only attempts that are on record.
pub fn invariant_dispatches_are_on_record(attempt_ref: AttemptRef, record: Option<&Job>) -> Checked {
    let recorded = record.is_some_and(|job| job.attempt >= attempt_ref.attempt);
    require(recorded, "invariant_dispatches_are_on_record", || {
        format!(
            "{}/{} was dispatched, on record is {}",
            attempt_ref.job,
            attempt_ref.attempt,
            record.map_or_else(String::new, describe)
        )
    })
}

/// 5: attempts stay within their retry budgets, and their numbers only grow.
pub fn invariant_retry_budgets_hold(before: Option<&Job>, after: &Job, max_retries: u32) -> Checked {
    const NAME: &str = "invariant_retry_budgets_hold";
    require(after.retries <= max_retries, NAME, || {
        format!("{} retries of {max_retries}: {}", after.retries, describe(after))
    })?;
    let failures = after.infrastructure_failures;
    require(failures <= limits::INFRASTRUCTURE_RETRIES_DEFAULT, NAME, || {
        format!("{failures} infrastructure failures: {}", describe(after))
    })?;
    let numbers_grow = after.attempts.is_sorted_by(|a, b| a.attempt < b.attempt);
    let grew = before.is_none_or(|before| before.attempt <= after.attempt && before.retries <= after.retries);
    require(numbers_grow && grew, NAME, || format!("the attempt number or the retries decreased: {}", describe(after)))
}

/// 5: a job has at most `most` dispatch tries and fails for lack of a runner only after that many; 0: no limit.
pub fn invariant_dispatch_tries_stay_within_their_limit(job: &Job, most: u32) -> Checked {
    let given_up = job.state == State::Failed
        && job
            .reason
            .as_ref()
            .is_some_and(|reason| matches!(reason.code, ReasonCode::NoWorkers | ReasonCode::PoolOverloaded));
    let holds =
        if most == 0 { !given_up } else { job.dispatch_tries <= most && (!given_up || job.dispatch_tries == most) };
    require(holds, "invariant_dispatch_tries_stay_within_their_limit", || {
        format!("{} of {most} dispatch tries: {}", job.dispatch_tries, describe(job))
    })
}

/// 5: no job starts before `not_before`. A later backward clock jump does not matter.
pub fn invariant_nothing_starts_early(job: &Job, not_before: Option<Millis>) -> Checked {
    let Some(not_before) = not_before.filter(|_| !job.attempts.is_empty()) else { return Ok(()) };
    let was_due = job.states.iter().any(|entry| entry.state != State::Blocked && entry.at >= not_before);
    require(was_due, "invariant_nothing_starts_early", || format!("not before {not_before:?}: {}", describe(job)))
}

/// 8: the counters of a queue equal a recount of the records. A queue recreated after its expiry counts only the jobs
/// since then, but all active ones.
pub fn invariant_counters_equal_a_recount(queue: &Queue, counted: &Counters) -> Checked {
    let recreated = queue.token.is_none() && !queue.implicit;
    let holds = if recreated { queue.counters.active == counted.active } else { queue.counters == *counted };
    require(holds, "invariant_counters_equal_a_recount", || {
        format!("{} has the counters {:?}, a recount gives {counted:?}", queue.id, queue.counters)
    })
}

/// 8: the engine's derived counters equal a recount.
pub fn invariant_engine_counters_equal_a_recount(recount: Result<(), engine::Miscount>) -> Checked {
    match recount {
        Ok(()) => Ok(()),
        Err(miscount) => require(false, "invariant_engine_counters_equal_a_recount", || miscount.to_string()),
    }
}

/// A queue has at most `max_running` jobs in flight, and no job of a cancelled queue starts.
pub fn invariant_queues_stay_within_their_limits(
    queue: &Queue,
    on_runner: u32,
    started_after_cancel: Option<JobId>,
) -> Checked {
    const NAME: &str = "invariant_queues_stay_within_their_limits";
    let within = queue.max_running.is_none_or(|max| on_runner <= max);
    require(within, NAME, || {
        format!("{on_runner} jobs of {} are in flight, the limit is {:?}", queue.id, queue.max_running)
    })?;
    let holds = queue.state != QueueState::Cancelled || started_after_cancel.is_none();
    require(holds, NAME, || format!("{started_after_cancel:?} started although {} is cancelled", queue.id))
}

/// 5: no attempt is dispatched to a runner that was cordoned all the time.
pub fn invariant_cordoned_runners_get_no_attempts(
    before: Option<&Job>,
    after: &Job,
    settings: &[Arc<Settings>],
) -> Checked {
    let Some(newest) = after.last_attempt() else { return Ok(()) };
    let is_new = before.is_none_or(|before| before.attempt < newest.attempt);
    let cordoned = !settings.is_empty() && settings.iter().all(|settings| settings.cordoned.contains(&newest.runner));
    require(!is_new || !cordoned, "invariant_cordoned_runners_get_no_attempts", || {
        format!("{newest:?} was dispatched to a cordoned runner: {}", describe(after))
    })
}

/// An attempt is dispatched to one runner. Only a newer incarnation of the same runner may adopt it.
pub fn invariant_an_attempt_stays_with_its_runner(before: &Job, after: &Job) -> Checked {
    let (Some(known), Some(now)) = (before.last_attempt(), after.last_attempt()) else { return Ok(()) };
    let same = known.attempt != now.attempt || (known.runner == now.runner && known.incarnation <= now.incarnation);
    require(same, "invariant_an_attempt_stays_with_its_runner", || {
        format!("{known:?} became {now:?}: {}", describe(after))
    })
}

/// 1, 5: an attempt that a restarted runner registered continues as the same attempt. It is not lost: it uses no retry
/// and does not run in parallel with another. `newest` is the newest incarnation registered with the shard.
pub fn invariant_registered_attempts_are_not_lost(
    lost: &LostAttempt,
    registered: bool,
    newest: Option<Incarnation>,
) -> Checked {
    require(!registered, "invariant_registered_attempts_are_not_lost", || {
        format!("{lost:?}, but {newest:?} has registered it with the shard")
    })
}

/// A result comes from the runner of its attempt, not from another one whose dispatch was lost.
pub fn invariant_results_come_from_their_runner(attempt_ref: AttemptRef, runner: RunnerId, reported: bool) -> Checked {
    require(reported, "invariant_results_come_from_their_runner", || {
        format!("{}/{} did not succeed on {runner}", attempt_ref.job, attempt_ref.attempt)
    })
}

/// The id of a job that a failover has lost never belongs to another job.
pub fn invariant_lost_ids_are_not_issued_again(job: &Job, lost: &BTreeSet<JobId>) -> Checked {
    require(!lost.contains(&job.id), "invariant_lost_ids_are_not_issued_again", || describe(job))
}

/// No owner that was superseded answers a request, whether it has something to commit or not.
pub fn invariant_only_the_owner_answers(epoch: Epoch, newest: Epoch) -> Checked {
    require(epoch == newest, "invariant_only_the_owner_answers", || {
        format!("the owner with epoch {} answered, the newest is {}", epoch.0, newest.0)
    })
}

/// No runner accepts an attempt that its shard has given up or whose job has ended, however late the dispatch arrives.
/// A runner that was declared lost may: its attempts are given up at once. So are the attempts of an abandoned one.
pub fn invariant_no_dispatch_is_accepted_after_it_was_given_up(
    attempt_ref: AttemptRef,
    record: Option<&Job>,
) -> Checked {
    let in_flight = record.is_some_and(|job| job.attempt == attempt_ref.attempt && job.state.is_on_runner());
    require(in_flight, "invariant_no_dispatch_is_accepted_after_it_was_given_up", || {
        let (job, attempt) = (attempt_ref.job, attempt_ref.attempt);
        format!("{job}/{attempt} was accepted, on record is {}", record.map_or_else(String::new, describe))
    })
}

/// No attempt starts twice, on any runner, at the same time or after it has ended.
pub fn invariant_an_attempt_starts_once(attempt_ref: AttemptRef, is_new: bool) -> Checked {
    require(is_new, "invariant_an_attempt_starts_once", || {
        format!("{}/{} started a second time", attempt_ref.job, attempt_ref.attempt)
    })
}

/// Result of a simulated attempt.
pub fn result_of(attempt_ref: AttemptRef) -> Json {
    Json::of(&format!("{}/{}", attempt_ref.job, attempt_ref.attempt))
}

/// Result of an attempt of a known job. Echo jobs of workflows return their value, which other tasks read.
pub fn result_of_job(job: &Job, attempt_ref: AttemptRef) -> Json {
    match decode_run(&job.spec) {
        Ok(Run::Echo(echo)) if job.origin.is_some() => echo.value,
        Ok(Run::Echo(_) | Run::Process(_) | Run::Wasm(_)) | Err(_) => result_of(attempt_ref),
    }
}

/// A shard creates nothing under a key before the key's home has recorded that the key belongs to this very request. So
/// one key creates one object over all shards.
pub fn invariant_keys_are_claimed(shard: ShardId, entry: &KeyEntry, at_home: Option<&KeyEntry>) -> Checked {
    let is_claimed = |home: &KeyEntry| home.digest == entry.digest && home.made == CreatedObject::Claimed { shard };
    require(at_home.is_some_and(is_claimed), "invariant_keys_are_claimed", || {
        format!("shard {shard} created {entry:?}, its home has {at_home:?}")
    })
}

/// An idempotency key creates one object within its lifetime.
pub fn invariant_a_key_creates_one_object(before: Option<&KeyEntry>, after: &KeyEntry, lifetime: Millis) -> Checked {
    let holds = before.is_none_or(|before| before.made == after.made || before.at + lifetime <= after.at);
    require(holds, "invariant_a_key_creates_one_object", || format!("{before:?}, then {after:?}"))
}

/// Answers refer to committed state only. The closures look up committed records.
pub fn invariant_answers_follow_commits<'a>(
    answer: &Answer,
    known_job: impl Fn(JobId) -> Option<&'a Job>,
    known_queue: impl Fn(model::id::QueueId) -> bool,
    known_workflow: impl Fn(model::id::WorkflowId) -> bool,
) -> Checked {
    const NAME: &str = "invariant_answers_follow_commits";
    match answer {
        Answer::Submitted(results) => results.iter().flatten().try_for_each(|accepted| {
            let holds = known_job(accepted.id).is_some_and(|job| job.seq == accepted.seq);
            require(holds, NAME, || format!("{} was acknowledged but is not on record", accepted.id))
        }),
        Answer::Job(answered) => {
            let holds = known_job(answered.id).is_some_and(|job| states_ever(job) >= states_ever(answered));
            require(holds, NAME, || format!("answered but not on record: {}", describe(answered)))
        }
        Answer::Queue(queue) => {
            require(known_queue(queue.id), NAME, || format!("{} was answered but is not on record", queue.id))
        }
        Answer::QueueExists(id) => require(known_queue(*id), NAME, || format!("{id} never existed")),
        Answer::Workflow(answered) => {
            require(known_workflow(answered.id), NAME, || format!("{} was answered but is not on record", answered.id))
        }
        Answer::WorkflowExists(id) => require(known_workflow(*id), NAME, || format!("{id} never existed")),
        Answer::Removed
        | Answer::Why(_)
        | Answer::QueueRemoved
        | Answer::WorkflowRemoved
        | Answer::Schedule(_)
        | Answer::ScheduleRemoved
        | Answer::Progressed
        | Answer::Refused(_) => Ok(()),
    }
}

/// At the end no attempt is in flight and no request is open.
pub fn invariant_nothing_is_left_over(what: &[String]) -> Checked {
    require(what.is_empty(), "invariant_nothing_is_left_over", || what.join("; "))
}

/// A job in one line.
pub fn describe(job: &Job) -> String {
    let states: Vec<&str> = job.states.iter().map(|entry| entry.state.as_str()).collect();
    let reason = job.reason.as_ref().map_or("", |reason| reason.code.as_str());
    format!(
        "{} in {}: {} (attempt {}, {} of {} retries, {} lost, retracting: {}, {reason}) eligible {} via {}",
        job.id,
        job.queue,
        job.state,
        job.attempt,
        job.retries,
        job.max_retries,
        job.infrastructure_failures,
        job.retracting,
        job.eligible_at.0,
        states.join(" ")
    )
}
