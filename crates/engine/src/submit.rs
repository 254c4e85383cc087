//! Accepting jobs.

use model::batch::Keyspace;
use model::change::Change;
use model::id::{JobId, QueueId};
use model::job::{Birth, Job};
use model::key::{self, KeyEntry, Made};
use model::queue::{QueueRef, QueueState};
use model::spec::PackedSpec;
use model::state::State;

use crate::backlog::record_bytes;
use crate::input::{Accepted, Answer, Refusal, RequestId, Submission};
use crate::keys::KeyWaiter;
use crate::shard::{Entry, Shard};
use crate::step::Step;

/// A submit some of whose jobs wait for the store's word on their keys.
#[derive(Debug)]
pub(crate) struct OpenSubmit {
    results: Vec<Option<Result<Accepted, Refusal>>>,
    missing: usize,
}

impl Shard {
    pub(crate) fn submit(&mut self, request: RequestId, jobs: Vec<Submission>, step: &mut Step) {
        if jobs.iter().all(|job| job.spec.key.is_none()) {
            let results = jobs.into_iter().map(|job| self.accept(job, step)).collect();
            return step.answer(request, Answer::Submitted(results));
        }
        let mut open = OpenSubmit { results: vec![None; jobs.len()], missing: jobs.len() };
        let mut waiting = Vec::new();
        for (index, submission) in jobs.into_iter().enumerate() {
            let result = match submission.spec.key {
                None => self.accept(submission, step),
                Some(key) => match self.known_key(key) {
                    Some(entry) => self.recall(entry, &submission),
                    None => {
                        waiting.push((key, KeyWaiter::Job { request, index, submission: Box::new(submission) }));
                        continue;
                    }
                },
            };
            open.results[index] = Some(result);
            open.missing -= 1;
        }
        if open.missing == 0 {
            return finish(request, open, step);
        }
        self.open_submits.insert(request, open);
        for (key, waiter) in waiting {
            self.ask_key(key, waiter);
        }
    }

    /// One more job of an open submit has its answer.
    pub(crate) fn settle_submit(
        &mut self,
        request: RequestId,
        index: usize,
        result: Result<Accepted, Refusal>,
        step: &mut Step,
    ) {
        let Some(open) = self.open_submits.get_mut(&request) else { return };
        open.results[index] = Some(result);
        open.missing -= 1;
        if open.missing == 0
            && let Some(open) = self.open_submits.remove(&request)
        {
            finish(request, open, step);
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
    pub(crate) fn accept(&mut self, submission: Submission, step: &mut Step) -> Result<Accepted, Refusal> {
        let accepted = self.try_accept(submission, step);
        match accepted {
            Ok(_) => self.stats.submitted += 1,
            Err(_) => self.stats.refused += 1,
        }
        accepted
    }

    fn try_accept(&mut self, submission: Submission, step: &mut Step) -> Result<Accepted, Refusal> {
        let Submission { spec, queue } = submission;
        if self.jobs.len() >= self.config.live_jobs_max {
            return Err(Refusal::Full { retry_after: self.config.retry_after });
        }
        let queue_id = match queue {
            Some(reference) => self.find_open_queue(reference)?,
            None => self.implicit_queue(&spec.tenant, step)?,
        };
        if spec.key.is_some() {
            self.count_key(&spec.tenant, step)?;
        }
        let keyed = spec.key.map(|key| (key, spec.digest.within(queue_id)));
        let id = self.enter_queue(queue_id, spec, step)?;
        let entry = self.jobs.get(&id).ok_or(Refusal::UnknownJob(id))?;
        let seq = entry.job.seq;
        if let Some((key, digest)) = keyed {
            let made = self.note_key(key, digest, Made::Job { id, seq }, step);
            self.keys.insert(key, made);
        }
        if self.jobs.get(&id).is_some_and(|entry| entry.job.state == State::Pending) {
            self.ask_policy(id, step);
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

    fn find_open_queue(&self, reference: QueueRef) -> Result<QueueId, Refusal> {
        let entry = self.find_queue(reference)?;
        match entry.queue.state {
            QueueState::Active => Ok(entry.queue.id),
            closed @ (QueueState::Draining | QueueState::Cancelled) => Err(Refusal::QueueClosed(closed)),
        }
    }

    /// Makes the job's record and files it.
    fn enter_queue(&mut self, queue_id: QueueId, spec: PackedSpec, step: &mut Step) -> Result<JobId, Refusal> {
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
        let birth = Birth { id, queue: queue_id, seq, now: self.now, queue_max_retries: queue.queue.max_retries };
        let job = Job::new(birth, spec);
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
        self.dirty_jobs.push(id);
        self.dirty_bytes += record_bytes(&job);
        self.jobs.insert(id, Box::new(Entry { dirty: true, ..Entry::new(job) }));
        Ok(id)
    }
}

fn finish(request: RequestId, open: OpenSubmit, step: &mut Step) {
    let results = open.results.into_iter().flatten().collect();
    step.answer(request, Answer::Submitted(results));
}
