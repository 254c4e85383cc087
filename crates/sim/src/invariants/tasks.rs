//! Invariants of tasks: they start in order, end once and not early.

use std::borrow::Cow;

use model::job::Job;
use model::reason::ReasonCode;
use model::workflow::{NoteKind, Origin, Tally, TaskKey, TaskRecord, TaskState};
use serde_json::Value;
use workflow::plan::{OnFailure, TaskWork};
use workflow::scope::{Scope, Tasks};

use super::workflows::describe_workflow;
use super::{Checked, describe, require};
use crate::ledger::workflows::{ChangedWorkflow, KnownWorkflow};

/// 5: every job of a workflow belongs to a started task, from the commit that created the job.
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

/// Checks the changed rows of a commit.
pub fn check_tasks(change: &ChangedWorkflow, workflow: &KnownWorkflow) -> Checked {
    for (task_key, before) in &change.rows {
        let Some(after) = workflow.rows.get(task_key) else { continue };
        require(after.state != TaskState::Waiting, "invariant_waiting_tasks_have_no_row", || {
            format!("{task_key:?} in {}", describe_workflow(workflow))
        })?;
        match before {
            Some(before) if !change.is_rerun(workflow) => {
                invariant_ended_tasks_stay_ended(workflow, *task_key, before, after)?;
                invariant_timers_do_not_fire_early(workflow, *task_key, Some(before), after)?;
            }
            Some(_) | None => {
                invariant_tasks_begin_in_order(change, workflow, *task_key, after)?;
                invariant_timers_do_not_fire_early(workflow, *task_key, None, after)?;
            }
        }
        invariant_merged_tasks_share_one_outcome(workflow, *task_key, after)?;
        if task_key.item.is_some() {
            invariant_items_stay_within_their_concurrency(workflow, task_key.task)?;
        }
    }
    Ok(())
}

/// 2: the end of a task is final, except for later scans of its result and for its compensation.
fn invariant_ended_tasks_stay_ended(
    workflow: &KnownWorkflow,
    task_key: TaskKey,
    before: &TaskRecord,
    after: &TaskRecord,
) -> Checked {
    use TaskState::{Quarantined, Succeeded};
    if !before.state.is_terminal() {
        return Ok(());
    }
    let rescanned = matches!((before.state, after.state), (Succeeded, Quarantined) | (Quarantined, Succeeded));
    let noted = |kind| {
        workflow
            .record
            .notes
            .iter()
            .any(|note| note.kind == kind && note.task_key.map(|p| p.task) == Some(task_key.task))
    };
    let redacted = noted(NoteKind::RedactedLate) || noted(NoteKind::Released) || noted(NoteKind::QuarantinedLate);
    let same_rest = TaskRecord {
        compensation: after.compensation.clone(),
        job_state: after.job_state,
        unconfirmed: after.unconfirmed.clone(),
        state: if rescanned { after.state } else { before.state },
        result: if rescanned || redacted { after.result.clone() } else { before.result.clone() },
        ..before.clone()
    };
    let compensation_is_valid = before.compensation.is_none()
        || after.compensation.as_ref().zip(before.compensation.as_ref()).is_some_and(|(after, before)| {
            use model::workflow::CompensationState::{Done, Failed, Running};
            (after.job == before.job || (before.dead_letter.is_some() && after.job == before.dead_letter))
                && matches!((before.state, after.state), (Running, _) | (Done, Done) | (Failed, Failed | Done))
        });
    require(same_rest == *after && compensation_is_valid, "invariant_ended_tasks_stay_ended", || {
        format!("{task_key:?}: {before:?} became {after:?} in {}", describe_workflow(workflow))
    })
}

/// State of a task as seen by the tasks that need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NeedState {
    Open,
    Satisfied,
    Skipped,
    Failed,
}

/// Whether the failure of a task is tolerated. An upstream failure never is.
pub(super) fn is_tolerated(workflow: &KnownWorkflow, task: u32, row: &TaskRecord) -> bool {
    let upstream = row.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::UpstreamFailed);
    workflow.plan.tasks[task as usize].on_failure == OnFailure::Continue && !upstream
}

fn need_state(workflow: &KnownWorkflow, task: u32, row: Option<&TaskRecord>) -> NeedState {
    let tolerated = row.is_some_and(|row| is_tolerated(workflow, task, row));
    match row.map(|row| row.state) {
        Some(TaskState::Succeeded) => NeedState::Satisfied,
        Some(TaskState::Failed | TaskState::Quarantined | TaskState::Cancelled) if tolerated => NeedState::Satisfied,
        Some(TaskState::Failed | TaskState::Quarantined | TaskState::Cancelled) => NeedState::Failed,
        Some(TaskState::Skipped) => NeedState::Skipped,
        Some(
            TaskState::Waiting | TaskState::Running | TaskState::Sleeping | TaskState::Listening | TaskState::Merged,
        )
        | None => NeedState::Open,
    }
}

/// 5: a task starts only after all tasks it needs have succeeded and all earlier epochs have ended; an item only while
/// its task runs.
fn invariant_tasks_begin_in_order(
    change: &ChangedWorkflow,
    workflow: &KnownWorkflow,
    task_key: TaskKey,
    row: &TaskRecord,
) -> Checked {
    const NAME: &str = "invariant_tasks_begin_in_order";
    let about = |what: &str| format!("{task_key:?} {what}: {row:?} in {}", describe_workflow(workflow));
    // Tasks that never start may end at any time.
    if matches!(row.state, TaskState::Skipped | TaskState::Cancelled) {
        return Ok(());
    }
    let task_number = task_key.task;
    let task = &workflow.plan.tasks[task_number as usize];
    if let Some(item) = task_key.item {
        let fan_out = workflow.rows.get(&TaskKey::of(task_key.task));
        let holds = fan_out.is_some_and(|fan_out| fan_out.items.is_some_and(|items| item < items));
        return require(holds, NAME, || about("is an item of a task without a fan-out"));
    }
    require(task.epoch <= workflow.record.epoch, NAME, || about("started before its epoch"))?;
    let mut skipped = 0;
    for need in &task.needs {
        let task_key = TaskKey::of(*need);
        let now = workflow.rows.get(&task_key);
        let before = change.row_before(workflow, task_key);
        let states = [need_state(workflow, *need, now), need_state(workflow, *need, before)];
        // The same commit may have quarantined its result.
        let satisfied = states.contains(&NeedState::Satisfied) && states[0] != NeedState::Open;
        skipped += usize::from(states[0] == NeedState::Skipped);
        require(satisfied || states[0] == NeedState::Skipped, NAME, || {
            about(&format!("started before or without {need}"))
        })?;
        require(now.is_none_or(|now| is_chosen(workflow, now, *need, task_number)), NAME, || {
            about("was not chosen by its switch")
        })?;
    }
    require(skipped == 0 || skipped < task.needs.len(), NAME, || {
        about("started although all tasks it needs were skipped")
    })
}

/// 5: the live items of a task stay within its concurrency limit.
fn invariant_items_stay_within_their_concurrency(workflow: &KnownWorkflow, task: u32) -> Checked {
    let most = workflow.plan.tasks[task as usize].for_each.as_ref().and_then(|each| each.concurrency);
    let live = workflow.items.get(&task).map_or(0, Tally::live);
    require(most.is_none_or(|most| live <= most), "invariant_items_stay_within_their_concurrency", || {
        format!("{live} items of task {task} are live, the limit is {most:?}: {}", describe_workflow(workflow))
    })
}

/// Whether the switch chose this task, if the task is in one of its cases.
fn is_chosen(workflow: &KnownWorkflow, switch: &TaskRecord, number: u32, task: u32) -> bool {
    let TaskWork::Switch(cases) = &workflow.plan.tasks[number as usize].work else { return true };
    let chosen = switch.chosen.and_then(|case| cases.get(case as usize));
    let concerns = cases.iter().any(|case| case.then.contains(&task));
    // A skipped or failed switch has chosen nothing.
    !concerns || switch.state != TaskState::Succeeded || chosen.is_some_and(|case| case.then.contains(&task))
}

/// A scope without results: only constant times can be evaluated.
struct NullTasks;

impl Tasks for NullTasks {
    fn result(&self, _: u32) -> Cow<'_, Value> {
        Cow::Owned(Value::Null)
    }

    fn state(&self, _: u32) -> &'static str {
        ""
    }
}

/// 5: delays and the timeouts of signal waits do not fire early.
fn invariant_timers_do_not_fire_early(
    workflow: &KnownWorkflow,
    task_key: TaskKey,
    before: Option<&TaskRecord>,
    after: &TaskRecord,
) -> Checked {
    let slept = match before {
        Some(before) => before.state == TaskState::Sleeping,
        None => matches!(workflow.plan.tasks[task_key.task as usize].work, TaskWork::Delay(_)),
    };
    let waited = before.is_some_and(|before| before.state == TaskState::Listening);
    let timed_out = after.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::TaskTimedOut);
    let ends = (slept && after.state == TaskState::Succeeded) || (waited && timed_out);
    let is_fan_out = task_key.item.is_none() && workflow.plan.tasks[task_key.task as usize].for_each.is_some();
    if !ends || is_fan_out {
        return Ok(());
    }
    let due = match before {
        Some(before) => before.due,
        None => constant_due(workflow, task_key, after),
    };
    require(due.is_none_or(|due| after.ended_at >= Some(due)), "invariant_timers_do_not_fire_early", || {
        format!("{task_key:?} was due at {due:?}: {after:?} in {}", describe_workflow(workflow))
    })
}

/// Due time of a delay that started and ended in the same commit, if it is constant.
fn constant_due(workflow: &KnownWorkflow, task_key: TaskKey, row: &TaskRecord) -> Option<model::time::Millis> {
    let TaskWork::Delay(delay) = &workflow.plan.tasks[task_key.task as usize].work else { return None };
    let scope = Scope {
        inputs: &Value::Null,
        tasks: &NullTasks,
        item: None,
        workflow: workflow.record.id,
        name: "",
        schedule: None,
        result: None,
    };
    delay.due(&scope, row.began_at).ok()
}

/// 5: a merged task has no job of its own. It shares the outcome of its leader, including later scans.
fn invariant_merged_tasks_share_one_outcome(workflow: &KnownWorkflow, task_key: TaskKey, row: &TaskRecord) -> Checked {
    const NAME: &str = "invariant_merged_tasks_share_one_outcome";
    if let Some(leader) = row.merged_into {
        let without_job = row.job.is_none() && row.order == 0;
        let has_leader = workflow.rows.get(&leader).is_some_and(|leader| leader.merged_into.is_none());
        require(without_job && has_leader, NAME, || {
            format!("{task_key:?} is {row:?} in {}", describe_workflow(workflow))
        })?;
    }
    if row.merge_key.is_none() && row.merged_into.is_none() {
        return Ok(());
    }
    let leader = row.merged_into.unwrap_or(task_key);
    let Some(leader_row) = workflow.rows.get(&leader) else { return Ok(()) };
    // A stopped workflow cancels followers without waiting for their leader.
    let followers = workflow.rows.iter().filter(|(_, other)| {
        other.merged_into == Some(leader) && other.state.is_terminal() && other.state != TaskState::Cancelled
    });
    for (task_key, follower) in followers {
        // The result may be stored with the leader only.
        let same =
            follower.state == leader_row.state && (follower.result.is_none() || follower.result == leader_row.result);
        require(same, NAME, || {
            format!("{task_key:?} is {follower:?}, its leader is {leader_row:?} in {}", describe_workflow(workflow))
        })?;
    }
    Ok(())
}
