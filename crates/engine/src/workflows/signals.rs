//! Signals: messages from outside that tasks wait for.
//!
//! A signal without a waiting task is stored until a task waits for it, or the workflow ends.

use model::batch::Keyspace;
use model::codec;
use model::id::WorkflowId;
use model::key;
use model::limits;
use model::time::Millis;
use model::workflow::{NoteKind, Signal, TaskKey, TaskState, WorkflowState};

use super::settle::TaskEnd;
use crate::anomaly::Anomaly;
use crate::input::{Answer, Refusal, RequestId};
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    /// Delivers a signal to a workflow and answers the request.
    pub(crate) fn signal_workflow(&mut self, request: RequestId, id: WorkflowId, signal: Signal, step: &mut Step) {
        let answer = self.try_signal(id, signal, step);
        match answer {
            Some(answer) => step.answer(request, answer),
            None => self.answer_ended(request, id, "signalled", step),
        }
    }

    /// None: the workflow is not in memory.
    fn try_signal(&mut self, id: WorkflowId, mut signal: Signal, step: &mut Step) -> Option<Answer> {
        let now = self.now;
        let workflow = self.workflows.map.get_mut(&id)?;
        let state = workflow.record.state;
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
            let waiting = workflow.listeners.get_mut(signal.name.as_str());
            match waiting.and_then(|waiting| waiting.pop_front()) {
                Some(task_key) if workflow.state(task_key) == TaskState::Listening => break Some(task_key),
                Some(_) => {}
                None => break None,
            }
        };
        if listener.is_none() && workflow.signals.len() >= limits::SIGNALS_MAX {
            return Some(Answer::Refused(Refusal::TooManySignals { max: limits::SIGNALS_MAX }));
        }
        self.stats.workflows.signals += 1;
        self.note_workflow(id, NoteKind::Signalled, signal.by.clone(), listener, Some(signal.name.clone()));
        match listener {
            Some(task_key) => {
                let end = TaskEnd { result: Some(signal.payload), ..TaskEnd::of(TaskState::Succeeded) };
                self.settle(id, task_key, end, step);
            }
            None => {
                let workflow = self.workflows.touch(id)?;
                let number = workflow.record.next_signal;
                workflow.record.next_signal += 1;
                let row = key::signal(id, number);
                step.batch.put_with(Keyspace::Signals, &row, |buffer| codec::encode_into(&signal, buffer));
                workflow.signals.insert(number, signal);
            }
        }
        self.workflows.map.get(&id).map(|workflow| Answer::Workflow(Box::new(workflow.record.clone())))
    }

    /// Begins waiting for a signal, or consumes a stored one.
    pub(super) fn listen(
        &mut self,
        id: WorkflowId,
        task_key: TaskKey,
        name: Box<str>,
        due: Option<Millis>,
        step: &mut Step,
    ) {
        let Some(workflow) = self.workflows.touch(id) else {
            return self.anomalies.note(Anomaly::MissingWorkflow(id), "listen");
        };
        let stored = workflow.signals.iter().find(|(_, signal)| *signal.name == *name).map(|(number, _)| *number);
        if let Some(number) = stored
            && let Some(signal) = workflow.signals.remove(&number)
        {
            step.batch.delete(Keyspace::Signals, &key::signal(id, number));
            let end = TaskEnd { result: Some(signal.payload), ..TaskEnd::of(TaskState::Succeeded) };
            return self.settle(id, task_key, end, step);
        }
        workflow.listeners.entry(name).or_default().push_back(task_key);
        self.begin_waiting(id, task_key, TaskState::Listening, due, step);
    }
}
