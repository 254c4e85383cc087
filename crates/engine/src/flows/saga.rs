//! Undoing what a workflow has done: one step at a time, the last first, each once.
//!
//! A step that can be undone is counted when it ends ([`model::workflow::TaskRecord::order`]): that is the stack, and
//! it is as durable as the end itself. A step that cannot be undone leaves a dead letter, and the rest go on.

use model::id::{JobId, WorkflowId};
use model::machine::Event;
use model::reason::Reason;
use model::spec::{EchoRun, JobSpec, Run};
use model::state::State;
use model::workflow::{
    AfterStop, Compensation, CompensationState, NoteKind, Place, Rollback, RollbackState, TaskState, WorkflowState,
};
use serde_json::json;

use super::flow::Flow;
use super::late::Late;
use super::work::Did;
use crate::shard::Shard;
use crate::step::Step;

impl Flow {
    /// What is still to be undone, the next one last.
    pub fn undo_stack(&self) -> Vec<(u32, Place)> {
        let mut stack = Vec::new();
        for (task, slot) in self.slots.iter().enumerate() {
            let task = task as u32;
            let items = slot.each.iter().flat_map(|each| each.slots.iter().enumerate());
            let items = items.map(|(item, slot)| (Place::item(task, item as u32), slot.record.as_deref()));
            for (place, row) in items.chain([(Place::of(task), slot.record.as_deref())]) {
                if let Some(row) = row
                    && row.order > 0
                    && row.compensation.is_none()
                {
                    stack.push((row.order, place));
                }
            }
        }
        stack.sort_unstable();
        stack
    }
}

impl Shard {
    /// All live tasks have stopped: begins to undo what was done.
    pub(super) fn roll_back(&mut self, id: WorkflowId, step: &mut Step) {
        let now = self.now;
        let Some(flow) = self.flows.touch(id) else { return };
        flow.record.enter(WorkflowState::RollingBack, now);
        flow.stack = flow.undo_stack();
        flow.record.rollback = Some(Rollback {
            state: RollbackState::RollingBack,
            began_at: now,
            ended_at: None,
            total: flow.stack.len() as u32,
            undone: 0,
            failed: 0,
        });
        self.stats.flows.rollbacks += 1;
        self.stats.flows.rolling_back += 1;
        self.note_flow(id, NoteKind::RollbackBegan, None, None, None);
        self.tell_flow(id, step);
        self.flows.wake(id);
    }

    /// Undoes the next step; when there is none, the rollback has ended.
    pub(super) fn undo_next(&mut self, id: WorkflowId, step: &mut Step) -> Did {
        let Some(flow) = self.flows.map.get(&id) else { return Did::It };
        let Some((_, place)) = flow.stack.last().copied() else {
            self.end_rollback(id, step);
            return Did::It;
        };
        let child = flow.row(place).and_then(|row| row.child);
        // A sub-workflow that did not succeed undoes what it has done by itself.
        let whole = child.is_none() || matches!(flow.state(place), TaskState::Succeeded | TaskState::Quarantined);
        let job = flow.decide_compensation(place).filter(|_| whole);
        match (job, child) {
            (Some(Ok(spec)), _) => {
                let Some(job) = self.enter_flow_job(id, place, spec.pack(), true, step) else { return Did::NoRoom };
                self.begin_undoing(id, place, Some(job));
                self.ask_policy(job, step);
            }
            (Some(Err(reason)), _) => {
                let Some(job) = self.bury(id, place, reason, step) else { return Did::NoRoom };
                self.begin_undoing(id, place, Some(job));
                // Its end has been heard of already by nobody: it was not being undone then.
                self.undone(id, place, false, step);
            }
            (None, Some(child)) => {
                self.begin_undoing(id, place, None);
                self.undo_child(id, place, child, step);
            }
            (None, None) => {
                if let Some(flow) = self.flows.map.get_mut(&id) {
                    flow.stack.pop();
                }
            }
        }
        Did::It
    }

    fn begin_undoing(&mut self, id: WorkflowId, place: Place, job: Option<JobId>) {
        let now = self.now;
        let Some(flow) = self.flows.touch(id) else { return };
        flow.stack.pop();
        flow.undoing = Some(place);
        if let Some(row) = flow.row_mut(place, now) {
            row.compensation = Some(Box::new(Compensation { state: CompensationState::Running, job, at: now }));
        }
        self.dirty_bytes += super::flush::ROW_BYTES;
    }

    /// A dead letter for a step that nothing says how to undo.
    fn bury(&mut self, id: WorkflowId, place: Place, reason: Reason, step: &mut Step) -> Option<JobId> {
        let flow = self.flows.map.get(&id)?;
        let task = flow.name_of(place);
        let value = model::json::Json::of(&json!({ "compensation_of": task, "workflow": id.to_string() }));
        let run = Run::Echo(EchoRun { value, ..EchoRun::default() });
        let spec = JobSpec { tenant: flow.record.tenant.clone(), ..JobSpec::new(run) };
        let job = self.enter_flow_job(id, place, spec.pack(), true, step)?;
        let message = reason.message.unwrap_or_default();
        let _ = self.fire(job, Event::Unrunnable { code: reason.code, message }, step);
        // What its end means is said here: nothing else must be made of it.
        self.flows.news.retain(|news| *news != job);
        Some(job)
    }

    /// Has a sub-workflow undo its own steps.
    pub(super) fn undo_child(&mut self, id: WorkflowId, place: Place, child: WorkflowId, step: &mut Step) {
        let Some(flow) = self.flows.touch(child) else {
            return self.fetch_flow(child, Late::RollBack { parent: id, place }, step);
        };
        match flow.record.rollback.as_ref().map(|rollback| rollback.state) {
            None => {
                let failed = flow.record.state == WorkflowState::Failed;
                let then = if failed { AfterStop::RollBackAndFail } else { AfterStop::RollBackAndCancel };
                flow.record.after_stop = Some(then);
                self.roll_back(child, step);
            }
            // It was undone when it failed.
            Some(RollbackState::RolledBack) => self.undone(id, place, true, step),
            Some(RollbackState::PartiallyRolledBack) => self.undone(id, place, false, step),
            Some(RollbackState::RollingBack) => {}
        }
    }

    /// A step was undone, or could not be.
    pub(super) fn undone(&mut self, id: WorkflowId, place: Place, done: bool, step: &mut Step) {
        let now = self.now;
        let Some(flow) = self.flows.touch(id) else { return };
        flow.undoing = None;
        let state = if done { CompensationState::Done } else { CompensationState::Failed };
        if let Some(row) = flow.row_mut(place, now)
            && let Some(compensation) = row.compensation.as_mut()
        {
            compensation.state = state;
            compensation.at = now;
        }
        if let Some(rollback) = flow.record.rollback.as_mut() {
            rollback.undone += u32::from(done);
            rollback.failed += u32::from(!done);
        }
        self.stats.flows.compensations_done += u64::from(done);
        self.stats.flows.compensations_failed += u64::from(!done);
        self.dirty_bytes += super::flush::ROW_BYTES;
        self.tell_task(id, place, step);
        self.flows.wake(id);
    }

    fn end_rollback(&mut self, id: WorkflowId, step: &mut Step) {
        let now = self.now;
        let Some(flow) = self.flows.touch(id) else { return };
        let then = flow.record.after_stop.unwrap_or(AfterStop::RollBackAndFail);
        let reason = flow.record.reason.clone();
        let Some(rollback) = flow.record.rollback.as_mut() else { return };
        let whole = rollback.failed == 0;
        rollback.state = if whole { RollbackState::RolledBack } else { RollbackState::PartiallyRolledBack };
        rollback.ended_at = Some(now);
        let text = rollback.state.as_str().to_owned();
        self.stats.flows.rolled_back += u64::from(whole);
        self.stats.flows.partially_rolled_back += u64::from(!whole);
        self.note_flow(id, NoteKind::RollbackEnded, None, None, Some(text));
        self.finish(id, then.end(), reason, step);
    }

    /// A compensation that had failed was tried again by an operator and has ended. Returns whether anything is new.
    pub(super) fn undone_after_all(&mut self, id: WorkflowId, place: Place, job: JobId, state: State) -> bool {
        let now = self.now;
        let Some(flow) = self.flows.map.get_mut(&id) else { return false };
        let failed = flow.row(place).and_then(|row| row.compensation.as_deref()).is_some_and(|compensation| {
            compensation.job == Some(job) && compensation.state == CompensationState::Failed
        });
        if !failed || state != State::Succeeded {
            return false;
        }
        let Some(flow) = self.flows.touch(id) else { return false };
        if let Some(compensation) = flow.row_mut(place, now).and_then(|row| row.compensation.as_mut()) {
            compensation.state = CompensationState::Done;
            compensation.at = now;
        }
        if let Some(rollback) = flow.record.rollback.as_mut() {
            rollback.failed = rollback.failed.saturating_sub(1);
            rollback.undone += 1;
            if rollback.failed == 0 && rollback.state == RollbackState::PartiallyRolledBack {
                rollback.state = RollbackState::RolledBack;
            }
        }
        true
    }
}
