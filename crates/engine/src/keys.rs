//! Idempotency keys: the same key with the same body creates one thing, however often it is sent.
//!
//! Keys of live jobs are in memory. Any other key is looked up in the store before anything is created; requests with
//! the same key wait for the look-up in order.

use model::batch::Keyspace;
use model::codec;
use model::id::{JobId, ShardId, time_of};
use model::key::{self, CreatedObject, Day, KeyEntry};
use model::queue::QueueRef;
use model::spec::{Digest, KeyHash};
use model::time::Millis;

use crate::claims::ClaimId;
use crate::fetch::Fetch;
use crate::input::{Effect, NewQueue, NewWorkflow, Refusal, RequestId, Submission};
use crate::shard::{Map, Shard};
use crate::step::Step;

/// A request that waits for the look-up of its key.
#[derive(Debug)]
pub(crate) enum KeyWaiter {
    /// One submission of a request.
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
    /// A claim of another shard.
    Claim {
        from: ShardId,
        digest: Digest,
        claim: ClaimId,
    },
}

/// Idempotency keys of live jobs, and requests waiting for the store to look one up.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    live: Map<KeyHash, KeyEntry>,
    waiting: Map<KeyHash, Vec<KeyWaiter>>,
    /// Keys to look up at the end of this step.
    to_fetch: Vec<KeyHash>,
    /// Start of the newest day on record when the shard was rebuilt.
    newest_day: Millis,
}

impl Keys {
    /// Keeps the newest entry of a key. The key of a job that is reopened after its day may belong to another job by
    /// now.
    pub fn remember(&mut self, key: KeyHash, entry: KeyEntry) {
        let known = self.live.entry(key).or_insert(entry);
        if known.at < entry.at {
            *known = entry;
        }
    }

    pub fn insert(&mut self, key: KeyHash, entry: KeyEntry) {
        self.live.insert(key, entry);
    }

    /// A job has ended: its key is only on disk from now on.
    pub fn forget(&mut self, key: KeyHash, job: JobId) {
        if self.live.get(&key).is_some_and(|entry| matches!(entry.made, CreatedObject::Job { id, .. } if id == job)) {
            self.live.remove(&key);
        }
    }

    /// Queues a waiter behind the look-up of `key`.
    pub fn wait_for(&mut self, key: KeyHash, waiter: KeyWaiter) {
        let waiting = self.waiting.entry(key).or_insert_with(|| {
            self.to_fetch.push(key);
            Vec::new()
        });
        waiting.push(waiter);
    }
}

impl Shard {
    /// The time by which keys are stored and expire. It does not go back after a restart with an earlier clock: a key
    /// would be looked up on the wrong day, and its job created twice.
    pub(crate) fn key_time(&self) -> Millis {
        self.now.max(time_of(self.ids.last())).max(self.keys.newest_day)
    }

    /// Restores the newest day with keys on record. A claim for another shard may be newer than all ids of this one.
    pub fn restore_newest_key_day(&mut self, day: Day) {
        self.keys.newest_day = day.start();
    }

    /// The unexpired entry of a live job's key.
    pub(crate) fn known_key(&self, key: KeyHash) -> Option<KeyEntry> {
        let entry = self.keys.live.get(&key)?;
        (self.key_time() < entry.at + self.config.key_lifetime).then_some(*entry)
    }

    /// Looks up all new keys of the step in one request.
    pub(crate) fn request_keys(&mut self, step: &mut Step) {
        if !self.keys.to_fetch.is_empty() {
            let today = Day::of(self.key_time());
            let keys = std::mem::take(&mut self.keys.to_fetch);
            step.effects.push(Effect::Fetch(Fetch::Keys { keys, days: [today, today.before()] }));
        }
    }

    /// A key was looked up: every waiter gets its answer, in order. A new key is claimed first if its home is another
    /// shard.
    pub(crate) fn answered_key(&mut self, key: KeyHash, entry: Option<KeyEntry>, step: &mut Step) {
        let Some(waiters) = self.keys.waiting.remove(&key) else { return };
        let lifetime = self.config.key_lifetime;
        let mut known = entry.filter(|entry| self.key_time() < entry.at + lifetime);
        if known.is_none() && !self.is_home_of(key) {
            return self.claim(key, waiters, step);
        }
        for waiter in waiters {
            known = self.serve_key_waiter(key, waiter, known, step);
        }
    }

    /// Answers a request whose key was looked up. Returns the key's entry from now on.
    pub(crate) fn serve_key_waiter(
        &mut self,
        key: KeyHash,
        waiter: KeyWaiter,
        known: Option<KeyEntry>,
        step: &mut Step,
    ) -> Option<KeyEntry> {
        match waiter {
            KeyWaiter::Job { request, index, submission } => {
                match known {
                    Some(entry) => {
                        let result = self.answer_duplicate(entry, &submission);
                        self.complete_submission(request, index, result, step);
                    }
                    None => self.accept_or_park(request, index, *submission, step),
                }
                // The next waiter finds a job accepted just now.
                known.or_else(|| self.known_key(key))
            }
            KeyWaiter::Queue { request, queue } => self.create_keyed_queue(request, *queue, known, step),
            KeyWaiter::Workflow { request, workflow } => self.start_keyed_workflow(request, *workflow, known, step),
            KeyWaiter::Claim { from, digest, claim } => {
                let entry = match known {
                    Some(entry) => entry,
                    None => self.note_key(key, digest, CreatedObject::Claimed { shard: from }, step),
                };
                self.answer_claim(from, key, entry.digest, claim, step);
                Some(entry)
            }
        }
    }

    /// The entries of these keys cannot be read. Accepting the requests could create a job twice.
    pub(crate) fn unreadable_keys(&mut self, keys: &[KeyHash], step: &mut Step) {
        for key in keys {
            for waiter in self.keys.waiting.remove(key).unwrap_or_default() {
                self.refuse(waiter, Refusal::Unreadable, step);
            }
        }
    }

    /// The digest stored with a key: of the job and its queue.
    pub(crate) fn keyed_digest(&self, submission: &Submission) -> Result<Digest, Refusal> {
        let queue = match submission.queue {
            None => self.queues.implicit(&submission.spec.tenant),
            Some(QueueRef::Id(id)) => Some(id),
            Some(token @ QueueRef::Token(_)) => Some(self.queues.find(token)?.queue().id),
        };
        let digest = submission.spec.digest;
        Ok(queue.map_or(digest, |queue| digest.within(queue)))
    }

    /// Stores what a key created, in the same commit.
    pub(crate) fn note_key(&mut self, key: KeyHash, digest: Digest, made: CreatedObject, step: &mut Step) -> KeyEntry {
        let entry = KeyEntry { digest, at: self.key_time(), made };
        let stored_key = key::idempotency(Day::of(entry.at), key);
        step.batch.put_with(Keyspace::Keys, &stored_key, |buffer| codec::encode_into(&entry, buffer));
        entry
    }

    /// Counts one more key of a tenant, up to its limit.
    pub(crate) fn count_key(&mut self, tenant: &str, step: &mut Step) -> Result<(), Refusal> {
        let id = self.implicit_queue(tenant, step)?;
        let max = self.config.keys_per_tenant_max;
        let today = Day::of(self.key_time());
        self.queues.count_key(id, today, max)
    }
}
