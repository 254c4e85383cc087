//! Accepting jobs.

use model::batch::Keyspace;
use model::change::Change;
use model::id::{JobId, QueueId};
use model::job::{Job, NewJob};
use model::key::{self, CreatedObject, KeyEntry};
use model::queue::{QueueRef, QueueState};
use model::spec::PackedSpec;
use model::state::State;
use model::workflow::Origin;

use crate::input::{Accepted, Actor, Answer, Refusal, RequestId, Submission};
use crate::keys::KeyWaiter;
use crate::settings::PolicyMode;
use crate::shard::{Map, Shard};
use crate::step::Step;
use crate::tenancy::LimitReached;

/// A request with submissions that are not answered yet: they wait for a key lookup or a tenant limit.
#[derive(Debug)]
struct OpenSubmit {
    results: Vec<Option<Result<Accepted, Refusal>>>,
    missing: usize,
}

/// Why a job was not accepted.
#[derive(Debug)]
enum NotAccepted {
    Refused(Refusal),
    /// The tenant has reached a limit, as far as this shard knows.
    LimitReached(Box<Submission>, LimitReached),
}

impl NotAccepted {
    fn refusal(self) -> Refusal {
        match self {
            Self::Refused(refusal) => refusal,
            Self::LimitReached(_, limit_reached) => limit_reached.refusal,
        }
    }
}

impl From<Refusal> for NotAccepted {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Submit requests that are not fully answered.
#[derive(Debug, Default)]
pub(crate) struct Submits {
    open: Map<RequestId, OpenSubmit>,
}

impl Shard {
    pub(crate) fn submit(&mut self, request: RequestId, jobs: Vec<Submission>, step: &mut Step) {
        if !self.settings.limits_tenants() && jobs.iter().all(|job| job.spec.key.is_none()) {
            let results = jobs.into_iter().map(|job| self.accept(job, step).map_err(NotAccepted::refusal)).collect();
            return step.answer(request, Answer::Submitted(results));
        }
        // Open before the first job: any of them may have to wait.
        self.submits.open.insert(request, OpenSubmit { results: vec![None; jobs.len()], missing: jobs.len() });
        if jobs.is_empty() {
            return self.finish_submit(request, step);
        }
        for (index, submission) in jobs.into_iter().enumerate() {
            match submission.spec.key {
                None => self.accept_or_park(request, index, submission, step),
                Some(key) => match self.known_key(key) {
                    Some(entry) => {
                        let result = self.answer_duplicate(entry, &submission);
                        self.complete_submission(request, index, result, step);
                    }
                    None => self.wait_for_key(key, KeyWaiter::Job { request, index, submission: Box::new(submission) }),
                },
            }
        }
    }

    /// Accepts or refuses one submission of an open request, or parks it until its tenant's home shard answers.
    pub(crate) fn accept_or_park(&mut self, request: RequestId, index: usize, submission: Submission, step: &mut Step) {
        let result = match self.accept(submission, step) {
            Ok(accepted) => Ok(accepted),
            Err(NotAccepted::Refused(refusal)) => Err(refusal),
            Err(NotAccepted::LimitReached(submission, limit_reached)) => {
                match self.park(request, index, *submission, limit_reached) {
                    Ok(()) => return,
                    Err(refusal) => {
                        self.stats.refused += 1;
                        Err(refusal)
                    }
                }
            }
        };
        self.complete_submission(request, index, result, step);
    }

    /// Records the answer to one submission of an open request.
    pub(crate) fn complete_submission(
        &mut self,
        request: RequestId,
        index: usize,
        result: Result<Accepted, Refusal>,
        step: &mut Step,
    ) {
        self.tenancy.forget_deadline(request, index);
        let Some(open) = self.submits.open.get_mut(&request) else { return };
        open.results[index] = Some(result);
        open.missing -= 1;
        if open.missing == 0 {
            self.finish_submit(request, step);
        }
    }

    fn finish_submit(&mut self, request: RequestId, step: &mut Step) {
        if let Some(open) = self.submits.open.remove(&request) {
            let results = open.results.into_iter().flatten().collect();
            step.answer(request, Answer::Submitted(results));
        }
    }

    /// The answer to a submission with an idempotency key that was used before.
    pub(crate) fn answer_duplicate(&mut self, entry: KeyEntry, submission: &Submission) -> Result<Accepted, Refusal> {
        let CreatedObject::Job { id, seq } = entry.made else { return Err(Refusal::KeyConflict) };
        if entry.digest != self.keyed_digest(submission)? {
            return Err(Refusal::KeyConflict);
        }
        self.stats.deduplicated += 1;
        let job = self.jobs.get(id).map(|entry| &entry.job);
        Ok(Accepted {
            id,
            seq,
            state: job.map(|job| job.state),
            attempt: job.map(|job| job.attempt).unwrap_or_default(),
            created_at: entry.at,
            deduplicated: true,
        })
    }

    /// Accepts or refuses a job.
    fn accept(&mut self, submission: Submission, step: &mut Step) -> Result<Accepted, NotAccepted> {
        let accepted = self.try_accept(submission, step);
        match accepted {
            Ok(_) => self.stats.submitted += 1,
            Err(NotAccepted::Refused(_)) => self.stats.refused += 1,
            // It may be parked and accepted later.
            Err(NotAccepted::LimitReached(..)) => {}
        }
        accepted
    }

    fn try_accept(&mut self, submission: Submission, step: &mut Step) -> Result<Accepted, NotAccepted> {
        if self.jobs.len() >= self.config.live_jobs_max {
            return Err(Refusal::Full { retry_after: self.config.retry_after }.into());
        }
        let queue_id = match submission.queue {
            Some(reference) => self.find_open_queue(reference, &submission.spec.tenant)?,
            None => self.implicit_queue(&submission.spec.tenant, step)?,
        };
        if let Err(limit_reached) = self.admit(queue_id) {
            return Err(NotAccepted::LimitReached(Box::new(submission), limit_reached));
        }
        let entered = self.enter(queue_id, submission, step);
        if entered.is_err() {
            self.release_tenant_slot(queue_id);
        }
        Ok(entered?)
    }

    /// Accepts a job that has its queue and its tenant's slots.
    fn enter(&mut self, queue_id: QueueId, submission: Submission, step: &mut Step) -> Result<Accepted, Refusal> {
        let Submission { spec, submitter, decision, .. } = submission;
        if spec.key.is_some() {
            self.count_key(&spec.tenant, step)?;
        }
        let keyed = spec.key.map(|key| (key, spec.digest.within(queue_id)));
        let id = JobId(self.ids.next(self.now, queue_id.slot()));
        self.enter_queue(id, queue_id, spec, submitter, None, step)?;
        let entry = self.jobs.get(id).ok_or(Refusal::UnknownJob(id))?;
        let seq = entry.job.seq;
        if let Some((key, digest)) = keyed {
            let made = self.note_key(key, digest, CreatedObject::Job { id, seq }, step);
            self.keys.insert(key, made);
        }
        if self.jobs.get(id).is_some_and(|entry| entry.job.state == State::Pending) {
            match (decision, self.settings.policy) {
                (Some(decision), PolicyMode::Enforced(_)) => self.verdict(id, *decision, step),
                (Some(_), PolicyMode::Disabled) | (None, _) => self.check_policy(id, step),
            }
        }
        let entry = self.jobs.get(id).ok_or(Refusal::UnknownJob(id))?;
        Ok(Accepted {
            id,
            seq,
            state: Some(entry.job.state),
            attempt: entry.job.attempt,
            created_at: entry.job.created_at,
            deduplicated: false,
        })
    }

    /// Limits and rights are those of the job's own tenant, so it may only use queues of that tenant.
    pub(crate) fn find_open_queue(&self, reference: QueueRef, tenant: &str) -> Result<QueueId, Refusal> {
        let entry = self.queues.find(reference)?;
        if entry.queue().tenant != tenant {
            return Err(Refusal::OtherTenant { tenant: entry.queue().tenant.clone() });
        }
        match entry.queue().state {
            QueueState::Active => Ok(entry.queue().id),
            closed @ (QueueState::Draining | QueueState::Cancelled) => Err(Refusal::QueueClosed(closed)),
        }
    }

    /// Creates the job's record and adds it to its queue.
    pub(crate) fn enter_queue(
        &mut self,
        id: JobId,
        queue_id: QueueId,
        mut spec: PackedSpec,
        submitter: Actor,
        origin: Option<Box<Origin>>,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let unknown = Refusal::UnknownQueue(QueueRef::Id(queue_id));
        let (seq, queue_max_retries) = self.queues.enter(queue_id, id).ok_or(unknown)?;
        let birth =
            NewJob { id, queue: queue_id, seq, now: self.now, queue_max_retries, runtime_max: self.config.runtime_max };
        let requirement = self.ready.join_requirement(spec.executor, std::mem::take(&mut spec.requirements));
        let job = Job { submitter, origin, ..Job::new(birth, spec) };
        step.batch.put(Keyspace::ByQueue, &key::by_queue(queue_id, id), &[]);
        if job.has_large_spec() {
            step.batch.put(Keyspace::Spec, &id.key(), &job.spec);
        }
        step.announce(&Change::Job {
            id,
            queue: queue_id,
            state: job.state,
            attempt: job.attempt,
            at: self.now,
            reason: None,
        });
        self.stats.enter(job.state);
        self.ready.count_received(requirement, &job);
        let bytes = self.jobs.create(job, requirement);
        if let Some(entry) = self.jobs.get(id) {
            self.timers.arm(entry, &self.config);
        }
        self.backlog.add_written(bytes);
        Ok(())
    }
}
