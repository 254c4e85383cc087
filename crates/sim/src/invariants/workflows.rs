//! Invariants of workflow records.

use model::message::AttemptRef;
use model::reason::ReasonCode;
use model::workflow::{
    CompensationState, FromSchedule, NoteKind, RollbackState, Schedule, Tally, TaskKey, TaskRecord, TaskState,
    Workflow, WorkflowState,
};
use workflow::plan::OnFailure;

use super::tasks::is_tolerated;
use super::{Checked, require};
use crate::ledger::workflows::{ChangedWorkflow, KnownWorkflow};

/// 1: after faults have stopped, every workflow ends, with its tasks and sub-workflows.
pub fn invariant_every_workflow_ends<'a>(left: impl Iterator<Item = &'a KnownWorkflow>, healed_for: u64) -> Checked {
    let left: Vec<&KnownWorkflow> = left.collect();
    require(left.is_empty(), "invariant_every_workflow_ends", || {
        let shown: Vec<String> = left.iter().take(3).map(|workflow| describe_workflow(workflow)).collect();
        format!("{} workflows have not ended {healed_for} ms after the last fault: {}", left.len(), shown.join("; "))
    })
}

/// 1: a workflow is removed only after it has ended, on request or after its retention, and does not reappear.
pub fn invariant_no_workflow_is_removed_early(workflow: &KnownWorkflow, due: bool) -> Checked {
    require(workflow.record.state.is_terminal() && due, "invariant_no_workflow_is_removed_early", || {
        describe_workflow(workflow)
    })
}

/// Checks a changed workflow record. `parent_row` is the row of the parent's task, for a sub-workflow.
pub fn check_workflow_record(
    change: &ChangedWorkflow,
    workflow: &KnownWorkflow,
    parent_row: Option<&TaskRecord>,
) -> Checked {
    if let Some(before) = &change.before {
        invariant_ended_workflows_stay_ended(before, workflow, parent_row)?;
        invariant_epochs_come_in_order(change, before, workflow)?;
    }
    invariant_tallies_equal_a_recount(workflow)?;
    invariant_totals_count_every_job_once(workflow)?;
    invariant_workflows_end_with_their_tasks(workflow)?;
    invariant_workflow_states_match_their_tasks(change, workflow)?;
    invariant_workflows_are_in_the_right_keyspace(workflow)
}

/// 2: the end of a workflow is final, except for a rerun, a rollback by its parent, a later scan of a result, or a
/// retried compensation.
fn invariant_ended_workflows_stay_ended(
    before: &Workflow,
    workflow: &KnownWorkflow,
    parent_row: Option<&TaskRecord>,
) -> Checked {
    const NAME: &str = "invariant_ended_workflows_stay_ended";
    let after = &workflow.record;
    let about = |what: &str| format!("{what}: {before:?} became {}", describe_workflow(workflow));
    if !before.state.is_terminal() || after.run > before.run {
        let grew = after.run == before.run || before.state.is_terminal();
        return require(grew && !workflow.being_removed, NAME, || about("rerun of a live or removed workflow"));
    }
    let compensated = before.rollback.is_none() && after.rollback.is_some();
    if compensated {
        let by_parent = parent_row
            .is_some_and(|row| row.compensation.as_ref().is_some_and(|compensation| compensation.job.is_none()));
        return require(by_parent, NAME, || about("it is rolled back although its parent is not"));
    }
    let late = |note: &model::workflow::Note| {
        matches!(note.kind, NoteKind::QuarantinedLate | NoteKind::RedactedLate | NoteKind::Released)
    };
    let rescanned = after.notes.get(before.notes.len()..).unwrap_or(&after.notes).iter().any(late);
    let same_rest = Workflow {
        // The result follows a late change of a task's result.
        result: if rescanned { after.result.clone() } else { before.result.clone() },
        notes: after.notes.clone(),
        notes_dropped: after.notes_dropped,
        tasks: after.tasks,
        items: after.items,
        rollback: after.rollback.clone(),
        ..before.clone()
    };
    require(same_rest == *after, NAME, || about("it changed"))
}

/// 5: an epoch is reached when all tasks of earlier epochs have ended.
fn invariant_epochs_come_in_order(change: &ChangedWorkflow, before: &Workflow, workflow: &KnownWorkflow) -> Checked {
    const NAME: &str = "invariant_epochs_come_in_order";
    let after = &workflow.record;
    if change.is_rerun(workflow) || after.epoch == before.epoch {
        return Ok(());
    }
    let done = |number: u32| workflow.rows.get(&TaskKey::of(number)).is_some_and(|row| row.state.is_terminal());
    let open =
        workflow.plan.tasks.iter().enumerate().find(|(number, task)| task.epoch < after.epoch && !done(*number as u32));
    require(after.epoch > before.epoch && open.is_none(), NAME, || {
        format!(
            "epoch {} after {} while {open:?} has not ended: {}",
            after.epoch,
            before.epoch,
            describe_workflow(workflow)
        )
    })
}

/// 8: the tallies equal a recount of the rows. A task without a row is waiting, an item without a row waiting or
/// cancelled.
fn invariant_tallies_equal_a_recount(workflow: &KnownWorkflow) -> Checked {
    const NAME: &str = "invariant_tallies_equal_a_recount";
    let mut tasks = workflow.tasks;
    tasks.add(TaskState::Waiting, workflow.plan.tasks.len() as u32 - tasks.total());
    require(tasks == workflow.record.tasks, NAME, || format!("tasks {tasks:?}: {}", describe_workflow(workflow)))?;
    let mut items = Tally::default();
    // Items of stopping workflows: the rows do not show whether they are cancelled already.
    let mut undetermined = 0;
    for (task_key, row) in workflow.rows.iter().filter(|(task_key, _)| task_key.item.is_none()) {
        let Some(count) = row.items else { continue };
        let started = workflow.items.get(&task_key.task).copied().unwrap_or_default();
        for state in TaskState::ALL {
            items.add(state, started.of(state));
        }
        let rest = count - started.total();
        let tolerated = workflow.plan.tasks[task_key.task as usize].on_failure == OnFailure::Continue;
        let bad = [TaskState::Failed, TaskState::Cancelled, TaskState::Quarantined];
        let failed = !tolerated && bad.into_iter().any(|state| started.of(state) > 0);
        if row.state.is_terminal() || failed {
            items.add(TaskState::Cancelled, rest);
        } else if workflow.record.state == WorkflowState::Stopping {
            undetermined += rest;
        } else {
            items.add(TaskState::Waiting, rest);
        }
    }
    let recorded = workflow.record.items;
    let undetermined_cancelled =
        recorded.of(TaskState::Cancelled).saturating_sub(items.of(TaskState::Cancelled)).min(undetermined);
    items.add(TaskState::Cancelled, undetermined_cancelled);
    items.add(TaskState::Waiting, undetermined - undetermined_cancelled);
    require(items == recorded, NAME, || {
        format!("a recount gives {items:?}, on record {recorded:?}: {}", describe_workflow(workflow))
    })
}

/// 8: every job of a workflow is counted once, at its end.
fn invariant_totals_count_every_job_once(workflow: &KnownWorkflow) -> Checked {
    let counted = workflow.ended_jobs + workflow.jobs_of_children;
    require(counted == workflow.record.totals.jobs, "invariant_totals_count_every_job_once", || {
        format!(
            "{} own jobs, {} jobs of sub-workflows: {}",
            workflow.ended_jobs,
            workflow.jobs_of_children,
            describe_workflow(workflow)
        )
    })
}

/// A workflow has ended exactly when all its tasks have ended, none of its jobs is live and its rollback is complete.
fn invariant_workflows_end_with_their_tasks(workflow: &KnownWorkflow) -> Checked {
    const NAME: &str = "invariant_workflows_end_with_their_tasks";
    let settled = workflow.tasks.total() as usize == workflow.plan.tasks.len() && workflow.tasks.live() == 0;
    let compensating =
        workflow.record.rollback.as_ref().is_some_and(|rollback| rollback.state == RollbackState::RollingBack);
    let unconfirmed = workflow.rows.values().any(|row| row.unconfirmed.is_some());
    let holds = match workflow.record.state {
        WorkflowState::Succeeded | WorkflowState::Failed | WorkflowState::Cancelled => {
            settled && !compensating && workflow.own_live == 0
        }
        WorkflowState::Running | WorkflowState::Paused => !settled && !compensating,
        // A rollback waits for attempts that may still run.
        WorkflowState::Stopping => !compensating && (!settled || unconfirmed),
        WorkflowState::RollingBack => settled && compensating,
    };
    require(holds, NAME, || {
        format!("settled: {settled}, live jobs: {}: {}", workflow.own_live, describe_workflow(workflow))
    })
}

/// A workflow succeeds exactly when no task has failed, other than tolerated ones, and its outputs are rendered.
fn invariant_workflow_states_match_their_tasks(change: &ChangedWorkflow, workflow: &KnownWorkflow) -> Checked {
    const NAME: &str = "invariant_workflow_states_match_their_tasks";
    let entered =
        change.before.as_ref().is_none_or(|before| before.state != workflow.record.state || change.is_rerun(workflow));
    let compensated = workflow.record.rollback.is_some();
    if !entered || !workflow.record.state.is_terminal() || compensated {
        return Ok(());
    }
    let late = |task: u32| {
        let of_it = |note: &&model::workflow::Note| note.task_key.is_some_and(|task_key| task_key.task == task);
        workflow.record.notes.iter().filter(of_it).any(|note| note.kind == NoteKind::QuarantinedLate)
    };
    let is_bad = |(task_key, row): &(&TaskKey, &TaskRecord)| {
        let tolerated = is_tolerated(workflow, task_key.task, row);
        task_key.item.is_none()
            && match row.state {
                TaskState::Failed | TaskState::Cancelled => !tolerated,
                TaskState::Quarantined => !tolerated && !late(task_key.task),
                TaskState::Waiting
                | TaskState::Running
                | TaskState::Sleeping
                | TaskState::Listening
                | TaskState::Merged
                | TaskState::Succeeded
                | TaskState::Skipped => false,
            }
    };
    let bad = workflow.rows.iter().find(is_bad);
    let code = workflow.record.reason.as_ref().map(|reason| reason.code);
    let about = || format!("{bad:?}: {}", describe_workflow(workflow));
    match workflow.record.state {
        WorkflowState::Succeeded => {
            let rendered = workflow.plan.outputs.is_some() == workflow.record.result.is_some();
            require(bad.is_none() && rendered && code.is_none(), NAME, about)
        }
        WorkflowState::Failed => {
            let other = matches!(code, Some(ReasonCode::TemplateError | ReasonCode::WorkflowTimedOut));
            let late = workflow.rows.keys().any(|task_key| late(task_key.task));
            require(code.is_some() && (bad.is_some() || other || late), NAME, about)
        }
        WorkflowState::Cancelled => require(code.is_some(), NAME, about),
        WorkflowState::Running | WorkflowState::Paused | WorkflowState::Stopping | WorkflowState::RollingBack => Ok(()),
    }
}

/// Live workflows are in the keyspace of live workflows, ended ones without a parent in that of ended workflows.
fn invariant_workflows_are_in_the_right_keyspace(workflow: &KnownWorkflow) -> Checked {
    let ended = workflow.record.state.is_terminal();
    let holds = if workflow.archived { ended } else { !ended || workflow.record.parent.is_some() };
    require(holds, "invariant_workflows_are_in_the_right_keyspace", || describe_workflow(workflow))
}

/// 6: tasks are compensated once each, in reverse order of their ends, and the rollback counters are correct.
pub fn check_compensation(change: &ChangedWorkflow, workflow: &KnownWorkflow) -> Checked {
    invariant_tasks_are_compensated_last_first(change, workflow)?;
    invariant_rollback_counters_equal_a_recount(workflow)
}

/// Tasks whose compensation started with this commit, with their order, the highest first.
fn newly_compensated(change: &ChangedWorkflow, workflow: &KnownWorkflow) -> Vec<(u32, TaskKey)> {
    let mut new: Vec<(u32, TaskKey)> = Vec::new();
    for (task_key, before) in &change.rows {
        let Some(row) = workflow.rows.get(task_key).filter(|row| row.compensation.is_some()) else { continue };
        let known = before.as_ref().is_some_and(|before| before.compensation.is_some());
        if !known || change.is_rerun(workflow) {
            new.push((row.order, *task_key));
        }
    }
    new.sort_unstable_by(|a, b| b.cmp(a));
    new
}

/// The lowest order whose compensation started with this commit, if any.
pub fn newest_compensated(change: &ChangedWorkflow, workflow: &KnownWorkflow) -> Option<u32> {
    newly_compensated(change, workflow).last().map(|(order, _)| *order)
}

fn invariant_tasks_are_compensated_last_first(change: &ChangedWorkflow, workflow: &KnownWorkflow) -> Checked {
    const NAME: &str = "invariant_tasks_are_compensated_last_first";
    let new = newly_compensated(change, workflow);
    let (Some((highest, _)), Some((lowest, last))) = (new.first().copied(), new.last().copied()) else { return Ok(()) };
    let about = |what: &str| {
        format!("{what}: {new:?} after {:?} in {}", workflow.last_compensated, describe_workflow(workflow))
    };
    let strictly =
        new.is_sorted_by(|a, b| a.0 > b.0) && workflow.last_compensated.is_none_or(|before| highest < before);
    require(strictly && lowest > 0, NAME, || about("not in reverse order"))?;
    let skipped = workflow.rows.iter().find(|(_, row)| row.order > lowest && row.compensation.is_none());
    require(skipped.is_none(), NAME, || about(&format!("{skipped:?} was skipped")))?;
    let running = |task_key: &TaskKey| {
        let compensation = workflow.rows.get(task_key).and_then(|row| row.compensation.as_ref());
        compensation.is_some_and(|compensation| compensation.state == CompensationState::Running)
    };
    let too_many = new.iter().any(|(_, task_key)| *task_key != last && running(task_key));
    require(!too_many, NAME, || about("several compensations run at once"))
}

/// 6: while a workflow rolls back, none of its ordinary jobs is live, and at most one compensation.
pub fn invariant_one_compensation_runs_at_a_time(workflow: &KnownWorkflow) -> Checked {
    let rolling = workflow.record.state == WorkflowState::RollingBack;
    let holds = !rolling || (workflow.live.ordinary == 0 && workflow.live.compensating <= 1);
    require(holds, "invariant_one_compensation_runs_at_a_time", || {
        format!("{:?}: {}", workflow.live, describe_workflow(workflow))
    })
}

/// 6: a compensation starts only when no attempt of its task runs.
pub fn invariant_no_compensation_beside_its_task(compensation: AttemptRef, beside: Option<AttemptRef>) -> Checked {
    require(beside.is_none(), "invariant_no_compensation_beside_its_task", || {
        format!("the compensation {compensation:?} started beside {beside:?}")
    })
}

/// 6: the counters of a rollback equal a recount of the rows, and it is complete only if all tasks are compensated.
fn invariant_rollback_counters_equal_a_recount(workflow: &KnownWorkflow) -> Checked {
    let Some(rollback) = &workflow.record.rollback else { return Ok(()) };
    let states = || {
        workflow
            .rows
            .values()
            .filter(|row| row.order > 0)
            .map(|row| row.compensation.as_ref().map(|compensation| compensation.state))
    };
    let count = |wanted| states().filter(|state| *state == Some(wanted)).count() as u32;
    let (done, failed) = (count(CompensationState::Done), count(CompensationState::Failed));
    let total = states().count() as u32;
    let all_done = done == total;
    let ends = match rollback.state {
        RollbackState::RollingBack => true,
        RollbackState::RolledBack => all_done,
        RollbackState::PartiallyRolledBack => !all_done && done + failed == total,
    };
    let holds = (rollback.total, rollback.compensated, rollback.failed) == (total, done, failed) && ends;
    require(holds, "invariant_rollback_counters_equal_a_recount", || {
        format!("{total} tasks, {done} compensated, {failed} failed: {rollback:?} of {}", describe_workflow(workflow))
    })
}

/// A slot of a schedule starts at most one workflow, and not early.
pub fn invariant_every_slot_starts_once(record: &Workflow, from: FromSchedule, is_new: bool) -> Checked {
    require(is_new && record.created_at >= from.slot, "invariant_every_slot_starts_once", || {
        format!("{from:?} started {} at {:?}; first start of this slot: {is_new}", record.id, record.created_at)
    })
}

/// 8: the counter of a schedule equals the workflows it started.
pub fn invariant_schedule_counters_equal_a_recount(schedule: &Schedule, started: u64) -> Checked {
    require(schedule.started == started, "invariant_schedule_counters_equal_a_recount", || {
        format!("{started} workflows were started: {schedule:?}")
    })
}

/// A schedule that catches up on all slots starts a workflow for every passed slot.
pub fn invariant_no_slot_is_lost(schedule: &Schedule, lost: Option<model::time::Millis>) -> Checked {
    require(lost.is_none(), "invariant_no_slot_is_lost", || {
        let Schedule { id, name, spec, last_slot, .. } = schedule;
        format!(
            "{id} `{name}` ({:?}, {:?}, jitter {:?}) at {last_slot:?} skipped {lost:?}",
            spec.catch_up, spec.overlap, spec.jitter
        )
    })
}

/// A workflow in one line.
pub fn describe_workflow(workflow: &KnownWorkflow) -> String {
    let record = &workflow.record;
    let rows: Vec<String> = workflow
        .rows
        .iter()
        .take(40)
        .map(|(task_key, row)| {
            let item = task_key.item.map_or_else(String::new, |item| format!("[{item}]"));
            let compensation = row
                .compensation
                .as_ref()
                .map_or_else(String::new, |compensation| format!("/{}", compensation.state.as_str()));
            let why = row.reason.as_ref().map_or_else(String::new, |reason| format!("({})", reason.code.as_str()));
            let unconfirmed = row.unconfirmed.iter().flat_map(|list| list.iter());
            let unconfirmed: String = unconfirmed
                .map(|it| format!(" unconfirmed {}/{} on {} {}", it.job, it.attempt, it.runner, it.incarnation.0))
                .collect();
            format!("{}{item}={}{why}{compensation}{unconfirmed}", task_key.task, row.state)
        })
        .collect();
    let note = |note: &model::workflow::Note| {
        let task_key = note.task_key.map_or_else(String::new, |task_key| format!("({})", task_key.task));
        format!("{}{task_key}@{}", note.kind.as_str(), note.at.0 % 10_000_000)
    };
    let notes: Vec<String> = record.notes.iter().map(note).collect();
    let waits = |number: &usize| !workflow.rows.contains_key(&TaskKey::of(*number as u32));
    let waiting = (0..workflow.plan.tasks.len()).filter(waits).take(20);
    let waiting: Vec<String> =
        waiting.map(|number| format!("{number} needs {:?}", workflow.plan.tasks[number].needs)).collect();
    format!(
        "{} of {} (run {}, depth {}, {} tasks, epoch {}, archived: {}): {} {:?} after_stop {:?} rollback {:?} reason {:?} jobs {} rows {} waiting {} notes {}",
        record.id,
        record.tenant,
        record.run,
        record.depth,
        workflow.plan.tasks.len(),
        record.epoch,
        workflow.archived,
        record.state,
        record.tasks.0,
        record.after_stop,
        record.rollback.as_ref().map(|rollback| (
            rollback.state,
            rollback.total,
            rollback.compensated,
            rollback.failed
        )),
        record.reason.as_ref().map(|reason| reason.code.as_str()),
        record.totals.jobs,
        rows.join(" "),
        waiting.join(", "),
        notes.join(" ")
    )
}
