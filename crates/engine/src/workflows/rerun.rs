//! Rerun of an ended workflow from one of its tasks.

use std::collections::BTreeMap;

use model::audit::Action;
use model::batch::Keyspace;
use model::id::WorkflowId;
use model::key;
use model::workflow::{NoteKind, TaskKey, TaskState, WorkflowState};

use super::counts::tally;
use super::late::Deferred;
use super::live::{LiveWorkflow, OutcomeClass};
use crate::input::{Actor, Answer, Refusal, RequestId};
use crate::shard::Shard;
use crate::step::Step;

impl LiveWorkflow {
    /// Tasks to rerun: `from`, and all that failed or were compensated, with their dependents. None: there are none.
    fn to_rerun(&self, from: Option<u32>) -> Option<Vec<bool>> {
        let mut again = vec![false; self.tasks.len()];
        let mut pending: Vec<u32> = from.into_iter().collect();
        for (number, live_task) in self.tasks.iter().enumerate() {
            let items = live_task.for_each.iter().flat_map(|each| &each.items);
            let items = items.filter_map(|item| item.record.as_ref());
            let compensated = items.chain(live_task.record.as_ref()).any(|row| row.compensation.is_some());
            if compensated || self.outcome_class(number as u32) == OutcomeClass::Failure {
                pending.push(number as u32);
            }
        }
        let mut followers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (number, live_task) in self.tasks.iter().enumerate() {
            let items = live_task.for_each.iter().flat_map(|each| &each.items);
            let items = items.filter_map(|item| item.record.as_ref());
            for leader in items.chain(live_task.record.as_ref()).filter_map(|row| row.merged_into) {
                followers.entry(leader.task).or_default().push(number as u32);
            }
        }
        let mut first_epoch = u32::MAX;
        while let Some(task) = pending.pop() {
            if std::mem::replace(&mut again[task as usize], true) {
                continue;
            }
            let plan = &self.plan.tasks[task as usize];
            pending.extend(plan.dependents.iter().copied());
            // Tasks merged into it rerun with it.
            pending.extend(followers.remove(&task).unwrap_or_default());
            if plan.epoch < first_epoch {
                first_epoch = plan.epoch;
                let later = self.plan.tasks.iter().enumerate().filter(|(_, later)| later.epoch > first_epoch);
                pending.extend(later.map(|(number, _)| number as u32));
            }
        }
        again.iter().any(|again| *again).then_some(again)
    }

    /// Resets these tasks to waiting. Returns the keys of the rows to delete.
    fn reset(&mut self, again: &[bool]) -> Vec<TaskKey> {
        let mut gone = Vec::new();
        for (number, live_task) in self.tasks.iter_mut().enumerate().filter(|(number, _)| again[*number]) {
            let task = number as u32;
            if live_task.record.take().is_some() {
                gone.push(TaskKey::of(task));
            }
            if let Some(each) = live_task.for_each.take() {
                let rows = each.items.iter().enumerate().filter(|(_, item)| item.record.is_some());
                gone.extend(rows.map(|(item, _)| TaskKey::item(task, item as u32)));
            }
            live_task.state = TaskState::Waiting;
            live_task.dirty = false;
            live_task.excluded = false;
        }
        self.dirty_rows.retain(|task_key| !again[task_key.task as usize]);
        (self.record.tasks, self.record.items) = tally(self);
        self.record.rollback = None;
        self.record.after_stop = None;
        self.record.reason = None;
        self.record.result = None;
        self.stack.clear();
        self.compensating = None;
        self.stop_cursor = None;
        self.failure = None;
        self.derive();
        let open = self.open_in_epoch.iter().position(|open| *open > 0);
        self.record.epoch = open.unwrap_or(0) as u32;
        gone
    }
}

impl Shard {
    /// Reruns an ended workflow, fetching it if needed.
    pub(crate) fn rerun_workflow(
        &mut self,
        request: RequestId,
        id: WorkflowId,
        from: Option<String>,
        by: Actor,
        step: &mut Step,
    ) {
        if self.workflows.map.contains_key(&id) {
            return self.rerun(request, id, from, &by, step);
        }
        self.fetch_workflow(id, Deferred::Rerun { request, from, by }, step);
    }

    /// Reruns an ended workflow in memory and answers the request.
    pub(super) fn rerun(
        &mut self,
        request: RequestId,
        id: WorkflowId,
        from: Option<String>,
        by: &Actor,
        step: &mut Step,
    ) {
        match self.try_rerun(id, from, by, step) {
            Ok(()) => self.answer_workflow(request, id, step),
            Err(refusal) => step.answer(request, Answer::Refused(refusal)),
        }
    }

    fn try_rerun(&mut self, id: WorkflowId, from: Option<String>, by: &Actor, step: &mut Step) -> Result<(), Refusal> {
        let now = self.now;
        let workflow = self.workflows.map.get(&id).ok_or(Refusal::UnknownWorkflow(id))?;
        if let Some((parent, _)) = workflow.record.parent {
            return Err(Refusal::PartOfWorkflow(parent));
        }
        let state = workflow.record.state;
        // A workflow that ended in this step has not been moved to the finished ones yet.
        if !state.is_terminal() || workflow.moves_to_finished {
            return Err(Refusal::WorkflowState { state, what: "run again" });
        }
        let task = match &from {
            Some(name) => Some(workflow.plan.task(name).ok_or_else(|| Refusal::UnknownTask { name: name.clone() })?),
            None => None,
        };
        let again = workflow.to_rerun(task).ok_or(Refusal::NothingToRerun)?;
        self.room_for_workflow()?;
        let queue = workflow.record.queue;
        if self.is_cancelled_queue(queue) {
            return Err(Refusal::QueueClosed(model::queue::QueueState::Cancelled));
        }
        let Some(workflow) = self.workflows.touch(id) else { return Err(Refusal::UnknownWorkflow(id)) };
        // The dead letters of compensations are void: their tasks run again.
        for letter in workflow.unsubmitted(|task_key| again[task_key.task as usize]) {
            step.batch.delete(Keyspace::DeadLetters, &letter.key());
        }
        for task_key in workflow.reset(&again) {
            step.batch.delete(Keyspace::Tasks, &key::task(id, task_key));
        }
        self.workflows.forget_unlisted_unconfirmed(id);
        let Some(workflow) = self.workflows.touch(id) else { return Err(Refusal::UnknownWorkflow(id)) };
        workflow.record.run += 1;
        workflow.record.enter(WorkflowState::Running, now);
        workflow.record.deadline = workflow.plan.timeout.map(|timeout| now + timeout);
        let deadline = workflow.record.deadline;
        if let Some(deadline) = deadline {
            self.workflows.arm_deadline(deadline, id);
        }
        self.hold_queue(id);
        self.stats.workflows.started += 1;
        self.note_workflow(id, NoteKind::Rerun, by.clone(), task.map(TaskKey::of), None);
        self.audit_workflow(Action::WorkflowRerun, id, by, step);
        self.announce_workflow(id, step);
        self.evaluate_waiting_tasks(id, step);
        Ok(())
    }
}
