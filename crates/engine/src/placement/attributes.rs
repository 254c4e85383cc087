//! Runner attributes and indexes by attribute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::message::Profile;
use model::spec::EXCLUSIVE_CAPABILITY;

use crate::settings::{DEFAULT_POOL, Settings};
use crate::shard::Map;

/// A runner's index in this shard's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunnerIndex(pub u32);

/// A runner attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Attribute {
    Label(String, String),
    Capability(String),
    Pool(String),
}

/// A runner's profile with the capabilities of its pools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct EffectiveProfile {
    profile: Arc<Profile>,
    /// Capabilities of its pools that the profile does not list itself.
    added: BTreeSet<String>,
}

impl EffectiveProfile {
    pub fn new(profile: Arc<Profile>, settings: &Settings) -> Self {
        let mut profile = Self { profile, added: BTreeSet::new() };
        let pools = profile.pools().filter_map(|name| settings.pools.get(name));
        let added = pools.flat_map(|pool| pool.capabilities.iter());
        let added: BTreeSet<String> =
            added.filter(|name| !profile.profile.capabilities.contains(*name)).cloned().collect();
        profile.added = added;
        profile
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
        if name == EXCLUSIVE_CAPABILITY {
            return self.profile.keeps_leases;
        }
        self.profile.capabilities.contains(name) || self.added.contains(name)
    }

    pub fn has_capabilities(&self, requires: &[String]) -> bool {
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

    /// All its attributes, for the index.
    pub fn attributes(&self) -> Vec<Attribute> {
        let labels = self.profile.labels.iter().map(|(name, value)| Attribute::Label(name.clone(), value.clone()));
        let listed = self.profile.capabilities.iter().chain(&self.added).filter(|name| *name != EXCLUSIVE_CAPABILITY);
        let keeps_leases = self.profile.keeps_leases.then(|| EXCLUSIVE_CAPABILITY.to_owned());
        let capabilities = listed.cloned().chain(keeps_leases).map(Attribute::Capability);
        labels.chain(capabilities).chain(self.pools().map(|pool| Attribute::Pool(pool.to_owned()))).collect()
    }
}

/// Index from attributes to runners or candidate sets.
#[derive(Debug)]
pub(crate) struct AttributeIndex<T> {
    by_attribute: Map<Attribute, BTreeSet<T>>,
}

impl<T> Default for AttributeIndex<T> {
    fn default() -> Self {
        Self { by_attribute: Map::default() }
    }
}

impl<T: Copy + Ord> AttributeIndex<T> {
    pub fn add(&mut self, attribute: Attribute, what: T) {
        self.by_attribute.entry(attribute).or_default().insert(what);
    }

    pub fn remove(&mut self, attribute: &Attribute, what: T) {
        if let Some(all) = self.by_attribute.get_mut(attribute) {
            all.remove(&what);
            if all.is_empty() {
                self.by_attribute.remove(attribute);
            }
        }
    }

    pub fn by(&self, attribute: &Attribute) -> impl Iterator<Item = T> {
        self.by_attribute.get(attribute).into_iter().flatten().copied()
    }

    pub fn count(&self, attribute: &Attribute) -> usize {
        self.by_attribute.get(attribute).map_or(0, BTreeSet::len)
    }
}
