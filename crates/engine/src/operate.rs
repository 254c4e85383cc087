//! What users and operators do to one job: cancel, retract, retry, remove, release, approve.
//!
//! A job in memory is changed at once. A terminal one is fetched first; operations on it wait in
//! line, so that each sees what the one before it did.

use model::id::JobId;
use model::job::Job;
use model::machine::{self, Event, Ignored};
use model::queue::QueueState;
use model::reason::ReasonCode;
use model::verdict::Approval;

use crate::fetch::Fetch;
use crate::input::{Answer, Effect, Refusal, RequestId};
use crate::shard::{Entry, Shard};
use crate::step::Step;

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Cancel,
    Retract,
    Retry,
    Remove,
    Release,
    Approve(Box<Approval>),
    Scanned { clean: bool, message: Option<String> },
}

/// An operation that waits for its job to be fetched.
#[derive(Debug)]
pub(crate) struct WaitingOperation {
    request: Option<RequestId>,
    operation: Operation,
}

impl Operation {
    /// The event, except for removal, which is none.
    fn event(self) -> Option<Event> {
        match self {
            Self::Cancel => Some(Event::Cancel(ReasonCode::CancelRequested)),
            Self::Retract => Some(Event::Retract),
            Self::Retry => Some(Event::Reschedule),
            Self::Remove => None,
            Self::Release => Some(Event::Release),
            Self::Approve(approval) => Some(Event::Approval(*approval)),
            Self::Scanned { clean, message } => Some(Event::Scanned { clean, message }),
        }
    }

    /// For "the job is …: it cannot be …".
    fn participle(&self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Retract => "retracted",
            Self::Retry => "retried",
            Self::Remove => "removed",
            Self::Release => "released",
            Self::Approve(_) => "approved or rejected",
            Self::Scanned { .. } => "scanned",
        }
    }

    /// Whether asking again for what is already so is answered like the first time.
    fn is_idempotent(&self) -> bool {
        matches!(self, Self::Cancel | Self::Retract)
    }
}

impl Shard {
    pub(crate) fn operate(&mut self, request: Option<RequestId>, id: JobId, operation: Operation, step: &mut Step) {
        // A job that has ended within this very step is removed where it will be then: on disk.
        let removes = |entry: &Entry| entry.job.state.is_terminal() && matches!(operation, Operation::Remove);
        if self.jobs.get(&id).is_some_and(|entry| !removes(entry)) {
            let answer = self.operate_in_memory(id, operation, step);
            return respond(request, answer, step);
        }
        let waiting = self.asked_jobs.entry(id).or_default();
        if waiting.is_empty() {
            step.effects.push(Effect::Fetch(Fetch::Job { id }));
        }
        waiting.push(WaitingOperation { request, operation });
    }

    fn operate_in_memory(&mut self, id: JobId, operation: Operation, step: &mut Step) -> Answer {
        let Some(entry) = self.jobs.get(&id) else { return Answer::Refused(Refusal::UnknownJob(id)) };
        let (what, idempotent) = (operation.participle(), operation.is_idempotent());
        let (state, max) = (entry.job.state, entry.job.max_retries);
        let Some(event) = operation.event() else {
            // Terminal jobs are handled where they are fetched; this one is not.
            let why = Ignored::OutOfOrder;
            return Answer::Refused(Refusal::WrongState { state, what, why });
        };
        match self.fire(id, event, step) {
            Ok(_) => {}
            Err(Ignored::Duplicate) if idempotent => {}
            Err(Ignored::BudgetExhausted) => return Answer::Refused(Refusal::RetriesUsedUp { max }),
            Err(Ignored::OtherContent) => return Answer::Refused(Refusal::OtherContent),
            Err(why) => return Answer::Refused(Refusal::WrongState { state, what, why }),
        }
        match self.jobs.get(&id) {
            Some(entry) => Answer::Job(Box::new(entry.job.clone())),
            None => Answer::Refused(Refusal::UnknownJob(id)),
        }
    }

    /// A terminal job has been read: everything that waited for it, in order.
    pub(crate) fn fetched_job(&mut self, id: JobId, job: Option<Box<Job>>, step: &mut Step) {
        let Some(waiting) = self.asked_jobs.remove(&id) else { return };
        let mut job = job;
        for WaitingOperation { request, operation } in waiting {
            let answer = if self.jobs.contains_key(&id) {
                // An earlier one in line has brought it back to life.
                self.operate_in_memory(id, operation, step)
            } else if let Some(stored) = job.take() {
                let (answer, left) = self.operate_on_stored(*stored, operation, step);
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
        for waiting in self.asked_jobs.remove(&id).unwrap_or_default() {
            respond(waiting.request, Answer::Refused(Refusal::Unreadable), step);
        }
    }

    /// Returns the job if it is still there, terminal and untouched.
    fn operate_on_stored(&mut self, job: Job, operation: Operation, step: &mut Step) -> (Answer, Option<Job>) {
        if let Operation::Remove = operation {
            self.remove_stored(&job, step);
            return (Answer::Removed, None);
        }
        // One that is refused anyway must not bring back its queue.
        if let Operation::Retry = operation
            && machine::step(&job, &Event::Reschedule).is_ok()
            && let Err(refusal) = self.make_room(&job)
        {
            return (Answer::Refused(refusal), Some(job));
        }
        let (id, state) = (job.id, job.state);
        let entry = Entry { was_done: Some(state), ..Entry::new(job) };
        self.jobs.insert(id, Box::new(entry));
        let answer = self.operate_in_memory(id, operation, step);
        // Nothing has changed: it goes back to where it was, on disk only.
        let untouched = self.jobs.get(&id).is_some_and(|entry| !entry.dirty);
        let left = if untouched { self.jobs.remove(&id).map(|entry| entry.job) } else { None };
        (answer, left)
    }

    /// A retry needs room like a new job, and its queue; one that has expired comes back, for its old jobs only.
    fn make_room(&mut self, job: &Job) -> Result<(), Refusal> {
        if self.jobs.len() >= self.config.live_jobs_max {
            return Err(Refusal::Full { retry_after: self.config.retry_after });
        }
        match self.queues.get(&job.queue).map(|entry| entry.queue.state) {
            Some(QueueState::Cancelled) => Err(Refusal::QueueClosed(QueueState::Cancelled)),
            Some(QueueState::Active | QueueState::Draining) => Ok(()),
            None => {
                self.restore_expired_queue(job);
                Ok(())
            }
        }
    }
}

fn respond(request: Option<RequestId>, answer: Answer, step: &mut Step) {
    if let Some(request) = request {
        step.answer(request, answer);
    }
}
