//! What clients and time do to queues.

use model::audit::Action;
use model::batch::Keyspace;
use model::change::Change;
use model::id::{JobId, QueueId};
use model::job::Job;
use model::key::{self, CreatedObject, Day, KeyEntry};
use model::limits;
use model::machine::Event;
use model::queue::{Counters, KeyCount, Queue, QueueRef, QueueState};
use model::reason::ReasonCode;
use model::time::Millis;

use crate::anomaly::Anomaly;
use crate::input::{Actor, Answer, NewQueue, Refusal, RequestId};
use crate::keys::KeyWaiter;
use crate::names;
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    pub(crate) fn create_queue(&mut self, request: RequestId, new: NewQueue, step: &mut Step) {
        if let Some((key, _)) = new.key {
            return self.wait_for_key(key, KeyWaiter::Queue { request, queue: Box::new(new) });
        }
        let answer = self.make_queue(new, step).map_or_else(Answer::Refused, |queue| Answer::Queue(Box::new(queue)));
        step.answer(request, answer);
    }

    /// Creates a queue under a key, or finds the one created before. Returns what the key stands for now.
    pub(crate) fn create_keyed_queue(
        &mut self,
        request: RequestId,
        new: NewQueue,
        known: Option<KeyEntry>,
        step: &mut Step,
    ) -> Option<KeyEntry> {
        let (key, digest) = new.key?;
        if let Some(entry) = known {
            let answer = match entry.made {
                CreatedObject::Queue { id } if entry.digest == digest => match self.queues.get(id) {
                    Some(entry) => Answer::Queue(Box::new(entry.queue.clone())),
                    None => Answer::QueueExists(id),
                },
                CreatedObject::Queue { .. }
                | CreatedObject::Job { .. }
                | CreatedObject::Workflow { .. }
                | CreatedObject::Schedule { .. }
                | CreatedObject::Claimed { .. } => Answer::Refused(Refusal::KeyConflict),
            };
            step.answer(request, answer);
            return Some(entry);
        }
        // The tenant's implicit queue counts its keys, and may have to be created too.
        let needed = 1 + usize::from(self.queues.implicit(&new.tenant).is_none());
        let made = self
            .room_for_queues(needed)
            .and_then(|()| self.count_key(&new.tenant, step))
            .and_then(|()| self.make_queue(new, step));
        match made {
            Ok(queue) => {
                let entry = self.note_key(key, digest, CreatedObject::Queue { id: queue.id }, step);
                step.answer(request, Answer::Queue(Box::new(queue)));
                Some(entry)
            }
            Err(refusal) => {
                step.answer(request, Answer::Refused(refusal));
                None
            }
        }
    }

    fn room_for_queues(&self, needed: usize) -> Result<(), Refusal> {
        let max = self.config.queues_max;
        if self.queues.len() + needed > max { Err(Refusal::TooManyQueues { max }) } else { Ok(()) }
    }

    fn make_queue(&mut self, new: NewQueue, step: &mut Step) -> Result<Queue, Refusal> {
        // A token is drawn for one creation: the same one is that creation again, after its key has expired.
        if let Ok(existing) = self.queues.find(QueueRef::Token(new.token)) {
            return Ok(existing.queue.clone());
        }
        self.room_for_queues(1)?;
        let id = QueueId(self.ids.next(self.now, new.token.slot()));
        let queue = Queue {
            token: Some(new.token),
            tenant: new.tenant,
            tag: new.tag,
            max_retries: new.max_retries,
            max_running: new.max_running,
            ..blank(id, self.now)
        };
        self.add_queue(queue.clone());
        names::add_queue(&queue, &mut step.batch);
        self.announce_queue(id, step);
        self.arm_expiry(id);
        Ok(queue)
    }

    /// The implicit queue of a tenant; created on first use.
    pub(crate) fn implicit_queue(&mut self, tenant: &str, step: &mut Step) -> Result<QueueId, Refusal> {
        if let Some(id) = self.queues.implicit(tenant) {
            return Ok(id);
        }
        self.room_for_queues(1)?;
        let id = QueueId(self.ids.next(self.now, self.ids.home()));
        let queue = Queue { tenant: tenant.to_owned(), implicit: true, ..blank(id, self.now) };
        self.add_queue(queue);
        self.announce_queue(id, step);
        self.arm_expiry(id);
        Ok(id)
    }

    /// Restores an expired queue for the retry of one of its jobs. It takes no new jobs.
    pub(crate) fn restore_expired_queue(&mut self, job: &Job) {
        let tenant = job.decode_spec().map_or_else(|_| "default".to_owned(), |spec| spec.tenant);
        let queue = Queue { tenant, state: QueueState::Draining, next_seq: job.seq + 1, ..blank(job.queue, self.now) };
        self.add_queue(queue);
    }

    /// Restores a removed queue for a workflow in it.
    pub(crate) fn restore_queue_of(&mut self, id: QueueId, tenant: String) {
        // Its last sequence number is lost. No sequence number exceeds the last id.
        let queue = Queue { tenant, state: QueueState::Draining, next_seq: self.ids.last(), ..blank(id, self.now) };
        self.add_queue(queue);
    }

    pub(crate) fn add_queue(&mut self, queue: Queue) {
        self.ready.add_queue(queue.id, &queue.tenant);
        let now = self.clocks();
        self.queues.add(queue, now);
    }

    /// A queue was created or changed its state.
    fn announce_queue(&mut self, id: QueueId, step: &mut Step) {
        match self.queues.touch(id) {
            Some(entry) => step.announce(&Change::Queue { id, state: entry.queue.state, at: self.now }),
            None => self.anomalies.note(Anomaly::MissingQueue(id), "announce a queue"),
        }
    }

    pub(crate) fn drain_queue(&mut self, request: RequestId, reference: QueueRef, by: &Actor, step: &mut Step) {
        self.close_queue(request, reference, QueueState::Draining, by, step);
    }

    /// The intent is durable with this step; the jobs are cancelled in chunks ([`Shard::continue_cancelling`]).
    pub(crate) fn cancel_queue(&mut self, request: RequestId, reference: QueueRef, by: &Actor, step: &mut Step) {
        self.close_queue(request, reference, QueueState::Cancelled, by, step);
    }

    fn close_queue(&mut self, request: RequestId, reference: QueueRef, to: QueueState, by: &Actor, step: &mut Step) {
        let (id, state) = match self.queues.find(reference) {
            Ok(entry) if entry.queue.implicit => {
                return step.answer(request, Answer::Refused(Refusal::QueueImplicit));
            }
            Ok(entry) => (entry.queue.id, entry.queue.state),
            Err(refusal) => return step.answer(request, Answer::Refused(refusal)),
        };
        // States only move forward; a request for the current or an earlier one changes nothing.
        if state < to {
            if let Some(entry) = self.queues.touch(id) {
                entry.queue.state = to;
            }
            self.announce_queue(id, step);
            if to == QueueState::Cancelled {
                self.queues.cancelling.insert(id);
                self.audit_queue(Action::QueueCancelled, id, by, step);
                self.stop_workflows_of(id);
            } else {
                self.audit_queue(Action::QueueDrained, id, by, step);
            }
        }
        match self.queues.get(id) {
            Some(entry) => step.answer(request, Answer::Queue(Box::new(entry.queue.clone()))),
            None => self.anomalies.note(Anomaly::MissingQueue(id), "close a queue"),
        }
    }

    /// Cancels the next jobs of cancelled queues, a bounded number in one step.
    pub(crate) fn continue_cancelling(&mut self, step: &mut Step) {
        let jobs: Vec<JobId> = self.queues.next_to_cancel(self.config.cancel_chunk);
        for job in jobs {
            let _ = self.fire(job, Event::Cancel(ReasonCode::QueueCancelled), step);
        }
    }

    pub(crate) fn remove_queue(&mut self, request: RequestId, reference: QueueRef, by: &Actor, step: &mut Step) {
        let refusal = match self.queues.find(reference) {
            Ok(entry) if entry.queue.implicit => Refusal::QueueImplicit,
            Ok(entry) if entry.is_idle() => {
                let id = entry.queue.id;
                self.delete_queue(id, step);
                self.audit_queue(Action::QueueRemoved, id, by, step);
                return step.answer(request, Answer::QueueRemoved);
            }
            Ok(entry) => Refusal::QueueNotEmpty((entry.active.len() as u64).max(u64::from(entry.workflows))),
            Err(refusal) => refusal,
        };
        step.answer(request, Answer::Refused(refusal));
    }

    /// A workflow in the queue has ended.
    pub(crate) fn release_queue(&mut self, id: QueueId) {
        if self.queues.release(id, self.clocks()) {
            self.arm_expiry(id);
        }
    }

    /// Arms the expiry timer of an idle queue, unless it is armed.
    pub(crate) fn arm_expiry(&mut self, id: QueueId) {
        if let Some(at) = self.queues.arm_expiry(id, self.config.queue_idle_expiry) {
            self.timers.arm_expiry(id, at);
        }
    }

    /// Removes a queue that has been idle for long enough; arms the timer again for one that has not.
    pub(crate) fn expire_queue(&mut self, id: QueueId, step: &mut Step) {
        let (now, today) = (self.clocks(), Day::of(self.key_time()));
        // The queue may have been removed since its timer was armed.
        let Some(entry) = self.queues.entries.get_mut(&id) else { return };
        entry.expiry_armed = false;
        if !entry.is_idle() {
            return;
        }
        // The implicit queue counts its tenant's idempotency keys, and is part of what they stand for.
        let has_keys = entry.queue.keys.on(today).total() > 0;
        if has_keys {
            entry.set_idle(now);
        }
        if has_keys || now.steady < entry.idle_at + self.config.queue_idle_expiry {
            return self.arm_expiry(id);
        }
        self.delete_queue(id, step);
    }

    fn delete_queue(&mut self, id: QueueId, step: &mut Step) {
        let Some(removed) = self.queues.remove(id) else {
            return self.anomalies.note(Anomaly::MissingQueue(id), "delete a queue");
        };
        names::remove_queue(&removed.queue, &mut step.batch);
        self.ready.forget(id);
        step.batch.delete(Keyspace::Queues, &id.key());
        step.batch.put(Keyspace::Meta, key::META_LAST_ID, &self.ids.last().to_be_bytes());
        step.announce(&Change::QueueRemoved { id, at: self.now });
    }
}

/// A queue with every field at its default.
fn blank(id: QueueId, now: Millis) -> Queue {
    Queue {
        id,
        token: None,
        tenant: String::new(),
        tag: String::new(),
        state: QueueState::Active,
        max_retries: limits::RETRIES_DEFAULT,
        max_running: None,
        created_at: now,
        next_seq: 1,
        counters: Counters::default(),
        idle_since: now,
        implicit: false,
        keys: KeyCount::default(),
    }
}
