//! Running a workflow that has ended again, from one of its tasks.

use std::collections::BTreeMap;

use model::audit::Action;
use model::batch::Keyspace;
use model::id::WorkflowId;
use model::key;
use model::workflow::{NoteKind, Place, TaskState, WorkflowState};

use super::counts::tally;
use super::flow::{Class, Flow};
use super::late::Late;
use crate::input::{Actor, Answer, Refusal, RequestId};
use crate::shard::Shard;
use crate::step::Step;

impl Flow {
    /// Which tasks run again: from the given one on, or whatever did not succeed or was undone, with all that depends on
    /// it. None: there is none.
    fn to_rerun(&self, from: Option<u32>) -> Option<Vec<bool>> {
        let mut again = vec![false; self.slots.len()];
        let mut line: Vec<u32> = from.into_iter().collect();
        for (number, slot) in self.slots.iter().enumerate() {
            let items = slot.each.iter().flat_map(|each| each.slots.iter().filter_map(|item| item.record.as_ref()));
            let undone = items.chain(slot.record.as_ref()).any(|row| row.compensation.is_some());
            if undone || self.class(number as u32) == Class::Bad {
                line.push(number as u32);
            }
        }
        let mut followers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (number, slot) in self.slots.iter().enumerate() {
            let items = slot.each.iter().flat_map(|each| each.slots.iter().filter_map(|item| item.record.as_ref()));
            for leader in items.chain(slot.record.as_ref()).filter_map(|row| row.merged_into) {
                followers.entry(leader.task).or_default().push(number as u32);
            }
        }
        let mut first_epoch = u32::MAX;
        while let Some(task) = line.pop() {
            if std::mem::replace(&mut again[task as usize], true) {
                continue;
            }
            let plan = &self.plan.tasks[task as usize];
            line.extend(plan.dependents.iter().copied());
            // Whoever shared its result shares what comes of it now.
            line.extend(followers.remove(&task).unwrap_or_default());
            if plan.epoch < first_epoch {
                first_epoch = plan.epoch;
                let later = self.plan.tasks.iter().enumerate().filter(|(_, later)| later.epoch > first_epoch);
                line.extend(later.map(|(number, _)| number as u32));
            }
        }
        again.iter().any(|again| *again).then_some(again)
    }

    /// Forgets that these tasks have ever begun. Returns the places whose rows go.
    fn reset(&mut self, again: &[bool]) -> Vec<Place> {
        let mut gone = Vec::new();
        for (number, slot) in self.slots.iter_mut().enumerate().filter(|(number, _)| again[*number]) {
            let task = number as u32;
            if slot.record.take().is_some() {
                gone.push(Place::of(task));
            }
            if let Some(each) = slot.each.take() {
                let rows = each.slots.iter().enumerate().filter(|(_, item)| item.record.is_some());
                gone.extend(rows.map(|(item, _)| Place::item(task, item as u32)));
            }
            slot.state = TaskState::Waiting;
            slot.dirty = false;
            slot.doomed = false;
        }
        self.dirty_rows.retain(|place| !again[place.task as usize]);
        (self.record.tasks, self.record.items) = tally(self);
        self.record.rollback = None;
        self.record.after_stop = None;
        self.record.reason = None;
        self.record.result = None;
        self.stack.clear();
        self.undoing = None;
        self.told = None;
        self.failure = None;
        self.derive();
        let open = self.open_in_epoch.iter().position(|open| *open > 0);
        self.record.epoch = open.unwrap_or(0) as u32;
        gone
    }
}

impl Shard {
    pub(crate) fn rerun_workflow(
        &mut self,
        request: RequestId,
        id: WorkflowId,
        from: Option<String>,
        by: Actor,
        step: &mut Step,
    ) {
        if self.flows.map.contains_key(&id) {
            return self.rerun(request, id, from, &by, step);
        }
        self.fetch_flow(id, Late::Rerun { request, from, by }, step);
    }

    pub(super) fn rerun(
        &mut self,
        request: RequestId,
        id: WorkflowId,
        from: Option<String>,
        by: &Actor,
        step: &mut Step,
    ) {
        match self.try_rerun(id, from, by, step) {
            Ok(()) => self.answer_flow(request, id, step),
            Err(refusal) => step.answer(request, Answer::Refused(refusal)),
        }
    }

    fn try_rerun(&mut self, id: WorkflowId, from: Option<String>, by: &Actor, step: &mut Step) -> Result<(), Refusal> {
        let now = self.now;
        let flow = self.flows.map.get(&id).ok_or(Refusal::UnknownWorkflow(id))?;
        if let Some((parent, _)) = flow.record.parent {
            return Err(Refusal::PartOfWorkflow(parent));
        }
        let state = flow.record.state;
        // One that ends within this very step has not been filed yet.
        if !state.is_terminal() || flow.files {
            return Err(Refusal::WorkflowState { state, what: "run again" });
        }
        let task = match &from {
            Some(name) => Some(flow.plan.task(name).ok_or_else(|| Refusal::UnknownTask { name: name.clone() })?),
            None => None,
        };
        let again = flow.to_rerun(task).ok_or(Refusal::NothingToRerun)?;
        self.room_for_flow()?;
        let queue = flow.record.queue;
        if self.is_cancelled_queue(queue) {
            return Err(Refusal::QueueClosed(model::queue::QueueState::Cancelled));
        }
        let Some(flow) = self.flows.touch(id) else { return Err(Refusal::UnknownWorkflow(id)) };
        for place in flow.reset(&again) {
            step.batch.delete(Keyspace::Tasks, &key::task(id, place));
        }
        flow.record.run += 1;
        flow.record.enter(WorkflowState::Running, now);
        flow.record.deadline = flow.plan.timeout.map(|timeout| now + timeout);
        let deadline = flow.record.deadline;
        if let Some(deadline) = deadline {
            self.flows.arm_deadline(deadline, id);
        }
        self.hold_queue(id);
        self.stats.flows.started += 1;
        self.note_flow(id, NoteKind::Rerun, by.clone(), task.map(Place::of), None);
        self.note_workflow_act(Action::WorkflowRerun, id, by, step);
        self.tell_flow(id, step);
        self.kick(id, step);
        Ok(())
    }
}
