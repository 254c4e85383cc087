//! Candidate sets: the runners that satisfy one requirement, the least loaded first, and the jobs waiting for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::id::RunnerId;
use model::message::{Capacity, Load};
use model::reason::ReasonCode;
use model::spec::ExecutorKind;

use crate::placement::attributes::{Attribute, EffectiveProfile, RunnerIndex};
use crate::placement::runner_class::RunnerClassKey;
use crate::placement::tenants::StridePass;
use crate::placement::wait_queue::{Position, PriorityClass, WaitQueueKey};
use crate::settings::Settings;

/// A runner counts as overloaded from this use of its slots, CPU or GPU on.
pub(crate) const OVERLOADED_PERCENT: u32 = 90;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CandidateSetId(pub u32);

/// The condition that eligible runners satisfy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CandidateSetKey {
    pub executor: ExecutorKind,
    pub runner_class: RunnerClassKey,
    pub labels: Vec<(String, String)>,
}

/// Why a runner is not eligible: the first unmet condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ineligible {
    OtherPool,
    LackCapability,
    OtherLabels,
}

impl CandidateSetKey {
    pub fn check(&self, profile: &EffectiveProfile) -> Result<(), Ineligible> {
        if !profile.is_in_any(&self.runner_class.pools) {
            return Err(Ineligible::OtherPool);
        }
        if !profile.has_capabilities(&self.runner_class.requires) {
            return Err(Ineligible::LackCapability);
        }
        if !profile.has_labels(&self.labels) {
            return Err(Ineligible::OtherLabels);
        }
        Ok(())
    }

    /// Whether a runner is excluded while overloaded: all pools that make it eligible have `spare_overloaded`.
    pub fn excludes_overloaded(&self, profile: &EffectiveProfile, settings: &Settings) -> bool {
        let eligible_pools = self.runner_class.pools.iter().filter(|pool| profile.is_in(pool));
        eligible_pools.into_iter().all(|pool| settings.pools.get(pool).is_some_and(|pool| pool.spare_overloaded))
    }
}

/// Free slots and load of a runner for one executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Availability {
    pub free: u32,
    pub overloaded: bool,
    /// Load in thousandths: attempts in flight of all executors + CPU + GPU.
    pub score_milli: u64,
}

impl Availability {
    pub fn new(
        executor: ExecutorKind,
        capacity: Capacity,
        in_flight: &[u32; ExecutorKind::ALL.len()],
        load: Load,
    ) -> Self {
        let (room, taken) = (capacity.of(executor), in_flight[executor as usize]);
        let attempts: u64 = in_flight.iter().map(|in_flight| u64::from(*in_flight)).sum();
        let percents = u64::from(load.cpu_percent) + u64::from(load.gpu_percent);
        let full = u64::from(taken) * 100 >= u64::from(room) * u64::from(OVERLOADED_PERCENT);
        let is_high = |percent: u8| u32::from(percent) >= OVERLOADED_PERCENT;
        Self {
            free: room.saturating_sub(taken),
            overloaded: full || is_high(load.cpu_percent) || is_high(load.gpu_percent),
            score_milli: 1000 * attempts + 10 * percents,
        }
    }

    /// The same runner while it gets no new attempts. Its jobs wait: it is not overloaded.
    pub fn cordoned(self) -> Self {
        Self { free: 0, overloaded: false, ..self }
    }
}

/// A runner with a free slot. Ordered: not overloaded first, then by score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    pub overloaded: bool,
    pub score_milli: u64,
    pub id: RunnerId,
    pub index: RunnerIndex,
}

/// The candidates in order. A single candidate, as on most servers, needs no tree.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// Only while `many` is empty.
    one: Option<Candidate>,
    many: BTreeSet<Candidate>,
}

impl Candidates {
    pub fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.many.len()
    }

    pub fn is_empty(&self) -> bool {
        self.one.is_none() && self.many.is_empty()
    }

    pub fn first(&self) -> Option<&Candidate> {
        self.one.as_ref().or_else(|| self.many.first())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Candidate> {
        self.one.iter().chain(&self.many)
    }

    /// Adds, removes or reorders a candidate.
    fn replace(&mut self, then: Option<Candidate>, now: Option<Candidate>) {
        if then == now {
            return;
        }
        if self.many.is_empty() && self.one == then {
            self.one = now;
            return;
        }
        self.many.extend(self.one.take());
        self.many.extend(now);
        if let Some(then) = then {
            self.many.remove(&then);
        }
    }
}

/// Urgency of the first waiting job: its priority class, then the pass of its tenant.
pub(crate) type Rank = (u8, StridePass);

/// The eligible runners of one requirement, and the jobs waiting for them.
#[derive(Debug)]
pub(crate) struct CandidateSet {
    pub key: Arc<CandidateSetKey>,
    /// Distinguishes it from earlier candidate sets with the same id.
    pub generation: u32,
    pub classes: [PriorityClass; 3],
    pub waiting: usize,
    /// Number of eligible runners.
    pub eligible: u32,
    /// Eligible runners that are excluded because they are overloaded.
    pub excluded: u32,
    /// Candidates that are not overloaded.
    pub available: u32,
    pub candidates: Candidates,
    /// The attributes under which it is indexed.
    pub filed_under: Vec<Attribute>,
    /// Its rank among the active candidate sets, if it is one.
    pub active_rank: Option<Rank>,
    /// Used since the last eviction check.
    pub used: bool,
    /// Cursor while retry timers are armed for its jobs: priority class, and the last job done.
    pub timer_cursor: Option<(usize, Option<(WaitQueueKey, Position)>)>,
}

impl CandidateSet {
    pub fn new(key: Arc<CandidateSetKey>, generation: u32, filed_under: Vec<Attribute>) -> Self {
        Self {
            key,
            generation,
            classes: Default::default(),
            waiting: 0,
            eligible: 0,
            excluded: 0,
            available: 0,
            candidates: Candidates::default(),
            filed_under,
            active_rank: None,
            used: true,
            timer_cursor: None,
        }
    }

    /// Why no connected runner can take its jobs, if none can.
    pub fn unplaced(&self) -> Option<ReasonCode> {
        if self.key.runner_class.pools.is_empty() {
            Some(ReasonCode::NoPoolMapping)
        } else if self.eligible == 0 {
            Some(ReasonCode::NoWorkers)
        } else if self.excluded == self.eligible {
            Some(ReasonCode::PoolOverloaded)
        } else {
            None
        }
    }

    /// Updates the counts for an eligible runner. `now` is absent if it leaves, `then` if it joins.
    pub fn count(
        &mut self,
        runner: (RunnerId, RunnerIndex),
        excludes_overloaded: bool,
        now: Option<Availability>,
        then: Option<Availability>,
    ) {
        let Self { excluded, available, candidates, .. } = self;
        let candidate = |availability: Availability| {
            let Availability { free, overloaded, score_milli } = availability;
            let is_candidate = free > 0 && !(excludes_overloaded && overloaded);
            is_candidate.then_some(Candidate { overloaded, score_milli, id: runner.0, index: runner.1 })
        };
        let (new, old) = (now.and_then(candidate), then.and_then(candidate));
        candidates.replace(old, new);
        let is_excluded = |availability: Option<Availability>| {
            u32::from(availability.is_some_and(|it| excludes_overloaded && it.overloaded))
        };
        *excluded = *excluded + is_excluded(now) - is_excluded(then);
        let is_available = |candidate: Option<Candidate>| u32::from(candidate.is_some_and(|it| !it.overloaded));
        *available = *available + is_available(new) - is_available(old);
    }
}
