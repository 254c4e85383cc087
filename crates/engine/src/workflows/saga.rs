//! Rollback: compensates the succeeded tasks of a workflow one at a time, last first, each once.
//!
//! A task with a compensation gets an order number when it ends ([`model::workflow::TaskRecord::order`]), in the same
//! commit. These numbers are the stack. A failed compensation leaves a dead letter, and the rollback continues.

use model::id::{JobId, WorkflowId};
use model::state::State;
use model::workflow::{
    AfterStop, Compensation, CompensationState, NoteKind, Rollback, RollbackState, TaskKey, TaskState, WorkflowState,
};

use super::late::Deferred;
use super::live::LiveWorkflow;
use super::work::WorkResult;
use crate::anomaly::Anomaly;
use crate::shard::Shard;
use crate::step::Step;

impl LiveWorkflow {
    /// Tasks and items still to compensate. The last is next.
    pub fn compensation_stack(&self) -> Vec<(u32, TaskKey)> {
        let to_compensate = self.rows().filter(|(_, row)| row.order > 0 && row.compensation.is_none());
        let mut stack: Vec<_> = to_compensate.map(|(task_key, row)| (row.order, task_key)).collect();
        stack.sort_unstable();
        stack
    }
}

impl Shard {
    /// Begins the rollback. All live tasks have stopped.
    pub(super) fn roll_back(&mut self, id: WorkflowId, step: &mut Step) {
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "roll back");
        };
        workflow.record.enter(WorkflowState::RollingBack, now);
        workflow.stack = workflow.compensation_stack();
        workflow.record.rollback = Some(Rollback {
            state: RollbackState::RollingBack,
            began_at: now,
            ended_at: None,
            total: workflow.stack.len() as u32,
            compensated: 0,
            failed: 0,
        });
        self.stats.workflows.rollbacks += 1;
        self.stats.workflows.rolling_back += 1;
        self.note_workflow(id, NoteKind::RollbackBegan, None, None, None);
        self.announce_workflow(id, step);
        self.workflows.wake(id);
    }

    /// Begins the next compensation, or ends the rollback if there is none.
    pub(super) fn compensate_next(&mut self, id: WorkflowId, step: &mut Step) -> WorkResult {
        let Some(workflow) = self.workflows.map.get(&id) else {
            self.anomalies.note(Anomaly::MissingWorkflow(id), "compensate next");
            return WorkResult::Done;
        };
        let Some((_, task_key)) = workflow.stack.last().copied() else {
            self.end_rollback(id, step);
            return WorkResult::Done;
        };
        let child = workflow.row(task_key).and_then(|row| row.child);
        // A sub-workflow that did not succeed rolls itself back; its task's own compensation does not run.
        let whole =
            child.is_none() || matches!(workflow.state(task_key), TaskState::Succeeded | TaskState::Quarantined);
        let job = workflow.decide_compensation(task_key).filter(|_| whole);
        match (job, child) {
            (Some(Ok(spec)), _) => {
                let Some(job) = self.enter_workflow_job(id, task_key, spec.pack(), true, step) else {
                    return WorkResult::NoRoom;
                };
                self.begin_compensation(id, task_key, Some(job), None);
                self.check_policy(job, step);
            }
            (Some(Err(reason)), _) => {
                let letter = self.dead_letter_compensation(id, task_key, reason, step);
                self.begin_compensation(id, task_key, None, letter);
                self.compensated(id, task_key, false, step);
            }
            (None, Some(child)) => {
                self.begin_compensation(id, task_key, None, None);
                self.compensate_child(id, task_key, child, step);
            }
            (None, None) => {
                if let Some(workflow) = self.workflows.map.get_mut(&id) {
                    workflow.stack.pop();
                }
            }
        }
        WorkResult::Done
    }

    /// Records the start of the compensation on top of the stack.
    fn begin_compensation(
        &mut self,
        id: WorkflowId,
        task_key: TaskKey,
        job: Option<JobId>,
        dead_letter: Option<JobId>,
    ) {
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "begin compensation");
        };
        workflow.stack.pop();
        workflow.compensating = Some(task_key);
        if let Some(row) = workflow.row_mut(task_key, now) {
            let state = CompensationState::Running;
            row.compensation = Some(Box::new(Compensation { state, job, at: now, dead_letter }));
        }
        self.backlog.add_written(super::flush::ROW_BYTES);
    }

    /// Rolls back a sub-workflow.
    pub(super) fn compensate_child(&mut self, id: WorkflowId, task_key: TaskKey, child: WorkflowId, step: &mut Step) {
        let Some(workflow) = self.workflows.touch(child) else {
            return self.fetch_workflow(child, Deferred::RollBack { parent: id, task_key }, step);
        };
        match workflow.record.rollback.as_ref().map(|rollback| rollback.state) {
            None => {
                let failed = workflow.record.state == WorkflowState::Failed;
                let then = if failed { AfterStop::RollBackAndFail } else { AfterStop::RollBackAndCancel };
                workflow.record.after_stop = Some(then);
                self.roll_back(child, step);
            }
            // It was rolled back when it failed.
            Some(RollbackState::RolledBack) => self.compensated(id, task_key, true, step),
            Some(RollbackState::PartiallyRolledBack) => self.compensated(id, task_key, false, step),
            Some(RollbackState::RollingBack) => {}
        }
    }

    /// Records the end of a compensation.
    pub(super) fn compensated(&mut self, id: WorkflowId, task_key: TaskKey, done: bool, step: &mut Step) {
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "compensated");
        };
        workflow.compensating = None;
        let state = if done { CompensationState::Done } else { CompensationState::Failed };
        if let Some(row) = workflow.row_mut(task_key, now)
            && let Some(compensation) = row.compensation.as_mut()
        {
            compensation.state = state;
            compensation.at = now;
        }
        if let Some(rollback) = workflow.record.rollback.as_mut() {
            rollback.compensated += u32::from(done);
            rollback.failed += u32::from(!done);
        }
        self.stats.workflows.compensations_done += u64::from(done);
        self.stats.workflows.compensations_failed += u64::from(!done);
        self.backlog.add_written(super::flush::ROW_BYTES);
        self.announce_task(id, task_key, step);
        self.workflows.wake(id);
    }

    /// Ends the rollback and the workflow.
    fn end_rollback(&mut self, id: WorkflowId, step: &mut Step) {
        let now = self.now;
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "end rollback");
        };
        let then = workflow.record.after_stop.unwrap_or(AfterStop::RollBackAndFail);
        let reason = workflow.record.reason.clone();
        let Some(rollback) = workflow.record.rollback.as_mut() else { return };
        let whole = rollback.failed == 0;
        rollback.state = if whole { RollbackState::RolledBack } else { RollbackState::PartiallyRolledBack };
        rollback.ended_at = Some(now);
        let text = rollback.state.as_str().to_owned();
        self.stats.workflows.rolled_back += u64::from(whole);
        self.stats.workflows.partially_rolled_back += u64::from(!whole);
        self.note_workflow(id, NoteKind::RollbackEnded, None, None, Some(text));
        self.finish(id, then.end(), reason, step);
    }

    /// Records a failed compensation that succeeded when an operator retried it. Returns whether anything changed.
    pub(super) fn compensated_late(&mut self, id: WorkflowId, task_key: TaskKey, job: JobId, state: State) -> bool {
        let now = self.now;
        // The workflow may have been removed since it was fetched.
        let Some(workflow) = self.workflows.map.get_mut(&id) else { return false };
        let failed = workflow.row(task_key).and_then(|row| row.compensation.as_deref()).is_some_and(|compensation| {
            compensation.job == Some(job) && compensation.state == CompensationState::Failed
        });
        if !failed || state != State::Succeeded {
            return false;
        }
        let Some(workflow) = self.workflows.touch(id) else {
            self.anomalies.note(Anomaly::MissingWorkflow(id), "compensated late");
            return false;
        };
        if let Some(compensation) = workflow.row_mut(task_key, now).and_then(|row| row.compensation.as_mut()) {
            compensation.state = CompensationState::Done;
            compensation.at = now;
        }
        if let Some(rollback) = workflow.record.rollback.as_mut() {
            rollback.failed = rollback.failed.saturating_sub(1);
            rollback.compensated += 1;
            if rollback.failed == 0 && rollback.state == RollbackState::PartiallyRolledBack {
                rollback.state = RollbackState::RolledBack;
            }
        }
        true
    }
}
