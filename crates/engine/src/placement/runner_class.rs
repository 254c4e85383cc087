//! Runner classes: counts of runners with the same pools and capabilities. Requirements that differ only in labels
//! share a class, so that runners are not counted once per requirement.

use crate::placement::attributes::EffectiveProfile;
use crate::shard::Map;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RunnerClassKey {
    pub pools: Vec<String>,
    pub requires: Vec<String>,
}

/// Counts of connected runners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RunnerClass {
    pub in_pools: u32,
    /// Runners in the pools with all required capabilities.
    pub capable: u32,
    candidate_sets: u32,
}

#[derive(Debug, Default)]
pub(crate) struct RunnerClasses {
    by_key: Map<RunnerClassKey, RunnerClass>,
}

impl RunnerClasses {
    pub fn get(&self, key: &RunnerClassKey) -> RunnerClass {
        self.by_key.get(key).copied().unwrap_or_default()
    }

    pub fn is_known(&self, key: &RunnerClassKey) -> bool {
        self.by_key.contains_key(key)
    }

    /// Adds a candidate set to its class. `runners` are all runners in its pools.
    pub fn join<'a>(&mut self, key: &RunnerClassKey, runners: impl FnOnce() -> Vec<&'a EffectiveProfile>) {
        if let Some(runner_class) = self.by_key.get_mut(key) {
            runner_class.candidate_sets += 1;
            return;
        }
        let mut runner_class = RunnerClass { candidate_sets: 1, ..RunnerClass::default() };
        for profile in runners() {
            runner_class.count(key, profile, true);
        }
        self.by_key.insert(key.clone(), runner_class);
    }

    pub fn leave(&mut self, key: &RunnerClassKey) {
        if let Some(runner_class) = self.by_key.get_mut(key) {
            runner_class.candidate_sets -= 1;
            if runner_class.candidate_sets == 0 {
                self.by_key.remove(key);
            }
        }
    }

    /// Counts a runner that joins or leaves.
    pub fn count(&mut self, profile: &EffectiveProfile, joins: bool) {
        for (key, runner_class) in &mut self.by_key {
            runner_class.count(key, profile, joins);
        }
    }
}

impl RunnerClass {
    fn count(&mut self, key: &RunnerClassKey, profile: &EffectiveProfile, joins: bool) {
        let shift = |number: &mut u32| *number = if joins { *number + 1 } else { *number - 1 };
        if profile.is_in_any(&key.pools) {
            shift(&mut self.in_pools);
            if profile.has_capabilities(&key.requires) {
                shift(&mut self.capable);
            }
        }
    }
}
