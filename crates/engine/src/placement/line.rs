//! Jobs that wait, in the order in which they go.
//!
//! Critical before interactive before batch; a job that has waited for long counts as critical. Within a class the
//! tenant with the smallest pass is next, within a tenant its lines take turns, and within a line it is first come,
//! first served. A line holds the jobs of one queue that ask for the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use model::id::{JobId, QueueId};
use model::job::Job;
use model::state::State;
use model::time::Millis;

use crate::placement::ask::AskId;
use crate::placement::tenants::{Pass, TenantNumber, Tenants};
use crate::placement::unplaced::is_unplaced;
use crate::shard::Map;

/// A job's place in its line: since when it has been waiting; then the one that was accepted first.
pub(crate) type Place = (Millis, JobId);

pub(crate) fn place(job: &Job) -> Place {
    // A delayed job begins to wait when it is due, not when it was submitted.
    let first_due = job.states.iter().find(|entry| entry.state == State::Pending);
    (first_due.map_or(job.created_at, |entry| entry.at), job.id)
}

/// Since when it has been ready this time. Earlier attempts were no waiting, and do not age it.
pub(crate) fn ready_since(job: &Job) -> Millis {
    if is_unplaced(job) { job.since() } else { job.since().max(job.eligible_at) }
}

/// Which line a job stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LineKey {
    pub ask: AskId,
    pub queue: QueueId,
}

#[derive(Debug)]
pub(crate) struct Line {
    pub tenant: TenantNumber,
    /// Each with the time since when it has been ready.
    pub places: BTreeMap<Place, Millis>,
    /// Set aside: it stands in no turn.
    parked: bool,
}

/// The lines of a tenant, as far as they are not set aside.
#[derive(Debug, Default)]
struct Turns {
    lines: VecDeque<LineKey>,
    /// The pass under which the tenant stands in the order, if it is not set aside. Passes only grow, so a stale one
    /// comes up too early, and is set right then.
    filed: Option<Pass>,
}

/// Jobs of one class that the same runners are fit for.
#[derive(Debug, Default)]
pub(crate) struct Class {
    order: BTreeSet<(Pass, TenantNumber)>,
    tenants: Map<TenantNumber, Turns>,
    lines: BTreeMap<LineKey, Line>,
    /// Everything that waits, longest first, so that ageing needs no search. Unused in the first class.
    oldest: BTreeMap<(Millis, JobId), (LineKey, Millis)>,
    len: usize,
    /// There are runners for it: whoever stands in the order contends for them.
    contended: bool,
}

impl Class {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn line(&self, key: LineKey) -> Option<&Line> {
        self.lines.get(&key)
    }

    pub fn insert(&mut self, key: LineKey, job: Waiting, ages: bool, tenants: &mut Tenants) {
        let Waiting { tenant, place, since } = job;
        let new = || Line { tenant, places: BTreeMap::new(), parked: false };
        let line = self.lines.entry(key).or_insert_with(new);
        let is_new = line.places.is_empty();
        if line.places.insert(place, since).is_none() {
            self.len += 1;
        }
        if ages {
            self.oldest.insert((since, place.1), (key, place.0));
        }
        if is_new {
            self.join(key, tenant, tenants);
        }
    }

    /// A line takes its turns again. A tenant that was set aside as a whole stays so.
    fn join(&mut self, key: LineKey, tenant: TenantNumber, tenants: &mut Tenants) {
        let is_new = !self.tenants.contains_key(&tenant);
        let turns = self.tenants.entry(tenant).or_default();
        turns.lines.push_back(key);
        if is_new {
            self.file(tenant, tenants);
        }
    }

    fn file(&mut self, tenant: TenantNumber, tenants: &mut Tenants) {
        let Some(turns) = self.tenants.get_mut(&tenant) else { return };
        if self.contended {
            tenants.contend(tenant);
        }
        let pass = tenants.pass(tenant);
        turns.filed = Some(pass);
        self.order.insert((pass, tenant));
    }

    fn unfile(&mut self, tenant: TenantNumber, tenants: &mut Tenants) {
        let Some(turns) = self.tenants.get_mut(&tenant) else { return };
        if let Some(filed) = turns.filed.take() {
            self.order.remove(&(filed, tenant));
            if self.contended {
                tenants.yields(tenant);
            }
        }
    }

    fn leave(&mut self, key: LineKey, tenant: TenantNumber, tenants: &mut Tenants) {
        let Some(turns) = self.tenants.get_mut(&tenant) else { return };
        if turns.lines.front() == Some(&key) {
            turns.lines.pop_front();
        } else {
            turns.lines.retain(|other| *other != key);
        }
        if turns.lines.is_empty() {
            self.unfile(tenant, tenants);
            self.tenants.remove(&tenant);
        }
    }

    /// Runners for it have come, or the last has gone.
    pub fn set_contended(&mut self, contended: bool, tenants: &mut Tenants) {
        if self.contended == contended {
            return;
        }
        self.contended = contended;
        for (_, tenant) in &self.order {
            if contended { tenants.contend(*tenant) } else { tenants.yields(*tenant) }
        }
    }

    pub fn remove(&mut self, key: LineKey, place: Place, tenants: &mut Tenants) -> Option<Waiting> {
        let line = self.lines.get_mut(&key)?;
        let since = line.places.remove(&place)?;
        let tenant = line.tenant;
        self.len -= 1;
        self.oldest.remove(&(since, place.1));
        if line.places.is_empty() {
            let parked = line.parked;
            self.lines.remove(&key);
            if !parked {
                self.leave(key, tenant, tenants);
            }
        }
        Some(Waiting { tenant, place, since })
    }

    /// Whose turn it is.
    pub fn first(&mut self, tenants: &Tenants) -> Option<(Pass, TenantNumber, LineKey)> {
        loop {
            let (filed, tenant) = self.order.first().copied()?;
            let pass = tenants.pass(tenant);
            let turns = self.tenants.get_mut(&tenant)?;
            if filed == pass {
                return turns.lines.front().map(|line| (pass, tenant, *line));
            }
            turns.filed = Some(pass);
            self.order.remove(&(filed, tenant));
            self.order.insert((pass, tenant));
        }
    }

    /// Takes the first job of the line whose turn it is, and passes the turn on.
    pub fn take(&mut self, key: LineKey, tenants: &mut Tenants) -> Option<JobId> {
        let line = self.lines.get(&key)?;
        let (place, tenant) = (*line.places.first_key_value()?.0, line.tenant);
        self.remove(key, place, tenants);
        if let Some(turns) = self.tenants.get_mut(&tenant)
            && turns.lines.front() == Some(&key)
        {
            turns.lines.rotate_left(1);
        }
        Some(place.1)
    }

    pub fn park_line(&mut self, key: LineKey, tenants: &mut Tenants) {
        let Some(line) = self.lines.get_mut(&key).filter(|line| !line.parked) else { return };
        line.parked = true;
        let tenant = line.tenant;
        self.leave(key, tenant, tenants);
    }

    pub fn unpark_line(&mut self, key: LineKey, tenants: &mut Tenants) -> bool {
        let Some(line) = self.lines.get_mut(&key).filter(|line| line.parked) else { return false };
        line.parked = false;
        let tenant = line.tenant;
        self.join(key, tenant, tenants);
        true
    }

    pub fn park_tenant(&mut self, tenant: TenantNumber, tenants: &mut Tenants) {
        self.unfile(tenant, tenants);
    }

    pub fn unpark_tenant(&mut self, tenant: TenantNumber, tenants: &mut Tenants) -> bool {
        let is_parked = self.tenants.get(&tenant).is_some_and(|turns| turns.filed.is_none());
        if is_parked {
            self.file(tenant, tenants);
        }
        is_parked
    }

    /// Takes out one that has been ready for at least `after`.
    pub fn pop_aged(&mut self, now: Millis, after: Millis, tenants: &mut Tenants) -> Option<(LineKey, Waiting)> {
        let ((since, id), (key, waits_since)) = self.oldest.first_key_value()?;
        let (key, place) = (*key, (*waits_since, *id));
        if now.saturating_sub(*since) < after {
            return None;
        }
        self.remove(key, place, tenants).map(|waiting| (key, waiting))
    }

    /// Takes out all lines of an ask.
    pub fn take_lines(&mut self, ask: AskId, tenants: &mut Tenants) -> Vec<(LineKey, Vec<Waiting>)> {
        let (first, last) = (LineKey { ask, queue: QueueId(0) }, LineKey { ask, queue: QueueId(u64::MAX) });
        let keys: Vec<LineKey> = self.lines.range(first..=last).map(|(key, _)| *key).collect();
        let mut taken = Vec::new();
        for key in keys {
            let Some(line) = self.lines.remove(&key) else { continue };
            if !line.parked {
                self.leave(key, line.tenant, tenants);
            }
            self.len -= line.places.len();
            let waiting =
                |(place, since): (&Place, &Millis)| Waiting { tenant: line.tenant, place: *place, since: *since };
            let waiting: Vec<Waiting> = line.places.iter().map(waiting).collect();
            for job in &waiting {
                self.oldest.remove(&(job.since, job.place.1));
            }
            taken.push((key, waiting));
        }
        taken
    }

    /// The next jobs behind a place, over all lines, and where that leads to.
    pub fn after(&self, from: Option<(LineKey, Place)>, count: usize) -> Vec<(LineKey, Place)> {
        let mut found = Vec::new();
        let lines = match from {
            Some((key, _)) => self.lines.range(key..),
            None => self.lines.range(..),
        };
        for (key, line) in lines {
            let behind = match from {
                Some((first, place)) if first == *key => Bound::Excluded(place),
                Some(_) | None => Bound::Unbounded,
            };
            let places = line.places.range((behind, Bound::Unbounded));
            found.extend(places.take(count - found.len()).map(|(place, _)| (*key, *place)));
            if found.len() >= count {
                break;
            }
        }
        found
    }
}

/// A job as its line knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub tenant: TenantNumber,
    pub place: Place,
    pub since: Millis,
}
