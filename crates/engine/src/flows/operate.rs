//! What users do to a workflow: cancel, pause, resume, remove; and what its running tasks say of themselves.

use model::audit::Action;
use model::id::{JobId, WorkflowId};
use model::message::Ticket;
use model::reason::{Reason, ReasonCode, cut};
use model::state::State;
use model::workflow::{AfterStop, NoteKind, Progress, TaskState, WorkflowState};

use super::late::Late;
use crate::input::{Actor, Answer, Refusal, RequestId};
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    pub(crate) fn cancel_workflow(
        &mut self,
        request: RequestId,
        id: WorkflowId,
        by: Actor,
        compensate: bool,
        step: &mut Step,
    ) {
        let Some(flow) = self.flows.map.get(&id) else {
            return self.ask_about_ended(request, id, "cancelled", step);
        };
        let state = flow.record.state;
        match state {
            WorkflowState::Running | WorkflowState::Paused | WorkflowState::Stopping => {
                let then = if compensate { AfterStop::RollBackAndCancel } else { AfterStop::Cancelled };
                if state != WorkflowState::Stopping {
                    self.note_flow(id, NoteKind::CancelRequested, by.clone(), None, None);
                    self.note_workflow_act(Action::WorkflowCancelled, id, &by, step);
                }
                self.stop(id, then, Reason::new(ReasonCode::CancelRequested), step);
            }
            // It is on its way to its end.
            WorkflowState::RollingBack | WorkflowState::Cancelled => {}
            WorkflowState::Succeeded | WorkflowState::Failed => {
                return step.answer(request, Answer::Refused(Refusal::WorkflowState { state, what: "cancelled" }));
            }
        }
        self.answer_flow(request, id, step);
    }

    pub(super) fn answer_flow(&mut self, request: RequestId, id: WorkflowId, step: &mut Step) {
        let answer = match self.flows.map.get(&id) {
            Some(flow) => Answer::Workflow(Box::new(flow.record.clone())),
            None => Answer::Refused(Refusal::UnknownWorkflow(id)),
        };
        step.answer(request, answer);
    }

    pub(crate) fn pause_workflow(&mut self, request: RequestId, id: WorkflowId, by: &Actor, step: &mut Step) {
        let Some(flow) = self.flows.map.get(&id) else {
            return self.ask_about_ended(request, id, "paused", step);
        };
        match flow.record.state {
            WorkflowState::Running => {
                self.note_workflow_act(Action::WorkflowPaused, id, by, step);
                self.set_paused(id, true, by, step);
            }
            WorkflowState::Paused => {}
            state @ (WorkflowState::Stopping
            | WorkflowState::RollingBack
            | WorkflowState::Succeeded
            | WorkflowState::Failed
            | WorkflowState::Cancelled) => {
                return step.answer(request, Answer::Refused(Refusal::WorkflowState { state, what: "paused" }));
            }
        }
        self.answer_flow(request, id, step);
    }

    pub(crate) fn resume_workflow(&mut self, request: RequestId, id: WorkflowId, by: &Actor, step: &mut Step) {
        let Some(flow) = self.flows.map.get(&id) else {
            return self.ask_about_ended(request, id, "resumed", step);
        };
        match flow.record.state {
            WorkflowState::Paused => {
                self.note_workflow_act(Action::WorkflowResumed, id, by, step);
                self.set_paused(id, false, by, step);
            }
            WorkflowState::Running => {}
            state @ (WorkflowState::Stopping
            | WorkflowState::RollingBack
            | WorkflowState::Succeeded
            | WorkflowState::Failed
            | WorkflowState::Cancelled) => {
                return step.answer(request, Answer::Refused(Refusal::WorkflowState { state, what: "resumed" }));
            }
        }
        self.answer_flow(request, id, step);
    }

    /// What is part of it is held with it.
    fn set_paused(&mut self, id: WorkflowId, paused: bool, by: &Actor, step: &mut Step) {
        let now = self.now;
        let (to, kind) = if paused {
            (WorkflowState::Paused, NoteKind::Paused)
        } else {
            (WorkflowState::Running, NoteKind::Resumed)
        };
        if let Some(flow) = self.flows.touch(id) {
            flow.record.enter(to, now);
        }
        self.note_flow(id, kind, by.clone(), None, None);
        self.tell_flow(id, step);
        let mut line = vec![id];
        while let Some(id) = line.pop() {
            self.flows.wake(id);
            line.extend(self.flows.map.get(&id).into_iter().flat_map(|flow| flow.children.iter().copied()));
        }
    }

    pub(crate) fn remove_workflow(&mut self, request: RequestId, id: WorkflowId, by: Actor, step: &mut Step) {
        match self.flows.map.get(&id) {
            Some(flow) => {
                let refusal = match flow.record.parent {
                    Some((parent, _)) => Refusal::PartOfWorkflow(parent),
                    None => Refusal::WorkflowState { state: flow.record.state, what: "removed" },
                };
                step.answer(request, Answer::Refused(refusal));
            }
            None => self.fetch_flow(id, Late::Remove { request, by }, step),
        }
    }

    /// A running task says how far it is.
    pub(crate) fn progress(
        &mut self,
        request: RequestId,
        job: JobId,
        percent: u8,
        message: Option<String>,
        step: &mut Step,
    ) {
        let known = self.note_progress(job, percent, message, step);
        let answer = if known { Answer::Progressed } else { Answer::Refused(Refusal::NoProgress) };
        step.answer(request, answer);
    }

    /// The same, heard from its runner: of an older attempt it counts nothing.
    pub(crate) fn progressed(&mut self, ticket: Ticket, percent: u8, message: Option<String>, step: &mut Step) {
        if self.jobs.get(&ticket.job).is_some_and(|entry| entry.job.attempt == ticket.attempt) {
            self.note_progress(ticket.job, percent, message, step);
        }
    }

    /// Says whether there is a running task to note it of.
    fn note_progress(&mut self, job: JobId, percent: u8, message: Option<String>, step: &mut Step) -> bool {
        let now = self.now;
        let running = self.jobs.get(&job).filter(|entry| entry.job.state == State::Running);
        let origin = running.and_then(|entry| entry.job.origin.as_deref().copied()).filter(|from| !from.compensation);
        let row = origin.and_then(|origin| {
            let flow = self.flows.touch(origin.workflow)?;
            let current = flow.state(origin.place) == TaskState::Running
                && flow.row(origin.place).is_some_and(|row| row.job == Some(job));
            if current { flow.row_mut(origin.place, now) } else { None }
        });
        let (Some(row), Some(origin)) = (row, origin) else { return false };
        row.progress = Some(Box::new(Progress { percent: percent.min(100), message: message.map(cut), at: now }));
        self.tell_task(origin.workflow, origin.place, step);
        true
    }
}
