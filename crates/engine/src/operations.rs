//! What users and operators do to one job. Each operation has a file of its own.
//!
//! A job in memory is changed at once. A terminal one is fetched first; operations on it wait in order, so that each
//! sees the effect of the one before it.

mod approve;
mod cancel;
mod purge;
mod read_original;
mod release;
mod remove;
mod retract;
mod retry;
mod scan;
#[cfg(test)]
mod support;

use model::id::{Attempt, JobId};
use model::job::{Job, Scan};
use model::machine::Ignored;

use crate::fetch::Fetch;
use crate::input::{Actor, Answer, ApprovalDecision, Effect, Refusal, RequestId};
use crate::jobs::LiveJob;
use crate::shard::{Map, Shard};
use crate::step::Step;

/// An operation on a job.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Cancel,
    Retract,
    Retry,
    Remove,
    Release,
    Approve(Box<ApprovalDecision>),
    Purge,
    ReadOriginal,
    /// Applies a job's end to its workflow, which may have ended.
    NotifyWorkflow,
    Scanned {
        attempt: Attempt,
        scan: Box<Scan>,
    },
    ScanFailed {
        attempt: Attempt,
        message: String,
    },
}

impl Operation {
    /// Whether it deletes the job's record.
    fn removes(&self) -> bool {
        matches!(self, Self::Remove | Self::Purge)
    }
}

/// An operation that waits for its job to be fetched.
#[derive(Debug)]
struct Waiting {
    request: Option<RequestId>,
    by: Actor,
    operation: Operation,
}

/// Operations on terminal jobs that are being fetched, in order.
#[derive(Debug, Default)]
pub(crate) struct WaitingOperations {
    by_job: Map<JobId, Vec<Waiting>>,
}

impl WaitingOperations {
    pub fn contains(&self, job: JobId) -> bool {
        self.by_job.contains_key(&job)
    }
}

impl Shard {
    pub(crate) fn operate(
        &mut self,
        request: Option<RequestId>,
        id: JobId,
        by: Actor,
        operation: Operation,
        step: &mut Step,
    ) {
        // A job that ended within this step is removed after it is stored.
        let waits_for_flush = |entry: &LiveJob| entry.job.state.is_terminal() && operation.removes();
        if self.jobs.get(id).is_some_and(|entry| !waits_for_flush(entry)) {
            let answer = self.operate_in_memory(id, &by, operation, step);
            return respond(request, answer, step);
        }
        let waiting = self.operations.by_job.entry(id).or_default();
        if waiting.is_empty() {
            step.effects.push(Effect::Fetch(Fetch::Job { id }));
        }
        waiting.push(Waiting { request, by, operation });
    }

    fn operate_in_memory(&mut self, id: JobId, by: &Actor, operation: Operation, step: &mut Step) -> Answer {
        let done = match operation {
            Operation::Cancel => self.cancel(id, by, step),
            Operation::Retract => self.retract(id, by, step),
            Operation::Retry => self.retry(id, by, step),
            Operation::Release => self.release(id, by, step),
            Operation::Approve(decision) => self.approve(id, by, *decision, step),
            Operation::ReadOriginal => self.read_original(id, by, step),
            Operation::Scanned { attempt, scan } => self.apply_scan(id, attempt, scan, step),
            Operation::ScanFailed { attempt, message } => self.apply_failed_scan(id, attempt, message, step),
            Operation::Remove => self.refuse_live(id, "deleted"),
            Operation::Purge => self.refuse_live(id, "purged"),
            // A live job's workflow is in memory and up to date.
            Operation::NotifyWorkflow => Ok(()),
        };
        match (done, self.jobs.get(id)) {
            (Ok(()), Some(entry)) => Answer::Job(Box::new(entry.job.clone())),
            (Ok(()), None) => Answer::Refused(Refusal::UnknownJob(id)),
            (Err(refusal), _) => Answer::Refused(refusal),
        }
    }

    /// The refusal for an event that the job's state does not allow. `what`: "the job is …: it cannot be `what`".
    fn wrong_state(&self, id: JobId, what: &'static str, why: Ignored) -> Refusal {
        match self.jobs.get(id) {
            Some(entry) => Refusal::WrongState { state: entry.job.state, what, why },
            None => Refusal::UnknownJob(id),
        }
    }

    /// Refuses an operation that only terminal jobs allow.
    fn refuse_live(&self, id: JobId, what: &'static str) -> Result<(), Refusal> {
        Err(self.wrong_state(id, what, Ignored::OutOfOrder))
    }

    /// A terminal job was fetched: applies everything that waited for it, in order.
    pub(crate) fn fetched_job(&mut self, id: JobId, job: Option<Box<Job>>, step: &mut Step) {
        // The answer to a request of an earlier owner of the shard.
        let Some(waiting) = self.operations.by_job.remove(&id) else { return };
        let mut job = job;
        for Waiting { request, by, operation } in waiting {
            if let Operation::NotifyWorkflow = operation {
                self.notify_workflow(id, job.as_deref(), step);
                continue;
            }
            // The scan of an earlier attempt's result does not answer the open request.
            if let Operation::Scanned { attempt, .. } | Operation::ScanFailed { attempt, .. } = operation
                && job.as_ref().is_none_or(|job| job.attempt == attempt)
            {
                self.close_scan(id, step);
            }
            let answer = if self.jobs.contains(id) {
                // An earlier operation reopened it.
                self.operate_in_memory(id, &by, operation, step)
            } else if let Some(stored) = job.take() {
                let (answer, left) = self.operate_on_stored(*stored, &by, operation, step);
                job = left.map(Box::new);
                answer
            } else {
                Answer::Refused(Refusal::UnknownJob(id))
            };
            respond(request, answer, step);
        }
    }

    /// A terminal job cannot be read: everything that waited for it is refused.
    pub(crate) fn unreadable_job(&mut self, id: JobId, step: &mut Step) {
        for waiting in self.operations.by_job.remove(&id).unwrap_or_default() {
            respond(waiting.request, Answer::Refused(Refusal::Unreadable), step);
        }
    }

    /// Returns the job if it is still terminal and unchanged.
    fn operate_on_stored(
        &mut self,
        job: Job,
        by: &Actor,
        operation: Operation,
        step: &mut Step,
    ) -> (Answer, Option<Job>) {
        match operation {
            Operation::Remove => return self.remove(job, by, step),
            Operation::Purge => return self.purge(job, by, step),
            Operation::Cancel
            | Operation::Retract
            | Operation::Retry
            | Operation::Release
            | Operation::Approve(_)
            | Operation::ReadOriginal
            | Operation::NotifyWorkflow
            | Operation::Scanned { .. }
            | Operation::ScanFailed { .. } => {}
        }
        let id = job.id;
        self.jobs.insert(LiveJob::fetched(job));
        let answer = self.operate_in_memory(id, by, operation, step);
        // An unchanged job is dropped from memory; its record stands.
        let unchanged = self.jobs.get(id).is_some_and(|entry| !entry.is_dirty());
        let left = if unchanged { self.jobs.remove(id).map(|entry| entry.into_job()) } else { None };
        (answer, left)
    }
}

fn respond(request: Option<RequestId>, answer: Answer, step: &mut Step) {
    if let Some(request) = request {
        step.answer(request, answer);
    }
}
