//! The ends of tasks, and what they mean for the others.

use model::change::Change;
use model::id::WorkflowId;
use model::json::Json;
use model::limits;
use model::reason::{Reason, ReasonCode};
use model::state::State;
use model::workflow::{AfterStop, Note, NoteKind, Place, TaskRecord, TaskState, WorkflowState};
use workflow::plan::{Act, OnFailure};

use super::flow::Class;
use crate::shard::Shard;
use crate::step::Step;

/// How a task, or an item, ended.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub state: TaskState,
    pub result: Option<Json>,
    pub reason: Option<Reason>,
    pub job_state: Option<State>,
    /// Nobody knows whether it was done.
    pub unknown: bool,
}

impl End {
    pub fn of(state: TaskState) -> Self {
        Self { state, result: None, reason: None, job_state: None, unknown: false }
    }

    pub fn bare(state: TaskState, reason: Reason) -> Self {
        Self { reason: Some(reason), ..Self::of(state) }
    }

    /// The end of one that shares what another came to. The result itself stays where it is.
    pub fn shared(leader: &TaskRecord) -> Self {
        Self { reason: leader.reason.clone(), job_state: leader.job_state, ..Self::of(leader.state) }
    }

    fn is_failure(&self) -> bool {
        matches!(self.state, TaskState::Failed | TaskState::Cancelled)
    }

    fn is_fatal(&self) -> bool {
        self.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::Fatal)
    }
}

impl Shard {
    /// A task, or an item, has ended: its row, and everything that follows from it at once.
    pub(super) fn settle(&mut self, id: WorkflowId, place: Place, end: End, step: &mut Step) {
        let now = self.now;
        let Some(flow) = self.flows.touch(id) else { return };
        let from = flow.state(place);
        if from.is_terminal() {
            return;
        }
        let undoable = flow.is_undoable(place);
        // A sub-workflow that did not succeed may have done something, too.
        // Neither is a result that nobody may see nothing done.
        let withheld = end.job_state == Some(State::Quarantined);
        let counts = withheld
            || end.unknown
            || end.state == TaskState::Succeeded
            || (matches!(flow.task(place).act, Act::Workflow { .. }) && from.is_live());
        let order = if undoable && counts && from != TaskState::Merged {
            flow.record.last_order += 1;
            flow.record.last_order
        } else {
            0
        };
        // Whoever shares it may read it.
        let is_read = flow.task(place).is_read || flow.task(place).merge.is_some();
        let result = end.result.clone().filter(|_| is_read);
        let bytes = result.as_ref().map_or(0, |result| result.as_bytes().len());
        let mut due = None;
        if let Some(row) = flow.enter(place, end.state, now) {
            row.order = order;
            row.result = result;
            row.reason.clone_from(&end.reason);
            row.job_state = end.job_state;
            row.progress = None;
            due = row.due.take();
        }
        self.dirty_bytes += super::flush::ROW_BYTES + bytes;
        if let Some(due) = due {
            self.flows.disarm_place(due, id, place);
        }
        self.stats.flows.tasks_ended[usize::from(end.state.code())] += 1;
        self.tell_task(id, place, step);
        self.settle_followers(id, place);
        match place.item {
            Some(_) => self.item_ended(id, place, &end, step),
            None => self.task_ended(id, place, &end, step),
        }
    }

    /// Those that share its result have it, too.
    fn settle_followers(&mut self, id: WorkflowId, place: Place) {
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        if let Some(followers) = flow.followers.remove(&place) {
            flow.sharing.extend(followers);
            self.flows.wake(id);
        }
    }

    /// A place whose leader has ended ends like it.
    pub(super) fn share(&mut self, id: WorkflowId, place: Place, step: &mut Step) {
        let Some(flow) = self.flows.map.get(&id).filter(|flow| flow.state(place) == TaskState::Merged) else { return };
        let leader = flow.row(place).and_then(|row| row.merged_into).and_then(|leader| flow.row(leader));
        if let Some(end) = leader.filter(|leader| leader.state.is_terminal()).map(End::shared) {
            self.settle(id, place, end, step);
        }
    }

    fn item_ended(&mut self, id: WorkflowId, place: Place, end: &End, step: &mut Step) {
        self.weigh_failure(id, place, end, step);
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        let tolerated = flow.task(place).on_failure == OnFailure::Continue;
        let is_read = flow.task(place).is_read;
        let bytes = flow.result_of(place).map_or(0, |result| result.as_bytes().len());
        let Some(each) = flow.slots[place.task as usize].each.as_mut() else { return };
        each.bytes += bytes;
        if each.bytes > limits::LIST_RESULT_BYTES_MAX && is_read && each.failure.is_none() {
            // Nobody could read the list: what is still to come would only fill the memory.
            each.failure = Some(too_large(each.bytes));
            self.leave_out_items(id, place.task);
        } else if end.is_failure() && !tolerated && each.failure.is_none() {
            let name = format!("item {}", place.item.unwrap_or_default());
            let said = end.reason.as_ref().map_or(String::new(), reason_text);
            each.failure = Some(Reason::with(ReasonCode::ItemFailed, format!("{name} did not succeed{said}")));
            self.leave_out_items(id, place.task);
        }
        self.close_list(id, place.task, step);
    }

    /// When all its items have ended, so has a task; else others may begin.
    pub(super) fn close_list(&mut self, id: WorkflowId, task: u32, step: &mut Step) {
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        let Some(each) = flow.slots[task as usize].each.as_ref() else { return };
        if each.left > 0 {
            flow.go_on_with(task);
            return self.flows.wake(id);
        }
        let failure = each.failure.clone();
        let stopped = each.slots.iter().any(|item| item.state == TaskState::Cancelled);
        let is_left_out = |row: &TaskRecord| row.reason.as_ref().is_some_and(|r| r.code == ReasonCode::UpstreamFailed);
        let left_out = each.slots.iter().any(|item| item.record.as_deref().is_some_and(is_left_out));
        let whole = match failure {
            Some(reason) if flow.record.state == WorkflowState::Stopping && stopped => {
                End::bare(TaskState::Cancelled, reason)
            }
            Some(reason) => End::bare(TaskState::Failed, reason),
            None if left_out => End::bare(TaskState::Cancelled, Reason::new(ReasonCode::WorkflowStopped)),
            None => End { result: self.gather_results(id, task), ..End::of(TaskState::Succeeded) },
        };
        self.settle(id, Place::of(task), whole, step);
    }

    /// Items that have not begun will not.
    pub(super) fn leave_out_items(&mut self, id: WorkflowId, task: u32) {
        let now = self.now;
        let Some(flow) = self.flows.touch(id) else { return };
        let Some(each) = flow.slots[task as usize].each.as_mut() else { return };
        each.next = each.slots.len() as u32;
        let waiting = |(_, item): &(usize, &super::flow::ItemSlot)| item.state == TaskState::Waiting;
        let left_out: Vec<usize> = each.slots.iter().enumerate().filter(waiting).map(|(item, _)| item).collect();
        let bytes = left_out.len() * super::flush::ROW_BYTES;
        for item in left_out {
            if let Some(row) = flow.enter(Place::item(task, item as u32), TaskState::Cancelled, now) {
                row.reason = Some(Reason::new(ReasonCode::UpstreamFailed));
            }
        }
        self.dirty_bytes += bytes;
    }

    /// The results of all items as one list, where a template reads it.
    pub(super) fn gather_results(&self, id: WorkflowId, task: u32) -> Option<Json> {
        let flow = self.flows.map.get(&id).filter(|flow| flow.plan.tasks[task as usize].is_read)?;
        let each = flow.slots[task as usize].each.as_ref()?;
        let result = |item: usize| flow.result_of(Place::item(task, item as u32)).cloned().unwrap_or_default();
        let results: Vec<Json> = (0..each.slots.len()).map(result).collect();
        Some(Json::of(&results))
    }

    fn task_ended(&mut self, id: WorkflowId, place: Place, end: &End, step: &mut Step) {
        self.weigh_failure(id, place, end, step);
        let Some(flow) = self.flows.map.get(&id) else { return };
        if flow.is_going() {
            self.spread(id, place.task);
        }
        self.check_settled(id, step);
    }

    /// What a failure means for the workflow as a whole.
    fn weigh_failure(&mut self, id: WorkflowId, place: Place, end: &End, step: &mut Step) {
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        let upstream = end.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::UpstreamFailed);
        if !end.is_failure() || upstream || !flow.is_going() {
            return;
        }
        let task = flow.task(place);
        let (on_failure, is_whole) = (task.on_failure, place.item.is_none() && task.for_each.is_some());
        if on_failure == OnFailure::Continue {
            return;
        }
        let said = end.reason.as_ref().map_or(String::new(), reason_text);
        let reason = Reason::with(ReasonCode::TaskFailed, format!("`{}` did not succeed{said}", flow.name_of(place)));
        flow.failure.get_or_insert_with(|| reason.clone());
        // Of a list the item that failed has said so already.
        let undoes = on_failure == OnFailure::Compensate || (end.is_fatal() && flow.can_undo);
        if undoes && !is_whole {
            self.note_flow(id, NoteKind::Stopping, None, Some(place), None);
            self.stop(id, AfterStop::RollBackAndFail, reason, step);
        }
    }

    /// Those that need a task that has ended look whether their time has come.
    fn spread(&mut self, id: WorkflowId, task: u32) {
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        let plan = flow.plan.clone();
        let class = flow.class(task);
        for dependent in &plan.tasks[task as usize].dependents {
            let Some(flow) = self.flows.map.get_mut(&id) else { return };
            let slot = &mut flow.slots[*dependent as usize];
            if slot.state != TaskState::Waiting {
                continue;
            }
            slot.open_needs = slot.open_needs.saturating_sub(1);
            // Looking at all needs of those that still have open ones would take the square of their number.
            let decides = class == Class::Bad || flow.is_not_chosen(task, *dependent);
            if flow.slots[*dependent as usize].open_needs == 0 || decides {
                self.weigh(id, *dependent);
            }
        }
        if class == Class::Bad {
            self.doom_later_epochs(id, plan.tasks[task as usize].epoch);
        }
        self.reach_epochs(id);
    }

    /// A task that had succeeded counts as failed now: what has not begun after it will not.
    pub(super) fn weigh_dependents(&mut self, id: WorkflowId, task: u32) {
        let Some(flow) = self.flows.map.get(&id) else { return };
        let plan = flow.plan.clone();
        if flow.class(task) != Class::Bad {
            return;
        }
        for dependent in &plan.tasks[task as usize].dependents {
            let slot = self.flows.map.get(&id).map(|flow| flow.slots[*dependent as usize].state);
            if slot == Some(TaskState::Waiting) {
                self.weigh(id, *dependent);
            }
        }
        self.doom_later_epochs(id, plan.tasks[task as usize].epoch);
    }

    /// Something has failed in an epoch: what has not begun in later ones never will. Each task is told once.
    fn doom_later_epochs(&mut self, id: WorkflowId, epoch: u32) {
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        let before = flow.failed_epoch.unwrap_or(u32::MAX);
        if epoch >= before {
            return;
        }
        flow.failed_epoch = Some(epoch);
        let plan = flow.plan.clone();
        if epoch as usize + 1 >= plan.epochs.len() {
            return;
        }
        for (number, task) in plan.tasks.iter().enumerate() {
            let waits = self.flows.map.get(&id).is_some_and(|flow| flow.slots[number].state == TaskState::Waiting);
            if task.epoch > epoch && task.epoch <= before && waits {
                self.weigh(id, number as u32);
            }
        }
    }

    /// Moves the frontier over epochs that are done, and lets the tasks of the next one begin.
    pub(super) fn reach_epochs(&mut self, id: WorkflowId) {
        loop {
            let now = self.now;
            let Some(flow) = self.flows.map.get_mut(&id) else { return };
            let epoch = flow.record.epoch as usize;
            if !flow.is_going() || epoch + 1 >= flow.open_in_epoch.len() || flow.open_in_epoch[epoch] > 0 {
                return;
            }
            if flow.failed_epoch.is_some_and(|failed| failed as usize <= epoch) {
                return;
            }
            flow.record.epoch += 1;
            let reached = flow.plan.epochs[epoch + 1].to_string();
            let note = Note { at: now, kind: NoteKind::EpochReached, by: None, place: None, text: Some(reached) };
            flow.record.note(note);
            let next = |number: &usize| {
                flow.plan.tasks[*number].epoch as usize == epoch + 1 && flow.slots[*number].open_needs == 0
            };
            let tasks: Vec<usize> = (0..flow.slots.len()).filter(next).collect();
            for task in tasks {
                self.weigh(id, task as u32);
            }
        }
    }

    /// When all tasks have ended, so has the workflow, or what stopped it goes on.
    pub(super) fn check_settled(&mut self, id: WorkflowId, step: &mut Step) {
        let Some(flow) = self.flows.map.get_mut(&id).filter(|flow| flow.is_settled()) else { return };
        match flow.record.state {
            WorkflowState::Running | WorkflowState::Paused => match flow.failure.take() {
                Some(reason) => self.finish(id, WorkflowState::Failed, Some(reason), step),
                None => match flow.decide_result() {
                    Ok(result) => {
                        flow.record.result = result;
                        self.finish(id, WorkflowState::Succeeded, None, step);
                    }
                    Err(reason) => self.finish(id, WorkflowState::Failed, Some(reason), step),
                },
            },
            WorkflowState::Stopping => {
                let then = flow.record.after_stop.unwrap_or(AfterStop::Cancelled);
                let reason = flow.record.reason.clone();
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

    /// The end of a workflow.
    pub(super) fn finish(&mut self, id: WorkflowId, state: WorkflowState, reason: Option<Reason>, step: &mut Step) {
        let now = self.now;
        let Some(flow) = self.flows.touch(id) else { return };
        if flow.record.state == WorkflowState::RollingBack {
            self.stats.flows.rolling_back -= 1;
        }
        flow.record.enter(state, now);
        flow.record.reason = reason;
        flow.record.after_stop = None;
        flow.record.note(Note { at: now, kind: NoteKind::Ended, by: None, place: None, text: None });
        let (parent, deadline) = (flow.record.parent, flow.record.deadline);
        let numbers: Vec<u32> = std::mem::take(&mut flow.signals).into_keys().collect();
        for number in numbers {
            step.batch.delete(model::batch::Keyspace::Signals, &model::key::signal(id, number));
        }
        if let Some(deadline) = deadline {
            self.flows.disarm_deadline(deadline, id);
        }
        self.stats.flows.end(state);
        self.tell_flow(id, step);
        if let Some(flow) = self.flows.map.get(&id) {
            step.ended_workflows.push(flow.record.clone());
        }
        match parent {
            Some(_) => self.flows.child_news.push_back(id),
            None => self.file(id),
        }
        self.schedule_heard(id);
    }

    pub(super) fn tell_flow(&self, id: WorkflowId, step: &mut Step) {
        let Some(flow) = self.flows.map.get(&id) else { return };
        let record = &flow.record;
        step.tell(&Change::Workflow {
            id,
            queue: record.queue,
            state: record.state,
            at: self.now,
            reason: record.reason.as_ref().map(|reason| reason.code),
        });
    }

    /// Adds to what is told of a workflow later.
    pub(super) fn note_flow(
        &mut self,
        id: WorkflowId,
        kind: NoteKind,
        by: Option<Box<str>>,
        place: Option<Place>,
        text: Option<String>,
    ) {
        let at = self.now;
        if let Some(flow) = self.flows.touch(id) {
            flow.record.note(Note { at, kind, by, place, text });
        }
    }
}

fn too_large(bytes: usize) -> Reason {
    let most = limits::LIST_RESULT_BYTES_MAX;
    Reason::with(
        ReasonCode::TemplateError,
        format!("the results of its items take {bytes} bytes; a template reads {most}"),
    )
}

/// A reason as the end of a sentence.
fn reason_text(reason: &Reason) -> String {
    match &reason.message {
        Some(message) => format!(": {} ({message})", reason.code.as_str()),
        None => format!(": {}", reason.code.as_str()),
    }
}
