//! Incremental matching of runners and requirements, through indexes by attribute.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::id::RunnerId;
use model::job::Placement;
use model::spec::ExecutorKind;

use crate::anomaly::Anomaly;
use crate::placement::Ready;
use crate::placement::attributes::{Attribute, EffectiveProfile, RunnerIndex};
use crate::placement::candidate_set::{Availability, CandidateSet, CandidateSetId, CandidateSetKey};
use crate::placement::requirement::RequirementId;
use crate::placement::runner_class::RunnerClassKey;

/// Number of candidate sets above which unused ones are evicted. Below it they are cached: recomputing the eligible
/// runners for the next job takes longer.
pub(crate) const IDLE_CANDIDATE_SETS_MAX: usize = 256;

/// Candidate sets checked for eviction when one is created.
const EVICTION_CHECKS_MAX: usize = 16;

/// A runner as placement sees it.
#[derive(Debug)]
pub(crate) struct PlacementRunner {
    pub id: RunnerId,
    pub profile: EffectiveProfile,
    pub is_connected: bool,
    pub availability: [Availability; ExecutorKind::ALL.len()],
    pub in_flight: [u32; ExecutorKind::ALL.len()],
    /// The candidate sets it belongs to, and whether each excludes it while overloaded.
    pub candidate_sets: Vec<(CandidateSetId, bool)>,
}

impl PlacementRunner {
    pub fn new(id: RunnerId) -> Self {
        Self {
            id,
            profile: EffectiveProfile::default(),
            is_connected: false,
            availability: Default::default(),
            in_flight: [0; ExecutorKind::ALL.len()],
            candidate_sets: Vec::new(),
        }
    }
}

impl Ready {
    /// Adds a runner that is not connected yet, under a new index or that of an expired one.
    pub fn add_runner(&mut self, index: RunnerIndex, id: RunnerId) {
        let runner = PlacementRunner::new(id);
        match self.runners.get_mut(index.0 as usize) {
            Some(expired) => *expired = runner,
            None => self.runners.push(runner),
        }
    }

    pub fn runner(&self, index: RunnerIndex) -> Option<&PlacementRunner> {
        self.runners.get(index.0 as usize)
    }

    /// The candidate set of a requirement; existing or new.
    pub(crate) fn candidate_set_of(&mut self, requirement: RequirementId) -> Option<CandidateSetId> {
        let known = self.requirements.get(requirement)?;
        if let Some((id, generation)) = known.candidate_set
            && let Some(candidate_set) = self.candidate_sets.get_mut(id.0 as usize).and_then(Option::as_mut)
            && candidate_set.generation == generation
        {
            candidate_set.used = true;
            return Some(id);
        }
        let key = &known.key;
        let runner_class = RunnerClassKey { pools: key.pools(&self.settings), requires: key.requires.clone() };
        let key = CandidateSetKey { executor: key.executor, runner_class, labels: key.labels.clone() };
        let id = match self.set_by_key.get(&key) {
            Some(id) => *id,
            None => self.add_candidate_set(Arc::new(key)),
        };
        let generation = self.candidate_set(id)?.generation;
        self.requirements.get_mut(requirement)?.candidate_set = Some((id, generation));
        Some(id)
    }

    /// The rarest label or capability that all eligible runners have; none if only pools are required.
    fn rarest_attribute(&self, key: &CandidateSetKey) -> Option<Attribute> {
        let labels = key.labels.iter().map(|(name, value)| Attribute::Label(name.clone(), value.clone()));
        let capabilities = key.runner_class.requires.iter().cloned().map(Attribute::Capability);
        labels.chain(capabilities).min_by_key(|attribute| self.runners_by_attribute.count(attribute))
    }

    /// All runners in any of the pools, without duplicates.
    fn in_pools(&self, pools: &[String]) -> Vec<RunnerIndex> {
        let attributes: Vec<Attribute> = pools.iter().cloned().map(Attribute::Pool).collect();
        match attributes.as_slice() {
            [attribute] => self.runners_by_attribute.by(attribute).collect(),
            attributes => {
                let all: BTreeSet<RunnerIndex> =
                    attributes.iter().flat_map(|attribute| self.runners_by_attribute.by(attribute)).collect();
                all.into_iter().collect()
            }
        }
    }

    fn eligible_runners(&self, key: &CandidateSetKey) -> Vec<RunnerIndex> {
        let mut found: Vec<RunnerIndex> = match self.rarest_attribute(key) {
            Some(attribute) => self.runners_by_attribute.by(&attribute).collect(),
            None => self.in_pools(&key.runner_class.pools),
        };
        found.retain(|index| self.runner(*index).is_some_and(|runner| key.check(&runner.profile).is_ok()));
        found
    }

    fn add_candidate_set(&mut self, key: Arc<CandidateSetKey>) -> CandidateSetId {
        self.evict_idle_candidate_sets();
        let number = self.free_set_ids.pop().unwrap_or(self.candidate_sets.len() as u32);
        let id = CandidateSetId(number);
        if number as usize == self.candidate_sets.len() {
            self.candidate_sets.push(None);
        }
        let filed_under = match self.rarest_attribute(&key) {
            Some(attribute) => vec![attribute],
            None => key.runner_class.pools.iter().cloned().map(Attribute::Pool).collect(),
        };
        for attribute in &filed_under {
            self.sets_by_attribute.add(attribute.clone(), id);
        }
        let pools = self.in_pools_if_new(&key.runner_class);
        let runners = &self.runners;
        let profile = || pools.iter().map(|index| &runners[index.0 as usize].profile).collect();
        self.runner_classes.join(&key.runner_class, profile);
        self.next_generation += 1;
        let mut candidate_set = CandidateSet::new(key.clone(), self.next_generation, filed_under);
        for index in self.eligible_runners(&key) {
            let runner = &mut self.runners[index.0 as usize];
            let excludes_overloaded = key.excludes_overloaded(&runner.profile, &self.settings);
            runner.candidate_sets.push((id, excludes_overloaded));
            candidate_set.eligible += 1;
            candidate_set.count(
                (runner.id, index),
                excludes_overloaded,
                Some(runner.availability[key.executor as usize]),
                None,
            );
        }
        for class in &mut candidate_set.classes {
            class.set_contended(candidate_set.eligible > 0, &mut self.tenants);
        }
        self.candidate_sets[number as usize] = Some(candidate_set);
        self.set_by_key.insert(key, id);
        id
    }

    fn in_pools_if_new(&self, runner_class: &RunnerClassKey) -> Vec<RunnerIndex> {
        if self.runner_classes.is_known(runner_class) { Vec::new() } else { self.in_pools(&runner_class.pools) }
    }

    /// Evicts some candidate sets that are idle and were not used since the last check.
    fn evict_idle_candidate_sets(&mut self) {
        for _ in 0..EVICTION_CHECKS_MAX {
            if self.set_by_key.len() < IDLE_CANDIDATE_SETS_MAX {
                return;
            }
            self.eviction_cursor = (self.eviction_cursor + 1) % self.candidate_sets.len();
            let Some(candidate_set) = &mut self.candidate_sets[self.eviction_cursor] else { continue };
            let needed = std::mem::take(&mut candidate_set.used) || candidate_set.waiting > 0;
            if !needed {
                self.drop_candidate_set(CandidateSetId(self.eviction_cursor as u32));
            }
        }
    }

    fn drop_candidate_set(&mut self, id: CandidateSetId) {
        let Some(candidate_set) = self.candidate_sets.get(id.0 as usize).and_then(Option::as_ref) else {
            return self.anomalies.note(Anomaly::MissingCandidateSet(id.0), "drop candidate set");
        };
        for index in self.eligible_runners(&candidate_set.key.clone()) {
            self.runners[index.0 as usize].candidate_sets.retain(|(other, _)| *other != id);
        }
        self.deactivate(id);
        let Some(candidate_set) = self.candidate_sets[id.0 as usize].take() else {
            return self.anomalies.note(Anomaly::MissingCandidateSet(id.0), "drop candidate set");
        };
        for attribute in &candidate_set.filed_under {
            self.sets_by_attribute.remove(attribute, id);
        }
        self.runner_classes.leave(&candidate_set.key.runner_class);
        self.set_by_key.remove(&candidate_set.key);
        self.unarmed_sets.remove(&id);
        self.free_set_ids.push(id.0);
    }

    /// Changes the runners of a candidate set and updates its waiting jobs accordingly.
    fn change_candidate_set(&mut self, id: CandidateSetId, change: impl FnOnce(&mut CandidateSet)) {
        let Some(candidate_set) = self.candidate_sets.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return self.anomalies.note(Anomaly::MissingCandidateSet(id.0), "change candidate set");
        };
        let (was_unplaced, had_eligible) =
            (candidate_set.waiting > 0 && candidate_set.unplaced().is_some(), candidate_set.eligible > 0);
        change(candidate_set);
        if had_eligible != (candidate_set.eligible > 0) {
            for class in &mut candidate_set.classes {
                class.set_contended(!had_eligible, &mut self.tenants);
            }
        }
        if candidate_set.waiting == 0 {
            return;
        }
        if candidate_set.unplaced().is_some() && !was_unplaced {
            self.begin_arming_timers(id);
        }
        self.activate(id);
    }

    /// Adds a connected runner with its profile to the indexes and its candidate sets.
    pub fn runner_joins(&mut self, index: RunnerIndex, profile: EffectiveProfile) {
        let Some(runner) = self.runners.get_mut(index.0 as usize) else {
            return self.anomalies.note(Anomaly::MissingRunnerIndex(index.0), "runner joins");
        };
        runner.is_connected = true;
        runner.profile = profile;
        let attributes = runner.profile.attributes();
        self.connected += 1;
        self.runner_classes.count(&runner.profile, true);
        let mut found = BTreeSet::new();
        for attribute in attributes {
            found.extend(self.sets_by_attribute.by(&attribute));
            self.runners_by_attribute.add(attribute, index);
        }
        for id in found {
            let Some(candidate_set) = self.candidate_set(id) else { continue };
            let runner = &self.runners[index.0 as usize];
            if candidate_set.key.check(&runner.profile).is_err() {
                continue;
            }
            let excludes_overloaded = candidate_set.key.excludes_overloaded(&runner.profile, &self.settings);
            let (runner_id, availability) = (runner.id, runner.availability[candidate_set.key.executor as usize]);
            self.runners[index.0 as usize].candidate_sets.push((id, excludes_overloaded));
            self.change_candidate_set(id, |candidate_set| {
                candidate_set.eligible += 1;
                candidate_set.count((runner_id, index), excludes_overloaded, Some(availability), None);
            });
        }
    }

    pub fn runner_leaves(&mut self, index: RunnerIndex) {
        let Some(runner) = self.runners.get_mut(index.0 as usize).filter(|runner| runner.is_connected) else { return };
        runner.is_connected = false;
        self.connected -= 1;
        self.runner_classes.count(&runner.profile, false);
        let (id, availability) = (runner.id, runner.availability);
        for attribute in runner.profile.attributes() {
            self.runners_by_attribute.remove(&attribute, index);
        }
        for (candidate_set, excludes_overloaded) in std::mem::take(&mut self.runners[index.0 as usize].candidate_sets) {
            self.change_candidate_set(candidate_set, |candidate_set| {
                candidate_set.eligible -= 1;
                candidate_set.count(
                    (id, index),
                    excludes_overloaded,
                    None,
                    Some(availability[candidate_set.key.executor as usize]),
                );
            });
        }
    }

    /// Updates the free slots and the load of a runner.
    pub fn runner_availability(
        &mut self,
        index: RunnerIndex,
        availability: [Availability; ExecutorKind::ALL.len()],
        in_flight: [u32; ExecutorKind::ALL.len()],
    ) {
        let Some(runner) = self.runners.get_mut(index.0 as usize) else {
            return self.anomalies.note(Anomaly::MissingRunnerIndex(index.0), "runner availability");
        };
        for (executor, all) in self.in_flight.iter_mut().enumerate() {
            *all = *all + in_flight[executor] - runner.in_flight[executor];
        }
        runner.in_flight = in_flight;
        let old = std::mem::replace(&mut runner.availability, availability);
        if old == availability {
            return;
        }
        let id = runner.id;
        for at in 0..self.runners[index.0 as usize].candidate_sets.len() {
            let (candidate_set, excludes_overloaded) = self.runners[index.0 as usize].candidate_sets[at];
            if self.candidate_set(candidate_set).is_none_or(|candidate_set| {
                old[candidate_set.key.executor as usize] == availability[candidate_set.key.executor as usize]
            }) {
                continue;
            }
            self.change_candidate_set(candidate_set, |candidate_set| {
                let executor = candidate_set.key.executor as usize;
                candidate_set.count(
                    (id, index),
                    excludes_overloaded,
                    Some(availability[executor]),
                    Some(old[executor]),
                );
            });
        }
    }

    /// Counts all connected runners by their eligibility for a candidate set.
    pub fn counts(&self, candidate_set: &CandidateSet) -> Placement {
        let runner_class = self.runner_classes.get(&candidate_set.key.runner_class);
        Placement {
            score_milli: 0,
            preferred: false,
            available: candidate_set.available,
            busy: candidate_set.eligible - candidate_set.available,
            other_pool: self.connected - runner_class.in_pools,
            lack_capability: runner_class.in_pools - runner_class.capable,
            other_labels: runner_class.capable - candidate_set.eligible,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::spec::Requirements;
    use model::time::Millis;

    use super::*;
    use crate::settings::Settings;

    fn requiring(name: usize) -> Requirements {
        Requirements { labels: vec![("name".to_owned(), name.to_string())], ..Requirements::default() }
    }

    #[test]
    fn unused_candidate_sets_and_requirements_are_evicted() {
        let shards = model::id::Shards::new(1).unwrap();
        let leases = crate::leases::Leases::new(model::id::ShardId(0), shards, model::id::Epoch(1));
        let mut ready = Ready::new(Arc::new(Settings::default()), leases, Millis(1), Millis(1));
        let often = ready.join_requirement(ExecutorKind::Echo, requiring(0));
        let kept = ready.candidate_set_of(often);
        for name in 1..10 * IDLE_CANDIDATE_SETS_MAX {
            let requirement = ready.join_requirement(ExecutorKind::Echo, requiring(name));
            assert!(ready.candidate_set_of(requirement).is_some());
            ready.leave_requirement(requirement);
            assert_eq!(ready.candidate_set_of(often), kept, "a used candidate set stays");
        }
        assert!(
            ready.set_by_key.len() <= IDLE_CANDIDATE_SETS_MAX + EVICTION_CHECKS_MAX,
            "{} candidate sets",
            ready.set_by_key.len()
        );
        assert_eq!(ready.requirements.ids(), [often]);
        assert_eq!(ready.candidate_sets.iter().flatten().count(), ready.set_by_key.len());
    }
}
