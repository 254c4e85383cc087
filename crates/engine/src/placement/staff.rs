//! What runners are, and by what they are found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::message::Profile;

use crate::setup::{DEFAULT_POOL, Setup};
use crate::shard::Map;

/// A runner's number within this shard's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunnerIndex(pub u32);

/// Something that a runner is, has or can, by which it and those who need it find each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Fact {
    Label(String, String),
    Capability(String),
    Pool(String),
}

/// A runner's profile together with what its pools add to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Traits {
    profile: Arc<Profile>,
    /// What its pools have and it does not name itself.
    added: BTreeSet<String>,
}

impl Traits {
    pub fn new(profile: Arc<Profile>, setup: &Setup) -> Self {
        let mut traits = Self { profile, added: BTreeSet::new() };
        let pools = traits.pools().filter_map(|name| setup.pools.get(name));
        let added = pools.flat_map(|pool| pool.capabilities.iter());
        let added: BTreeSet<String> =
            added.filter(|name| !traits.profile.capabilities.contains(*name)).cloned().collect();
        traits.added = added;
        traits
    }

    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    pub fn pools(&self) -> impl Iterator<Item = &str> {
        let default = self.profile.pools.is_empty().then_some(DEFAULT_POOL);
        self.profile.pools.iter().map(String::as_str).chain(default)
    }

    pub fn is_in(&self, pool: &str) -> bool {
        if self.profile.pools.is_empty() { pool == DEFAULT_POOL } else { self.profile.pools.contains(pool) }
    }

    pub fn is_in_any(&self, pools: &[String]) -> bool {
        pools.iter().any(|pool| self.is_in(pool))
    }

    fn has_capability(&self, name: &String) -> bool {
        self.profile.capabilities.contains(name) || self.added.contains(name)
    }

    pub fn can(&self, requires: &[String]) -> bool {
        requires.iter().all(|name| self.has_capability(name))
    }

    pub fn missing(&self, requires: &[String]) -> Vec<String> {
        requires.iter().filter(|name| !self.has_capability(name)).cloned().collect()
    }

    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.profile.labels
    }

    pub fn has_labels(&self, labels: &[(String, String)]) -> bool {
        labels.iter().all(|(name, value)| self.profile.labels.get(name) == Some(value))
    }

    /// Everything by which it can be found.
    pub fn facts(&self) -> Vec<Fact> {
        let labels = self.profile.labels.iter().map(|(name, value)| Fact::Label(name.clone(), value.clone()));
        let capabilities = self.profile.capabilities.iter().chain(&self.added).cloned().map(Fact::Capability);
        labels.chain(capabilities).chain(self.pools().map(|pool| Fact::Pool(pool.to_owned()))).collect()
    }
}

/// Who or what is found by which facts.
#[derive(Debug)]
pub(crate) struct Found<T> {
    by_fact: Map<Fact, BTreeSet<T>>,
}

impl<T> Default for Found<T> {
    fn default() -> Self {
        Self { by_fact: Map::default() }
    }
}

impl<T: Copy + Ord> Found<T> {
    pub fn add(&mut self, fact: Fact, what: T) {
        self.by_fact.entry(fact).or_default().insert(what);
    }

    pub fn remove(&mut self, fact: &Fact, what: T) {
        if let Some(all) = self.by_fact.get_mut(fact) {
            all.remove(&what);
            if all.is_empty() {
                self.by_fact.remove(fact);
            }
        }
    }

    pub fn by(&self, fact: &Fact) -> impl Iterator<Item = T> {
        self.by_fact.get(fact).into_iter().flatten().copied()
    }

    pub fn count(&self, fact: &Fact) -> usize {
        self.by_fact.get(fact).map_or(0, BTreeSet::len)
    }
}
