//! What must always be true (DESIGN.md §12), one function for each. They look at committed records and at what was
//! told to anyone, never into the engine's own bookkeeping.

mod flows;
mod gate;
mod outputs;
mod tasks;
mod traces;

pub use flows::*;
pub use gate::*;
pub use outputs::*;
pub use tasks::*;
pub use traces::*;

use engine::{Answer, TenantLimits};
use model::id::{Epoch, Incarnation, JobId, ShardId};
use model::job::Job;
use model::json::Json;
use model::key::KeyEntry;
use model::limits;
use model::message::Ticket;
use model::queue::{Counters, Queue, QueueState};
use model::reason::ReasonCode;
use model::spec::{Run, decode_run};
use model::state::State;
use model::time::Millis;
use model::verdict::OutputVerdict;

use crate::ledger::{Holding, Loss};

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The function that says so.
    pub invariant: &'static str,
    pub detail: String,
}

pub type Checked = Result<(), Violation>;

fn require(holds: bool, invariant: &'static str, detail: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation { invariant, detail: detail() }) }
}

/// All shards together never have more of a tenant's jobs than the tenant may have.
pub fn invariant_tenants_stay_within_their_limits(tenant: &str, limits: TenantLimits, holding: Holding) -> Checked {
    let within = |held: i64, most: Option<u32>| most.is_none_or(|most| held <= i64::from(most));
    let holds = within(holding.running, limits.max_running) && within(holding.live, limits.max_live);
    require(holds, "invariant_tenants_stay_within_their_limits", || format!("{tenant} has {holding:?} of {limits:?}"))
}

/// 1: once faults have stopped, every job that was ever committed has ended; none is lost.
pub fn invariant_every_job_ends<'a>(left: impl Iterator<Item = &'a Job>, healed_for: u64) -> Checked {
    let left: Vec<&Job> = left.collect();
    require(left.is_empty(), "invariant_every_job_ends", || {
        let shown: Vec<String> = left.iter().take(3).map(|job| describe(job)).collect();
        format!("{} jobs have not ended {healed_for} ms after the last fault: {}", left.len(), shown.join("; "))
    })
}

/// 1: what was acknowledged is on record. The record goes only when the job has ended and someone asked, or its
/// retention is over.
pub fn invariant_nothing_is_forgotten_early(job: &Job, asked: bool, now: Millis, retention: Millis) -> Checked {
    let due = job.ended_at().is_some_and(|ended| ended + retention < now);
    require(job.state.is_terminal() && (asked || due), "invariant_nothing_is_forgotten_early", || {
        format!("removed at {}: {}", now.0, describe(job))
    })
}

/// 2: states follow one another as DESIGN.md §4 says, and a terminal one is left only through the three doors: a
/// content scan, a release, a reschedule that is paid for with a retry. A terminal record does not change otherwise.
pub fn invariant_terminal_is_final(before: &Job, after: &Job) -> Checked {
    const NAME: &str = "invariant_terminal_is_final";
    let added = states_ever(after).saturating_sub(states_ever(before));
    if added == 0 {
        let same = before.state == after.state && (!before.state.is_terminal() || is_same_end(before, after));
        return require(same, NAME, || format!("{} became {}", describe(before), describe(after)));
    }
    let tail = &after.states[after.states.len().saturating_sub(added + 1)..];
    let mut reopened = 0;
    for pair in tail.windows(2) {
        let (from, to) = (pair[0].state, pair[1].state);
        let done_all_the_same = after.origin.is_some() && from == State::Cancelling;
        let holds = is_a_step(from, to) || (done_all_the_same && is_a_step(State::Running, to));
        require(holds, NAME, || format!("{} went from {from} to {to}", after.id))?;
        reopened += u32::from(from.is_terminal() && to == State::Pending);
    }
    let begins = tail.first().map(|entry| entry.state);
    require(added >= tail.len() || begins == Some(before.state), NAME, || {
        format!("{} was {} and its new history begins with {begins:?}", after.id, before.state)
    })?;
    require(after.retries >= before.retries + reopened, NAME, || format!("a reschedule was free: {}", describe(after)))
}

/// How many states a job has been in, with those its record no longer lists.
pub fn states_ever(job: &Job) -> usize {
    job.states.len() + job.states_dropped as usize
}

/// The states that came in with a commit, each with the one before it.
fn entered(before: Option<&Job>, after: &Job) -> Vec<(State, State)> {
    let added = states_ever(after).saturating_sub(before.map_or(1, states_ever));
    let tail = &after.states[after.states.len().saturating_sub(added + 1)..];
    tail.windows(2).map(|pair| (pair[0].state, pair[1].state)).collect()
}

/// What was added to a list at its end. Nothing can be said of one that is full, and has lost its middle.
fn appended<'a, T>(before: &[T], after: &'a [T]) -> Option<&'a [T]> {
    after.get(before.len()..).filter(|_| after.len() < limits::HISTORY_ENTRIES_MAX)
}

/// Whether nothing but another look at a result that was shown tells two records apart: that leaves its decision, and a
/// copy of the result if it says so.
fn is_same_end(before: &Job, after: &Job) -> bool {
    let bare = |job: &Job| Job { spec: bytes::Bytes::new(), ..job.clone() };
    let new = appended(before.output_decisions(), after.output_decisions()).unwrap_or(after.output_decisions());
    let unlooked = |job: &Job| Job { output_decisions: None, ..bare(job) };
    let uncopied = |job: &Job| Job { result: None, artifacts: None, original: None, reason: None, ..unlooked(job) };
    if new.is_empty() || before.state != State::Succeeded {
        bare(before) == bare(after)
    } else if new.iter().any(|decision| decision.verdict == OutputVerdict::Redact) {
        uncopied(before) == uncopied(after)
    } else {
        unlooked(before) == unlooked(after)
    }
}

fn is_a_step(from: State, to: State) -> bool {
    use State::{
        Abandoned, ApprovalRequired, Blocked, Cancelled, Cancelling, Denied, Dispatched, Failed, Pending, Quarantined,
        Running, Scanning, Scheduled, Succeeded, TimedOut,
    };
    match from {
        Pending => matches!(to, Scheduled | ApprovalRequired | Denied | Cancelled | TimedOut | Abandoned),
        Blocked => matches!(to, Pending | Cancelled | TimedOut | Abandoned),
        ApprovalRequired => matches!(to, Pending | Denied | Cancelled | TimedOut | Abandoned),
        Scheduled => matches!(to, Pending | Dispatched | Failed | Cancelled | TimedOut | Abandoned),
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

/// 3: only the owner with the newest epoch commits, and each epoch has one owner.
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

/// 3: the store holds what owners have committed and nothing else.
pub fn invariant_the_store_is_what_was_committed(difference: Option<String>) -> Checked {
    let holds = difference.is_none();
    require(holds, "invariant_the_store_is_what_was_committed", || difference.unwrap_or_default())
}

/// 4: what holds for the record holds for the runner: it is only told to run what the record says was given to it.
pub fn invariant_runners_get_what_is_on_record(ticket: Ticket, record: Option<&Job>) -> Checked {
    let given = record.is_some_and(|job| job.attempt >= ticket.attempt);
    require(given, "invariant_runners_get_what_is_on_record", || {
        format!(
            "{}/{} was given out, on record is {}",
            ticket.job,
            ticket.attempt,
            record.map_or_else(String::new, describe)
        )
    })
}

/// 5: attempts stay within their budgets, and their numbers only grow.
pub fn invariant_budgets_are_kept(before: Option<&Job>, after: &Job, max_retries: u32) -> Checked {
    const NAME: &str = "invariant_budgets_are_kept";
    require(after.retries <= max_retries, NAME, || {
        format!("{} retries of {max_retries}: {}", after.retries, describe(after))
    })?;
    let losses = after.infrastructure_failures;
    require(losses <= limits::INFRASTRUCTURE_RETRIES_DEFAULT, NAME, || {
        format!("{losses} losses: {}", describe(after))
    })?;
    let numbers_grow = after.attempts.is_sorted_by(|a, b| a.attempt < b.attempt);
    let grew = before.is_none_or(|before| before.attempt <= after.attempt && before.retries <= after.retries);
    require(numbers_grow && grew, NAME, || format!("attempts or retries went back: {}", describe(after)))
}

/// 5: a job is looked for a runner as often as its topic says, and is given up only then: `most`, if there is a limit.
pub fn invariant_the_search_for_a_runner_keeps_its_limit(job: &Job, most: u32) -> Checked {
    let given_up = job.state == State::Failed
        && job
            .reason
            .as_ref()
            .is_some_and(|reason| matches!(reason.code, ReasonCode::NoWorkers | ReasonCode::PoolOverloaded));
    let holds =
        if most == 0 { !given_up } else { job.dispatch_tries <= most && (!given_up || job.dispatch_tries == most) };
    require(holds, "invariant_the_search_for_a_runner_keeps_its_limit", || {
        format!("{} of {most} looks for a runner: {}", job.dispatch_tries, describe(job))
    })
}

/// 5: nothing starts before its time. A clock that is set back after that time had come makes no difference.
pub fn invariant_nothing_starts_early(job: &Job, not_before: Option<Millis>) -> Checked {
    let Some(not_before) = not_before.filter(|_| !job.attempts.is_empty()) else { return Ok(()) };
    let had_come = job.states.iter().any(|entry| entry.state != State::Blocked && entry.at >= not_before);
    require(had_come, "invariant_nothing_starts_early", || format!("not before {not_before:?}: {}", describe(job)))
}

/// 8: a queue's counters are what a count over the records gives. A queue that came back after it had expired knows
/// only the jobs that came back with it; how many are active it knows all the same.
pub fn invariant_counters_equal_a_recount(queue: &Queue, counted: &Counters) -> Checked {
    let came_back = queue.token.is_none() && !queue.implicit;
    let holds = if came_back { queue.counters.active == counted.active } else { queue.counters == *counted };
    require(holds, "invariant_counters_equal_a_recount", || {
        format!("{} says {:?}, its records {counted:?}", queue.id, queue.counters)
    })
}

/// 8: the engine's own derived numbers are what a recount gives.
pub fn invariant_the_engine_counts_right(recount: Result<(), engine::Miscount>) -> Checked {
    match recount {
        Ok(()) => Ok(()),
        Err(miscount) => require(false, "invariant_the_engine_counts_right", || miscount.to_string()),
    }
}

/// A queue never has more jobs with runners than it says, and once it is cancelled none of its jobs begins.
pub fn invariant_queues_keep_their_limits(queue: &Queue, on_runner: u32, began_after_cancel: Option<JobId>) -> Checked {
    const NAME: &str = "invariant_queues_keep_their_limits";
    let within = queue.max_running.is_none_or(|max| on_runner <= max);
    require(within, NAME, || format!("{on_runner} jobs of {} run, {:?} may", queue.id, queue.max_running))?;
    let holds = queue.state != QueueState::Cancelled || began_after_cancel.is_none();
    require(holds, NAME, || format!("{began_after_cancel:?} began although {} is cancelled", queue.id))
}

/// An attempt is given to one runner; after that only a newer incarnation of the same runner may have it in hand.
pub fn invariant_an_attempt_stays_with_its_runner(before: &Job, after: &Job) -> Checked {
    let (Some(known), Some(now)) = (before.last_attempt(), after.last_attempt()) else { return Ok(()) };
    let same = known.attempt != now.attempt || (known.runner == now.runner && known.incarnation <= now.incarnation);
    require(same, "invariant_an_attempt_stays_with_its_runner", || {
        format!("{known:?} became {now:?}: {}", describe(after))
    })
}

/// 1, 5: what a restarted runner has found alive, and has named, goes on as the same attempt: it is not lost, so that it
/// neither costs a try nor runs beside another. `heard_as` is the newest incarnation that the shard has heard.
pub fn invariant_what_is_alive_is_not_lost(loss: &Loss, found: bool, heard_as: Option<Incarnation>) -> Checked {
    require(!found, "invariant_what_is_alive_is_not_lost", || {
        format!("{loss:?}, but the shard has heard from {heard_as:?} that it is alive")
    })
}

/// No attempt is begun while it still runs, in the same place or in another.
pub fn invariant_an_attempt_runs_in_one_place(ticket: Ticket, is_new: bool) -> Checked {
    require(is_new, "invariant_an_attempt_runs_in_one_place", || {
        format!("{}/{} has started a second time", ticket.job, ticket.attempt)
    })
}

/// What simulated attempts return.
pub fn result_of(ticket: Ticket) -> Json {
    Json::of(&format!("{}/{}", ticket.job, ticket.attempt))
}

/// The same where the job is known: those of workflows return what they are given, for others to read.
pub fn result_of_job(job: &Job, ticket: Ticket) -> Json {
    match decode_run(&job.spec) {
        Ok(Run::Echo(echo)) if job.origin.is_some() => echo.value,
        Ok(Run::Echo(_) | Run::Process(_) | Run::Wasm(_)) | Err(_) => result_of(ticket),
    }
}

/// The same idempotency key never makes two things within its lifetime.
pub fn invariant_a_key_makes_one_thing(before: Option<&KeyEntry>, after: &KeyEntry, lifetime: Millis) -> Checked {
    let holds = before.is_none_or(|before| before.made == after.made || before.at + lifetime <= after.at);
    require(holds, "invariant_a_key_makes_one_thing", || format!("{before:?}, then {after:?}"))
}

/// What anyone is told has been committed before: `known` looks a job up in the committed records.
pub fn invariant_answers_follow_commits<'a>(
    answer: &Answer,
    known_job: impl Fn(JobId) -> Option<&'a Job>,
    known_queue: impl Fn(model::id::QueueId) -> bool,
    known_flow: impl Fn(model::id::WorkflowId) -> bool,
) -> Checked {
    const NAME: &str = "invariant_answers_follow_commits";
    match answer {
        Answer::Submitted(results) => results.iter().flatten().try_for_each(|accepted| {
            let holds = known_job(accepted.id).is_some_and(|job| job.seq == accepted.seq);
            require(holds, NAME, || format!("{} was acknowledged and is not on record", accepted.id))
        }),
        Answer::Job(told) => {
            let holds = known_job(told.id).is_some_and(|job| states_ever(job) >= states_ever(told));
            require(holds, NAME, || format!("told, but not on record: {}", describe(told)))
        }
        Answer::Queue(queue) => {
            require(known_queue(queue.id), NAME, || format!("{} was told of and is not on record", queue.id))
        }
        Answer::QueueExists(id) => require(known_queue(*id), NAME, || format!("{id} never was")),
        Answer::Workflow(told) => {
            require(known_flow(told.id), NAME, || format!("{} was told of and is not on record", told.id))
        }
        Answer::WorkflowExists(id) => require(known_flow(*id), NAME, || format!("{id} never was")),
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

/// At rest no runner's slot is taken and no request is unanswered.
pub fn invariant_nothing_is_left_over(what: &[String]) -> Checked {
    require(what.is_empty(), "invariant_nothing_is_left_over", || what.join("; "))
}

/// A job in one line.
pub fn describe(job: &Job) -> String {
    let states: Vec<&str> = job.states.iter().map(|entry| entry.state.as_str()).collect();
    let reason = job.reason.as_ref().map_or("", |reason| reason.code.as_str());
    format!(
        "{} in {}: {} (attempt {}, {} of {} retries, {} losses, retracting: {}, {reason}) eligible {} via {}",
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
