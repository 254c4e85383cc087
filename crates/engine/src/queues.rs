//! Queues with their derived state, and the operations on them: create, drain, cancel, remove, expire.

mod operations;

use std::collections::BTreeSet;
use std::ops::Bound;

use model::batch::Keyspace;
use model::codec;
use model::id::{JobId, QueueId};
use model::key::Day;
use model::queue::{KeyCount, Queue, QueueRef, QueueState, QueueToken};
use model::state::State;
use model::time::{Millis, Now};

use crate::input::Refusal;
use crate::shard::Map;
use crate::step::Step;

/// Upper bound of the size of a queue's record: names and numbers.
const QUEUE_BYTES: usize = 512;

/// A queue with what is derived from its jobs.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    queue: Queue,
    dirty: bool,
    /// Jobs that are not terminal.
    active: BTreeSet<JobId>,
    /// How many of them are in flight.
    on_runner: u32,
    expiry_armed: bool,
    /// Since when it is idle, on the steady clock.
    idle_at: Millis,
    /// Workflows that have not ended.
    workflows: u32,
    /// Cancellation cursor: jobs up to this one are cancelled.
    cancelled_through: JobId,
}

impl QueueEntry {
    fn new(queue: Queue, now: Now) -> Self {
        Self {
            // After a restart the wall clock tells how long it was idle before.
            idle_at: now.steady.saturating_sub(now.wall.saturating_sub(queue.idle_since)),
            queue,
            dirty: false,
            active: BTreeSet::new(),
            on_runner: 0,
            expiry_armed: false,
            cancelled_through: JobId(0),
            workflows: 0,
        }
    }

    fn set_idle(&mut self, now: Now) {
        (self.queue.idle_since, self.idle_at) = (now.wall, now.steady);
    }

    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    pub fn active_jobs(&self) -> usize {
        self.active.len()
    }

    pub fn on_runner(&self) -> u32 {
        self.on_runner
    }

    /// An expired queue restored for the retry of an old job: neither created by a client nor implicit.
    fn is_restored(&self) -> bool {
        self.queue.token.is_none() && !self.queue.implicit
    }

    fn is_idle(&self) -> bool {
        self.active.is_empty() && self.workflows == 0
    }

    /// Whether `max_running` allows one more of its jobs on a runner. Never in a cancelled queue.
    fn has_room(&self) -> bool {
        // Cancellation works in chunks; jobs whose turn has not come must not start meanwhile.
        self.queue.state != QueueState::Cancelled && self.queue.max_running.is_none_or(|max| self.on_runner < max)
    }
}

/// Effect of a job's transition on its queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueChange {
    /// A job left its runner in a queue with `max_running`.
    pub freed_slot: bool,
    /// A live job has become terminal.
    pub job_left: bool,
    /// There are no live jobs.
    pub became_idle: bool,
}

/// All queues of a shard.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    entries: Map<QueueId, Box<QueueEntry>>,
    dirty: Vec<QueueId>,
    tokens: Map<QueueToken, QueueId>,
    /// Implicit queue of each tenant.
    implicit: Map<String, QueueId>,
    /// Cancelled queues whose jobs are not all cancelled.
    cancelling: BTreeSet<QueueId>,
}

impl Queues {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn sorted_ids(&self) -> Vec<QueueId> {
        let mut ids: Vec<QueueId> = self.entries.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub fn get(&self, id: QueueId) -> Option<&QueueEntry> {
        self.entries.get(&id).map(Box::as_ref)
    }

    pub fn iter(&self) -> impl Iterator<Item = (QueueId, &QueueEntry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry.as_ref()))
    }

    pub fn find(&self, reference: QueueRef) -> Result<&QueueEntry, Refusal> {
        let id = match reference {
            QueueRef::Id(id) => Some(id),
            QueueRef::Token(token) => self.tokens.get(&token).copied(),
        };
        id.and_then(|id| self.get(id)).ok_or(Refusal::UnknownQueue(reference))
    }

    pub fn implicit(&self, tenant: &str) -> Option<QueueId> {
        self.implicit.get(tenant).copied()
    }

    /// Whether one more job of a queue may be dispatched.
    pub fn has_room(&self, id: QueueId) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.has_room())
    }

    pub fn is_cancelling(&self) -> bool {
        !self.cancelling.is_empty()
    }

    fn add(&mut self, queue: Queue, now: Now) {
        let id = queue.id;
        if let Some(token) = queue.token {
            self.tokens.insert(token, id);
        }
        if queue.implicit {
            self.implicit.insert(queue.tenant.clone(), id);
        }
        if queue.state == QueueState::Cancelled {
            self.cancelling.insert(id);
        }
        self.entries.insert(id, Box::new(QueueEntry::new(queue, now)));
    }

    fn remove(&mut self, id: QueueId) -> Option<Box<QueueEntry>> {
        let entry = self.entries.remove(&id)?;
        if let Some(token) = entry.queue.token {
            self.tokens.remove(&token);
        }
        if entry.queue.implicit {
            self.implicit.remove(&entry.queue.tenant);
        }
        self.cancelling.remove(&id);
        Some(entry)
    }

    /// Marks a queue for the next flush.
    fn touch(&mut self, id: QueueId) -> Option<&mut QueueEntry> {
        let entry = self.entries.get_mut(&id)?;
        if !entry.dirty {
            entry.dirty = true;
            self.dirty.push(id);
        }
        Some(entry)
    }

    /// Adds a new job. Returns its sequence number and the queue's retry limit.
    pub fn enter(&mut self, id: QueueId, job: JobId) -> Option<(u64, u32)> {
        let entry = self.touch(id)?;
        let seq = entry.queue.next_seq;
        entry.queue.next_seq += 1;
        entry.queue.counters.active += 1;
        entry.active.insert(job);
        Some((seq, entry.queue.max_retries))
    }

    /// Adds a job rebuilt from its record.
    pub fn restore_job(&mut self, id: QueueId, job: JobId, on_runner: bool) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.active.insert(job);
            entry.on_runner += u32::from(on_runner);
        }
    }

    /// Recounts the live jobs after a restart. Returns the queues without any.
    pub fn resume(&mut self) -> Vec<QueueId> {
        let mut idle = Vec::new();
        for (id, entry) in &mut self.entries {
            entry.queue.counters.active = entry.active.len() as u64;
            if entry.active.is_empty() {
                idle.push(*id);
            }
        }
        idle
    }

    /// Updates the counters for a transition of one of its jobs. `None`: there is no such queue.
    pub fn count_transition(
        &mut self,
        id: QueueId,
        job: JobId,
        from: State,
        to: State,
        now: Now,
    ) -> Option<QueueChange> {
        let entry = self.entries.get_mut(&id)?;
        let mut counted = QueueChange::default();
        match (from.is_on_runner(), to.is_on_runner()) {
            (false, true) => entry.on_runner += 1,
            (true, false) => {
                entry.on_runner -= 1;
                counted.freed_slot = entry.queue.max_running.is_some();
            }
            (true, true) | (false, false) => {}
        }
        if from.is_terminal() == to.is_terminal() && !to.is_terminal() {
            return Some(counted);
        }
        entry.queue.counters.shift(from, to);
        if to.is_terminal() {
            counted.job_left = entry.active.remove(&job);
        } else {
            entry.active.insert(job);
        }
        if entry.active.is_empty() {
            entry.set_idle(now);
            counted.became_idle = true;
        }
        if !entry.dirty {
            entry.dirty = true;
            self.dirty.push(id);
        }
        Some(counted)
    }

    /// A terminal job is about to leave the state it is counted in. A restored queue does not count the jobs that ended
    /// before it expired: each is counted when it is reopened.
    pub fn count_reopened(&mut self, id: QueueId, state: State, ended_at: Millis) {
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.is_restored()
            // After a restart with a clock that was set back, the end may seem to be later.
            && (ended_at <= entry.queue.created_at || *entry.queue.counters.of(state) == 0)
        {
            *entry.queue.counters.of(state) += 1;
        }
    }

    /// Counts one more idempotency key of the tenant, up to `max`.
    pub fn count_key(&mut self, id: QueueId, today: Day, max: u64) -> Result<(), Refusal> {
        let Some(entry) = self.entries.get(&id) else { return Ok(()) };
        let count = entry.queue.keys.on(today);
        if count.total() >= max {
            return Err(Refusal::TooManyKeys { max });
        }
        if let Some(entry) = self.touch(id) {
            entry.queue.keys = KeyCount { today: count.today + 1, ..count };
        }
        Ok(())
    }

    /// A workflow has started in it: it does not expire.
    pub fn hold(&mut self, id: QueueId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.workflows += 1;
        }
    }

    /// A workflow in it has ended. Returns whether it is idle now.
    fn release(&mut self, id: QueueId, now: Now) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        entry.workflows = entry.workflows.saturating_sub(1);
        if entry.is_idle() {
            entry.set_idle(now);
        }
        entry.is_idle()
    }

    /// When an idle queue expires. `None`: its timer is armed, or there is no such queue.
    fn arm_expiry(&mut self, id: QueueId, idle_expiry: Millis) -> Option<Millis> {
        let entry = self.entries.get_mut(&id)?;
        if std::mem::replace(&mut entry.expiry_armed, true) {
            return None;
        }
        Some(entry.idle_at + idle_expiry)
    }

    /// The next jobs of a cancelled queue, at most `chunk`.
    fn next_to_cancel(&mut self, chunk: usize) -> Vec<JobId> {
        let Some(id) = self.cancelling.first().copied() else { return Vec::new() };
        let Some(entry) = self.entries.get_mut(&id) else {
            self.cancelling.remove(&id);
            return Vec::new();
        };
        let after = (Bound::Excluded(entry.cancelled_through), Bound::Unbounded);
        let jobs: Vec<JobId> = entry.active.range(after).take(chunk).copied().collect();
        if let Some(last) = jobs.last() {
            entry.cancelled_through = *last;
        }
        if jobs.len() < chunk {
            self.cancelling.remove(&id);
        }
        jobs
    }

    /// Upper bound of the size of the queues that [`Queues::flush`] writes.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty.len() * QUEUE_BYTES
    }

    /// Writes the queues that changed.
    pub fn flush(&mut self, step: &mut Step) {
        for id in std::mem::take(&mut self.dirty) {
            // A queue may be removed in the step that changed it.
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.dirty = false;
                step.batch.put_with(Keyspace::Queues, &id.key(), |buffer| codec::encode_into(&entry.queue, buffer));
            }
        }
    }
}
