//! Waiting jobs in dispatch order.
//!
//! Critical before interactive before batch; long-waiting jobs are promoted to critical. Within a class the tenant with
//! the smallest pass is next, within a tenant its wait queues alternate round-robin, and a wait queue is first in,
//! first out. A wait queue holds the jobs of one queue with one requirement.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use model::id::{JobId, QueueId};
use model::job::Job;
use model::state::State;
use model::time::Millis;

use crate::placement::requirement::RequirementId;
use crate::placement::tenants::{StridePass, TenantNumber, Tenants};
use crate::placement::unplaced::is_unplaced;
use crate::shard::Map;

/// A job's position in its wait queue: start of waiting, then acceptance order.
pub(crate) type Position = (Millis, JobId);

pub(crate) fn position(job: &Job) -> Position {
    // A delayed job starts to wait when it is due, not when it was submitted.
    let first_due = job.states.iter().find(|entry| entry.state == State::Pending);
    (first_due.map_or(job.created_at, |entry| entry.at), job.id)
}

/// Since when the job is ready for its current attempt. Earlier attempts do not count for promotion.
pub(crate) fn ready_since(job: &Job) -> Millis {
    if is_unplaced(job) { job.since() } else { job.since().max(job.eligible_at) }
}

/// Key of a wait queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WaitQueueKey {
    pub requirement: RequirementId,
    pub queue: QueueId,
}

#[derive(Debug)]
pub(crate) struct WaitQueue {
    pub tenant: TenantNumber,
    /// With the time since when each job is ready.
    pub entries: BTreeMap<Position, Millis>,
    /// At an exhausted limit: not in the tenant's rotation.
    parked: bool,
}

/// The round-robin rotation of a tenant's wait queues, without parked ones.
#[derive(Debug, Default)]
struct TenantRotation {
    wait_queues: VecDeque<WaitQueueKey>,
    /// The pass in the tenant's entry in `order`; absent if parked. Passes only grow, so an outdated entry comes up too
    /// early and is corrected then.
    filed: Option<StridePass>,
}

/// Waiting jobs of one priority class of a candidate set.
#[derive(Debug, Default)]
pub(crate) struct PriorityClass {
    order: BTreeSet<(StridePass, TenantNumber)>,
    tenants: Map<TenantNumber, TenantRotation>,
    wait_queues: BTreeMap<WaitQueueKey, WaitQueue>,
    /// All waiting jobs, longest first, for promotion without a search. Unused in the first class.
    oldest: BTreeMap<(Millis, JobId), (WaitQueueKey, Millis)>,
    len: usize,
    /// There are eligible runners: the tenants in `order` contend for them.
    contended: bool,
}

impl PriorityClass {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn wait_queue(&self, key: WaitQueueKey) -> Option<&WaitQueue> {
        self.wait_queues.get(&key)
    }

    pub fn insert(&mut self, key: WaitQueueKey, job: WaitingJob, ages: bool, tenants: &mut Tenants) {
        let WaitingJob { tenant, position, since } = job;
        let new = || WaitQueue { tenant, entries: BTreeMap::new(), parked: false };
        let wait_queue = self.wait_queues.entry(key).or_insert_with(new);
        let is_new = wait_queue.entries.is_empty();
        if wait_queue.entries.insert(position, since).is_none() {
            self.len += 1;
        }
        if ages {
            self.oldest.insert((since, position.1), (key, position.0));
        }
        if is_new {
            self.join(key, tenant, tenants);
        }
    }

    /// Adds a wait queue to its tenant's rotation. A parked tenant stays parked.
    fn join(&mut self, key: WaitQueueKey, tenant: TenantNumber, tenants: &mut Tenants) {
        let is_new = !self.tenants.contains_key(&tenant);
        let rotation = self.tenants.entry(tenant).or_default();
        rotation.wait_queues.push_back(key);
        if is_new {
            self.file(tenant, tenants);
        }
    }

    fn file(&mut self, tenant: TenantNumber, tenants: &mut Tenants) {
        let Some(rotation) = self.tenants.get_mut(&tenant) else {
            return tenants.note_missing(tenant, "file of a wait queue");
        };
        if self.contended {
            tenants.contend(tenant);
        }
        let pass = tenants.pass(tenant);
        rotation.filed = Some(pass);
        self.order.insert((pass, tenant));
    }

    fn unfile(&mut self, tenant: TenantNumber, tenants: &mut Tenants) {
        let Some(rotation) = self.tenants.get_mut(&tenant) else {
            return tenants.note_missing(tenant, "unfile of a wait queue");
        };
        if let Some(filed) = rotation.filed.take() {
            self.order.remove(&(filed, tenant));
            if self.contended {
                tenants.withdraw(tenant);
            }
        }
    }

    fn leave(&mut self, key: WaitQueueKey, tenant: TenantNumber, tenants: &mut Tenants) {
        let Some(rotation) = self.tenants.get_mut(&tenant) else {
            return tenants.note_missing(tenant, "leave of a wait queue");
        };
        if rotation.wait_queues.front() == Some(&key) {
            rotation.wait_queues.pop_front();
        } else {
            rotation.wait_queues.retain(|other| *other != key);
        }
        if rotation.wait_queues.is_empty() {
            self.unfile(tenant, tenants);
            self.tenants.remove(&tenant);
        }
    }

    /// The first eligible runner has joined, or the last has left.
    pub fn set_contended(&mut self, contended: bool, tenants: &mut Tenants) {
        if self.contended == contended {
            return;
        }
        self.contended = contended;
        for (_, tenant) in &self.order {
            if contended { tenants.contend(*tenant) } else { tenants.withdraw(*tenant) }
        }
    }

    pub fn remove(&mut self, key: WaitQueueKey, position: Position, tenants: &mut Tenants) -> Option<WaitingJob> {
        let wait_queue = self.wait_queues.get_mut(&key)?;
        let since = wait_queue.entries.remove(&position)?;
        let tenant = wait_queue.tenant;
        self.len -= 1;
        self.oldest.remove(&(since, position.1));
        if wait_queue.entries.is_empty() {
            let parked = wait_queue.parked;
            self.wait_queues.remove(&key);
            if !parked {
                self.leave(key, tenant, tenants);
            }
        }
        Some(WaitingJob { tenant, position, since })
    }

    /// The next tenant and wait queue.
    pub fn first(&mut self, tenants: &Tenants) -> Option<(StridePass, TenantNumber, WaitQueueKey)> {
        loop {
            let (filed, tenant) = self.order.first().copied()?;
            let pass = tenants.pass(tenant);
            let rotation = self.tenants.get_mut(&tenant)?;
            if filed == pass {
                return rotation.wait_queues.front().map(|wait_queue| (pass, tenant, *wait_queue));
            }
            rotation.filed = Some(pass);
            self.order.remove(&(filed, tenant));
            self.order.insert((pass, tenant));
        }
    }

    /// Takes the first job of the next wait queue and rotates.
    pub fn take(&mut self, key: WaitQueueKey, tenants: &mut Tenants) -> Option<JobId> {
        let wait_queue = self.wait_queues.get(&key)?;
        let (position, tenant) = (*wait_queue.entries.first_key_value()?.0, wait_queue.tenant);
        self.remove(key, position, tenants);
        if let Some(rotation) = self.tenants.get_mut(&tenant)
            && rotation.wait_queues.front() == Some(&key)
        {
            rotation.wait_queues.rotate_left(1);
        }
        Some(position.1)
    }

    pub fn park_wait_queue(&mut self, key: WaitQueueKey, tenants: &mut Tenants) {
        let Some(wait_queue) = self.wait_queues.get_mut(&key).filter(|wait_queue| !wait_queue.parked) else { return };
        wait_queue.parked = true;
        let tenant = wait_queue.tenant;
        self.leave(key, tenant, tenants);
    }

    pub fn unpark_wait_queue(&mut self, key: WaitQueueKey, tenants: &mut Tenants) -> bool {
        let Some(wait_queue) = self.wait_queues.get_mut(&key).filter(|wait_queue| wait_queue.parked) else {
            return false;
        };
        wait_queue.parked = false;
        let tenant = wait_queue.tenant;
        self.join(key, tenant, tenants);
        true
    }

    pub fn park_tenant(&mut self, tenant: TenantNumber, tenants: &mut Tenants) {
        self.unfile(tenant, tenants);
    }

    pub fn unpark_tenant(&mut self, tenant: TenantNumber, tenants: &mut Tenants) -> bool {
        let is_parked = self.tenants.get(&tenant).is_some_and(|rotation| rotation.filed.is_none());
        if is_parked {
            self.file(tenant, tenants);
        }
        is_parked
    }

    /// Removes a job that has been ready for at least `after`.
    pub fn pop_aged(
        &mut self,
        now: Millis,
        after: Millis,
        tenants: &mut Tenants,
    ) -> Option<(WaitQueueKey, WaitingJob)> {
        let ((since, id), (key, waits_since)) = self.oldest.first_key_value()?;
        let (key, position) = (*key, (*waits_since, *id));
        if now.saturating_sub(*since) < after {
            return None;
        }
        self.remove(key, position, tenants).map(|waiting| (key, waiting))
    }

    /// Removes all wait queues of a requirement.
    pub fn take_wait_queues(
        &mut self,
        requirement: RequirementId,
        tenants: &mut Tenants,
    ) -> Vec<(WaitQueueKey, Vec<WaitingJob>)> {
        let (first, last) =
            (WaitQueueKey { requirement, queue: QueueId(0) }, WaitQueueKey { requirement, queue: QueueId(u64::MAX) });
        let keys: Vec<WaitQueueKey> = self.wait_queues.range(first..=last).map(|(key, _)| *key).collect();
        let mut taken = Vec::new();
        for key in keys {
            let Some(wait_queue) = self.wait_queues.remove(&key) else { continue };
            if !wait_queue.parked {
                self.leave(key, wait_queue.tenant, tenants);
            }
            self.len -= wait_queue.entries.len();
            let waiting = |(position, since): (&Position, &Millis)| WaitingJob {
                tenant: wait_queue.tenant,
                position: *position,
                since: *since,
            };
            let waiting: Vec<WaitingJob> = wait_queue.entries.iter().map(waiting).collect();
            for job in &waiting {
                self.oldest.remove(&(job.since, job.position.1));
            }
            taken.push((key, waiting));
        }
        taken
    }

    /// The next jobs after a position, over all wait queues.
    pub fn after(&self, from: Option<(WaitQueueKey, Position)>, count: usize) -> Vec<(WaitQueueKey, Position)> {
        let mut found = Vec::new();
        let wait_queues = match from {
            Some((key, _)) => self.wait_queues.range(key..),
            None => self.wait_queues.range(..),
        };
        for (key, wait_queue) in wait_queues {
            let start = match from {
                Some((first, position)) if first == *key => Bound::Excluded(position),
                Some(_) | None => Bound::Unbounded,
            };
            let entries = wait_queue.entries.range((start, Bound::Unbounded));
            found.extend(entries.take(count - found.len()).map(|(position, _)| (*key, *position)));
            if found.len() >= count {
                break;
            }
        }
        found
    }
}

/// A job in a wait queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingJob {
    pub tenant: TenantNumber,
    pub position: Position,
    pub since: Millis,
}
