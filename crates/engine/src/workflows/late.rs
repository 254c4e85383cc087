//! Requests and job updates for workflows that are not in memory: the workflow is fetched, then they are executed in
//! order of arrival.

use std::collections::BTreeSet;

use model::audit::Action;
use model::batch::Keyspace;
use model::id::{JobId, WorkflowId};
use model::job::Job;
use model::state::State;
use model::time::Millis;
use model::workflow::{NoteKind, Origin, TaskKey, TaskState, WorkflowState};
use workflow::plan::OnFailure;

use super::jobs::JobUpdate;
use super::live::LiveWorkflow;
use super::scope::value_of;
use super::unsubmitted::LetterOperation;
use crate::anomaly::Anomaly;
use crate::fetch::{Fetch, StoredWorkflow};
use crate::input::{Actor, Answer, Effect, Refusal, RequestId};
use crate::operations::Operation;
use crate::shard::Shard;
use crate::step::Step;

/// Interval in which a workflow is fetched at most [`FETCHES_MAX`] times for late updates of its jobs. A fetch reads all
/// tasks: one for each of many updates would take time that grows with the square of their number.
pub(super) const FETCH_INTERVAL: Millis = Millis(5_000);
const FETCHES_MAX: u32 = 16;

/// With this many late updates waiting, the workflow is fetched at once.
const UPDATES_WAITING_MAX: usize = 1_000;

/// What waits for the fetch of a workflow, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct AwaitingFetch {
    deferred: Vec<Deferred>,
    /// The fetch is under way. Otherwise it waits for [`FETCH_INTERVAL`] to pass.
    is_requested: bool,
}

/// Results to be derived again after a batch of late updates.
#[derive(Debug, Default)]
pub(crate) struct StaleResults {
    /// Tasks whose items' results have changed.
    lists: BTreeSet<u32>,
    /// The workflow's own result.
    own: bool,
}

/// A request or update that waits for a workflow's fetch.
#[derive(Debug)]
pub(crate) enum Deferred {
    Rerun {
        request: RequestId,
        from: Option<String>,
        by: Actor,
    },
    Remove {
        request: RequestId,
        by: Actor,
    },
    /// The workflow is past its retention.
    Expire,
    /// An operation on the dead letter of a compensation.
    DeadLetter {
        request: RequestId,
        letter: JobId,
        operation: LetterOperation,
        by: Actor,
    },
    /// A request that only live workflows accept. `what` is its participle for the refusal, such as "paused".
    LiveOnly {
        request: RequestId,
        what: &'static str,
    },
    /// A job changed after its task had ended.
    Job {
        origin: Origin,
        update: Box<JobUpdate>,
    },
    /// Rollback of a sub-workflow, because its parent is rolling back.
    RollBack {
        parent: WorkflowId,
        task_key: TaskKey,
    },
}

/// Refuses what waits for a workflow that cannot be read. Everything without a request is done later: the update of a
/// job keeps its mark, a parent's rollback waits, and the workflow expires when it can be read.
fn refuse(deferred: Deferred, refusal: Refusal, step: &mut Step) {
    match deferred {
        Deferred::Rerun { request, .. }
        | Deferred::Remove { request, .. }
        | Deferred::DeadLetter { request, .. }
        | Deferred::LiveOnly { request, .. } => step.answer(request, Answer::Refused(refusal)),
        Deferred::Job { .. } | Deferred::RollBack { .. } | Deferred::Expire => {}
    }
}

impl Shard {
    /// Fetches a workflow from the store and defers `deferred` until it is in memory.
    pub(super) fn fetch_workflow(&mut self, id: WorkflowId, deferred: Deferred, step: &mut Step) {
        if self.workflows.suspended.contains(&id) {
            return refuse(deferred, Refusal::WorkflowSuspended(id), step);
        }
        let is_update = matches!(deferred, Deferred::Job { .. });
        let waiting = self.workflows.awaiting_fetch.entry(id).or_default();
        waiting.deferred.push(deferred);
        let may_wait = is_update && waiting.deferred.len() < UPDATES_WAITING_MAX;
        let is_limited = self.workflows.late_fetches.get(&id).is_some_and(|fetches| *fetches >= FETCHES_MAX);
        if waiting.is_requested || (may_wait && is_limited) {
            return;
        }
        waiting.is_requested = true;
        step.effects.push(Effect::Fetch(Fetch::Workflow { id }));
    }

    /// A [`FETCH_INTERVAL`] has passed since a workflow was fetched for late updates.
    pub(super) fn late_updates_due(&mut self, id: WorkflowId, step: &mut Step) {
        self.workflows.late_fetches.remove(&id);
        if let Some(waiting) = self.workflows.awaiting_fetch.get_mut(&id).filter(|waiting| !waiting.is_requested) {
            waiting.is_requested = true;
            step.effects.push(Effect::Fetch(Fetch::Workflow { id }));
        }
    }

    /// Answers a request to a workflow that is not in memory: refused, or done already.
    pub(super) fn answer_ended(&mut self, request: RequestId, id: WorkflowId, what: &'static str, step: &mut Step) {
        self.fetch_workflow(id, Deferred::LiveOnly { request, what }, step);
    }

    /// Applies a job's update after its task has ended, fetching the workflow if needed.
    pub(super) fn job_changed_late(&mut self, origin: Origin, update: JobUpdate, step: &mut Step) {
        if self.workflows.map.contains_key(&origin.workflow) {
            step.batch.delete(Keyspace::LateUpdates, &update.job.key());
            self.apply_update(origin, &update, step);
        } else {
            // The mark survives a crash until the update has been applied.
            step.batch.put(Keyspace::LateUpdates, &update.job.key(), &[]);
            self.fetch_workflow(origin.workflow, Deferred::Job { origin, update: Box::new(update) }, step);
        }
    }

    /// Restores the mark of a job whose update has not been applied. Call before the shard is resumed.
    pub fn restore_late_update(&mut self, key: &[u8]) {
        self.workflows.late_updates.extend(JobId::from_key(key));
    }

    /// Fetches the jobs whose updates have not been applied to their workflows.
    pub(crate) fn resume_late_updates(&mut self, step: &mut Step) {
        for job in std::mem::take(&mut self.workflows.late_updates) {
            self.operate(None, job, None, Operation::NotifyWorkflow, step);
        }
    }

    /// Applies a fetched job's state to its workflow. Absent: the job was removed, and its mark goes too.
    pub(crate) fn notify_workflow(&mut self, id: JobId, job: Option<&Job>, step: &mut Step) {
        match job.and_then(|job| Some((job.origin.as_deref().copied()?, JobUpdate::of(job, id)))) {
            Some((origin, update)) => self.job_changed_late(origin, update, step),
            None => step.batch.delete(Keyspace::LateUpdates, &id.key()),
        }
    }

    /// Runs the operations that waited for a finished workflow to be fetched.
    pub(crate) fn fetched_workflow(&mut self, id: WorkflowId, found: Option<Box<StoredWorkflow>>, step: &mut Step) {
        let waiting = self.workflows.awaiting_fetch.remove(&id).unwrap_or_default().deferred;
        let was_on_disk = !self.workflows.map.contains_key(&id);
        if let (true, Some(stored)) = (was_on_disk, found) {
            self.revive(*stored);
            self.track_unconfirmed(id);
            self.ask_for_unconfirmed(id, step);
        }
        self.run_all_deferred(id, waiting, step);
        // Drop it from memory again, unless it has become active.
        let Some(workflow) = self.workflows.map.get_mut(&id).filter(|_| was_on_disk) else { return };
        let is_finished =
            workflow.record.state.is_terminal() && workflow.record.parent.is_none_or(|_| !workflow.stored);
        match (is_finished, workflow.dirty) {
            (true, true) => workflow.moves_to_finished = true,
            (true, false) => drop(self.workflows.forget(id)),
            (false, _) => {}
        }
    }

    /// Runs what waited for a fetch, as much as fits into the step; the rest waits for another fetch.
    fn run_all_deferred(&mut self, id: WorkflowId, waiting: Vec<Deferred>, step: &mut Step) {
        if waiting.iter().any(|deferred| matches!(deferred, Deferred::Job { .. })) {
            self.count_late_fetch(id);
        }
        let mut left = waiting.into_iter().peekable();
        while !self.is_full(step)
            && let Some(deferred) = left.next()
        {
            if matches!(deferred, Deferred::Job { .. }) {
                self.collect_stale_results(id);
            } else {
                self.derive_stale_results(id);
            }
            self.run_deferred(id, deferred, step);
        }
        self.derive_stale_results(id);
        if left.peek().is_some() {
            let rest = AwaitingFetch { deferred: left.collect(), is_requested: true };
            self.workflows.awaiting_fetch.insert(id, rest);
            step.effects.push(Effect::Fetch(Fetch::Workflow { id }));
        }
    }

    fn count_late_fetch(&mut self, id: WorkflowId) {
        let fetches = self.workflows.late_fetches.entry(id).or_default();
        *fetches += 1;
        if *fetches == 1 {
            self.workflows.arm_late_updates(self.now + FETCH_INTERVAL, id);
        }
    }

    /// From here on results that depend on others are only marked as stale.
    fn collect_stale_results(&mut self, id: WorkflowId) {
        if let Some(workflow) = self.workflows.map.get_mut(&id) {
            workflow.stale_results.get_or_insert_default();
        }
    }

    /// Derives the results that were marked as stale.
    fn derive_stale_results(&mut self, id: WorkflowId) {
        let Some(stale) = self.workflows.map.get_mut(&id).and_then(|workflow| workflow.stale_results.take()) else {
            return;
        };
        for task in stale.lists {
            self.regather_results(id, task);
        }
        if stale.own {
            self.rerender_result(id);
        }
    }

    /// Refuses what waited for a workflow that cannot be decoded.
    pub(crate) fn unreadable_workflow(&mut self, id: WorkflowId, step: &mut Step) {
        for deferred in self.workflows.awaiting_fetch.remove(&id).unwrap_or_default().deferred {
            refuse(deferred, Refusal::Unreadable, step);
        }
    }

    /// Loads a finished workflow into memory.
    fn revive(&mut self, stored: StoredWorkflow) {
        let StoredWorkflow { record, spec, plan, tasks, signals } = stored;
        let mut workflow = LiveWorkflow::new(record, plan, value_of(&spec.inputs));
        workflow.was_finished = true;
        for (task_key, row) in tasks {
            workflow.put_row(task_key, row);
        }
        workflow.signals = signals.into_iter().collect();
        workflow.derive();
        if let Some(digest) = workflow.record.definition {
            self.workflows.definitions.join(digest);
        }
        self.workflows.map.insert(workflow.record.id, Box::new(workflow));
    }

    /// Executes a request or update after the fetch of its workflow.
    fn run_deferred(&mut self, id: WorkflowId, deferred: Deferred, step: &mut Step) {
        let state = self.workflows.map.get(&id).map(|workflow| workflow.record.state);
        match deferred {
            Deferred::Rerun { request, from, by } => self.rerun(request, id, from, &by, step),
            Deferred::Remove { request, by } => match self.workflows.map.get(&id) {
                Some(workflow) if workflow.record.state.is_terminal() => {
                    self.audit_workflow(Action::WorkflowRemoved, id, &by, step);
                    self.remove_fetched(id, Some(request), step);
                }
                Some(workflow) => {
                    let refusal = Refusal::WorkflowState { state: workflow.record.state, what: "deleted" };
                    step.answer(request, Answer::Refused(refusal));
                }
                None => step.answer(request, Answer::Refused(Refusal::UnknownWorkflow(id))),
            },
            Deferred::Expire => {
                // It may have been rerun since.
                if state.is_some_and(WorkflowState::is_terminal) {
                    self.remove_fetched(id, None, step);
                }
            }
            Deferred::DeadLetter { request, letter, operation, by } => {
                self.operate_on_letter(request, id, letter, operation, &by, step);
            }
            Deferred::LiveOnly { request, what } => {
                let done = matches!((what, state), ("cancelled", Some(WorkflowState::Cancelled)));
                match state {
                    Some(_) if done => self.answer_workflow(request, id, step),
                    Some(state) => step.answer(request, Answer::Refused(Refusal::WorkflowState { state, what })),
                    None => step.answer(request, Answer::Refused(Refusal::UnknownWorkflow(id))),
                }
            }
            Deferred::Job { origin, update } => {
                step.batch.delete(Keyspace::LateUpdates, &update.job.key());
                self.apply_update(origin, &update, step);
            }
            Deferred::RollBack { parent, task_key } => {
                if state.is_none() {
                    return self.compensated(parent, task_key, false, step);
                }
                if let Some(workflow) = self.workflows.map.get_mut(&id) {
                    // It is part of a live workflow again.
                    workflow.stored = true;
                }
                if let Some(parent) = self.workflows.map.get_mut(&parent) {
                    parent.children.insert(id);
                }
                self.hold_queue(id);
                self.workflows.touch(id);
                self.compensate_child(parent, task_key, id, step);
            }
        }
    }

    /// Applies a job's change after its task, or its compensation, had ended.
    pub(super) fn apply_late_update(&mut self, origin: Origin, update: &JobUpdate, step: &mut Step) {
        let Origin { workflow: id, task_key, compensation } = origin;
        if compensation {
            if self.compensated_late(id, task_key, update.job, update.state) {
                self.announce_workflow(id, step);
            }
            return;
        }
        // The workflow may have been removed since it was fetched.
        let Some(workflow) = self.workflows.map.get(&id) else { return };
        let Some(row) = workflow.row(task_key).filter(|row| row.job == Some(update.job)) else { return };
        // Merged tasks follow their leader.
        let task_keys: Vec<TaskKey> = std::iter::once(task_key).chain(workflow.merged_tasks(task_key)).collect();
        match (row.state, update.state) {
            (TaskState::Succeeded, State::Quarantined) => {
                task_keys.into_iter().for_each(|task_key| self.quarantine_late(id, task_key, step));
            }
            (TaskState::Quarantined, State::Succeeded) => {
                task_keys.into_iter().for_each(|task_key| self.release_late(id, task_key, update, step));
            }
            (TaskState::Succeeded, State::Succeeded) => {
                task_keys.into_iter().for_each(|task_key| self.redact_late(id, task_key, update, step));
            }
            _ => {
                let now = self.now;
                if let Some(row) = self.workflows.touch(id).and_then(|workflow| workflow.row_mut(task_key, now)) {
                    row.job_state = Some(update.state);
                }
                if update.state == State::Succeeded {
                    self.note_workflow(id, NoteKind::Released, None, Some(task_key), None);
                }
            }
        }
    }

    /// Withholds the result of an ended task. Dependents that have begun go on; others do not begin.
    fn quarantine_late(&mut self, id: WorkflowId, task_key: TaskKey, step: &mut Step) {
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "quarantine late");
        };
        for task_key in [Some(task_key), task_key.item.map(|_| TaskKey::of(task_key.task))].into_iter().flatten() {
            if workflow.state(task_key) == TaskState::Succeeded
                && let Some(row) = workflow.enter(task_key, TaskState::Quarantined, now)
            {
                row.result = None;
                row.job_state = row.job.map(|_| State::Quarantined);
            }
        }
        let tolerated = workflow.task(task_key).on_failure == OnFailure::Continue;
        let active = workflow.is_active();
        let each =
            workflow.tasks[task_key.task as usize].for_each.as_mut().filter(|_| task_key.item.is_some() && !tolerated);
        if let Some(each) = each {
            each.failure.get_or_insert_with(|| model::reason::Reason::new(model::reason::ReasonCode::ItemFailed));
        }
        if active && !tolerated {
            let message = format!("the result of `{}` was quarantined", workflow.name_of(task_key));
            let code = model::reason::ReasonCode::OutputQuarantined;
            workflow.failure.get_or_insert_with(|| model::reason::Reason::with(code, message));
        }
        self.result_changed(id);
        self.note_workflow(id, NoteKind::QuarantinedLate, None, Some(task_key), None);
        self.announce_task(id, task_key, step);
        if task_key.item.is_some() && !tolerated && self.is_live_list(id, task_key.task) {
            self.cancel_waiting_items(id, task_key.task);
            self.close_list(id, task_key.task, step);
        }
        if active {
            self.reevaluate_dependents(id, task_key.task);
        }
    }

    /// Whether the `for_each` task has begun and not ended.
    fn is_live_list(&self, id: WorkflowId, task: u32) -> bool {
        self.workflows.map.get(&id).is_some_and(|workflow| workflow.tasks[task as usize].state.is_live())
    }

    /// Shows the result of a quarantined task again.
    fn release_late(&mut self, id: WorkflowId, task_key: TaskKey, update: &JobUpdate, step: &mut Step) {
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "release late");
        };
        if workflow.state(task_key) != TaskState::Quarantined {
            // A merged task that was cancelled before the leader's end.
            return;
        }
        let is_read = workflow.task(task_key).is_read || workflow.task(task_key).merge.is_some();
        if let Some(row) = workflow.enter(task_key, TaskState::Succeeded, now)
            && row.merged_into.is_none()
        {
            row.result = update.result.clone().filter(|_| is_read);
            row.job_state = Some(State::Succeeded);
        }
        workflow.failure = workflow.find_failure();
        workflow.failed_epoch = workflow.find_failed_epoch();
        self.list_changed(id, task_key);
        self.note_workflow(id, NoteKind::Released, None, Some(task_key), None);
        self.announce_task(id, task_key, step);
    }

    /// Replaces the stored result of a task by its redacted form.
    fn redact_late(&mut self, id: WorkflowId, task_key: TaskKey, update: &JobUpdate, step: &mut Step) {
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "redact late");
        };
        if !workflow.task(task_key).is_read && workflow.task(task_key).merge.is_none() {
            return;
        }
        if let Some(row) = workflow.row_mut(task_key, now)
            && row.merged_into.is_none()
        {
            row.result.clone_from(&update.result);
        }
        self.list_changed(id, task_key);
        self.result_changed(id);
        self.note_workflow(id, NoteKind::RedactedLate, None, Some(task_key), None);
        self.announce_task(id, task_key, step);
    }

    /// The result of an item has changed: the list of its task is derived again, at once or with the batch.
    fn list_changed(&mut self, id: WorkflowId, task_key: TaskKey) {
        if task_key.item.is_none() {
            return;
        }
        match self.workflows.map.get_mut(&id).and_then(|workflow| workflow.stale_results.as_mut()) {
            Some(stale) => drop(stale.lists.insert(task_key.task)),
            None => self.regather_results(id, task_key.task),
        }
    }

    /// The result of a task has changed, and perhaps that of the workflow.
    fn result_changed(&mut self, id: WorkflowId) {
        match self.workflows.map.get_mut(&id).and_then(|workflow| workflow.stale_results.as_mut()) {
            Some(stale) => stale.own = true,
            None => self.rerender_result(id),
        }
    }

    /// Renders the workflow's result again, without results its tasks may no longer show.
    fn rerender_result(&mut self, id: WorkflowId) {
        if let Some(workflow) = self.workflows.touch(id)
            && workflow.record.result.is_some()
        {
            workflow.record.result = workflow.decide_result().ok().flatten();
        }
    }

    /// Collects the results of a task's items again.
    fn regather_results(&mut self, id: WorkflowId, task: u32) {
        let now = self.now;
        let whole = TaskKey::of(task);
        // An incomplete list has no result yet.
        let ended = self.workflows.map.get(&id).is_some_and(|workflow| workflow.state(whole).is_terminal());
        if !ended {
            return;
        }
        let result = self.gather_results(id, task);
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "regather results");
        };
        let none_quarantined = workflow.tasks[task as usize]
            .for_each
            .as_ref()
            .is_some_and(|each| each.items.iter().all(|item| item.state != TaskState::Quarantined));
        if workflow.state(whole) == TaskState::Quarantined && none_quarantined {
            workflow.enter(whole, TaskState::Succeeded, now);
            workflow.failure = workflow.find_failure();
        }
        if workflow.state(whole).is_terminal()
            && let Some(row) = workflow.row_mut(whole, now)
        {
            row.result = result;
        }
    }
}
