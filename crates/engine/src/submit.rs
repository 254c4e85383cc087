//! Accepting jobs.

use model::batch::Keyspace;
use model::change::Change;
use model::id::{JobId, QueueId};
use model::job::{Birth, Job};
use model::key::{self, KeyEntry, Made};
use model::queue::{QueueRef, QueueState};
use model::spec::PackedSpec;
use model::state::State;
use model::workflow::Origin;

use crate::backlog::record_bytes;
use crate::input::{Accepted, Actor, Answer, Refusal, RequestId, Submission};
use crate::keys::KeyWaiter;
use crate::setup::Gate;
use crate::shard::{Entry, Shard};
use crate::step::Step;
use crate::tenancy::Shut;

/// A submit some of whose jobs wait for the store's word on their keys.
#[derive(Debug)]
pub(crate) struct OpenSubmit {
    results: Vec<Option<Result<Accepted, Refusal>>>,
    missing: usize,
}

/// Why a job was not accepted.
#[derive(Debug)]
enum Declined {
    Refused(Refusal),
    /// Its tenant has all it may have, as far as this shard knows.
    Shut(Box<Submission>, Shut),
}

impl Declined {
    fn refusal(self) -> Refusal {
        match self {
            Self::Refused(refusal) => refusal,
            Self::Shut(_, shut) => shut.refusal,
        }
    }
}

impl From<Refusal> for Declined {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Shard {
    pub(crate) fn submit(&mut self, request: RequestId, jobs: Vec<Submission>, step: &mut Step) {
        if !self.setup.limits_tenants() && jobs.iter().all(|job| job.spec.key.is_none()) {
            let results = jobs.into_iter().map(|job| self.accept(job, step).map_err(Declined::refusal)).collect();
            return step.answer(request, Answer::Submitted(results));
        }
        // It is open from the beginning: whatever has to wait finds it.
        self.open_submits.insert(request, OpenSubmit { results: vec![None; jobs.len()], missing: jobs.len() });
        if jobs.is_empty() {
            return self.finish_submit(request, step);
        }
        for (index, submission) in jobs.into_iter().enumerate() {
            match submission.spec.key {
                None => self.accept_or_park(request, index, submission, step),
                Some(key) => match self.known_key(key) {
                    Some(entry) => {
                        let result = self.recall(entry, &submission);
                        self.settle_submit(request, index, result, step);
                    }
                    None => self.ask_key(key, KeyWaiter::Job { request, index, submission: Box::new(submission) }),
                },
            }
        }
    }

    /// Takes in one job of an open submit, says why not, or lets it wait for what its tenant may have.
    pub(crate) fn accept_or_park(&mut self, request: RequestId, index: usize, submission: Submission, step: &mut Step) {
        let result = match self.accept(submission, step) {
            Ok(accepted) => Ok(accepted),
            Err(Declined::Refused(refusal)) => Err(refusal),
            Err(Declined::Shut(submission, shut)) => match self.park(request, index, *submission, shut) {
                Ok(()) => return,
                Err(refusal) => {
                    self.stats.refused += 1;
                    Err(refusal)
                }
            },
        };
        self.settle_submit(request, index, result, step);
    }

    /// One more job of an open submit has its answer.
    pub(crate) fn settle_submit(
        &mut self,
        request: RequestId,
        index: usize,
        result: Result<Accepted, Refusal>,
        step: &mut Step,
    ) {
        self.tenancy.settle(request, index);
        let Some(open) = self.open_submits.get_mut(&request) else { return };
        open.results[index] = Some(result);
        open.missing -= 1;
        if open.missing == 0 {
            self.finish_submit(request, step);
        }
    }

    fn finish_submit(&mut self, request: RequestId, step: &mut Step) {
        if let Some(open) = self.open_submits.remove(&request) {
            let results = open.results.into_iter().flatten().collect();
            step.answer(request, Answer::Submitted(results));
        }
    }

    /// The answer to a submit under a key that has led to something before.
    pub(crate) fn recall(&mut self, entry: KeyEntry, submission: &Submission) -> Result<Accepted, Refusal> {
        let Made::Job { id, seq } = entry.made else { return Err(Refusal::KeyConflict) };
        if entry.digest != self.keyed_digest(submission)? {
            return Err(Refusal::KeyConflict);
        }
        self.stats.deduplicated += 1;
        let job = self.jobs.get(&id).map(|entry| &entry.job);
        Ok(Accepted {
            id,
            seq,
            state: job.map(|job| job.state),
            attempt: job.map(|job| job.attempt).unwrap_or_default(),
            created_at: entry.at,
            deduplicated: true,
        })
    }

    /// Takes a job in, or says why not.
    fn accept(&mut self, submission: Submission, step: &mut Step) -> Result<Accepted, Declined> {
        let accepted = self.try_accept(submission, step);
        match accepted {
            Ok(_) => self.stats.submitted += 1,
            Err(Declined::Refused(_)) => self.stats.refused += 1,
            // Its time may come.
            Err(Declined::Shut(..)) => {}
        }
        accepted
    }

    fn try_accept(&mut self, submission: Submission, step: &mut Step) -> Result<Accepted, Declined> {
        if self.jobs.len() >= self.config.live_jobs_max {
            return Err(Refusal::Full { retry_after: self.config.retry_after }.into());
        }
        let queue_id = match submission.queue {
            Some(reference) => self.find_open_queue(reference, &submission.spec.tenant)?,
            None => self.implicit_queue(&submission.spec.tenant, step)?,
        };
        if let Err(shut) = self.admit(queue_id) {
            return Err(Declined::Shut(Box::new(submission), shut));
        }
        let entered = self.enter(queue_id, submission, step);
        if entered.is_err() {
            self.dismiss(queue_id);
        }
        Ok(entered?)
    }

    /// Takes in a job that has all it needs.
    fn enter(&mut self, queue_id: QueueId, submission: Submission, step: &mut Step) -> Result<Accepted, Refusal> {
        let Submission { spec, submitter, decision, .. } = submission;
        if spec.key.is_some() {
            self.count_key(&spec.tenant, step)?;
        }
        let keyed = spec.key.map(|key| (key, spec.digest.within(queue_id)));
        let id = self.enter_queue(queue_id, spec, submitter, None, step)?;
        let entry = self.jobs.get(&id).ok_or(Refusal::UnknownJob(id))?;
        let seq = entry.job.seq;
        if let Some((key, digest)) = keyed {
            let made = self.note_key(key, digest, Made::Job { id, seq }, step);
            self.keys.insert(key, made);
        }
        if self.jobs.get(&id).is_some_and(|entry| entry.job.state == State::Pending) {
            match (decision, self.setup.gate) {
                (Some(decision), Gate::Policy(_)) => self.verdict(id, *decision, step),
                (Some(_), Gate::Open) | (None, _) => self.ask_policy(id, step),
            }
        }
        let entry = self.jobs.get(&id).ok_or(Refusal::UnknownJob(id))?;
        Ok(Accepted {
            id,
            seq,
            state: Some(entry.job.state),
            attempt: entry.job.attempt,
            created_at: entry.job.created_at,
            deduplicated: false,
        })
    }

    /// Whose job it is decides what it may have and whether it may run at all: a queue lends it no other tenant's name.
    pub(crate) fn find_open_queue(&self, reference: QueueRef, tenant: &str) -> Result<QueueId, Refusal> {
        let entry = self.find_queue(reference)?;
        if entry.queue.tenant != tenant {
            return Err(Refusal::OtherTenant { tenant: entry.queue.tenant.clone() });
        }
        match entry.queue.state {
            QueueState::Active => Ok(entry.queue.id),
            closed @ (QueueState::Draining | QueueState::Cancelled) => Err(Refusal::QueueClosed(closed)),
        }
    }

    /// Makes the job's record and files it.
    pub(crate) fn enter_queue(
        &mut self,
        queue_id: QueueId,
        mut spec: PackedSpec,
        submitter: Actor,
        origin: Option<Box<Origin>>,
        step: &mut Step,
    ) -> Result<JobId, Refusal> {
        let id = JobId(self.next_id(queue_id.slot()));
        let unknown = Refusal::UnknownQueue(QueueRef::Id(queue_id));
        let queue = self.queues.get_mut(&queue_id).ok_or(unknown)?;
        let seq = queue.queue.next_seq;
        queue.queue.next_seq += 1;
        queue.queue.counters.active += 1;
        queue.active.insert(id);
        if !queue.dirty {
            queue.dirty = true;
            self.dirty_queues.push(queue_id);
        }
        let birth = Birth {
            id,
            queue: queue_id,
            seq,
            now: self.now,
            queue_max_retries: queue.queue.max_retries,
            runtime_max: self.config.runtime_max,
        };
        let ask = self.ready.join_ask(spec.lane, std::mem::take(&mut spec.wants));
        let job = Job { submitter, origin, ..Job::new(birth, spec) };
        step.batch.put(Keyspace::ByQueue, &key::by_queue(queue_id, id), &[]);
        if job.has_large_spec() {
            step.batch.put(Keyspace::Spec, &id.key(), &job.spec);
        }
        step.tell(&Change::Job {
            id,
            queue: queue_id,
            state: job.state,
            attempt: job.attempt,
            at: self.now,
            reason: None,
        });
        self.timers.arm(&job, &self.config);
        self.stats.enter(job.state);
        let topic = self.ready.asks.topic_of(Some(ask), &job);
        self.ready.asks.topics.count_received(topic);
        self.dirty_jobs.push(id);
        self.dirty_bytes += record_bytes(&job);
        self.jobs.insert(id, Box::new(Entry { dirty: true, ask: Some(ask), ..Entry::new(job) }));
        Ok(id)
    }
}
