//! Coming back: workflows made from their records and rows, and what a crash swallowed done again.

use std::sync::Arc;

use model::id::{JobId, WorkflowId};
use model::job::Job;
use model::machine::Event;
use model::reason::{Reason, ReasonCode};
use model::workflow::{
    AfterStop, CompensationState, Place, RollbackState, Signal, TaskRecord, TaskState, Workflow, WorkflowSpec,
    WorkflowState,
};
use serde_json::Value;
use workflow::Plan;
use workflow::plan::Act;

use super::flow::{Class, Each, Flow};
use super::scope::value_of;
use super::settle::End;
use crate::shard::Shard;
use crate::step::Step;

impl Flow {
    /// Puts back the row of a place. That of a task comes before those of its items. A row that the definition has no
    /// place for is left where it is.
    pub fn put_row(&mut self, place: Place, row: TaskRecord) {
        let Some(slot) = self.slots.get_mut(place.task as usize) else { return };
        match place.item {
            None => {
                if let Some(items) = row.items {
                    slot.each = Some(Box::new(Each::new(vec![Value::Null; items as usize])));
                }
                if row.state.is_terminal() {
                    self.open_in_epoch[self.plan.tasks[place.task as usize].epoch as usize] -= 1;
                }
                slot.state = row.state;
                slot.record = Some(Box::new(row));
            }
            Some(item) => {
                let Some(each) = slot.each.as_mut() else { return };
                let Some(item) = each.slots.get_mut(item as usize) else { return };
                each.live += u32::from(row.state.is_live());
                each.left -= u32::from(row.state.is_terminal());
                item.state = row.state;
                item.record = Some(Box::new(row));
            }
        }
    }

    /// Derives from the rows what follows from them.
    pub fn derive(&mut self) {
        self.open_in_epoch.fill(0);
        self.merges.clear();
        self.followers.clear();
        self.listeners.clear();
        self.ready.clear();
        self.doomed.clear();
        self.sharing.clear();
        self.eaching.clear();
        let plan = self.plan.clone();
        for (number, task) in plan.tasks.iter().enumerate() {
            let number = number as u32;
            let open = |need: &&u32| !self.slots[**need as usize].state.is_terminal();
            let open_needs = task.needs.iter().filter(open).count() as u32;
            let ended = self.slots[number as usize].state.is_terminal();
            self.slots[number as usize].open_needs = open_needs;
            self.slots[number as usize].doomed = false;
            self.open_in_epoch[task.epoch as usize] += u32::from(!ended);
            self.derive_place(Place::of(number));
            let items = self.slots[number as usize].each.as_ref().map_or(0, |each| each.slots.len());
            if items > 0 {
                self.derive_items(number);
            }
        }
        self.failure = self.find_failure();
        self.failed_epoch = self.find_failed_epoch();
        // Items that were left out have no rows: whether they were is decided anew while the workflow is being stopped.
        (self.record.tasks, self.record.items) = super::counts::tally(self);
    }

    /// The first epoch in which something failed.
    pub fn find_failed_epoch(&self) -> Option<u32> {
        let bad = (0..self.slots.len() as u32).filter(|task| self.class(*task) == Class::Bad);
        bad.map(|task| self.plan.tasks[task as usize].epoch).min()
    }

    /// What keeps the workflow from succeeding, if anything does: a task that failed rather than one that follows from it.
    pub fn find_failure(&self) -> Option<Reason> {
        let bad = (0..self.slots.len() as u32).filter(|task| self.class(*task) == Class::Bad);
        let is_root = |task: &u32| {
            let row = self.slots[*task as usize].record.as_ref();
            row.and_then(|row| row.reason.as_ref()).is_none_or(|reason| reason.code != ReasonCode::UpstreamFailed)
        };
        let (roots, others): (Vec<u32>, Vec<u32>) = bad.partition(is_root);
        let task = roots.first().or(others.first())?;
        let name = &self.plan.tasks[*task as usize].name;
        let quarantined = self.slots[*task as usize].state == TaskState::Quarantined;
        Some(if quarantined {
            Reason::with(ReasonCode::OutputQuarantined, format!("the result of `{name}` was quarantined"))
        } else {
            Reason::with(ReasonCode::TaskFailed, format!("`{name}` did not succeed"))
        })
    }

    fn derive_items(&mut self, task: u32) {
        let list = self.slots[task as usize].record.as_ref().and_then(|row| row.list.as_ref());
        let items = match list.map(value_of) {
            Some(Value::Array(items)) => Ok(items),
            Some(_) | None => self.decide_items(task),
        };
        let all_ended = self.slots[task as usize].state.is_terminal();
        let tolerated = self.plan.tasks[task as usize].on_failure == workflow::plan::OnFailure::Continue;
        let Some(each) = self.slots[task as usize].each.as_mut() else { return };
        match items {
            Ok(items) if items.len() == each.slots.len() => each.items = items,
            // Without what they are made of none can begin.
            Ok(_) | Err(_) => each.failure = Some(Reason::new(ReasonCode::TemplateError)),
        }
        let failed = |state| matches!(state, TaskState::Failed | TaskState::Cancelled | TaskState::Quarantined);
        if !tolerated && each.slots.iter().any(|item| failed(item.state)) {
            each.failure = Some(Reason::new(ReasonCode::ItemFailed));
        }
        // Those that never began have no row: they were left out, or their time is still to come.
        if all_ended || each.failure.is_some() {
            for item in each.slots.iter_mut().filter(|item| item.state == TaskState::Waiting) {
                item.state = TaskState::Cancelled;
            }
        }
        let bytes = |item: &super::flow::ItemSlot| Some(item.record.as_ref()?.result.as_ref()?.as_bytes().len());
        each.bytes = each.slots.iter().filter_map(bytes).sum();
        each.live = each.slots.iter().filter(|item| item.state.is_live()).count() as u32;
        each.left = each.slots.iter().filter(|item| !item.state.is_terminal()).count() as u32;
        let begun = each.slots.iter().rposition(|item| item.state != TaskState::Waiting);
        each.next = begun.map_or(0, |last| last as u32 + 1);
        for item in 0..self.slots[task as usize].each.as_ref().map_or(0, |each| each.slots.len()) {
            self.derive_place(Place::item(task, item as u32));
        }
        if !all_ended {
            self.go_on_with(task);
        }
    }

    fn derive_place(&mut self, place: Place) {
        let Some(row) = self.row(place) else { return };
        let (state, key, leader) = (row.state, row.merge_key, row.merged_into);
        if let Some(key) = key {
            self.merges.insert(key, place);
        }
        if let Some(leader) = leader
            && state == TaskState::Merged
        {
            match self.row(leader).is_some_and(|row| row.state.is_terminal()) {
                true => self.sharing.push_back(place),
                false => self.followers.entry(leader).or_default().push(place),
            }
        }
        if let Act::WaitFor { signal } = &self.task(place).act
            && state == TaskState::Listening
        {
            let signal = signal.clone();
            self.listeners.entry(signal).or_default().push_back(place);
        }
    }
}

impl Shard {
    /// Puts back a workflow that has not ended, or is part of one. All queues come before, its rows and all jobs after.
    pub fn restore_workflow(&mut self, record: Workflow, spec: &WorkflowSpec, plan: Arc<Plan>) {
        self.see_id(record.id.0);
        if record.removing {
            return self.flows.sweep.go_on_removing(record);
        }
        let mut flow = Flow::new(record, plan, value_of(&spec.inputs));
        flow.stored = true;
        self.stats.flows.rolling_back += u64::from(flow.record.state == WorkflowState::RollingBack);
        if let Some((parent, _)) = flow.record.parent
            && let Some(parent) = self.flows.map.get_mut(&parent)
        {
            parent.children.insert(flow.record.id);
        }
        let id = flow.record.id;
        self.flows.map.insert(id, Box::new(flow));
        self.hold_queue(id);
    }

    /// Puts back a task that has begun; that of a task comes before those of its items.
    pub fn restore_task(&mut self, id: WorkflowId, place: Place, row: TaskRecord) {
        if let Some(flow) = self.flows.map.get_mut(&id) {
            flow.put_row(place, row);
        }
    }

    pub fn restore_signal(&mut self, id: WorkflowId, number: u32, signal: Signal) {
        if let Some(flow) = self.flows.map.get_mut(&id) {
            flow.signals.insert(number, signal);
        }
    }

    /// A workflow whose definition cannot be read any more: it has failed, and says so.
    pub fn restore_unreadable_workflow(&mut self, record: Workflow) {
        self.see_id(record.id.0);
        if record.removing {
            return self.flows.sweep.go_on_removing(record);
        }
        self.flows.unreadable.push(record);
    }

    /// Sets restored workflows going.
    pub(crate) fn resume_flows(&mut self, step: &mut Step) {
        let mut ids: Vec<WorkflowId> = self.flows.map.keys().copied().collect();
        ids.sort_unstable();
        for id in &ids {
            let Some(flow) = self.flows.map.get_mut(id) else { continue };
            flow.derive();
            let is_terminal = flow.record.state.is_terminal();
            if let Some((parent, _)) = flow.record.parent {
                match self.flows.map.get_mut(&parent) {
                    Some(parent) => drop(parent.children.insert(*id)),
                    // What it was part of has ended, and it follows as soon as it has ended itself.
                    None if is_terminal => self.flows.filing.push_back(*id),
                    None => {}
                }
            }
        }
        for id in ids {
            self.arm_flow(id);
            self.mend_flow(id, step);
            self.resume_flow(id, step);
        }
        self.bury_unreadable(step);
        self.resume_schedules();
        self.hear_jobs(step);
        self.ask_rows(step);
        self.resume_late_words(step);
    }

    /// Sets the timers of a workflow as its rows say.
    fn arm_flow(&mut self, id: WorkflowId) {
        let Some(flow) = self.flows.map.get(&id) else { return };
        let mut due = Vec::new();
        for (task, slot) in flow.slots.iter().enumerate() {
            let task = task as u32;
            let items = slot.each.iter().flat_map(|each| each.slots.iter().enumerate());
            let items = items.map(|(item, slot)| (Place::item(task, item as u32), slot.record.as_deref()));
            let rows = items.chain([(Place::of(task), slot.record.as_deref())]);
            due.extend(rows.filter_map(|(place, row)| Some((row?.due?, place))));
        }
        let deadline = flow.record.deadline.filter(|_| flow.is_going());
        for (at, place) in due {
            self.flows.arm_place(at, id, place);
        }
        if let Some(deadline) = deadline {
            self.flows.arm_deadline(deadline, id);
        }
    }

    /// A task whose job or sub-workflow is gone without a trace would wait for it for ever. That is damage, and is said.
    fn mend_flow(&mut self, id: WorkflowId, step: &mut Step) {
        let Some(flow) = self.flows.map.get(&id) else { return };
        let mut lost = Vec::new();
        for (task, slot) in flow.slots.iter().enumerate() {
            let task = task as u32;
            let items = slot.each.iter().flat_map(|each| each.slots.iter().enumerate());
            let items = items.map(|(item, slot)| (Place::item(task, item as u32), slot.record.as_deref()));
            for (place, row) in items.chain([(Place::of(task), slot.record.as_deref())]) {
                let Some(row) = row.filter(|row| row.state == TaskState::Running && row.items.is_none()) else {
                    continue;
                };
                let found = match (row.job, row.child) {
                    (Some(job), _) => self.jobs.contains_key(&job),
                    (None, Some(child)) => self.flows.map.contains_key(&child),
                    (None, None) => false,
                };
                if !found {
                    lost.push(place);
                }
            }
        }
        for place in lost {
            let reason = Reason::with(ReasonCode::JobFailed, "the record of what it had begun is gone");
            self.settle(id, place, End::bare(TaskState::Failed, reason), step);
        }
    }

    fn resume_flow(&mut self, id: WorkflowId, step: &mut Step) {
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        match flow.record.state {
            WorkflowState::Running | WorkflowState::Paused => {
                let queue = flow.record.queue;
                if self.is_cancelled_queue(queue) {
                    self.flows.to_stop.push_back(id);
                }
                self.flows.wake(id);
                self.kick(id, step);
            }
            WorkflowState::Stopping => {
                flow.told = Some(Place::of(0));
                self.flows.wake(id);
                self.check_settled(id, step);
            }
            WorkflowState::RollingBack => {
                flow.stack = flow.undo_stack();
                let undoing = flow.undoing_place();
                flow.undoing = undoing;
                self.flows.wake(id);
                if let Some(place) = undoing {
                    self.resume_undoing(id, place, step);
                }
            }
            WorkflowState::Succeeded | WorkflowState::Failed | WorkflowState::Cancelled => {
                if flow.record.parent.is_none() {
                    self.file(id);
                }
            }
        }
    }

    /// A step was being undone when the server stopped.
    fn resume_undoing(&mut self, id: WorkflowId, place: Place, step: &mut Step) {
        let Some(row) = self.flows.map.get(&id).and_then(|flow| flow.row(place)) else { return };
        let job = row.compensation.as_ref().and_then(|compensation| compensation.job);
        match (job, row.child) {
            (Some(job), _) if self.jobs.contains_key(&job) => {}
            (Some(_), _) | (None, None) => self.undone(id, place, false, step),
            (None, Some(child)) => {
                let under_way =
                    self.flows.map.get(&child).is_some_and(|flow| flow.record.state == WorkflowState::RollingBack);
                if !under_way {
                    self.undo_child(id, place, child, step);
                }
            }
        }
    }

    /// What belongs to a workflow that cannot be read goes no further.
    fn cancel_jobs_of(&mut self, id: WorkflowId, step: &mut Step) {
        let own = |job: &Job| job.origin.as_ref().is_some_and(|origin| origin.workflow == id);
        let jobs = self.jobs.values().map(|entry| &entry.job);
        let mut jobs: Vec<JobId> = jobs.filter(|job| own(job)).map(|job| job.id).collect();
        jobs.sort_unstable();
        for job in jobs {
            let _ = self.fire(job, Event::Cancel(ReasonCode::WorkflowStopped), step);
        }
        let mut children: Vec<WorkflowId> = self.flows.map.values().map(|flow| flow.record.id).collect();
        children.retain(|child| {
            let parent = self.flows.map.get(child).and_then(|flow| flow.record.parent);
            parent.is_some_and(|(parent, _)| parent == id)
        });
        children.sort_unstable();
        for child in children {
            self.stop(child, AfterStop::Cancelled, Reason::new(ReasonCode::WorkflowStopped), step);
        }
    }

    fn bury_unreadable(&mut self, step: &mut Step) {
        for mut record in std::mem::take(&mut self.flows.unreadable) {
            let message = "its definition cannot be read by this version of the server";
            if let Some(rollback) = record.rollback.as_mut().filter(|rollback| rollback.ended_at.is_none()) {
                rollback.state = RollbackState::PartiallyRolledBack;
                rollback.ended_at = Some(self.now);
            }
            self.cancel_jobs_of(record.id, step);
            record.enter(WorkflowState::Failed, self.now);
            record.reason = Some(Reason::with(ReasonCode::DefinitionUnreadable, message));
            super::flush::put_done(&record, step);
            self.stats.flows.end(WorkflowState::Failed);
            step.ended_workflows.push(record);
        }
    }
}

impl Flow {
    fn undoing_place(&self) -> Option<Place> {
        let running = |row: &TaskRecord| {
            row.compensation.as_ref().is_some_and(|compensation| compensation.state == CompensationState::Running)
        };
        for (task, slot) in self.slots.iter().enumerate() {
            let task = task as u32;
            if slot.record.as_deref().is_some_and(running) {
                return Some(Place::of(task));
            }
            let item = slot
                .each
                .as_ref()
                .and_then(|each| each.slots.iter().position(|item| item.record.as_deref().is_some_and(running)));
            if let Some(item) = item {
                return Some(Place::item(task, item as u32));
            }
        }
        None
    }
}
