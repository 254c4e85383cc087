//! What must be true of workflows as a whole: they are what their parts say.

use model::reason::ReasonCode;
use model::workflow::{
    CompensationState, FromSchedule, NoteKind, Place, RollbackState, Schedule, Tally, TaskRecord, TaskState, Workflow,
    WorkflowState,
};
use workflow::plan::OnFailure;

use super::tasks::is_tolerated;
use super::{Checked, require};
use crate::ledger::flows::{ChangedFlow, KnownFlow};

/// 1: once faults have stopped, every workflow has ended, with all that is part of it.
pub fn invariant_every_workflow_ends<'a>(left: impl Iterator<Item = &'a KnownFlow>, healed_for: u64) -> Checked {
    let left: Vec<&KnownFlow> = left.collect();
    require(left.is_empty(), "invariant_every_workflow_ends", || {
        let shown: Vec<String> = left.iter().take(3).map(|flow| describe_flow(flow)).collect();
        format!("{} workflows have not ended {healed_for} ms after the last fault: {}", left.len(), shown.join("; "))
    })
}

/// 1: a workflow goes off the records only after it has ended and someone asked, or its retention is over; and then it
/// does not come back.
pub fn invariant_no_workflow_is_forgotten_early(flow: &KnownFlow, due: bool) -> Checked {
    require(flow.record.state.is_terminal() && due, "invariant_no_workflow_is_forgotten_early", || describe_flow(flow))
}

/// Everything about the record that a commit has changed. `above` is the row of the task that it is part of.
pub fn check_whole(change: &ChangedFlow, flow: &KnownFlow, above: Option<&TaskRecord>) -> Checked {
    if let Some(before) = &change.before {
        invariant_ended_workflows_stay_ended(before, flow, above)?;
        invariant_epochs_come_in_order(change, before, flow)?;
    }
    invariant_tallies_equal_a_recount(flow)?;
    invariant_totals_count_every_job_once(flow)?;
    invariant_workflows_end_with_their_parts(flow)?;
    invariant_success_means_success(change, flow)?;
    invariant_workflows_are_where_they_belong(flow)
}

/// 2: the end of a workflow is final, unless it is run again, or undone as a part of another, or one of its results or
/// compensations is looked at later.
fn invariant_ended_workflows_stay_ended(before: &Workflow, flow: &KnownFlow, above: Option<&TaskRecord>) -> Checked {
    const NAME: &str = "invariant_ended_workflows_stay_ended";
    let after = &flow.record;
    let about = |what: &str| format!("{what}: {before:?} became {}", describe_flow(flow));
    if !before.state.is_terminal() || after.run > before.run {
        let grew = after.run == before.run || before.state.is_terminal();
        return require(grew && !flow.crumbling, NAME, || about("it was run again"));
    }
    let undone = before.rollback.is_none() && after.rollback.is_some();
    if undone {
        let from_above = above.is_some_and(|row| row.compensation.as_ref().is_some_and(|undo| undo.job.is_none()));
        return require(from_above, NAME, || about("it is undone although nobody undoes the whole"));
    }
    let late = |note: &model::workflow::Note| {
        matches!(note.kind, NoteKind::QuarantinedLate | NoteKind::RedactedLate | NoteKind::Released)
    };
    let looked = after.notes.get(before.notes.len()..).unwrap_or(&after.notes).iter().any(late);
    let same_rest = Workflow {
        // What a task's result loses, or gets back, the whole does.
        result: if looked { after.result.clone() } else { before.result.clone() },
        notes: after.notes.clone(),
        notes_dropped: after.notes_dropped,
        tasks: after.tasks,
        items: after.items,
        rollback: after.rollback.clone(),
        ..before.clone()
    };
    require(same_rest == *after, NAME, || about("it changed"))
}

/// 5: an epoch is reached when all tasks of those before it have ended.
fn invariant_epochs_come_in_order(change: &ChangedFlow, before: &Workflow, flow: &KnownFlow) -> Checked {
    const NAME: &str = "invariant_epochs_come_in_order";
    let after = &flow.record;
    if change.is_rerun(flow) || after.epoch == before.epoch {
        return Ok(());
    }
    let done = |number: u32| flow.rows.get(&Place::of(number)).is_some_and(|row| row.state.is_terminal());
    let open =
        flow.plan.tasks.iter().enumerate().find(|(number, task)| task.epoch < after.epoch && !done(*number as u32));
    require(after.epoch > before.epoch && open.is_none(), NAME, || {
        format!("epoch {} after {}, and {open:?} is open: {}", after.epoch, before.epoch, describe_flow(flow))
    })
}

/// 8: the tallies are what a count over the rows gives: what has no row waits, or was left out.
fn invariant_tallies_equal_a_recount(flow: &KnownFlow) -> Checked {
    const NAME: &str = "invariant_tallies_equal_a_recount";
    let mut tasks = flow.tasks;
    tasks.add(TaskState::Waiting, flow.plan.tasks.len() as u32 - tasks.total());
    require(tasks == flow.record.tasks, NAME, || format!("tasks {tasks:?}: {}", describe_flow(flow)))?;
    let mut items = Tally::default();
    // Of those, it cannot be told from the rows whether they have been left out already.
    let mut unsure = 0;
    for (place, row) in flow.rows.iter().filter(|(place, _)| place.item.is_none()) {
        let Some(count) = row.items else { continue };
        let begun = flow.items.get(&place.task).copied().unwrap_or_default();
        for state in TaskState::ALL {
            items.add(state, begun.of(state));
        }
        let rest = count - begun.total();
        let tolerated = flow.plan.tasks[place.task as usize].on_failure == OnFailure::Continue;
        let bad = [TaskState::Failed, TaskState::Cancelled, TaskState::Quarantined];
        let failed = !tolerated && bad.into_iter().any(|state| begun.of(state) > 0);
        if row.state.is_terminal() || failed {
            items.add(TaskState::Cancelled, rest);
        } else if flow.record.state == WorkflowState::Stopping {
            unsure += rest;
        } else {
            items.add(TaskState::Waiting, rest);
        }
    }
    let told = flow.record.items;
    let unsure_left_out = told.of(TaskState::Cancelled).saturating_sub(items.of(TaskState::Cancelled)).min(unsure);
    items.add(TaskState::Cancelled, unsure_left_out);
    items.add(TaskState::Waiting, unsure - unsure_left_out);
    require(items == told, NAME, || format!("items {items:?}, not {told:?}: {}", describe_flow(flow)))
}

/// 8: every job of a workflow is counted once, when it ends.
fn invariant_totals_count_every_job_once(flow: &KnownFlow) -> Checked {
    let counted = flow.ended_jobs + flow.jobs_of_parts;
    require(counted == flow.record.totals.jobs, "invariant_totals_count_every_job_once", || {
        format!("{} of its own, {} of its parts: {}", flow.ended_jobs, flow.jobs_of_parts, describe_flow(flow))
    })
}

/// A workflow has ended exactly when all its tasks have, none of its jobs is live, and what was to be undone was.
fn invariant_workflows_end_with_their_parts(flow: &KnownFlow) -> Checked {
    const NAME: &str = "invariant_workflows_end_with_their_parts";
    let settled = flow.tasks.total() as usize == flow.plan.tasks.len() && flow.tasks.live() == 0;
    let undoing = flow.record.rollback.as_ref().is_some_and(|rollback| rollback.state == RollbackState::RollingBack);
    let holds = match flow.record.state {
        WorkflowState::Succeeded | WorkflowState::Failed | WorkflowState::Cancelled => {
            settled && !undoing && flow.own_live == 0
        }
        WorkflowState::Running | WorkflowState::Paused | WorkflowState::Stopping => !settled && !undoing,
        WorkflowState::RollingBack => settled && undoing,
    };
    require(holds, NAME, || format!("settled: {settled}, live jobs: {}: {}", flow.own_live, describe_flow(flow)))
}

/// A workflow succeeds exactly when no task of it has failed, or such failures are tolerated, and there is a result.
fn invariant_success_means_success(change: &ChangedFlow, flow: &KnownFlow) -> Checked {
    const NAME: &str = "invariant_success_means_success";
    let entered =
        change.before.as_ref().is_none_or(|before| before.state != flow.record.state || change.is_rerun(flow));
    let undone = flow.record.rollback.is_some();
    if !entered || !flow.record.state.is_terminal() || undone {
        return Ok(());
    }
    let late = |task: u32| {
        let of_it = |note: &&model::workflow::Note| note.place.is_some_and(|place| place.task == task);
        flow.record.notes.iter().filter(of_it).any(|note| note.kind == NoteKind::QuarantinedLate)
    };
    let is_bad = |(place, row): &(&Place, &TaskRecord)| {
        let tolerated = is_tolerated(flow, place.task, row);
        place.item.is_none()
            && match row.state {
                TaskState::Failed | TaskState::Cancelled => !tolerated,
                TaskState::Quarantined => !tolerated && !late(place.task),
                TaskState::Waiting
                | TaskState::Running
                | TaskState::Sleeping
                | TaskState::Listening
                | TaskState::Merged
                | TaskState::Succeeded
                | TaskState::Skipped => false,
            }
    };
    let bad = flow.rows.iter().find(is_bad);
    let code = flow.record.reason.as_ref().map(|reason| reason.code);
    let about = || format!("{bad:?}: {}", describe_flow(flow));
    match flow.record.state {
        WorkflowState::Succeeded => {
            let rendered = flow.plan.outputs.is_some() == flow.record.result.is_some();
            require(bad.is_none() && rendered && code.is_none(), NAME, about)
        }
        WorkflowState::Failed => {
            let other = matches!(code, Some(ReasonCode::TemplateError | ReasonCode::WorkflowTimedOut));
            let late = flow.rows.keys().any(|place| late(place.task));
            require(code.is_some() && (bad.is_some() || other || late), NAME, about)
        }
        WorkflowState::Cancelled => require(code.is_some(), NAME, about),
        WorkflowState::Running | WorkflowState::Paused | WorkflowState::Stopping | WorkflowState::RollingBack => Ok(()),
    }
}

/// A live workflow stands among the live ones, one that has ended and is not part of another among the ended.
fn invariant_workflows_are_where_they_belong(flow: &KnownFlow) -> Checked {
    let ended = flow.record.state.is_terminal();
    let holds = if flow.filed { ended } else { !ended || flow.record.parent.is_some() };
    require(holds, "invariant_workflows_are_where_they_belong", || describe_flow(flow))
}

/// 6: steps are undone in the opposite order of their ends, each once, and the rollback counts them right.
pub fn check_undoing(change: &ChangedFlow, flow: &KnownFlow) -> Checked {
    invariant_steps_are_undone_last_first(change, flow)?;
    invariant_rollbacks_count_right(flow)
}

/// What a commit has begun to undo: the orders, the highest first.
fn newly_undone(change: &ChangedFlow, flow: &KnownFlow) -> Vec<(u32, Place)> {
    let mut new: Vec<(u32, Place)> = Vec::new();
    for (place, before) in &change.rows {
        let Some(row) = flow.rows.get(place).filter(|row| row.compensation.is_some()) else { continue };
        let known = before.as_ref().is_some_and(|before| before.compensation.is_some());
        if !known || change.is_rerun(flow) {
            new.push((row.order, *place));
        }
    }
    new.sort_unstable_by(|a, b| b.cmp(a));
    new
}

/// The order of what was undone last, if anything was with this commit.
pub fn newest_undone(change: &ChangedFlow, flow: &KnownFlow) -> Option<u32> {
    newly_undone(change, flow).last().map(|(order, _)| *order)
}

fn invariant_steps_are_undone_last_first(change: &ChangedFlow, flow: &KnownFlow) -> Checked {
    const NAME: &str = "invariant_steps_are_undone_last_first";
    let new = newly_undone(change, flow);
    let (Some((highest, _)), Some((lowest, last))) = (new.first().copied(), new.last().copied()) else { return Ok(()) };
    let about = |what: &str| format!("{what}: {new:?} after {:?} in {}", flow.last_undone, describe_flow(flow));
    let strictly = new.is_sorted_by(|a, b| a.0 > b.0) && flow.last_undone.is_none_or(|before| highest < before);
    require(strictly && lowest > 0, NAME, || about("not in order"))?;
    let left_out = flow.rows.iter().find(|(_, row)| row.order > lowest && row.compensation.is_none());
    require(left_out.is_none(), NAME, || about(&format!("{left_out:?} was left out")))?;
    let running = |place: &Place| {
        let undo = flow.rows.get(place).and_then(|row| row.compensation.as_ref());
        undo.is_some_and(|undo| undo.state == CompensationState::Running)
    };
    let too_many = new.iter().any(|(_, place)| *place != last && running(place));
    require(!too_many, NAME, || about("several at once"))
}

/// 6: while a workflow is being undone none of its own jobs runs, and nothing but one step is being undone.
pub fn invariant_one_step_is_undone_at_a_time(flow: &KnownFlow) -> Checked {
    let rolling = flow.record.state == WorkflowState::RollingBack;
    let holds = !rolling || (flow.live.ordinary == 0 && flow.live.undoing <= 1);
    require(holds, "invariant_one_step_is_undone_at_a_time", || format!("{:?}: {}", flow.live, describe_flow(flow)))
}

/// 6: a rollback counts what the rows say, and says that all is undone only if it is.
fn invariant_rollbacks_count_right(flow: &KnownFlow) -> Checked {
    let Some(rollback) = &flow.record.rollback else { return Ok(()) };
    let states =
        || flow.rows.values().filter(|row| row.order > 0).map(|row| row.compensation.as_ref().map(|undo| undo.state));
    let count = |wanted| states().filter(|state| *state == Some(wanted)).count() as u32;
    let (done, failed) = (count(CompensationState::Done), count(CompensationState::Failed));
    let total = states().count() as u32;
    let all_done = done == total;
    let ends = match rollback.state {
        RollbackState::RollingBack => true,
        RollbackState::RolledBack => all_done,
        RollbackState::PartiallyRolledBack => !all_done && done + failed == total,
    };
    let holds = (rollback.total, rollback.undone, rollback.failed) == (total, done, failed) && ends;
    require(holds, "invariant_rollbacks_count_right", || {
        format!("{total} steps, {done} undone, {failed} not: {rollback:?} of {}", describe_flow(flow))
    })
}

/// Each slot of a schedule starts at most one workflow, and not before its time.
pub fn invariant_every_slot_starts_once(record: &Workflow, from: FromSchedule, is_new: bool) -> Checked {
    require(is_new && record.created_at >= from.slot, "invariant_every_slot_starts_once", || {
        format!("{from:?} has started {} at {:?}; it is new: {is_new}", record.id, record.created_at)
    })
}

/// 8: a schedule counts what it has started.
pub fn invariant_schedules_count_right(schedule: &Schedule, started: u64) -> Checked {
    require(schedule.started == started, "invariant_schedules_count_right", || {
        format!("{started} workflows were started: {schedule:?}")
    })
}

/// With a schedule that makes up for everything, every slot that has had its turn has started its workflow.
pub fn invariant_no_slot_is_lost(schedule: &Schedule, lost: Option<model::time::Millis>) -> Checked {
    require(lost.is_none(), "invariant_no_slot_is_lost", || {
        let Schedule { id, name, spec, last_slot, .. } = schedule;
        format!(
            "{id} `{name}` ({:?}, {:?}, jitter {:?}) at {last_slot:?} has left out {lost:?}",
            spec.catch_up, spec.overlap, spec.jitter
        )
    })
}

/// A workflow in one line.
pub fn describe_flow(flow: &KnownFlow) -> String {
    let record = &flow.record;
    let rows: Vec<String> = flow
        .rows
        .iter()
        .take(40)
        .map(|(place, row)| {
            let item = place.item.map_or_else(String::new, |item| format!("[{item}]"));
            let undo = row.compensation.as_ref().map_or_else(String::new, |undo| format!("/{}", undo.state.as_str()));
            let why = row.reason.as_ref().map_or_else(String::new, |reason| format!("({})", reason.code.as_str()));
            format!("{}{item}={}{why}{undo}", place.task, row.state)
        })
        .collect();
    let note = |note: &model::workflow::Note| {
        let place = note.place.map_or_else(String::new, |place| format!("({})", place.task));
        format!("{}{place}@{}", note.kind.as_str(), note.at.0 % 10_000_000)
    };
    let notes: Vec<String> = record.notes.iter().map(note).collect();
    let waits = |number: &usize| !flow.rows.contains_key(&Place::of(*number as u32));
    let waiting = (0..flow.plan.tasks.len()).filter(waits).take(20);
    let waiting: Vec<String> =
        waiting.map(|number| format!("{number} needs {:?}", flow.plan.tasks[number].needs)).collect();
    format!(
        "{} of {} (run {}, depth {}, {} tasks, epoch {}, filed: {}): {} {:?} after_stop {:?} rollback {:?} reason {:?} jobs {} rows {} waiting {} notes {}",
        record.id,
        record.tenant,
        record.run,
        record.depth,
        flow.plan.tasks.len(),
        record.epoch,
        flow.filed,
        record.state,
        record.tasks.0,
        record.after_stop,
        record.rollback.as_ref().map(|rollback| (rollback.state, rollback.total, rollback.undone, rollback.failed)),
        record.reason.as_ref().map(|reason| reason.code.as_str()),
        record.totals.jobs,
        rows.join(" "),
        waiting.join(", "),
        notes.join(" ")
    )
}
