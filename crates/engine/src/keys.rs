//! Idempotency keys: the same key with the same body makes one thing, however often it is sent.
//!
//! Keys of live jobs are in memory; about any other the store is asked before anything is made.
//! While that question is open, everything with the same key waits in line behind it.

use model::batch::Keyspace;
use model::codec;
use model::id::{JobId, time_of};
use model::key::{self, Day, KeyEntry, Made};
use model::queue::{KeyCount, QueueRef};
use model::spec::{Digest, KeyHash};
use model::time::Millis;

use crate::fetch::Fetch;
use crate::input::{Answer, Effect, NewQueue, NewWorkflow, Refusal, RequestId, Submission};
use crate::shard::Shard;
use crate::step::Step;

/// Who waits for what a key led to.
#[derive(Debug)]
pub(crate) enum KeyWaiter {
    /// One job of a submit.
    Job {
        request: RequestId,
        index: usize,
        submission: Box<Submission>,
    },
    Queue {
        request: RequestId,
        queue: Box<NewQueue>,
    },
    Workflow {
        request: RequestId,
        workflow: Box<NewWorkflow>,
    },
}

impl Shard {
    /// The time by which keys are filed and forgotten. It never goes back, not even over a restart with a clock that
    /// did: then a key would be looked for on the wrong day, and its job be made a second time.
    fn key_time(&self) -> Millis {
        self.now.max(time_of(self.last_id))
    }

    /// What a key of a live job stands for, while it counts.
    pub(crate) fn known_key(&self, key: KeyHash) -> Option<KeyEntry> {
        let entry = self.keys.get(&key)?;
        (self.key_time() < entry.at + self.config.key_lifetime).then_some(*entry)
    }

    /// Keeps what a key stands for. A job that is brought back after its day has a key that may stand for another by now.
    pub(crate) fn remember_key(&mut self, key: KeyHash, entry: KeyEntry) {
        let known = self.keys.entry(key).or_insert(entry);
        if known.at < entry.at {
            *known = entry;
        }
    }

    /// A job has ended: from now on its key is on disk only.
    pub(crate) fn forget_key(&mut self, key: KeyHash, job: JobId) {
        if self.keys.get(&key).is_some_and(|entry| matches!(entry.made, Made::Job { id, .. } if id == job)) {
            self.keys.remove(&key);
        }
    }

    /// Puts a waiter in line behind the question what `key` has led to.
    pub(crate) fn ask_key(&mut self, key: KeyHash, waiter: KeyWaiter) {
        let waiting = self.asked_keys.entry(key).or_insert_with(|| {
            self.keys_to_ask.push(key);
            Vec::new()
        });
        waiting.push(waiter);
    }

    /// At the end of a step, all new questions in one.
    pub(crate) fn send_key_questions(&mut self, step: &mut Step) {
        if !self.keys_to_ask.is_empty() {
            let today = Day::of(self.key_time());
            let keys = std::mem::take(&mut self.keys_to_ask);
            step.effects.push(Effect::Fetch(Fetch::Keys { keys, days: [today, today.before()] }));
        }
    }

    /// The store has told what a key led to: everyone in line behind the question gets an answer.
    pub(crate) fn answered_key(&mut self, key: KeyHash, entry: Option<KeyEntry>, step: &mut Step) {
        let Some(waiters) = self.asked_keys.remove(&key) else { return };
        let lifetime = self.config.key_lifetime;
        let mut known = entry.filter(|entry| self.key_time() < entry.at + lifetime);
        for waiter in waiters {
            match waiter {
                KeyWaiter::Job { request, index, submission } => {
                    match known {
                        Some(entry) => {
                            let result = self.recall(entry, &submission);
                            self.settle_submit(request, index, result, step);
                        }
                        None => self.accept_or_park(request, index, *submission, step),
                    }
                    // One that was accepted just now is what the next in line will find.
                    known = known.or_else(|| self.known_key(key));
                }
                KeyWaiter::Queue { request, queue } => {
                    known = self.create_keyed_queue(request, *queue, known, step);
                }
                KeyWaiter::Workflow { request, workflow } => {
                    known = self.start_keyed_workflow(request, *workflow, known, step);
                }
            }
        }
    }

    /// What these keys led to cannot be read. To accept would risk doing it twice.
    pub(crate) fn unreadable_keys(&mut self, keys: &[KeyHash], step: &mut Step) {
        for key in keys {
            for waiter in self.asked_keys.remove(key).unwrap_or_default() {
                match waiter {
                    KeyWaiter::Job { request, index, .. } => {
                        self.settle_submit(request, index, Err(Refusal::Unreadable), step);
                    }
                    KeyWaiter::Queue { request, .. } | KeyWaiter::Workflow { request, .. } => {
                        step.answer(request, Answer::Refused(Refusal::Unreadable))
                    }
                }
            }
        }
    }

    /// The digest that goes with a key: of the job and of the queue it is for.
    pub(crate) fn keyed_digest(&self, submission: &Submission) -> Result<Digest, Refusal> {
        let queue = match submission.queue {
            None => self.implicit.get(&submission.spec.tenant).copied(),
            Some(QueueRef::Id(id)) => Some(id),
            Some(token @ QueueRef::Token(_)) => Some(self.find_queue(token)?.queue.id),
        };
        let digest = submission.spec.digest;
        Ok(queue.map_or(digest, |queue| digest.within(queue)))
    }

    /// Notes what a key has led to, with the commit that makes it so.
    pub(crate) fn note_key(&mut self, key: KeyHash, digest: Digest, made: Made, step: &mut Step) -> KeyEntry {
        let entry = KeyEntry { digest, at: self.key_time(), made };
        let place = key::idempotency(Day::of(entry.at), key);
        step.batch.put_with(Keyspace::Keys, &place, |buffer| codec::encode_into(&entry, buffer));
        entry
    }

    /// Counts one more key of a tenant, unless it has too many.
    pub(crate) fn count_key(&mut self, tenant: &str, step: &mut Step) -> Result<(), Refusal> {
        let id = self.implicit_queue(tenant, step)?;
        let max = self.config.keys_per_tenant_max;
        let today = Day::of(self.key_time());
        let Some(entry) = self.queues.get_mut(&id) else { return Ok(()) };
        let count = entry.queue.keys.on(today);
        if count.total() >= max {
            return Err(Refusal::TooManyKeys { max });
        }
        entry.queue.keys = KeyCount { today: count.today + 1, ..count };
        if !entry.dirty {
            entry.dirty = true;
            self.dirty_queues.push(id);
        }
        Ok(())
    }
}
