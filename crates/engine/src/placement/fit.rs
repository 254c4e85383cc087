//! The runners that are fit for something, the least loaded first, and the jobs that wait for one of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::id::RunnerId;
use model::message::{Capacity, Load};
use model::reason::ReasonCode;
use model::spec::Lane;

use crate::placement::crew::CrewKey;
use crate::placement::line::{Class, LineKey, Place};
use crate::placement::staff::{Fact, RunnerIndex, Traits};
use crate::placement::tenants::Pass;
use crate::setup::Setup;

/// From this part of a runner's slots on, in percent, it counts as overloaded; so it does by its cpu or gpu.
pub(crate) const OVERLOADED_PERCENT: u32 = 90;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FitId(pub u32);

/// What a runner must be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FitKey {
    pub lane: Lane,
    pub crew: CrewKey,
    pub labels: Vec<(String, String)>,
}

/// Why a runner is not fit: the first thing that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    OtherPool,
    LackCapability,
    OtherLabels,
}

impl FitKey {
    pub fn check(&self, traits: &Traits) -> Result<(), Unfit> {
        if !traits.is_in_any(&self.crew.pools) {
            return Err(Unfit::OtherPool);
        }
        if !traits.can(&self.crew.requires) {
            return Err(Unfit::LackCapability);
        }
        if !traits.has_labels(&self.labels) {
            return Err(Unfit::OtherLabels);
        }
        Ok(())
    }

    /// Whether a runner gets nothing of this while it is overloaded: all pools through which it could are spared then.
    pub fn spares(&self, traits: &Traits, setup: &Setup) -> bool {
        let shared = self.crew.pools.iter().filter(|pool| traits.is_in(pool));
        shared.into_iter().all(|pool| setup.pools.get(pool).is_some_and(|pool| pool.spare_overloaded))
    }
}

/// How a runner stands in one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Standing {
    pub free: u32,
    pub overloaded: bool,
    /// In thousandths: attempts in hand, of every kind, + cpu + gpu.
    pub score_milli: u64,
}

impl Standing {
    pub fn new(lane: Lane, capacity: Capacity, held: &[u32; Lane::ALL.len()], load: Load) -> Self {
        let (room, taken) = (capacity.of(lane), held[lane as usize]);
        let attempts: u64 = held.iter().map(|held| u64::from(*held)).sum();
        let percents = u64::from(load.cpu_percent) + u64::from(load.gpu_percent);
        let full = u64::from(taken) * 100 >= u64::from(room) * u64::from(OVERLOADED_PERCENT);
        let hot = |percent: u8| u32::from(percent) >= OVERLOADED_PERCENT;
        Self {
            free: room.saturating_sub(taken),
            overloaded: full || hot(load.cpu_percent) || hot(load.gpu_percent),
            score_milli: 1000 * attempts + 10 * percents,
        }
    }
}

/// A runner with room. Those that are not overloaded come first, then those with the lowest score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    pub overloaded: bool,
    pub score_milli: u64,
    pub id: RunnerId,
    pub index: RunnerIndex,
}

/// Runners with room, in their order. Where there is but one, as on most servers, it needs no tree.
#[derive(Debug, Default)]
pub(crate) struct Roomy {
    /// Only while `many` is empty.
    one: Option<Candidate>,
    many: BTreeSet<Candidate>,
}

impl Roomy {
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

    /// A runner stands otherwise than it did, comes or goes.
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

/// How urgent the first of the waiting jobs is: its class, then the pass of its tenant.
pub(crate) type Rank = (u8, Pass);

/// Everything about one kind of place.
#[derive(Debug)]
pub(crate) struct Fit {
    pub key: Arc<FitKey>,
    /// Tells it from those that had its number before.
    pub generation: u32,
    pub classes: [Class; 3],
    pub waiting: usize,
    /// Runners that are fit.
    pub members: u32,
    /// Those of them that are overloaded and therefore get nothing, not even the last job.
    pub spared: u32,
    /// Those with room that are not overloaded.
    pub available: u32,
    pub roomy: Roomy,
    /// Under which of its requirements runners find it.
    pub filed_under: Vec<Fact>,
    /// Where it stands among those with something to do.
    pub hot: Option<Rank>,
    /// It was needed since it was last asked whether it is.
    pub used: bool,
    /// How far its jobs have been given a time at which they are looked at again: in which class, behind which place.
    pub arming: Option<(usize, Option<(LineKey, Place)>)>,
}

impl Fit {
    pub fn new(key: Arc<FitKey>, generation: u32, filed_under: Vec<Fact>) -> Self {
        Self {
            key,
            generation,
            classes: Default::default(),
            waiting: 0,
            members: 0,
            spared: 0,
            available: 0,
            roomy: Roomy::default(),
            filed_under,
            hot: None,
            used: true,
            arming: None,
        }
    }

    /// Why no runner there is can take its jobs, if so.
    pub fn unplaced(&self) -> Option<ReasonCode> {
        if self.key.crew.pools.is_empty() {
            Some(ReasonCode::NoPoolMapping)
        } else if self.members == 0 {
            Some(ReasonCode::NoWorkers)
        } else if self.spared == self.members {
            Some(ReasonCode::PoolOverloaded)
        } else {
            None
        }
    }

    /// Notes how a runner that is fit stands now, and how it no longer does. Absent: it was not, or is no more, here.
    pub fn count(
        &mut self,
        runner: (RunnerId, RunnerIndex),
        spares: bool,
        now: Option<Standing>,
        then: Option<Standing>,
    ) {
        let Self { spared, available, roomy, .. } = self;
        let candidate = |standing: Standing| {
            let Standing { free, overloaded, score_milli } = standing;
            let gets_some = free > 0 && !(spares && overloaded);
            gets_some.then_some(Candidate { overloaded, score_milli, id: runner.0, index: runner.1 })
        };
        let (comes, goes) = (now.and_then(candidate), then.and_then(candidate));
        roomy.replace(goes, comes);
        let is_spared = |standing: Option<Standing>| u32::from(standing.is_some_and(|it| spares && it.overloaded));
        *spared = *spared + is_spared(now) - is_spared(then);
        let is_available = |candidate: Option<Candidate>| u32::from(candidate.is_some_and(|it| !it.overloaded));
        *available = *available + is_available(comes) - is_available(goes);
    }
}
