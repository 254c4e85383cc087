//! Signals: words from outside that tasks wait for.
//!
//! One that comes before a task waits for it is kept until one does, or until the workflow has ended.

use model::batch::Keyspace;
use model::codec;
use model::id::WorkflowId;
use model::key;
use model::limits;
use model::time::Millis;
use model::workflow::{NoteKind, Place, Signal, TaskState, WorkflowState};

use super::settle::End;
use crate::input::{Answer, Refusal, RequestId};
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    pub(crate) fn signal_workflow(&mut self, request: RequestId, id: WorkflowId, signal: Signal, step: &mut Step) {
        let answer = self.try_signal(id, signal, step);
        match answer {
            Some(answer) => step.answer(request, answer),
            None => self.ask_about_ended(request, id, "signalled", step),
        }
    }

    /// None: it is not in memory.
    fn try_signal(&mut self, id: WorkflowId, mut signal: Signal, step: &mut Step) -> Option<Answer> {
        let now = self.now;
        let flow = self.flows.map.get_mut(&id)?;
        let state = flow.record.state;
        match state {
            WorkflowState::Running | WorkflowState::Paused => {}
            WorkflowState::Stopping
            | WorkflowState::RollingBack
            | WorkflowState::Succeeded
            | WorkflowState::Failed
            | WorkflowState::Cancelled => {
                return Some(Answer::Refused(Refusal::WorkflowState { state, what: "signalled" }));
            }
        }
        signal.at = now;
        let listener = loop {
            let waiting = flow.listeners.get_mut(signal.name.as_str());
            match waiting.and_then(|waiting| waiting.pop_front()) {
                Some(place) if flow.state(place) == TaskState::Listening => break Some(place),
                Some(_) => {}
                None => break None,
            }
        };
        if listener.is_none() && flow.signals.len() >= limits::SIGNALS_MAX {
            return Some(Answer::Refused(Refusal::TooManySignals { max: limits::SIGNALS_MAX }));
        }
        self.stats.flows.signals += 1;
        self.note_flow(id, NoteKind::Signalled, signal.by.clone(), listener, Some(signal.name.clone()));
        match listener {
            Some(place) => {
                let end = End { result: Some(signal.payload), ..End::of(TaskState::Succeeded) };
                self.settle(id, place, end, step);
            }
            None => {
                let flow = self.flows.touch(id)?;
                let number = flow.record.next_signal;
                flow.record.next_signal += 1;
                let row = key::signal(id, number);
                step.batch.put_with(Keyspace::Signals, &row, |buffer| codec::encode_into(&signal, buffer));
                flow.signals.insert(number, signal);
            }
        }
        self.flows.map.get(&id).map(|flow| Answer::Workflow(Box::new(flow.record.clone())))
    }

    /// A task waits for a signal, unless it has come already.
    pub(super) fn listen(
        &mut self,
        id: WorkflowId,
        place: Place,
        name: Box<str>,
        due: Option<Millis>,
        step: &mut Step,
    ) {
        let Some(flow) = self.flows.touch(id) else { return };
        let kept = flow.signals.iter().find(|(_, signal)| *signal.name == *name).map(|(number, _)| *number);
        if let Some(number) = kept
            && let Some(signal) = flow.signals.remove(&number)
        {
            step.batch.delete(Keyspace::Signals, &key::signal(id, number));
            let end = End { result: Some(signal.payload), ..End::of(TaskState::Succeeded) };
            return self.settle(id, place, end, step);
        }
        flow.listeners.entry(name).or_default().push_back(place);
        self.begin_waiting(id, place, TaskState::Listening, due, step);
    }
}
