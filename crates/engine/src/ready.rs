//! Which of the waiting jobs is next.
//!
//! Critical before interactive before batch; a job that has waited for long counts as critical.
//! Within a class tenants take turns, within a tenant its queues, and within a queue it is first
//! come, first served. A queue that has all the runners it may have is set aside until one is free.

use std::collections::{BTreeMap, VecDeque};

use model::id::{JobId, QueueId};
use model::job::Job;
use model::spec::{Lane, Priority};
use model::state::State;
use model::time::Millis;

use crate::shard::Map;

/// Tenants by number: cheaper to pass around than by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TenantNumber(pub u32);

/// A job's place among the jobs of its queue: since when it has been waiting, then its number.
type Place = (Millis, u64, JobId);

fn place(job: &Job) -> Place {
    // A delayed job begins to wait when it is due, not when it was submitted.
    let first_due = job.states.iter().find(|entry| entry.state == State::Pending);
    (first_due.map_or(job.created_at, |entry| entry.at), job.seq, job.id)
}

/// Since when it has been ready this time. Earlier attempts were no waiting, and do not age it.
fn ready_since(job: &Job) -> Millis {
    job.since().max(job.eligible_at)
}

#[derive(Debug)]
struct Waiting {
    tenant: TenantNumber,
    /// Each with the time since when it has been ready.
    places: BTreeMap<Place, Millis>,
    /// Set aside: it stands in no turn.
    parked: bool,
}

/// Jobs of one class in one lane.
#[derive(Debug, Default)]
struct Class {
    /// Whose turn it is: tenants in order, each with its queues in order.
    turns: VecDeque<TenantNumber>,
    queues_of: Map<TenantNumber, VecDeque<QueueId>>,
    queues: Map<QueueId, Waiting>,
    /// Everything that waits, longest first, so that ageing needs no search. Unused in the first class.
    oldest: BTreeMap<(Millis, JobId), (QueueId, Place)>,
    len: usize,
}

impl Class {
    fn insert(&mut self, queue: QueueId, tenant: TenantNumber, place: Place, since: Millis) {
        let new = || Waiting { tenant, places: BTreeMap::new(), parked: true };
        let waiting = self.queues.entry(queue).or_insert_with(new);
        if waiting.places.insert(place, since).is_none() {
            self.len += 1;
        }
        if waiting.parked && waiting.places.len() == 1 {
            waiting.parked = false;
            self.join_turns(queue, tenant);
        }
    }

    fn join_turns(&mut self, queue: QueueId, tenant: TenantNumber) {
        let queues = self.queues_of.entry(tenant).or_default();
        if queues.is_empty() {
            self.turns.push_back(tenant);
        }
        queues.push_back(queue);
    }

    fn leave_turns(&mut self, queue: QueueId, tenant: TenantNumber) {
        let Some(queues) = self.queues_of.get_mut(&tenant) else { return };
        queues.retain(|other| *other != queue);
        if queues.is_empty() {
            self.queues_of.remove(&tenant);
            self.turns.retain(|other| *other != tenant);
        }
    }

    fn remove(&mut self, queue: QueueId, place: Place) -> bool {
        let Some(waiting) = self.queues.get_mut(&queue) else { return false };
        let Some(since) = waiting.places.remove(&place) else { return false };
        self.len -= 1;
        self.oldest.remove(&(since, place.2));
        if waiting.places.is_empty() {
            let (tenant, parked) = (waiting.tenant, waiting.parked);
            self.queues.remove(&queue);
            if !parked {
                self.leave_turns(queue, tenant);
            }
        }
        true
    }

    /// The next job by turns. Queues that `may_run` refuses are set aside.
    fn next(&mut self, may_run: &impl Fn(QueueId) -> bool) -> Option<(QueueId, Place)> {
        while let Some(tenant) = self.turns.front().copied() {
            let queue = self.queues_of.get(&tenant).and_then(|queues| queues.front()).copied()?;
            let waiting = self.queues.get_mut(&queue)?;
            if may_run(queue) {
                return waiting.places.first_key_value().map(|(place, _)| (queue, *place));
            }
            waiting.parked = true;
            self.leave_turns(queue, tenant);
        }
        None
    }

    /// Takes the job that [`Class::next`] named and passes the turn on.
    fn take(&mut self, queue: QueueId, place: Place) {
        let tenant = self.queues.get(&queue).map(|waiting| waiting.tenant);
        self.remove(queue, place);
        if let Some(tenant) = tenant
            && let Some(queues) = self.queues_of.get_mut(&tenant)
        {
            if queues.front() == Some(&queue) {
                queues.rotate_left(1);
            }
            if self.turns.front() == Some(&tenant) {
                self.turns.rotate_left(1);
            }
        }
    }

    fn unpark(&mut self, queue: QueueId) {
        if let Some(waiting) = self.queues.get_mut(&queue)
            && waiting.parked
        {
            waiting.parked = false;
            let tenant = waiting.tenant;
            self.join_turns(queue, tenant);
        }
    }
}

#[derive(Debug, Default)]
struct LaneReady {
    classes: [Class; 3],
}

/// All jobs that wait for a runner.
#[derive(Debug)]
pub(crate) struct Ready {
    lanes: [LaneReady; Lane::ALL.len()],
    ages_after: [Millis; 3],
    tenants: Map<QueueId, TenantNumber>,
}

impl Ready {
    pub fn new(interactive_ages_after: Millis, batch_ages_after: Millis) -> Self {
        Self {
            lanes: Default::default(),
            ages_after: [Millis(u64::MAX), interactive_ages_after, batch_ages_after],
            tenants: Map::default(),
        }
    }

    /// Makes a queue known; its jobs take turns with those of the tenant's other queues.
    pub fn introduce(&mut self, queue: QueueId, tenant: TenantNumber) {
        self.tenants.insert(queue, tenant);
    }

    pub fn forget(&mut self, queue: QueueId) {
        self.tenants.remove(&queue);
    }

    pub fn len(&self, lane: Lane) -> usize {
        self.lanes[lane as usize].classes.iter().map(|class| class.len).sum()
    }

    pub fn is_empty(&self, lane: Lane) -> bool {
        self.lanes[lane as usize].classes.iter().all(|class| class.len == 0)
    }

    pub fn insert(&mut self, job: &Job) {
        let tenant = self.tenants.get(&job.queue).copied().unwrap_or(TenantNumber(0));
        let place = place(job);
        let class = &mut self.lanes[job.lane as usize].classes[job.priority as usize];
        let since = ready_since(job);
        class.insert(job.queue, tenant, place, since);
        if job.priority != Priority::Critical {
            class.oldest.insert((since, job.id), (job.queue, place));
        }
    }

    /// Takes out a job that was put in, wherever ageing has moved it.
    pub fn remove(&mut self, job: &Job) {
        let place = place(job);
        let classes = &mut self.lanes[job.lane as usize].classes;
        if !classes[job.priority as usize].remove(job.queue, place) {
            classes[Priority::Critical as usize].remove(job.queue, place);
        }
    }

    /// The next job of a lane, taken out.
    pub fn pop(&mut self, lane: Lane, now: Millis, may_run: impl Fn(QueueId) -> bool) -> Option<JobId> {
        self.age(lane, now);
        for class in &mut self.lanes[lane as usize].classes {
            if class.len == 0 {
                continue;
            }
            if let Some((queue, place)) = class.next(&may_run) {
                class.take(queue, place);
                return Some(place.2);
            }
        }
        None
    }

    /// Room was made in a queue that may have been set aside.
    pub fn unpark(&mut self, queue: QueueId) {
        for lane in &mut self.lanes {
            for class in &mut lane.classes {
                class.unpark(queue);
            }
        }
    }

    /// Moves what has waited for too long to the first class; each job is moved once at most.
    fn age(&mut self, lane: Lane, now: Millis) {
        let [critical, rest @ ..] = &mut self.lanes[lane as usize].classes;
        for (class, after) in rest.iter_mut().zip(&self.ages_after[1..]) {
            while let Some(((since, _), (queue, place))) = class.oldest.first_key_value() {
                let (since, queue, place) = (*since, *queue, *place);
                if now.saturating_sub(since) < *after {
                    break;
                }
                let tenant = class.queues.get(&queue).map(|waiting| waiting.tenant);
                class.remove(queue, place);
                critical.insert(queue, tenant.unwrap_or(TenantNumber(0)), place, since);
            }
        }
    }
}
