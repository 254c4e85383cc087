//! Ends of tasks, items and workflows, and their consequences.

use model::change::Change;
use model::id::WorkflowId;
use model::json::Json;
use model::limits;
use model::reason::{Reason, ReasonCode};
use model::state::State;
use model::workflow::{AfterStop, Note, NoteKind, TaskKey, TaskRecord, TaskState, WorkflowState};
use workflow::plan::{OnFailure, TaskWork};

use super::live::OutcomeClass;
use crate::anomaly::Anomaly;
use crate::shard::Shard;
use crate::step::Step;

/// End of a task or item.
#[derive(Debug, Clone)]
pub(super) struct TaskEnd {
    pub state: TaskState,
    pub result: Option<Json>,
    pub reason: Option<Reason>,
    pub job_state: Option<State>,
    /// Whether its work was done is unknown.
    pub unknown: bool,
}

impl TaskEnd {
    /// An end without result and reason.
    pub fn of(state: TaskState) -> Self {
        Self { state, result: None, reason: None, job_state: None, unknown: false }
    }

    /// An end with a reason.
    pub fn with_reason(state: TaskState, reason: Reason) -> Self {
        Self { reason: Some(reason), ..Self::of(state) }
    }

    /// The end of a merged task or item. The result stays in the leader's row.
    pub fn of_leader(leader: &TaskRecord) -> Self {
        Self { reason: leader.reason.clone(), job_state: leader.job_state, ..Self::of(leader.state) }
    }

    fn is_failure(&self) -> bool {
        matches!(self.state, TaskState::Failed | TaskState::Cancelled | TaskState::Quarantined)
    }

    /// A fatal failure starts a rollback if the workflow can compensate.
    fn is_fatal(&self) -> bool {
        self.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::Fatal)
    }
}

impl Shard {
    /// Ends a task or item: updates its row and applies the immediate consequences.
    pub(super) fn settle(&mut self, id: WorkflowId, task_key: TaskKey, end: TaskEnd, step: &mut Step) {
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "settle");
        };
        let from = workflow.state(task_key);
        if from.is_terminal() {
            return;
        }
        let compensable = workflow.is_compensable(task_key);
        // A task with a quarantined result, and a sub-workflow that did not succeed, may have effects to compensate.
        let withheld = end.job_state == Some(State::Quarantined);
        let has_effects = withheld
            || end.unknown
            || end.state == TaskState::Succeeded
            || (matches!(workflow.task(task_key).work, TaskWork::Workflow { .. }) && from.is_live());
        let order = if compensable && has_effects && from != TaskState::Merged {
            workflow.record.last_order += 1;
            workflow.record.last_order
        } else {
            0
        };
        // Merged tasks may read it.
        let is_read = workflow.task(task_key).is_read || workflow.task(task_key).merge.is_some();
        let result = end.result.clone().filter(|_| is_read);
        let bytes = result.as_ref().map_or(0, |result| result.as_bytes().len());
        let mut due = None;
        if let Some(row) = workflow.enter(task_key, end.state, now) {
            row.order = order;
            row.result = result;
            row.reason.clone_from(&end.reason);
            row.job_state = end.job_state;
            row.progress = None;
            due = row.due.take();
        }
        self.backlog.add_written(super::flush::ROW_BYTES + bytes);
        if let Some(due) = due {
            self.workflows.disarm_task(due, id, task_key);
        }
        self.stats.workflows.tasks_ended[usize::from(end.state.code())] += 1;
        self.announce_task(id, task_key, step);
        self.release_followers(id, task_key);
        match task_key.item {
            Some(_) => self.item_ended(id, task_key, &end, step),
            None => self.task_ended(id, task_key, &end, step),
        }
    }

    /// Queues the merged tasks of an ended leader to end like it.
    fn release_followers(&mut self, id: WorkflowId, task_key: TaskKey) {
        let Some(workflow) = self.workflows.map.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "release followers");
        };
        if let Some(followers) = workflow.followers.remove(&task_key) {
            workflow.merged_ready.extend(followers);
            self.workflows.wake(id);
        }
    }

    /// Ends a merged task or item like its leader.
    pub(super) fn copy_leader_outcome(&mut self, id: WorkflowId, task_key: TaskKey, step: &mut Step) {
        let Some(workflow) =
            self.workflows.map.get(&id).filter(|workflow| workflow.state(task_key) == TaskState::Merged)
        else {
            return;
        };
        let leader = workflow.row(task_key).and_then(|row| row.merged_into).and_then(|leader| workflow.row(leader));
        if let Some(end) = leader.filter(|leader| leader.state.is_terminal()).map(TaskEnd::of_leader) {
            self.settle(id, task_key, end, step);
        }
    }

    /// Applies the end of an item to its task.
    fn item_ended(&mut self, id: WorkflowId, task_key: TaskKey, end: &TaskEnd, step: &mut Step) {
        self.handle_failure(id, task_key, end, step);
        let Some(workflow) = self.workflows.map.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "item ended");
        };
        let tolerated = workflow.task(task_key).on_failure == OnFailure::Continue;
        let is_read = workflow.task(task_key).is_read;
        let bytes = workflow.result_of(task_key).map_or(0, |result| result.as_bytes().len());
        let Some(each) = workflow.tasks[task_key.task as usize].for_each.as_mut() else { return };
        each.bytes += bytes;
        if each.bytes > limits::LIST_RESULT_BYTES_MAX && is_read && each.failure.is_none() {
            // The list is too large for templates; further results would only use memory.
            each.failure = Some(too_large(each.bytes));
            self.cancel_waiting_items(id, task_key.task);
        } else if end.is_failure() && !tolerated && each.failure.is_none() {
            let name = format!("item {}", task_key.item.unwrap_or_default());
            let cause = end.reason.as_ref().map_or(String::new(), reason_text);
            each.failure = Some(Reason::with(ReasonCode::ItemFailed, format!("{name} did not succeed{cause}")));
            self.cancel_waiting_items(id, task_key.task);
        }
        self.close_list(id, task_key.task, step);
    }

    /// Ends a `for_each` task if all its items have ended; else lets further items begin.
    pub(super) fn close_list(&mut self, id: WorkflowId, task: u32, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "close list");
        };
        let Some(each) = workflow.tasks[task as usize].for_each.as_ref() else { return };
        if each.left > 0 {
            workflow.queue_items(task);
            return self.workflows.wake(id);
        }
        let failure = each.failure.clone();
        let stopped = each.items.iter().any(|item| item.state == TaskState::Cancelled);
        let is_left_out = |row: &TaskRecord| row.reason.as_ref().is_some_and(|r| r.code == ReasonCode::UpstreamFailed);
        let left_out = each.items.iter().any(|item| item.record.as_deref().is_some_and(is_left_out));
        let whole = match failure {
            Some(reason) if workflow.record.state == WorkflowState::Stopping && stopped => {
                TaskEnd::with_reason(TaskState::Cancelled, reason)
            }
            Some(reason) => TaskEnd::with_reason(TaskState::Failed, reason),
            None if left_out => TaskEnd::with_reason(TaskState::Cancelled, Reason::new(ReasonCode::WorkflowStopped)),
            None => TaskEnd { result: self.gather_results(id, task), ..TaskEnd::of(TaskState::Succeeded) },
        };
        self.settle(id, TaskKey::of(task), whole, step);
    }

    /// Cancels the items that have not begun.
    pub(super) fn cancel_waiting_items(&mut self, id: WorkflowId, task: u32) {
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "cancel waiting items");
        };
        let Some(each) = workflow.tasks[task as usize].for_each.as_mut() else { return };
        each.next = each.items.len() as u32;
        let waiting = |(_, item): &(usize, &super::live::LiveItem)| item.state == TaskState::Waiting;
        let left_out: Vec<usize> = each.items.iter().enumerate().filter(waiting).map(|(item, _)| item).collect();
        let bytes = left_out.len() * super::flush::ROW_BYTES;
        for item in left_out {
            if let Some(row) = workflow.enter(TaskKey::item(task, item as u32), TaskState::Cancelled, now) {
                row.reason = Some(Reason::new(ReasonCode::UpstreamFailed));
            }
        }
        self.backlog.add_written(bytes);
    }

    /// The results of all items as one list, if a template reads it.
    pub(super) fn gather_results(&self, id: WorkflowId, task: u32) -> Option<Json> {
        let workflow = self.workflows.map.get(&id).filter(|workflow| workflow.plan.tasks[task as usize].is_read)?;
        let for_each = workflow.tasks[task as usize].for_each.as_ref()?;
        let result = |item: usize| workflow.result_of(TaskKey::item(task, item as u32)).cloned().unwrap_or_default();
        let results: Vec<Json> = (0..for_each.items.len()).map(result).collect();
        Some(Json::of(&results))
    }

    /// Applies the end of a task to its dependents and its workflow.
    fn task_ended(&mut self, id: WorkflowId, task_key: TaskKey, end: &TaskEnd, step: &mut Step) {
        self.handle_failure(id, task_key, end, step);
        let Some(workflow) = self.workflows.map.get(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "task ended");
        };
        if workflow.is_active() {
            self.update_dependents(id, task_key.task);
        }
        self.check_settled(id, step);
    }

    /// Applies a task's or item's failure to the workflow: records it, and starts a rollback if the task demands one.
    fn handle_failure(&mut self, id: WorkflowId, task_key: TaskKey, end: &TaskEnd, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "handle failure");
        };
        let upstream = end.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::UpstreamFailed);
        if !end.is_failure() || upstream || !workflow.is_active() {
            return;
        }
        let task = workflow.task(task_key);
        let (on_failure, is_whole) = (task.on_failure, task_key.item.is_none() && task.for_each.is_some());
        if on_failure == OnFailure::Continue {
            return;
        }
        let cause = end.reason.as_ref().map_or(String::new(), reason_text);
        let reason =
            Reason::with(ReasonCode::TaskFailed, format!("`{}` did not succeed{cause}", workflow.name_of(task_key)));
        workflow.failure.get_or_insert_with(|| reason.clone());
        // A failed item has triggered the rollback already; its task must not do so again.
        let rolls_back = on_failure == OnFailure::Compensate || (end.is_fatal() && workflow.can_compensate);
        if rolls_back && !is_whole {
            self.note_workflow(id, NoteKind::Stopping, None, Some(task_key), None);
            self.stop(id, AfterStop::RollBackAndFail, reason, step);
        }
    }

    /// Evaluates the dependents of an ended task.
    fn update_dependents(&mut self, id: WorkflowId, task: u32) {
        let Some(workflow) = self.workflows.map.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "update dependents");
        };
        let plan = workflow.plan.clone();
        let class = workflow.outcome_class(task);
        for dependent in &plan.tasks[task as usize].dependents {
            let Some(workflow) = self.workflows.map.get_mut(&id) else {
                return self.anomalies.note(Anomaly::MissingWorkflow(id), "update dependents");
            };
            let live_task = &mut workflow.tasks[*dependent as usize];
            if live_task.state != TaskState::Waiting {
                continue;
            }
            live_task.open_needs = live_task.open_needs.saturating_sub(1);
            // Evaluating tasks with open needs each time would be quadratic in the number of needs.
            let decides = class == OutcomeClass::Failure || workflow.is_not_chosen(task, *dependent);
            if workflow.tasks[*dependent as usize].open_needs == 0 || decides {
                self.evaluate_task(id, *dependent);
            }
        }
        if class == OutcomeClass::Failure {
            self.exclude_later_epochs(id, plan.tasks[task as usize].epoch);
        }
        self.advance_epochs(id);
    }

    /// Excludes the waiting dependents of a task that had succeeded and now counts as failed.
    pub(super) fn reevaluate_dependents(&mut self, id: WorkflowId, task: u32) {
        let Some(workflow) = self.workflows.map.get(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "reevaluate dependents");
        };
        let plan = workflow.plan.clone();
        if workflow.outcome_class(task) != OutcomeClass::Failure {
            return;
        }
        for dependent in &plan.tasks[task as usize].dependents {
            let state = self.workflows.map.get(&id).map(|workflow| workflow.tasks[*dependent as usize].state);
            if state == Some(TaskState::Waiting) {
                self.evaluate_task(id, *dependent);
            }
        }
        self.exclude_later_epochs(id, plan.tasks[task as usize].epoch);
    }

    /// Excludes the waiting tasks of all epochs after a failed one. Each task is evaluated once.
    fn exclude_later_epochs(&mut self, id: WorkflowId, epoch: u32) {
        let Some(workflow) = self.workflows.map.get_mut(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "exclude later epochs");
        };
        let before = workflow.failed_epoch.unwrap_or(u32::MAX);
        if epoch >= before {
            return;
        }
        workflow.failed_epoch = Some(epoch);
        let plan = workflow.plan.clone();
        if epoch as usize + 1 >= plan.epochs.len() {
            return;
        }
        for (number, task) in plan.tasks.iter().enumerate() {
            let waits =
                self.workflows.map.get(&id).is_some_and(|workflow| workflow.tasks[number].state == TaskState::Waiting);
            if task.epoch > epoch && task.epoch <= before && waits {
                self.evaluate_task(id, number as u32);
            }
        }
    }

    /// Advances the current epoch past finished ones, and lets the tasks of the next one begin.
    pub(super) fn advance_epochs(&mut self, id: WorkflowId) {
        loop {
            let now = self.now;
            let Some(workflow) = self.workflows.map.get_mut(&id) else {
                return self.anomalies.note(Anomaly::MissingWorkflow(id), "advance epochs");
            };
            let epoch = workflow.record.epoch as usize;
            if !workflow.is_active() || epoch + 1 >= workflow.open_in_epoch.len() || workflow.open_in_epoch[epoch] > 0 {
                return;
            }
            if workflow.failed_epoch.is_some_and(|failed| failed as usize <= epoch) {
                return;
            }
            workflow.record.epoch += 1;
            let name = workflow.plan.epochs[epoch + 1].to_string();
            let note = Note { at: now, kind: NoteKind::EpochReached, by: None, task_key: None, text: Some(name) };
            workflow.record.note(note);
            let next = |number: &usize| {
                workflow.plan.tasks[*number].epoch as usize == epoch + 1 && workflow.tasks[*number].open_needs == 0
            };
            let tasks: Vec<usize> = (0..workflow.tasks.len()).filter(next).collect();
            for task in tasks {
                self.evaluate_task(id, task as u32);
            }
        }
    }

    /// Ends the workflow, or begins its rollback, once all tasks have ended.
    pub(super) fn check_settled(&mut self, id: WorkflowId, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get(&id).filter(|workflow| workflow.is_settled()) else { return };
        let waits = workflow.record.state == WorkflowState::Stopping && workflow.unconfirmed > 0;
        if waits && self.rollback_follows(id) {
            // No compensation runs beside a task that may still run.
            return;
        }
        let Some(workflow) = self.workflows.map.get_mut(&id) else { return };
        match workflow.record.state {
            WorkflowState::Running | WorkflowState::Paused => match workflow.failure.take() {
                Some(reason) => self.finish(id, WorkflowState::Failed, Some(reason), step),
                None => match workflow.decide_result() {
                    Ok(result) => {
                        workflow.record.result = result;
                        self.finish(id, WorkflowState::Succeeded, None, step);
                    }
                    Err(reason) => self.finish(id, WorkflowState::Failed, Some(reason), step),
                },
            },
            WorkflowState::Stopping => {
                let then = workflow.record.after_stop.unwrap_or(AfterStop::Cancelled);
                let reason = workflow.record.reason.clone();
                if then.rolls_back() {
                    self.roll_back(id, step);
                } else {
                    self.finish(id, then.end(), reason, step);
                }
            }
            WorkflowState::RollingBack
            | WorkflowState::Succeeded
            | WorkflowState::Failed
            | WorkflowState::Cancelled => {}
        }
    }

    /// Ends a workflow.
    pub(super) fn finish(&mut self, id: WorkflowId, state: WorkflowState, reason: Option<Reason>, step: &mut Step) {
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "finish");
        };
        if workflow.record.state == WorkflowState::RollingBack {
            self.stats.workflows.rolling_back -= 1;
        }
        workflow.record.enter(state, now);
        workflow.record.reason = reason;
        workflow.record.after_stop = None;
        workflow.record.note(Note { at: now, kind: NoteKind::Ended, by: None, task_key: None, text: None });
        let (parent, deadline) = (workflow.record.parent, workflow.record.deadline);
        let numbers: Vec<u32> = std::mem::take(&mut workflow.signals).into_keys().collect();
        for number in numbers {
            step.batch.delete(model::batch::Keyspace::Signals, &model::key::signal(id, number));
        }
        if let Some(deadline) = deadline {
            self.workflows.disarm_deadline(deadline, id);
        }
        self.stats.workflows.end(state);
        self.announce_workflow(id, step);
        if let Some(workflow) = self.workflows.map.get(&id) {
            step.ended_workflows.push(workflow.record.clone());
        }
        match parent {
            Some(_) => self.workflows.pending_child_updates.push_back(id),
            None => self.move_to_finished(id),
        }
        self.schedule_workflow_ended(id);
    }

    /// Publishes the state of a workflow.
    pub(super) fn announce_workflow(&mut self, id: WorkflowId, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "announce workflow");
        };
        let record = &workflow.record;
        step.announce(&Change::Workflow {
            id,
            queue: record.queue,
            state: record.state,
            at: self.now,
            reason: record.reason.as_ref().map(|reason| reason.code),
        });
    }

    /// Adds a note to the workflow's history.
    pub(super) fn note_workflow(
        &mut self,
        id: WorkflowId,
        kind: NoteKind,
        by: Option<Box<str>>,
        task_key: Option<TaskKey>,
        text: Option<String>,
    ) {
        let at = self.now;
        if let Some(workflow) = self.workflows.touch(id) {
            workflow.record.note(Note { at, kind, by, task_key, text });
        }
    }
}

/// The reason of a task whose items' results exceed the limit.
fn too_large(bytes: usize) -> Reason {
    let most = limits::LIST_RESULT_BYTES_MAX;
    Reason::with(
        ReasonCode::TemplateError,
        format!("the results of the items take {bytes} bytes; templates read at most {most} bytes"),
    )
}

/// A reason as the end of a message.
fn reason_text(reason: &Reason) -> String {
    match &reason.message {
        Some(message) => format!(": {} ({message})", reason.code.as_str()),
        None => format!(": {}", reason.code.as_str()),
    }
}
