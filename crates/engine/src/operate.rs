//! What users and operators do to one job: cancel, retract, retry, remove, release, approve.
//!
//! A job in memory is changed at once. A terminal one is fetched first; operations on it wait in
//! line, so that each sees what the one before it did.

use model::audit::Action;
use model::dead_letter::is_dead;
use model::id::{Attempt, JobId};
use model::job::{Job, Scan};
use model::machine::{self, Event, Ignored};
use model::queue::QueueState;
use model::reason::{ReasonCode, cut};
use model::state::State;
use model::time::Millis;
use model::verdict::Approval;

use crate::fetch::Fetch;
use crate::input::{Actor, Answer, Effect, Refusal, RequestId, Word};
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
    Approve(Box<Word>),
    /// Takes away a dead letter, and its job with it.
    Purge,
    ReadOriginal,
    /// Tells the workflow of a job, which may have ended, what has become of the job.
    TellWorkflow,
    /// Whether the result could be looked at.
    Scanned {
        attempt: Attempt,
        scan: Box<Scan>,
        checked: bool,
    },
    ScanFailed {
        attempt: Attempt,
        message: String,
    },
}

/// An operation that waits for its job to be fetched.
#[derive(Debug)]
pub(crate) struct WaitingOperation {
    request: Option<RequestId>,
    by: Actor,
    operation: Operation,
}

impl Operation {
    /// The event, except for those that are none.
    fn event(self, job: &Job, now: Millis) -> Option<Event> {
        match self {
            Self::Cancel => Some(Event::Cancel(ReasonCode::CancelRequested)),
            Self::Retract => Some(Event::Retract),
            Self::Retry => Some(Event::Reschedule),
            Self::Release => Some(Event::Release),
            Self::Approve(word) => Some(Event::Approval(approval(*word, job, now))),
            Self::Scanned { attempt, scan, .. } => Some(Event::Scanned { attempt, scan }),
            Self::Remove | Self::Purge | Self::ReadOriginal | Self::TellWorkflow | Self::ScanFailed { .. } => None,
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
            Self::Purge => "purged",
            Self::ReadOriginal => "read in its original form",
            Self::TellWorkflow => "told of",
            Self::Scanned { .. } | Self::ScanFailed { .. } => "scanned",
        }
    }

    /// What the audit log calls it. Decisions of the policy are noted with their rules.
    fn action(&self) -> Option<Action> {
        match self {
            Self::Cancel => Some(Action::Cancelled),
            Self::Retract => Some(Action::Retracted),
            Self::Retry => Some(Action::Retried),
            Self::Remove => Some(Action::Removed),
            Self::Release => Some(Action::Released),
            Self::Approve(word) if word.approved => Some(Action::Approved),
            Self::Approve(_) => Some(Action::Rejected),
            Self::Purge => Some(Action::LetterPurged),
            Self::ReadOriginal => Some(Action::OriginalRead),
            Self::TellWorkflow | Self::Scanned { .. } | Self::ScanFailed { .. } => None,
        }
    }

    fn comment(&self) -> Option<String> {
        match self {
            Self::Approve(word) => word.comment.clone(),
            Self::Cancel
            | Self::Retract
            | Self::Retry
            | Self::Remove
            | Self::Release
            | Self::Purge
            | Self::ReadOriginal
            | Self::TellWorkflow
            | Self::Scanned { .. }
            | Self::ScanFailed { .. } => None,
        }
    }

    /// Whether asking again for what is already so is answered like the first time.
    fn is_idempotent(&self) -> bool {
        matches!(self, Self::Cancel | Self::Retract)
    }

    /// Whether it takes a job off the records.
    fn removes(&self) -> bool {
        matches!(self, Self::Remove | Self::Purge)
    }
}

/// A person's word as it is kept: bound to the content and the rule, named or not.
fn approval(word: Word, job: &Job, now: Millis) -> Approval {
    let asking = || job.last_decision().map(|decision| decision.rule.clone()).unwrap_or_default();
    Approval {
        at: now,
        by: word.by.map(String::from).unwrap_or_default(),
        approved: word.approved,
        comment: word.comment.map(cut),
        digest: word.digest.unwrap_or(job.digest),
        rule: word.rule.unwrap_or_else(asking),
    }
}

/// Why a job cannot be approved or rejected (any more).
fn undecidable(job: &Job, why: Ignored) -> Refusal {
    if job.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::ApprovalExpired) {
        return Refusal::ApprovalExpired;
    }
    match &job.approval {
        Some(decided) => {
            // Who has not said a name is somebody all the same.
            let by = if decided.by.is_empty() { "somebody".to_owned() } else { decided.by.clone() };
            Refusal::AlreadyDecided { approved: decided.approved, by }
        }
        None => Refusal::WrongState { state: job.state, what: "approved or rejected", why },
    }
}

impl Shard {
    pub(crate) fn operate(&mut self, request: Option<RequestId>, id: JobId, operation: Operation, step: &mut Step) {
        self.operate_by(request, id, None, operation, step);
    }

    /// The same, done by somebody.
    pub(crate) fn operate_by(
        &mut self,
        request: Option<RequestId>,
        id: JobId,
        by: Actor,
        operation: Operation,
        step: &mut Step,
    ) {
        // A job that has ended within this very step is removed where it will be then: on disk.
        let removes = |entry: &Entry| entry.job.state.is_terminal() && operation.removes();
        if self.jobs.get(&id).is_some_and(|entry| !removes(entry)) {
            let answer = self.operate_in_memory(id, &by, operation, step);
            return respond(request, answer, step);
        }
        let waiting = self.asked_jobs.entry(id).or_default();
        if waiting.is_empty() {
            step.effects.push(Effect::Fetch(Fetch::Job { id }));
        }
        waiting.push(WaitingOperation { request, by, operation });
    }

    fn operate_in_memory(&mut self, id: JobId, by: &Actor, operation: Operation, step: &mut Step) -> Answer {
        let Some(entry) = self.jobs.get(&id) else { return Answer::Refused(Refusal::UnknownJob(id)) };
        let (what, idempotent) = (operation.participle(), operation.is_idempotent());
        let (state, max) = (entry.job.state, entry.job.retry_limit());
        let decides = matches!(operation, Operation::Approve(_));
        let (action, comment) = (operation.action(), operation.comment());
        if let Operation::ReadOriginal = operation {
            return self.read_original(id, by, step);
        }
        // A task is tried again by its workflow; what undoes one may be tried again by anyone, unless it only stands in
        // for what could not be read: that would succeed, and nothing would be undone.
        let unreadable = |job: &Job| job.reason.as_ref().is_some_and(|r| r.code == ReasonCode::CompensationUnreadable);
        if let (Operation::Retry, Some(origin)) = (&operation, &entry.job.origin)
            && (!origin.compensation || unreadable(&entry.job))
        {
            return Answer::Refused(Refusal::JobOfWorkflow(origin.workflow));
        }
        let operation = match operation {
            Operation::ScanFailed { attempt, message } => {
                let scan = Box::new(self.unchecked(&entry.job.spec, message));
                Operation::Scanned { attempt, scan, checked: false }
            }
            other => other,
        };
        let output = match &operation {
            Operation::Scanned { scan, checked, .. } => Some((scan.decision.clone(), *checked)),
            _ => None,
        };
        let Some(event) = operation.event(&entry.job, self.now) else {
            // Terminal jobs are handled where they are fetched; this one is not.
            let why = Ignored::OutOfOrder;
            return Answer::Refused(Refusal::WrongState { state, what, why });
        };
        let changed = match self.fire(id, event, step) {
            Ok(_) => true,
            Err(Ignored::Duplicate) if idempotent => false,
            Err(Ignored::BudgetExhausted) => return Answer::Refused(Refusal::RetriesUsedUp { max }),
            Err(Ignored::OtherContent) => return Answer::Refused(Refusal::OtherContent),
            Err(Ignored::OtherRule) => return Answer::Refused(Refusal::OtherRule),
            Err(why) if decides => {
                let refusal = self.jobs.get(&id).map(|entry| undecidable(&entry.job, why));
                return Answer::Refused(refusal.unwrap_or(Refusal::UnknownJob(id)));
            }
            Err(why) => return Answer::Refused(Refusal::WrongState { state, what, why }),
        };
        if changed {
            if let Some(action) = action {
                self.note_act(action, id, by, comment, step);
            }
            if let Some((decision, checked)) = output {
                self.note_output(id, &decision, checked, step);
            }
        }
        match self.jobs.get(&id) {
            Some(entry) => Answer::Job(Box::new(entry.job.clone())),
            None => Answer::Refused(Refusal::UnknownJob(id)),
        }
    }

    /// Nothing changes but the audit log.
    fn read_original(&mut self, id: JobId, by: &Actor, step: &mut Step) -> Answer {
        match self.jobs.get(&id).map(|entry| entry.job.clone()) {
            Some(job) if job.original.is_some() && job.state == State::Succeeded => {
                self.note_act(Action::OriginalRead, id, by, None, step);
                Answer::Job(Box::new(job))
            }
            Some(_) => Answer::Refused(Refusal::NoOriginal),
            None => Answer::Refused(Refusal::UnknownJob(id)),
        }
    }

    /// A terminal job has been read: everything that waited for it, in order.
    pub(crate) fn fetched_job(&mut self, id: JobId, job: Option<Box<Job>>, step: &mut Step) {
        let Some(waiting) = self.asked_jobs.remove(&id) else { return };
        let mut job = job;
        for WaitingOperation { request, by, operation } in waiting {
            if let Operation::TellWorkflow = operation {
                self.tell_workflow(id, job.as_deref(), step);
                continue;
            }
            // A word on an earlier attempt's result is not the one that is waited for.
            if let Operation::Scanned { attempt, .. } | Operation::ScanFailed { attempt, .. } = operation
                && job.as_ref().is_none_or(|job| job.attempt == attempt)
            {
                self.close_scan(id, step);
            }
            let answer = if self.jobs.contains_key(&id) {
                // An earlier one in line has brought it back to life.
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
        for waiting in self.asked_jobs.remove(&id).unwrap_or_default() {
            respond(waiting.request, Answer::Refused(Refusal::Unreadable), step);
        }
    }

    /// Returns the job if it is still there, terminal and untouched.
    fn operate_on_stored(
        &mut self,
        job: Job,
        by: &Actor,
        operation: Operation,
        step: &mut Step,
    ) -> (Answer, Option<Job>) {
        if let Operation::Purge = operation
            && !is_dead(job.state)
        {
            return (Answer::Refused(Refusal::NoLetter(job.state)), Some(job));
        }
        if let (true, Some(action)) = (operation.removes(), operation.action()) {
            self.remove_stored(&job, step);
            self.note_act(action, job.id, by, None, step);
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
        let answer = self.operate_in_memory(id, by, operation, step);
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
            Some(QueueState::Active | QueueState::Draining) => self.admit_again(job.queue),
            None => {
                self.restore_expired_queue(job);
                self.admit_again(job.queue)
            }
        }
    }
}

fn respond(request: Option<RequestId>, answer: Answer, step: &mut Step) {
    if let Some(request) = request {
        step.answer(request, answer);
    }
}
