//! What concerns a workflow that is not in memory: it is fetched first, and whatever waits for it is done in order.

use model::audit::Action;
use model::batch::Keyspace;
use model::id::{JobId, WorkflowId};
use model::job::Job;
use model::state::State;
use model::workflow::{NoteKind, Origin, Place, TaskState, WorkflowState};
use workflow::plan::OnFailure;

use super::flow::Flow;
use super::jobs::JobWord;
use super::scope::value_of;
use crate::fetch::{Fetch, StoredWorkflow};
use crate::input::{Actor, Answer, Effect, Refusal, RequestId};
use crate::operate::Operation;
use crate::shard::Shard;
use crate::step::Step;

/// What waits for a workflow to be fetched.
#[derive(Debug)]
pub(crate) enum Late {
    Rerun {
        request: RequestId,
        from: Option<String>,
        by: Actor,
    },
    Remove {
        request: RequestId,
        by: Actor,
    },
    /// Something that only live workflows take; `what` says what it cannot be.
    Ask {
        request: RequestId,
        what: &'static str,
    },
    /// A job of it has changed after its task had ended.
    Job {
        origin: Origin,
        word: Box<JobWord>,
    },
    /// It is to undo its steps, since the workflow that it is part of does.
    RollBack {
        parent: WorkflowId,
        place: Place,
    },
}

impl Shard {
    pub(super) fn fetch_flow(&mut self, id: WorkflowId, late: Late, step: &mut Step) {
        let waiting = self.flows.asked.entry(id).or_default();
        if waiting.is_empty() {
            step.effects.push(Effect::Fetch(Fetch::Workflow { id }));
        }
        waiting.push(late);
    }

    /// Says of a workflow that is not in memory why it cannot be `what`, or that it is so already.
    pub(super) fn ask_about_ended(&mut self, request: RequestId, id: WorkflowId, what: &'static str, step: &mut Step) {
        self.fetch_flow(id, Late::Ask { request, what }, step);
    }

    pub(super) fn job_changed_late(&mut self, origin: Origin, word: JobWord, step: &mut Step) {
        if self.flows.map.contains_key(&origin.workflow) {
            self.revise(origin, &word, step);
        } else {
            // Until the workflow knows of it that is kept, over any crash.
            step.batch.put(Keyspace::LateWords, &word.job.key(), &[]);
            self.fetch_flow(origin.workflow, Late::Job { origin, word: Box::new(word) }, step);
        }
    }

    /// Puts back the mark of a job of which its workflow does not know yet. Before the shard is resumed.
    pub fn restore_late_word(&mut self, key: &[u8]) {
        self.flows.late_words.extend(JobId::from_key(key));
    }

    /// Asks for the jobs whose words have not reached their workflows.
    pub(super) fn resume_late_words(&mut self, step: &mut Step) {
        for job in std::mem::take(&mut self.flows.late_words) {
            self.operate(None, job, Operation::TellWorkflow, step);
        }
    }

    /// What became of a job, for its workflow. Absent: it is gone, and with it all that there was to tell.
    pub(crate) fn tell_workflow(&mut self, id: JobId, job: Option<&Job>, step: &mut Step) {
        match job.and_then(|job| Some((job.origin.as_deref().copied()?, JobWord::of(job, id)))) {
            Some((origin, word)) => self.job_changed_late(origin, word, step),
            None => step.batch.delete(Keyspace::LateWords, &id.key()),
        }
    }

    /// The store has told of a workflow that has ended.
    pub(crate) fn fetched_workflow(&mut self, id: WorkflowId, found: Option<Box<StoredWorkflow>>, step: &mut Step) {
        let waiting = self.flows.asked.remove(&id).unwrap_or_default();
        let was_away = !self.flows.map.contains_key(&id);
        if let (true, Some(stored)) = (was_away, found) {
            self.revive(*stored);
        }
        for late in waiting {
            self.do_late(id, late, step);
        }
        // Unless something has come of it, it goes back to where it was, on disk only.
        let Some(flow) = self.flows.map.get_mut(&id).filter(|_| was_away) else { return };
        let rests = flow.record.state.is_terminal() && flow.record.parent.is_none_or(|_| !flow.stored);
        match (rests, flow.dirty) {
            (true, true) => flow.files = true,
            (true, false) => drop(self.flows.map.remove(&id)),
            (false, _) => {}
        }
    }

    pub(crate) fn unreadable_workflow(&mut self, id: WorkflowId, step: &mut Step) {
        for late in self.flows.asked.remove(&id).unwrap_or_default() {
            match late {
                Late::Rerun { request, .. } | Late::Remove { request, .. } | Late::Ask { request, .. } => {
                    step.answer(request, Answer::Refused(Refusal::Unreadable));
                }
                // Nobody will ever be able to tell it.
                Late::Job { word, .. } => step.batch.delete(Keyspace::LateWords, &word.job.key()),
                // What cannot be read cannot be undone, and that is said.
                Late::RollBack { parent, place } => self.undone(parent, place, false, step),
            }
        }
    }

    /// A workflow that has ended, in memory again.
    fn revive(&mut self, stored: StoredWorkflow) {
        let StoredWorkflow { record, spec, plan, tasks, signals } = stored;
        let mut flow = Flow::new(record, plan, value_of(&spec.inputs));
        flow.was_done = true;
        for (place, row) in tasks {
            flow.put_row(place, row);
        }
        flow.signals = signals.into_iter().collect();
        flow.derive();
        self.flows.map.insert(flow.record.id, Box::new(flow));
    }

    fn do_late(&mut self, id: WorkflowId, late: Late, step: &mut Step) {
        let state = self.flows.map.get(&id).map(|flow| flow.record.state);
        match late {
            Late::Rerun { request, from, by } => self.rerun(request, id, from, &by, step),
            Late::Remove { request, by } => match self.flows.map.get(&id) {
                Some(flow) if flow.record.state.is_terminal() => {
                    self.note_workflow_act(Action::WorkflowRemoved, id, &by, step);
                    self.take_off_records(id, Some(request), step);
                }
                Some(flow) => {
                    let refusal = Refusal::WorkflowState { state: flow.record.state, what: "removed" };
                    step.answer(request, Answer::Refused(refusal));
                }
                None => step.answer(request, Answer::Refused(Refusal::UnknownWorkflow(id))),
            },
            Late::Ask { request, what } => {
                let done = matches!((what, state), ("cancelled", Some(WorkflowState::Cancelled)));
                match state {
                    Some(_) if done => self.answer_flow(request, id, step),
                    Some(state) => step.answer(request, Answer::Refused(Refusal::WorkflowState { state, what })),
                    None => step.answer(request, Answer::Refused(Refusal::UnknownWorkflow(id))),
                }
            }
            Late::Job { origin, word } => {
                step.batch.delete(Keyspace::LateWords, &word.job.key());
                self.revise(origin, &word, step);
            }
            Late::RollBack { parent, place } => {
                if state.is_none() {
                    return self.undone(parent, place, false, step);
                }
                if let Some(flow) = self.flows.map.get_mut(&id) {
                    // From now on it is part of a live one again.
                    flow.stored = true;
                }
                if let Some(parent) = self.flows.map.get_mut(&parent) {
                    parent.children.insert(id);
                }
                self.hold_queue(id);
                self.flows.touch(id);
                self.undo_child(parent, place, id, step);
            }
        }
    }

    /// A job has changed after its task, or its compensation, had ended.
    fn revise(&mut self, origin: Origin, word: &JobWord, step: &mut Step) {
        let Origin { workflow: id, place, compensation } = origin;
        if compensation {
            if self.undone_after_all(id, place, word.job, word.state) {
                self.tell_flow(id, step);
            }
            return;
        }
        let Some(flow) = self.flows.map.get(&id) else { return };
        let Some(row) = flow.row(place).filter(|row| row.job == Some(word.job)) else { return };
        // Whoever shares the result shares what becomes of it.
        let places: Vec<Place> = std::iter::once(place).chain(flow.sharers(place)).collect();
        match (row.state, word.state) {
            (TaskState::Succeeded, State::Quarantined) => {
                places.into_iter().for_each(|place| self.quarantine_late(id, place, step));
            }
            (TaskState::Quarantined, State::Succeeded) => {
                places.into_iter().for_each(|place| self.release_late(id, place, word, step));
            }
            (TaskState::Succeeded, State::Succeeded) => {
                places.into_iter().for_each(|place| self.redact_late(id, place, word, step));
            }
            _ => {
                let now = self.now;
                if let Some(row) = self.flows.touch(id).and_then(|flow| flow.row_mut(place, now)) {
                    row.job_state = Some(word.state);
                }
                if word.state == State::Succeeded {
                    self.note_flow(id, NoteKind::Released, None, Some(place), None);
                }
            }
        }
    }

    /// Its result is taken out of circulation. What had begun after it goes on; what had not does not begin.
    fn quarantine_late(&mut self, id: WorkflowId, place: Place, step: &mut Step) {
        let now = self.now;
        let Some(flow) = self.flows.touch(id) else { return };
        for place in [Some(place), place.item.map(|_| Place::of(place.task))].into_iter().flatten() {
            if flow.state(place) == TaskState::Succeeded
                && let Some(row) = flow.enter(place, TaskState::Quarantined, now)
            {
                row.result = None;
                row.job_state = row.job.map(|_| State::Quarantined);
            }
        }
        let tolerated = flow.task(place).on_failure == OnFailure::Continue;
        let going = flow.is_going();
        let each = flow.slots[place.task as usize].each.as_mut().filter(|_| place.item.is_some() && !tolerated);
        if let Some(each) = each {
            each.failure.get_or_insert_with(|| model::reason::Reason::new(model::reason::ReasonCode::ItemFailed));
        }
        if going && !tolerated {
            let message = format!("the result of `{}` was quarantined", flow.name_of(place));
            let code = model::reason::ReasonCode::OutputQuarantined;
            flow.failure.get_or_insert_with(|| model::reason::Reason::with(code, message));
        }
        self.render_result_again(id);
        self.note_flow(id, NoteKind::QuarantinedLate, None, Some(place), None);
        self.tell_task(id, place, step);
        if place.item.is_some() && !tolerated && self.is_live_list(id, place.task) {
            self.leave_out_items(id, place.task);
            self.close_list(id, place.task, step);
        }
        if going {
            self.weigh_dependents(id, place.task);
        }
    }

    fn is_live_list(&self, id: WorkflowId, task: u32) -> bool {
        self.flows.map.get(&id).is_some_and(|flow| flow.slots[task as usize].state.is_live())
    }

    fn release_late(&mut self, id: WorkflowId, place: Place, word: &JobWord, step: &mut Step) {
        let now = self.now;
        let Some(flow) = self.flows.touch(id) else { return };
        let is_read = flow.task(place).is_read || flow.task(place).merge.is_some();
        if let Some(row) = flow.enter(place, TaskState::Succeeded, now)
            && row.merged_into.is_none()
        {
            row.result = word.result.clone().filter(|_| is_read);
            row.job_state = Some(State::Succeeded);
        }
        flow.failure = flow.find_failure();
        flow.failed_epoch = flow.find_failed_epoch();
        self.gather_again(id, place, TaskState::Succeeded);
        self.note_flow(id, NoteKind::Released, None, Some(place), None);
        self.tell_task(id, place, step);
    }

    /// Parts of its result were removed: what was kept of it here must lose them, too.
    fn redact_late(&mut self, id: WorkflowId, place: Place, word: &JobWord, step: &mut Step) {
        let now = self.now;
        let Some(flow) = self.flows.touch(id) else { return };
        if !flow.task(place).is_read && flow.task(place).merge.is_none() {
            return;
        }
        if let Some(row) = flow.row_mut(place, now)
            && row.merged_into.is_none()
        {
            row.result.clone_from(&word.result);
        }
        self.gather_again(id, place, TaskState::Succeeded);
        self.render_result_again(id);
        self.note_flow(id, NoteKind::RedactedLate, None, Some(place), None);
        self.tell_task(id, place, step);
    }

    /// What the workflow has come to must not keep what its tasks may no longer show.
    fn render_result_again(&mut self, id: WorkflowId) {
        if let Some(flow) = self.flows.touch(id)
            && flow.record.result.is_some()
        {
            flow.record.result = flow.decide_result().ok().flatten();
        }
    }

    /// The list of an item's task follows its items.
    fn gather_again(&mut self, id: WorkflowId, place: Place, state: TaskState) {
        let now = self.now;
        let whole = Place::of(place.task);
        // While the list is not complete there is nothing to gather.
        let ended = self.flows.map.get(&id).is_some_and(|flow| flow.state(whole).is_terminal());
        if place.item.is_none() || !ended {
            return;
        }
        let result = self.gather_results(id, place.task);
        let Some(flow) = self.flows.touch(id) else { return };
        let all_well = flow.slots[place.task as usize]
            .each
            .as_ref()
            .is_some_and(|each| each.slots.iter().all(|item| item.state != TaskState::Quarantined));
        if flow.state(whole) == TaskState::Quarantined && all_well {
            flow.enter(whole, state, now);
            flow.failure = flow.find_failure();
        }
        if flow.state(whole).is_terminal()
            && let Some(row) = flow.row_mut(whole, now)
        {
            row.result = result;
        }
    }
}
