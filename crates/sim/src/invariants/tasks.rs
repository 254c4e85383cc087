//! What must be true of the tasks of workflows: they begin in order, end once and not before their time.

use std::borrow::Cow;

use model::job::Job;
use model::reason::ReasonCode;
use model::workflow::{NoteKind, Origin, Place, Tally, TaskRecord, TaskState};
use serde_json::Value;
use workflow::plan::{Act, OnFailure};
use workflow::scope::{Scope, Tasks};

use super::flows::describe_flow;
use super::{Checked, describe, require};
use crate::ledger::flows::{ChangedFlow, KnownFlow};

/// 5: every job of a workflow is the one of a task that has begun, from the very commit that made it.
pub fn invariant_jobs_belong_to_their_tasks(job: &Job, origin: Origin, row: Option<&TaskRecord>) -> Checked {
    let named = row.is_some_and(|row| {
        if origin.compensation {
            row.compensation.as_ref().is_some_and(|compensation| compensation.job == Some(job.id))
        } else {
            row.job == Some(job.id)
        }
    });
    require(named, "invariant_jobs_belong_to_their_tasks", || format!("{origin:?} has {row:?}: {}", describe(job)))
}

/// Everything about the rows that a commit has changed.
pub fn check_tasks(change: &ChangedFlow, flow: &KnownFlow) -> Checked {
    for (place, before) in &change.rows {
        let Some(after) = flow.rows.get(place) else { continue };
        require(after.state != TaskState::Waiting, "invariant_what_waits_has_no_row", || {
            format!("{place:?} in {}", describe_flow(flow))
        })?;
        match before {
            Some(before) if !change.is_rerun(flow) => {
                invariant_ended_tasks_stay_ended(flow, *place, before, after)?;
                invariant_nothing_ends_before_its_time(flow, *place, Some(before), after)?;
            }
            Some(_) | None => {
                invariant_tasks_begin_in_order(change, flow, *place, after)?;
                invariant_nothing_ends_before_its_time(flow, *place, None, after)?;
            }
        }
        invariant_what_is_merged_is_shared(flow, *place, after)?;
        if place.item.is_some() {
            invariant_items_keep_their_concurrency(flow, place.task)?;
        }
    }
    Ok(())
}

/// 2: the end of a task is final, but for what a look at its result says later and for the marks of its undoing.
fn invariant_ended_tasks_stay_ended(
    flow: &KnownFlow,
    place: Place,
    before: &TaskRecord,
    after: &TaskRecord,
) -> Checked {
    use TaskState::{Quarantined, Succeeded};
    if !before.state.is_terminal() {
        return Ok(());
    }
    let looked = matches!((before.state, after.state), (Succeeded, Quarantined) | (Quarantined, Succeeded));
    let noted =
        |kind| flow.record.notes.iter().any(|note| note.kind == kind && note.place.map(|p| p.task) == Some(place.task));
    let redacted = noted(NoteKind::RedactedLate) || noted(NoteKind::Released) || noted(NoteKind::QuarantinedLate);
    let same_rest = TaskRecord {
        compensation: after.compensation.clone(),
        job_state: after.job_state,
        ended_at: if looked { after.ended_at } else { before.ended_at },
        state: if looked { after.state } else { before.state },
        result: if looked || redacted { after.result.clone() } else { before.result.clone() },
        ..before.clone()
    };
    let undoing_stays = before.compensation.is_none()
        || after.compensation.as_ref().zip(before.compensation.as_ref()).is_some_and(|(after, before)| {
            use model::workflow::CompensationState::{Done, Failed, Running};
            after.job == before.job
                && matches!((before.state, after.state), (Running, _) | (Done, Done) | (Failed, Failed | Done))
        });
    require(same_rest == *after && undoing_stays, "invariant_ended_tasks_stay_ended", || {
        format!("{place:?}: {before:?} became {after:?} in {}", describe_flow(flow))
    })
}

/// What the end of a task means for those that need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Open,
    Good,
    Skipped,
    Bad,
}

/// Whether the failure of a task counts for nothing. That something before it has failed is not its own failure.
pub(super) fn is_tolerated(flow: &KnownFlow, task: u32, row: &TaskRecord) -> bool {
    let upstream = row.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::UpstreamFailed);
    flow.plan.tasks[task as usize].on_failure == OnFailure::Continue && !upstream
}

fn class(flow: &KnownFlow, task: u32, row: Option<&TaskRecord>) -> Class {
    let tolerated = row.is_some_and(|row| is_tolerated(flow, task, row));
    match row.map(|row| row.state) {
        Some(TaskState::Succeeded) => Class::Good,
        Some(TaskState::Failed | TaskState::Quarantined | TaskState::Cancelled) if tolerated => Class::Good,
        Some(TaskState::Failed | TaskState::Quarantined | TaskState::Cancelled) => Class::Bad,
        Some(TaskState::Skipped) => Class::Skipped,
        Some(
            TaskState::Waiting | TaskState::Running | TaskState::Sleeping | TaskState::Listening | TaskState::Merged,
        )
        | None => Class::Open,
    }
}

/// 5: a task begins only after all that it needs has ended well, and after the epochs before its own; an item only while
/// its task is under way.
fn invariant_tasks_begin_in_order(change: &ChangedFlow, flow: &KnownFlow, place: Place, row: &TaskRecord) -> Checked {
    const NAME: &str = "invariant_tasks_begin_in_order";
    let about = |what: &str| format!("{place:?} {what}: {row:?} in {}", describe_flow(flow));
    // Those that never begin end at any time.
    if matches!(row.state, TaskState::Skipped | TaskState::Cancelled) {
        return Ok(());
    }
    let task_number = place.task;
    let task = &flow.plan.tasks[task_number as usize];
    if let Some(item) = place.item {
        let whole = flow.rows.get(&Place::of(place.task));
        let holds = whole.is_some_and(|whole| whole.items.is_some_and(|items| item < items));
        return require(holds, NAME, || about("is an item of nothing"));
    }
    require(task.epoch <= flow.record.epoch, NAME, || about("began before its epoch"))?;
    let mut skipped = 0;
    for need in &task.needs {
        let place = Place::of(*need);
        let now = flow.rows.get(&place);
        let before = change.row_before(flow, place);
        let classes = [class(flow, *need, now), class(flow, *need, before)];
        // Its result may have been taken out of circulation with the very same commit.
        let good = classes.contains(&Class::Good) && classes[0] != Class::Open;
        skipped += usize::from(classes[0] == Class::Skipped);
        require(good || classes[0] == Class::Skipped, NAME, || about(&format!("began before or without {need}")))?;
        require(now.is_none_or(|now| is_chosen(flow, now, *need, task_number)), NAME, || about("was not chosen"))?;
    }
    require(skipped == 0 || skipped < task.needs.len(), NAME, || about("began although all it needs was skipped"))
}

/// 5: of the items of a task no more are under way than it says.
fn invariant_items_keep_their_concurrency(flow: &KnownFlow, task: u32) -> Checked {
    let most = flow.plan.tasks[task as usize].for_each.as_ref().and_then(|each| each.concurrency);
    let live = flow.items.get(&task).map_or(0, Tally::live);
    require(most.is_none_or(|most| live <= most), "invariant_items_keep_their_concurrency", || {
        format!("{live} items of task {task} are under way, {most:?} may: {}", describe_flow(flow))
    })
}

/// Whether a switch has let a task run that it chooses among.
fn is_chosen(flow: &KnownFlow, switch: &TaskRecord, number: u32, task: u32) -> bool {
    let Act::Switch(cases) = &flow.plan.tasks[number as usize].act else { return true };
    let chosen = switch.chosen.and_then(|case| cases.get(case as usize));
    let concerns = cases.iter().any(|case| case.then.contains(&task));
    // One that was skipped, or failed and is tolerated, has chosen nothing.
    !concerns || switch.state != TaskState::Succeeded || chosen.is_some_and(|case| case.then.contains(&task))
}

/// Nothing has a value: whatever a template refers to, a time that does not depend on it is still a time.
struct Nothing;

impl Tasks for Nothing {
    fn result(&self, _: u32) -> Cow<'_, Value> {
        Cow::Owned(Value::Null)
    }

    fn state(&self, _: u32) -> &'static str {
        ""
    }
}

/// 5: a delay ends when it is over, and a wait for a signal is given up only then.
fn invariant_nothing_ends_before_its_time(
    flow: &KnownFlow,
    place: Place,
    before: Option<&TaskRecord>,
    after: &TaskRecord,
) -> Checked {
    let slept = match before {
        Some(before) => before.state == TaskState::Sleeping,
        None => matches!(flow.plan.tasks[place.task as usize].act, Act::Delay(_)),
    };
    let waited = before.is_some_and(|before| before.state == TaskState::Listening);
    let given_up = after.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::TaskTimedOut);
    let ends = (slept && after.state == TaskState::Succeeded) || (waited && given_up);
    let is_whole = place.item.is_none() && flow.plan.tasks[place.task as usize].for_each.is_some();
    if !ends || is_whole {
        return Ok(());
    }
    let due = match before {
        Some(before) => before.due,
        None => constant_due(flow, place, after),
    };
    require(due.is_none_or(|due| after.ended_at >= Some(due)), "invariant_nothing_ends_before_its_time", || {
        format!("{place:?} was due at {due:?}: {after:?} in {}", describe_flow(flow))
    })
}

/// When a delay is over that began and ended with the same commit, if that does not depend on anything.
fn constant_due(flow: &KnownFlow, place: Place, row: &TaskRecord) -> Option<model::time::Millis> {
    let Act::Delay(delay) = &flow.plan.tasks[place.task as usize].act else { return None };
    let scope = Scope {
        inputs: &Value::Null,
        tasks: &Nothing,
        item: None,
        workflow: flow.record.id,
        name: "",
        schedule: None,
        result: None,
    };
    delay.due(&scope, row.began_at).ok()
}

/// 5: a merged task has no job of its own. It comes to what the one came to that did the very same, also when that is
/// looked at later.
fn invariant_what_is_merged_is_shared(flow: &KnownFlow, place: Place, row: &TaskRecord) -> Checked {
    const NAME: &str = "invariant_what_is_merged_is_shared";
    if let Some(leader) = row.merged_into {
        let bare = row.job.is_none() && row.order == 0;
        let led = flow.rows.get(&leader).is_some_and(|leader| leader.merged_into.is_none());
        require(bare && led, NAME, || format!("{place:?} is {row:?} in {}", describe_flow(flow)))?;
    }
    if row.merge_key.is_none() && row.merged_into.is_none() {
        return Ok(());
    }
    let leader = row.merged_into.unwrap_or(place);
    let Some(led) = flow.rows.get(&leader) else { return Ok(()) };
    // Whoever stopped the workflow did not wait for the one that it would have shared with.
    let followers = flow.rows.iter().filter(|(_, other)| {
        other.merged_into == Some(leader) && other.state.is_terminal() && other.state != TaskState::Cancelled
    });
    for (place, follower) in followers {
        // The result itself may stand with the one that has made it only.
        let same = follower.state == led.state && (follower.result.is_none() || follower.result == led.result);
        require(same, NAME, || {
            format!("{place:?} is {follower:?}, what it shares is {led:?} in {}", describe_flow(flow))
        })?;
    }
    Ok(())
}
