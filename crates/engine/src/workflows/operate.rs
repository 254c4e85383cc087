//! Operations on workflows: cancel, pause, resume, remove; and progress reports of running tasks.

use model::audit::Action;
use model::id::{JobId, WorkflowId};
use model::message::AttemptRef;
use model::reason::{Reason, ReasonCode, cut};
use model::state::State;
use model::workflow::{AfterStop, NoteKind, Progress, TaskState, WorkflowState};

use super::late::Deferred;
use crate::input::{Actor, Answer, Refusal, RequestId};
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    /// Cancels a workflow, with a rollback if `compensate`. Idempotent.
    pub(crate) fn cancel_workflow(
        &mut self,
        request: RequestId,
        id: WorkflowId,
        by: Actor,
        compensate: bool,
        step: &mut Step,
    ) {
        let Some(workflow) = self.workflows.map.get(&id) else {
            return self.answer_ended(request, id, "cancelled", step);
        };
        let state = workflow.record.state;
        match state {
            WorkflowState::Running | WorkflowState::Paused | WorkflowState::Stopping => {
                let then = if compensate { AfterStop::RollBackAndCancel } else { AfterStop::Cancelled };
                if state != WorkflowState::Stopping {
                    self.note_workflow(id, NoteKind::CancelRequested, by.clone(), None, None);
                    self.audit_workflow(Action::WorkflowCancelled, id, &by, step);
                }
                self.stop(id, then, Reason::new(ReasonCode::CancelRequested), step);
            }
            // It is ending already.
            WorkflowState::RollingBack | WorkflowState::Cancelled => {}
            WorkflowState::Succeeded | WorkflowState::Failed => {
                return step.answer(request, Answer::Refused(Refusal::WorkflowState { state, what: "cancelled" }));
            }
        }
        self.answer_workflow(request, id, step);
    }

    /// Answers a request with the workflow's record.
    pub(super) fn answer_workflow(&mut self, request: RequestId, id: WorkflowId, step: &mut Step) {
        let answer = match self.workflows.map.get(&id) {
            Some(workflow) => Answer::Workflow(Box::new(workflow.record.clone())),
            None => Answer::Refused(Refusal::UnknownWorkflow(id)),
        };
        step.answer(request, answer);
    }

    /// Pauses a workflow: no further task begins. Idempotent.
    pub(crate) fn pause_workflow(&mut self, request: RequestId, id: WorkflowId, by: &Actor, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get(&id) else {
            return self.answer_ended(request, id, "paused", step);
        };
        match workflow.record.state {
            WorkflowState::Running => {
                self.audit_workflow(Action::WorkflowPaused, id, by, step);
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
        self.answer_workflow(request, id, step);
    }

    /// Resumes a paused workflow. Idempotent.
    pub(crate) fn resume_workflow(&mut self, request: RequestId, id: WorkflowId, by: &Actor, step: &mut Step) {
        let Some(workflow) = self.workflows.map.get(&id) else {
            return self.answer_ended(request, id, "resumed", step);
        };
        match workflow.record.state {
            WorkflowState::Paused => {
                self.audit_workflow(Action::WorkflowResumed, id, by, step);
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
        self.answer_workflow(request, id, step);
    }

    /// Pauses or resumes a workflow; its sub-workflows follow.
    fn set_paused(&mut self, id: WorkflowId, paused: bool, by: &Actor, step: &mut Step) {
        let now = self.now;
        let (to, kind) = if paused {
            (WorkflowState::Paused, NoteKind::Paused)
        } else {
            (WorkflowState::Running, NoteKind::Resumed)
        };
        if let Some(workflow) = self.workflows.touch(id) {
            workflow.record.enter(to, now);
        }
        self.note_workflow(id, kind, by.clone(), None, None);
        self.announce_workflow(id, step);
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            self.workflows.wake(id);
            let workflow = self.workflows.map.get(&id);
            pending.extend(workflow.into_iter().flat_map(|workflow| workflow.children.iter().copied()));
        }
    }

    /// Removes a finished workflow and its records.
    pub(crate) fn remove_workflow(&mut self, request: RequestId, id: WorkflowId, by: Actor, step: &mut Step) {
        match self.workflows.map.get(&id) {
            Some(workflow) => {
                let refusal = match workflow.record.parent {
                    Some((parent, _)) => Refusal::PartOfWorkflow(parent),
                    None => Refusal::WorkflowState { state: workflow.record.state, what: "deleted" },
                };
                step.answer(request, Answer::Refused(refusal));
            }
            None => self.fetch_workflow(id, Deferred::Remove { request, by }, step),
        }
    }

    /// Records a progress report that came over the API.
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

    /// Records a progress report from a runner. Reports of older attempts are ignored.
    pub(crate) fn progressed(
        &mut self,
        attempt_ref: AttemptRef,
        percent: u8,
        message: Option<String>,
        step: &mut Step,
    ) {
        if self.jobs.get(attempt_ref.job).is_some_and(|entry| entry.job.attempt == attempt_ref.attempt) {
            self.note_progress(attempt_ref.job, percent, message, step);
        }
    }

    /// Records progress. False: the job is not the current one of a running task.
    fn note_progress(&mut self, job: JobId, percent: u8, message: Option<String>, step: &mut Step) -> bool {
        let now = self.now;
        let running = self.jobs.get(job).filter(|entry| entry.job.state == State::Running);
        let origin = running.and_then(|entry| entry.job.origin.as_deref().copied()).filter(|from| !from.compensation);
        let row = origin.and_then(|origin| {
            let workflow = self.workflows.touch(origin.workflow)?;
            let current = workflow.state(origin.task_key) == TaskState::Running
                && workflow.row(origin.task_key).is_some_and(|row| row.job == Some(job));
            if current { workflow.row_mut(origin.task_key, now) } else { None }
        });
        let (Some(row), Some(origin)) = (row, origin) else { return false };
        row.progress = Some(Box::new(Progress { percent: percent.min(100), message: message.map(cut), at: now }));
        self.announce_task(origin.workflow, origin.task_key, step);
        true
    }
}
