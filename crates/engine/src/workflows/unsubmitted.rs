//! Compensations whose job cannot be rendered. Each leaves a dead letter, and no job.
//!
//! The dead letter reserves the id of the job. A retry renders the job again, which can succeed after the release of a
//! quarantined result, and creates it under that id.

use model::audit::{Action, AuditEntry};
use model::batch::Keyspace;
use model::codec;
use model::dead_letter::{DeadLetter, UnsubmittedCompensation};
use model::id::{JobId, WorkflowId};
use model::job::Job;
use model::key;
use model::reason::Reason;
use model::workflow::{Origin, TaskKey, TaskRecord};

use super::late::Deferred;
use super::live::LiveWorkflow;
use crate::anomaly::Anomaly;
use crate::input::{Actor, Answer, Refusal, RequestId};
use crate::shard::Shard;
use crate::step::Step;

/// An operation on the dead letter of a compensation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LetterOperation {
    Retry,
    Purge,
}

impl LiveWorkflow {
    /// Dead letters of the compensations that were not submitted, of the selected tasks.
    pub fn unsubmitted(&self, selects: impl Fn(TaskKey) -> bool) -> Vec<JobId> {
        let rows = self.rows().filter(|(task_key, _)| selects(*task_key));
        rows.filter_map(|(_, row)| row.compensation.as_ref()?.dead_letter).collect()
    }

    /// The task whose compensation has this dead letter.
    fn task_of_letter(&self, letter: JobId) -> Option<TaskKey> {
        let mut rows = self.rows();
        let has_letter = |row: &TaskRecord| row.compensation.as_ref().and_then(|it| it.dead_letter) == Some(letter);
        rows.find(|(_, row)| has_letter(row)).map(|(task_key, _)| task_key)
    }
}

impl Shard {
    /// Writes the dead letter of a compensation whose job cannot be rendered.
    pub(super) fn dead_letter_compensation(
        &mut self,
        id: WorkflowId,
        task_key: TaskKey,
        reason: Reason,
        step: &mut Step,
    ) -> Option<JobId> {
        let Some(workflow) = self.workflows.map.get(&id) else {
            self.anomalies.note(Anomaly::MissingWorkflow(id), "dead letter of a compensation");
            return None;
        };
        let letter = JobId(self.ids.next(self.now, self.ids.home()));
        let compensation = UnsubmittedCompensation { workflow: id, task: workflow.name_of(task_key) };
        let record = DeadLetter::of_compensation(self.now, reason, workflow.record.tenant.clone(), compensation);
        step.batch.put_with(Keyspace::DeadLetters, &letter.key(), |buffer| codec::encode_into(&record, buffer));
        // No record of a job has this id; it must not be handed out again.
        step.batch.put(Keyspace::Meta, key::META_LAST_ID, &self.ids.last().to_be_bytes());
        self.stats.dead_letters += 1;
        Some(letter)
    }

    /// Retries or purges a dead letter, fetching its workflow if needed.
    pub(crate) fn compensation_letter(
        &mut self,
        request: RequestId,
        id: WorkflowId,
        letter: JobId,
        operation: LetterOperation,
        by: Actor,
        step: &mut Step,
    ) {
        if self.workflows.map.contains_key(&id) {
            return self.operate_on_letter(request, id, letter, operation, &by, step);
        }
        self.fetch_workflow(id, Deferred::DeadLetter { request, letter, operation, by }, step);
    }

    /// Retries or purges a dead letter of a workflow in memory and answers the request.
    pub(super) fn operate_on_letter(
        &mut self,
        request: RequestId,
        id: WorkflowId,
        letter: JobId,
        operation: LetterOperation,
        by: &Actor,
        step: &mut Step,
    ) {
        let done = match operation {
            LetterOperation::Retry => {
                self.retry_compensation(id, letter, by, step).map(|job| Answer::Job(Box::new(job)))
            }
            LetterOperation::Purge => self.purge_compensation(id, letter, by, step).map(|()| Answer::Removed),
        };
        step.answer(request, done.unwrap_or_else(Answer::Refused));
    }

    fn retry_compensation(
        &mut self,
        id: WorkflowId,
        letter: JobId,
        by: &Actor,
        step: &mut Step,
    ) -> Result<Job, Refusal> {
        let workflow = self.workflows.map.get(&id).ok_or(Refusal::UnknownDeadLetter(letter))?;
        let task_key = workflow.task_of_letter(letter).ok_or(Refusal::UnknownDeadLetter(letter))?;
        let state = workflow.record.state;
        // Compensations run one at a time, last first: this one has had its turn.
        if !state.is_terminal() || workflow.moves_to_finished {
            return Err(Refusal::WorkflowState { state, what: "compensated further before its rollback has ended" });
        }
        let spec = match workflow.decide_compensation(task_key) {
            Some(Ok(spec)) => spec,
            Some(Err(reason)) => {
                let message = reason.message.unwrap_or_else(|| reason.code.as_str().to_owned());
                return Err(Refusal::CompensationUnreadable { message });
            }
            None => return Err(Refusal::UnknownDeadLetter(letter)),
        };
        let origin = Origin { workflow: id, task_key, compensation: true };
        let full = Refusal::Full { retry_after: self.config.retry_after };
        let job = self.enter_workflow_job_as(Some(letter), origin, spec.pack(), step).ok_or(full)?;
        self.close_letter(id, task_key, letter, Some(job), step);
        self.audit_letter(Action::Retried, id, letter, by, step);
        self.check_policy(job, step);
        self.jobs.get(job).map(|entry| entry.job.clone()).ok_or(Refusal::UnknownJob(job))
    }

    fn purge_compensation(
        &mut self,
        id: WorkflowId,
        letter: JobId,
        by: &Actor,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let workflow = self.workflows.map.get(&id).ok_or(Refusal::UnknownDeadLetter(letter))?;
        let task_key = workflow.task_of_letter(letter).ok_or(Refusal::UnknownDeadLetter(letter))?;
        self.close_letter(id, task_key, letter, None, step);
        self.audit_letter(Action::DeadLetterPurged, id, letter, by, step);
        Ok(())
    }

    /// Deletes a dead letter. Its job, if any, has taken its place.
    fn close_letter(&mut self, id: WorkflowId, task_key: TaskKey, letter: JobId, job: Option<JobId>, step: &mut Step) {
        let now = self.now;
        let row = self.workflows.touch(id).and_then(|workflow| workflow.row_mut(task_key, now));
        if let Some(compensation) = row.and_then(|row| row.compensation.as_mut()) {
            compensation.job = job;
            compensation.dead_letter = None;
        }
        step.batch.delete(Keyspace::DeadLetters, &letter.key());
    }

    fn audit_letter(&mut self, action: Action, id: WorkflowId, letter: JobId, by: &Actor, step: &mut Step) {
        let message = Some(format!("compensation {letter} of {id}"));
        let by = by.as_deref().map(str::to_owned);
        self.audit_event(AuditEntry { message, by, ..AuditEntry::of(action) }, step);
    }
}
