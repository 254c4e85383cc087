//! Queues: create, drain, cancel, remove, expire.

use std::collections::BTreeSet;
use std::ops::Bound;

use model::audit::Action;
use model::batch::Keyspace;
use model::change::Change;
use model::id::{JobId, QueueId, WorkflowId};
use model::job::Job;
use model::key::{KeyEntry, Made};
use model::limits;
use model::machine::Event;
use model::queue::{Counters, KeyCount, Queue, QueueRef, QueueState};
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;

use crate::input::{Actor, Answer, NewQueue, Refusal, RequestId};
use crate::keys::KeyWaiter;
use crate::ready::TenantNumber;
use crate::shard::{QueueEntry, Shard};
use crate::step::Step;

impl QueueEntry {
    pub fn new(queue: Queue) -> Self {
        Self {
            queue,
            dirty: false,
            active: BTreeSet::new(),
            on_runner: 0,
            expiry_armed: false,
            cancelled_through: JobId(0),
            flows: 0,
        }
    }

    /// Whether it came back for the retry of an old job: neither made by hand nor a tenant's own.
    fn is_restored(&self) -> bool {
        self.queue.token.is_none() && !self.queue.implicit
    }

    /// Whether one more of its jobs may go to a runner.
    pub fn has_room(&self) -> bool {
        // A cancelled queue's jobs are cancelled chunk by chunk; those whose turn has not come must not start meanwhile.
        self.queue.state != QueueState::Cancelled && self.queue.max_running.is_none_or(|max| self.on_runner < max)
    }
}

impl Shard {
    pub(crate) fn find_queue(&self, reference: QueueRef) -> Result<&QueueEntry, Refusal> {
        let id = match reference {
            QueueRef::Id(id) => Some(id),
            QueueRef::Token(token) => self.tokens.get(&token).copied(),
        };
        id.and_then(|id| self.queues.get(&id)).map(Box::as_ref).ok_or(Refusal::UnknownQueue(reference))
    }

    pub(crate) fn create_queue(&mut self, request: RequestId, new: NewQueue, step: &mut Step) {
        if let Some((key, _)) = new.key {
            return self.ask_key(key, KeyWaiter::Queue { request, queue: Box::new(new) });
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
                Made::Queue { id } if entry.digest == digest => match self.queues.get(&id) {
                    Some(queue) => Answer::Queue(Box::new(queue.queue.clone())),
                    None => Answer::QueueExists(id),
                },
                Made::Queue { .. } | Made::Job { .. } | Made::Workflow { .. } | Made::Schedule { .. } => {
                    Answer::Refused(Refusal::KeyConflict)
                }
            };
            step.answer(request, answer);
            return Some(entry);
        }
        // The count of its keys is kept in the tenant's implicit queue, which may have to be made too.
        let needed = 1 + usize::from(!self.implicit.contains_key(&new.tenant));
        let made = self
            .room_for_queues(needed)
            .and_then(|()| self.count_key(&new.tenant, step))
            .and_then(|()| self.make_queue(new, step));
        match made {
            Ok(queue) => {
                let entry = self.note_key(key, digest, Made::Queue { id: queue.id }, step);
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
        self.room_for_queues(1)?;
        let id = QueueId(self.next_id(new.token.slot()));
        let queue = Queue {
            token: Some(new.token),
            tenant: new.tenant,
            tag: new.tag,
            max_retries: new.max_retries,
            max_running: new.max_running,
            ..blank(id, self.now)
        };
        self.add_queue(queue.clone());
        self.touch_queue(id, step);
        let Self { queues, timers, config, .. } = self;
        if let Some(entry) = queues.get_mut(&id) {
            timers.arm_expiry(entry, config);
        }
        Ok(queue)
    }

    /// The queue of a tenant's jobs that name none; made when it is first needed.
    pub(crate) fn implicit_queue(&mut self, tenant: &str, step: &mut Step) -> Result<QueueId, Refusal> {
        if let Some(id) = self.implicit.get(tenant) {
            return Ok(*id);
        }
        self.room_for_queues(1)?;
        let id = QueueId(self.next_id(self.home));
        let queue = Queue { tenant: tenant.to_owned(), implicit: true, ..blank(id, self.now) };
        self.add_queue(queue);
        self.touch_queue(id, step);
        Ok(id)
    }

    /// A queue that has expired, back for the retry of one of its jobs; it takes no new ones.
    pub(crate) fn restore_expired_queue(&mut self, job: &Job) {
        let tenant = job.decode_spec().map_or_else(|_| "default".to_owned(), |spec| spec.tenant);
        let queue = Queue { tenant, state: QueueState::Draining, next_seq: job.seq + 1, ..blank(job.queue, self.now) };
        self.add_queue(queue);
    }

    /// A terminal job is about to leave the state it is counted in. A queue that came back after it had expired
    /// knows nothing of the jobs that had ended before: each is counted when it comes back itself.
    pub(crate) fn count_returning(&mut self, queue: QueueId, state: State, ended_at: Millis) {
        if let Some(entry) = self.queues.get_mut(&queue)
            && entry.is_restored()
            // After a restart with a clock that was set back it may seem to have ended later.
            && (ended_at <= entry.queue.created_at || *entry.queue.counters.of(state) == 0)
        {
            *entry.queue.counters.of(state) += 1;
        }
    }

    pub(crate) fn add_queue(&mut self, queue: Queue) {
        let id = queue.id;
        let next_number = TenantNumber(self.tenant_numbers.len() as u32);
        let tenant = self.tenant_numbers.entry(queue.tenant.clone()).or_insert(next_number);
        self.ready.introduce(id, *tenant, &queue.tenant);
        if let Some(token) = queue.token {
            self.tokens.insert(token, id);
        }
        if queue.implicit {
            self.implicit.insert(queue.tenant.clone(), id);
        }
        if queue.state == QueueState::Cancelled {
            self.cancelling_queues.insert(id);
        }
        self.queues.insert(id, Box::new(QueueEntry::new(queue)));
    }

    /// Notes that a queue was made or changed its state.
    fn touch_queue(&mut self, id: QueueId, step: &mut Step) {
        let Some(entry) = self.queues.get_mut(&id) else { return };
        step.tell(&Change::Queue { id, state: entry.queue.state, at: self.now });
        if !entry.dirty {
            entry.dirty = true;
            self.dirty_queues.push(id);
        }
    }

    pub(crate) fn drain_queue(&mut self, request: RequestId, reference: QueueRef, by: &Actor, step: &mut Step) {
        self.close_queue(request, reference, QueueState::Draining, by, step);
    }

    /// The intent is durable with this step; the jobs are worked off in chunks ([`Shard::go_on_cancelling`]).
    pub(crate) fn cancel_queue(&mut self, request: RequestId, reference: QueueRef, by: &Actor, step: &mut Step) {
        self.close_queue(request, reference, QueueState::Cancelled, by, step);
    }

    fn close_queue(&mut self, request: RequestId, reference: QueueRef, to: QueueState, by: &Actor, step: &mut Step) {
        let id = match self.find_queue(reference) {
            Ok(entry) if entry.queue.implicit => {
                return step.answer(request, Answer::Refused(Refusal::QueueImplicit));
            }
            Ok(entry) => entry.queue.id,
            Err(refusal) => return step.answer(request, Answer::Refused(refusal)),
        };
        let Some(entry) = self.queues.get_mut(&id) else { return };
        // One way only; asking for a state that it has, or has passed, changes nothing.
        if entry.queue.state < to {
            entry.queue.state = to;
            if to == QueueState::Cancelled {
                self.cancelling_queues.insert(id);
            }
            self.touch_queue(id, step);
            let cancels = to == QueueState::Cancelled;
            let action = if cancels { Action::QueueCancelled } else { Action::QueueDrained };
            self.note_queue_act(action, id, by, step);
            if cancels {
                self.stop_flows_of(id);
            }
        }
        if let Some(entry) = self.queues.get(&id) {
            step.answer(request, Answer::Queue(Box::new(entry.queue.clone())));
        }
    }

    /// Cancels the next jobs of cancelled queues, a bounded number in one step.
    pub(crate) fn go_on_cancelling(&mut self, step: &mut Step) {
        let Some(id) = self.cancelling_queues.first().copied() else { return };
        let Some(entry) = self.queues.get_mut(&id) else {
            self.cancelling_queues.remove(&id);
            return;
        };
        let after = (Bound::Excluded(entry.cancelled_through), Bound::Unbounded);
        let chunk: Vec<JobId> = entry.active.range(after).take(self.config.cancel_chunk).copied().collect();
        if let Some(last) = chunk.last() {
            entry.cancelled_through = *last;
        }
        if chunk.len() < self.config.cancel_chunk {
            self.cancelling_queues.remove(&id);
        }
        for job in chunk {
            let _ = self.fire(job, Event::Cancel(ReasonCode::QueueCancelled), step);
        }
    }

    pub(crate) fn remove_queue(&mut self, request: RequestId, reference: QueueRef, by: &Actor, step: &mut Step) {
        let refusal = match self.find_queue(reference) {
            Ok(entry) if entry.queue.implicit => Refusal::QueueImplicit,
            Ok(entry) if entry.active.is_empty() && entry.flows == 0 => {
                let id = entry.queue.id;
                self.delete_queue(id, step);
                self.note_queue_act(Action::QueueRemoved, id, by, step);
                return step.answer(request, Answer::QueueRemoved);
            }
            Ok(entry) => Refusal::QueueNotEmpty((entry.active.len() as u64).max(u64::from(entry.flows))),
            Err(refusal) => refusal,
        };
        step.answer(request, Answer::Refused(refusal));
    }

    /// A workflow's jobs will come: its queue stays.
    pub(crate) fn hold_queue(&mut self, id: WorkflowId) {
        let Some(flow) = self.flows.map.get_mut(&id).filter(|flow| !flow.holds_queue) else { return };
        flow.holds_queue = true;
        let queue = flow.record.queue;
        if let Some(entry) = self.queues.get_mut(&queue) {
            entry.flows += 1;
        }
    }

    /// A workflow in it has ended.
    pub(crate) fn let_queue_go(&mut self, id: QueueId) {
        let Some(entry) = self.queues.get_mut(&id) else { return };
        entry.flows = entry.flows.saturating_sub(1);
        if entry.flows == 0 && entry.active.is_empty() {
            entry.queue.idle_since = self.now;
            self.timers.arm_expiry(entry, &self.config);
        }
    }

    /// A queue that is gone, back for a workflow in it.
    pub(crate) fn restore_queue_of(&mut self, id: QueueId, tenant: String) {
        // How many jobs it has had nobody knows any more; ids have never been as many.
        let queue = Queue { tenant, state: QueueState::Draining, next_seq: self.last_id, ..blank(id, self.now) };
        self.add_queue(queue);
    }

    /// Removes a queue that has been idle for long enough; one that has not is looked at again later.
    pub(crate) fn expire_queue(&mut self, id: QueueId, step: &mut Step) {
        let Some(entry) = self.queues.get_mut(&id) else { return };
        entry.expiry_armed = false;
        if !entry.active.is_empty() || entry.flows > 0 {
            return;
        }
        if self.now < entry.queue.idle_since + self.config.queue_idle_expiry {
            return self.timers.arm_expiry(entry, &self.config);
        }
        self.delete_queue(id, step);
    }

    fn delete_queue(&mut self, id: QueueId, step: &mut Step) {
        let Some(entry) = self.queues.remove(&id) else { return };
        if let Some(token) = entry.queue.token {
            self.tokens.remove(&token);
        }
        self.cancelling_queues.remove(&id);
        self.ready.forget(id);
        step.batch.delete(Keyspace::Queues, &id.key());
        step.batch.put(Keyspace::Meta, model::key::META_LAST_ID, &self.last_id.to_be_bytes());
        step.tell(&Change::QueueRemoved { id, at: self.now });
    }
}

/// A queue with everything at its default.
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
