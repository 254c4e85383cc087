//! Stop of a workflow: live tasks are stopped and awaited, waiting tasks are cancelled.

use model::id::WorkflowId;
use model::machine::Event;
use model::reason::{Reason, ReasonCode};
use model::state::State;
use model::workflow::{AfterStop, TaskKey, TaskState, WorkflowState};

use super::settle::TaskEnd;
use crate::anomaly::Anomaly;
use crate::shard::Shard;
use crate::step::Step;

/// Tasks and items stopped per action.
const CHUNK: usize = 64;

impl Shard {
    /// Begins to stop a workflow. Rollback wins over plain cancel.
    pub(super) fn stop(&mut self, id: WorkflowId, then: AfterStop, reason: Reason, step: &mut Step) {
        let now = self.now;
        // A workflow queued to be stopped may have finished meanwhile.
        let Some(workflow) = self.workflows.touch(id) else { return };
        match workflow.record.state {
            WorkflowState::Running | WorkflowState::Paused => {
                workflow.record.enter(WorkflowState::Stopping, now);
                workflow.record.after_stop = Some(then);
                workflow.record.reason = Some(reason);
                workflow.stop_cursor = Some(TaskKey::of(0));
                workflow.ready.clear();
                workflow.excluded.clear();
                workflow.for_each_ready.clear();
                self.announce_workflow(id, step);
                self.workflows.wake(id);
                // All tasks may have ended already.
                self.check_settled(id, step);
            }
            WorkflowState::Stopping => {
                let known = workflow.record.after_stop.unwrap_or(then);
                if then.rolls_back() && !known.rolls_back() {
                    let failed = known.end() == WorkflowState::Failed;
                    workflow.record.after_stop =
                        Some(if failed { AfterStop::RollBackAndFail } else { AfterStop::RollBackAndCancel });
                }
            }
            WorkflowState::RollingBack
            | WorkflowState::Succeeded
            | WorkflowState::Failed
            | WorkflowState::Cancelled => {}
        }
    }

    /// Stops the next tasks and items.
    pub(super) fn stop_next(&mut self, id: WorkflowId, step: &mut Step) {
        for _ in 0..CHUNK {
            let Some(workflow) = self.workflows.map.get_mut(&id) else {
                return self.anomalies.note(Anomaly::MissingWorkflow(id), "stop next");
            };
            let Some(task_key) = workflow.stop_cursor else { return };
            if task_key.task as usize >= workflow.tasks.len() {
                workflow.stop_cursor = None;
                return;
            }
            let each = workflow.tasks[task_key.task as usize].for_each.as_ref();
            let items = each.map_or(0, |each| each.items.len() as u32);
            let is_live = workflow.tasks[task_key.task as usize].state.is_live();
            // A `for_each` task is stopped by stopping its items.
            let next = match task_key.item {
                None if items > 0 && is_live => TaskKey::item(task_key.task, 0),
                Some(item) if item + 1 < items && is_live => TaskKey::item(task_key.task, item + 1),
                None | Some(_) => TaskKey::of(task_key.task + 1),
            };
            workflow.stop_cursor = Some(next);
            if task_key.item.is_none() && items > 0 && is_live {
                self.cancel_waiting_items(id, task_key.task);
                self.end_list_without_items(id, task_key.task, step);
            } else {
                self.stop_task(id, task_key, step);
            }
            if self.is_full(step) {
                return;
            }
        }
    }

    /// Ends a `for_each` task if all its items have ended.
    fn end_list_without_items(&mut self, id: WorkflowId, task: u32, step: &mut Step) {
        let each = self.workflows.map.get(&id).and_then(|workflow| workflow.tasks[task as usize].for_each.as_ref());
        if each.is_some_and(|each| each.left == 0) {
            let end = TaskEnd::with_reason(TaskState::Cancelled, Reason::new(ReasonCode::WorkflowStopped));
            self.settle(id, TaskKey::of(task), end, step);
        }
    }

    /// Stops a task or item: cancels its job or sub-workflow, or ends it if nothing runs.
    fn stop_task(&mut self, id: WorkflowId, task_key: TaskKey, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "stop task");
        };
        let row = workflow.row(task_key);
        let (job, child) = (row.and_then(|row| row.job), row.and_then(|row| row.child));
        match workflow.state(task_key) {
            TaskState::Running => match (job, child) {
                (Some(job), _) => {
                    // A job in its content scan has finished running; it is not cancelled.
                    let scanning = self.jobs.get(job).is_some_and(|entry| entry.job.state == State::Scanning);
                    if !scanning {
                        let _ = self.fire(job, Event::Cancel(ReasonCode::WorkflowStopped), step);
                    }
                }
                (None, Some(child)) => {
                    self.stop(child, AfterStop::Cancelled, Reason::new(ReasonCode::WorkflowStopped), step);
                }
                (None, None) => {}
            },
            TaskState::Waiting | TaskState::Sleeping | TaskState::Listening | TaskState::Merged => {
                self.settle(
                    id,
                    task_key,
                    TaskEnd::with_reason(TaskState::Cancelled, Reason::new(ReasonCode::WorkflowStopped)),
                    step,
                );
            }
            TaskState::Succeeded
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Quarantined => {}
        }
    }
}
