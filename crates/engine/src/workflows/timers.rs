//! Timers of workflows and schedules, derived from the records. Overdue ones fire at start; none fires twice or early.

use model::id::{ScheduleId, WorkflowId};
use model::reason::{Reason, ReasonCode};
use model::time::Millis;
use model::workflow::{AfterStop, NoteKind, TaskKey, TaskState};
use workflow::plan::OnFailure;

use super::Workflows;
use super::settle::TaskEnd;
use crate::anomaly::Anomaly;
use crate::shard::Shard;
use crate::step::Step;

/// A timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorkflowTimer {
    /// End of a delay, or timeout of a signal.
    Task(WorkflowId, TaskKey),
    /// Timeout of the workflow.
    Deadline(WorkflowId),
    /// Next slot of a schedule, or retry of a refused start.
    Schedule(ScheduleId),
    /// Late updates of the jobs of an ended workflow may be applied again.
    LateUpdates(WorkflowId),
}

impl Workflows {
    pub(super) fn arm_task(&mut self, at: Millis, id: WorkflowId, task_key: TaskKey) {
        self.timers.insert((at, WorkflowTimer::Task(id, task_key)));
    }

    pub(super) fn disarm_task(&mut self, at: Millis, id: WorkflowId, task_key: TaskKey) {
        self.timers.remove(&(at, WorkflowTimer::Task(id, task_key)));
    }

    pub(super) fn arm_deadline(&mut self, at: Millis, id: WorkflowId) {
        self.timers.insert((at, WorkflowTimer::Deadline(id)));
    }

    pub(super) fn disarm_deadline(&mut self, at: Millis, id: WorkflowId) {
        self.timers.remove(&(at, WorkflowTimer::Deadline(id)));
    }

    pub(super) fn arm_schedule(&mut self, at: Millis, id: ScheduleId) {
        self.timers.insert((at, WorkflowTimer::Schedule(id)));
    }

    pub(super) fn arm_late_updates(&mut self, at: Millis, id: WorkflowId) {
        self.timers.insert((at, WorkflowTimer::LateUpdates(id)));
    }

    pub(super) fn disarm_schedule(&mut self, at: Millis, id: ScheduleId) {
        self.timers.remove(&(at, WorkflowTimer::Schedule(id)));
    }
}

impl Shard {
    /// Fires a bounded number of due timers.
    pub(crate) fn tick_workflows(&mut self, step: &mut Step) {
        self.retry_waiting_for_room();
        for _ in 0..self.config.timers_per_step {
            if self.is_full(step) {
                break;
            }
            let Some((at, timer)) = self.workflows.timers.first().copied().filter(|(at, _)| *at <= self.now) else {
                break;
            };
            self.workflows.timers.remove(&(at, timer));
            self.stats.workflows.timers_fired += 1;
            match timer {
                WorkflowTimer::Task(id, task_key) => self.task_due(id, task_key, step),
                WorkflowTimer::Deadline(id) => self.deadline_passed(id, step),
                WorkflowTimer::Schedule(id) => self.schedule_due(id, step),
                WorkflowTimer::LateUpdates(id) => self.late_updates_due(id, step),
            }
        }
        self.sweep_workflows(step);
        self.sweep_definitions(step);
    }

    /// Ends a delay, or fails a task whose signal did not arrive.
    fn task_due(&mut self, id: WorkflowId, task_key: TaskKey, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get(&id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "task due");
        };
        match workflow.state(task_key) {
            TaskState::Sleeping => self.settle(id, task_key, TaskEnd::of(TaskState::Succeeded), step),
            TaskState::Listening => {
                let reason = Reason::with(ReasonCode::TaskTimedOut, "the signal did not arrive before the timeout");
                self.settle(id, task_key, TaskEnd::with_reason(TaskState::Failed, reason), step);
            }
            TaskState::Waiting
            | TaskState::Running
            | TaskState::Merged
            | TaskState::Succeeded
            | TaskState::Failed
            | TaskState::Skipped
            | TaskState::Cancelled
            | TaskState::Quarantined => {}
        }
    }

    /// Stops a workflow at its timeout.
    fn deadline_passed(&mut self, id: WorkflowId, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get(&id).filter(|workflow| workflow.is_active()) else { return };
        // A workflow that compensates failures also compensates a timeout.
        let rolls_back = workflow.plan.tasks.iter().any(|task| task.on_failure == OnFailure::Compensate);
        let then = if rolls_back { AfterStop::RollBackAndFail } else { AfterStop::Failed };
        self.note_workflow(id, NoteKind::TimedOut, None, None, None);
        let reason = Reason::with(ReasonCode::WorkflowTimedOut, "the workflow exceeded its timeout");
        self.stop(id, then, reason, step);
    }
}
