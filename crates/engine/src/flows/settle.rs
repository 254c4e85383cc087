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
}

impl End {
    pub fn of(state: TaskState) -> Self {
        Self { state, result: None, reason: None, job_state: None }
    }

    pub fn bare(state: TaskState, reason: Reason) -> Self {
        Self { reason: Some(reason), ..Self::of(state) }
    }

    /// The end of one that shares what another came to.
    pub fn shared(leader: &TaskRecord) -> Self {
        Self {
            state: leader.state,
            result: leader.result.clone(),
            reason: leader.reason.clone(),
            job_state: leader.job_state,
        }
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
        let counts = end.state == TaskState::Succeeded
            || (matches!(flow.task(place).act, Act::Workflow { .. }) && from.is_live());
        let order = if undoable && counts && from != TaskState::Merged {
            flow.record.last_order += 1;
            flow.record.last_order
        } else {
            0
        };
        let is_read = flow.task(place).is_read;
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
        self.settle_followers(id, place, step);
        match place.item {
            Some(_) => self.item_ended(id, place, &end, step),
            None => self.task_ended(id, place, &end, step),
        }
    }

    /// Those that share its result have it, too.
    fn settle_followers(&mut self, id: WorkflowId, place: Place, step: &mut Step) {
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        let Some(followers) = flow.followers.remove(&place) else { return };
        let Some(leader) = flow.row(place).cloned() else { return };
        for follower in followers {
            self.settle(id, follower, End::shared(&leader), step);
        }
    }

    fn item_ended(&mut self, id: WorkflowId, place: Place, end: &End, step: &mut Step) {
        self.weigh_failure(id, place, end, step);
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        let tolerated = flow.task(place).on_failure == OnFailure::Continue;
        let Some(each) = flow.slots[place.task as usize].each.as_mut() else { return };
        if end.is_failure() && !tolerated && each.failure.is_none() {
            let name = format!("item {}", place.item.unwrap_or_default());
            let said = end.reason.as_ref().map_or(String::new(), |reason| reason_text(reason));
            each.failure = Some(Reason::with(ReasonCode::ItemFailed, format!("{name} did not succeed{said}")));
            self.leave_out_items(id, place.task);
        }
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        let Some(each) = flow.slots[place.task as usize].each.as_ref() else { return };
        if each.left > 0 {
            flow.go_on_with(place.task);
            return self.flows.wake(id);
        }
        let failure = each.failure.clone();
        let stopped = each.slots.iter().any(|item| item.state == TaskState::Cancelled);
        let left_out = each.slots.iter().any(|item| item.state == TaskState::Cancelled && item.record.is_none());
        let whole = match failure {
            Some(reason) if flow.record.state == WorkflowState::Stopping && stopped => {
                End::bare(TaskState::Cancelled, reason)
            }
            Some(reason) => End::bare(TaskState::Failed, reason),
            None if left_out => End::bare(TaskState::Cancelled, Reason::new(ReasonCode::WorkflowStopped)),
            None => End { result: self.gather_results(id, place.task), ..End::of(TaskState::Succeeded) },
        };
        let task = Place::of(place.task);
        match whole.result.as_ref().map(|result| result.as_bytes().len()) {
            Some(bytes) if bytes > limits::RESULT_BYTES_MAX => {
                let message = format!(
                    "the results of its items take {bytes} bytes; a template reads at most {}",
                    limits::RESULT_BYTES_MAX
                );
                self.settle(
                    id,
                    task,
                    End::bare(TaskState::Failed, Reason::with(ReasonCode::TemplateError, message)),
                    step,
                );
            }
            Some(_) | None => self.settle(id, task, whole, step),
        }
    }

    /// Items that have not begun will not.
    pub(super) fn leave_out_items(&mut self, id: WorkflowId, task: u32) {
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        let Some(each) = flow.slots[task as usize].each.as_mut() else { return };
        for item in each.slots.iter_mut().filter(|item| item.state == TaskState::Waiting) {
            item.state = TaskState::Cancelled;
            each.left -= 1;
            flow.record.items.shift(TaskState::Waiting, TaskState::Cancelled);
        }
        each.next = each.slots.len() as u32;
    }

    /// The results of all items as one list, where a template reads it.
    pub(super) fn gather_results(&self, id: WorkflowId, task: u32) -> Option<Json> {
        let flow = self.flows.map.get(&id).filter(|flow| flow.plan.tasks[task as usize].is_read)?;
        let each = flow.slots[task as usize].each.as_ref()?;
        let null = Json::null();
        let result = |item: &super::flow::ItemSlot| {
            item.record.as_ref().and_then(|row| row.result.clone()).unwrap_or_else(|| null.clone())
        };
        let results: Vec<Json> = each.slots.iter().map(result).collect();
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
        let said = end.reason.as_ref().map_or(String::new(), |reason| reason_text(reason));
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
            let waits = |flow: &Box<super::flow::Flow>| flow.slots[*dependent as usize].state == TaskState::Waiting;
            if self.flows.map.get(&id).is_some_and(waits) {
                self.weigh(id, *dependent);
            }
        }
        self.doom_later_epochs(id, plan.tasks[task as usize].epoch);
    }

    fn doom_later_epochs(&mut self, id: WorkflowId, epoch: u32) {
        let Some(flow) = self.flows.map.get_mut(&id) else { return };
        if epoch as usize + 1 >= flow.open_in_epoch.len() {
            return;
        }
        let message = || format!("the epoch `{}` did not succeed", flow.plan.epochs[epoch as usize]);
        let reason = Reason::with(ReasonCode::UpstreamFailed, message());
        for (number, task) in flow.plan.tasks.iter().enumerate() {
            if task.epoch > epoch && flow.slots[number].state == TaskState::Waiting {
                flow.doomed.push_back((number as u32, TaskState::Cancelled, reason.clone()));
            }
        }
        self.flows.wake(id);
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
            let failed = |number: usize| {
                flow.plan.tasks[number].epoch as usize == epoch && flow.class(number as u32) == Class::Bad
            };
            if (0..flow.slots.len()).any(failed) {
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
        self.schedule_heard(id, step);
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

/// A reason as the end of a sentence.
fn reason_text(reason: &Reason) -> String {
    match &reason.message {
        Some(message) => format!(": {} ({message})", reason.code.as_str()),
        None => format!(": {}", reason.code.as_str()),
    }
}
