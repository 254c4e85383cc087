//! How many runners belong to some pools, and how many of those can do what is asked. Asks that differ in labels only
//! share one, so that nobody has to be counted for each of them.

use crate::placement::staff::Traits;
use crate::shard::Map;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CrewKey {
    pub pools: Vec<String>,
    pub requires: Vec<String>,
}

/// Runners that are here, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Crew {
    pub in_pools: u32,
    /// Of those: with everything that is required.
    pub capable: u32,
    fits: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Crews {
    by_key: Map<CrewKey, Crew>,
}

impl Crews {
    pub fn get(&self, key: &CrewKey) -> Crew {
        self.by_key.get(key).copied().unwrap_or_default()
    }

    pub fn is_known(&self, key: &CrewKey) -> bool {
        self.by_key.contains_key(key)
    }

    /// One more fit needs it. `runners` are all that may belong to its pools.
    pub fn join<'a>(&mut self, key: &CrewKey, runners: impl FnOnce() -> Vec<&'a Traits>) {
        if let Some(crew) = self.by_key.get_mut(key) {
            crew.fits += 1;
            return;
        }
        let mut crew = Crew { fits: 1, ..Crew::default() };
        for traits in runners() {
            crew.count(key, traits, true);
        }
        self.by_key.insert(key.clone(), crew);
    }

    pub fn leave(&mut self, key: &CrewKey) {
        if let Some(crew) = self.by_key.get_mut(key) {
            crew.fits -= 1;
            if crew.fits == 0 {
                self.by_key.remove(key);
            }
        }
    }

    /// A runner has come or gone.
    pub fn count(&mut self, traits: &Traits, comes: bool) {
        for (key, crew) in &mut self.by_key {
            crew.count(key, traits, comes);
        }
    }
}

impl Crew {
    fn count(&mut self, key: &CrewKey, traits: &Traits, comes: bool) {
        let shift = |number: &mut u32| *number = if comes { *number + 1 } else { *number - 1 };
        if traits.is_in_any(&key.pools) {
            shift(&mut self.in_pools);
            if traits.can(&key.requires) {
                shift(&mut self.capable);
            }
        }
    }
}
