//! Definitions of workflows, stored once by the digest of their content.
//!
//! Workflows and schedules refer to a definition by its digest. An index lists the users of each definition; a sweep
//! deletes definitions without any.

use bytes::Bytes;
use model::batch::Keyspace;
use model::key::{self, DEFINITION_MARKER};
use model::spec::Digest;
use model::time::Millis;

use crate::fetch::{Fetch, Fetched};
use crate::input::Effect;
use crate::shard::{Map, Set, Shard};
use crate::step::Step;

/// Definitions used by workflows and schedules in memory, and the sweep over all of them.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// Users in memory. A definition with any is stored.
    users: Map<Digest, u32>,
    sweep: DefinitionSweep,
}

#[derive(Debug, Default)]
struct DefinitionSweep {
    /// Time of the next fetch.
    next: Millis,
    /// Sweep cursor.
    after: Option<Digest>,
    /// A fetch is in progress.
    fetching: bool,
    /// Definitions that got a user while a fetch was in progress: its answer about them is outdated.
    touched: Set<Digest>,
}

impl Definitions {
    /// Time of the next sweep, unless one is in progress.
    pub fn next_sweep(&self) -> Option<Millis> {
        (!self.sweep.fetching).then_some(self.sweep.next)
    }

    /// Counts a user that was restored or fetched.
    pub fn join(&mut self, digest: Digest) {
        *self.users.entry(digest).or_default() += 1;
    }

    /// A user has left memory. Its definition stays stored.
    pub fn leave(&mut self, digest: Digest) {
        if let Some(users) = self.users.get_mut(&digest) {
            *users -= 1;
            if *users == 0 {
                self.users.remove(&digest);
            }
        }
    }

    /// Counts a new user. Returns whether the definition has to be stored: another user in memory has not done so.
    fn add(&mut self, digest: Digest) -> bool {
        if self.sweep.fetching {
            self.sweep.touched.insert(digest);
        }
        let users = self.users.entry(digest).or_default();
        *users += 1;
        *users == 1
    }
}

impl Shard {
    /// Adds a new workflow or schedule to the users of a definition, and stores the definition unless it is stored.
    pub(super) fn use_definition(&mut self, digest: Digest, source: &Bytes, user: u64, step: &mut Step) {
        if self.workflows.definitions.add(digest) {
            step.batch.put(Keyspace::Definitions, &digest.0, source);
            step.batch.put(Keyspace::ByDefinition, &key::by_definition(digest, DEFINITION_MARKER), &[]);
        }
        step.batch.put(Keyspace::ByDefinition, &key::by_definition(digest, user), &[]);
    }

    /// Requests the next definitions without users when the sweep is due.
    pub(super) fn sweep_definitions(&mut self, step: &mut Step) {
        let sweep = &mut self.workflows.definitions.sweep;
        if self.now < sweep.next || sweep.fetching {
            return;
        }
        sweep.next = self.now + self.config.sweep_interval;
        sweep.fetching = true;
        let limit = self.config.sweep_chunk;
        step.effects.push(Effect::Fetch(Fetch::UnusedDefinitions { after: sweep.after, limit }));
    }

    /// Deletes definitions without users.
    pub(crate) fn fetched_unused_definitions(&mut self, unused: Vec<Digest>, after: Option<Digest>, step: &mut Step) {
        let Definitions { users, sweep } = &mut self.workflows.definitions;
        sweep.fetching = false;
        sweep.after = after;
        if after.is_some() {
            sweep.next = self.now;
        }
        let touched = std::mem::take(&mut sweep.touched);
        for digest in unused.into_iter().filter(|digest| !users.contains_key(digest) && !touched.contains(digest)) {
            step.batch.delete(Keyspace::Definitions, &digest.0);
            step.batch.delete(Keyspace::ByDefinition, &key::by_definition(digest, DEFINITION_MARKER));
        }
    }
}

/// Answers [`Fetch::UnusedDefinitions`]. `next_keys` reads the first two keys of the index after the given one: they
/// tell whether a definition has users, however many there are.
pub fn find_unused_definitions<K: AsRef<[u8]>, E>(
    mut after: Option<Digest>,
    limit: usize,
    mut next_keys: impl FnMut(Option<[u8; 24]>) -> Result<Vec<K>, E>,
) -> Result<Fetched, E> {
    let mut unused = Vec::new();
    for _ in 0..limit {
        let keys = next_keys(after.map(|digest| key::by_definition(digest, u64::MAX)))?;
        let [first, second] = [0, 1].map(|index| keys.get(index).map(AsRef::as_ref));
        let Some((digest, is_unused)) = next_definition(first, second) else {
            return Ok(Fetched::UnusedDefinitions { unused, after: None });
        };
        unused.extend(is_unused.then_some(digest));
        after = Some(digest);
    }
    Ok(Fetched::UnusedDefinitions { unused, after })
}

/// The definition of the first key, and whether it has no users. None: there is no other definition.
fn next_definition(first: Option<&[u8]>, second: Option<&[u8]>) -> Option<(Digest, bool)> {
    let (digest, user) = key::user_of_definition(first?)?;
    let is_used = second.and_then(key::user_of_definition).is_some_and(|(other, _)| other == digest);
    Some((digest, user == DEFINITION_MARKER && !is_used))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(keys: &[(u8, u64)]) -> Option<(u8, bool)> {
        let keys: Vec<_> = keys.iter().map(|(digest, user)| key::by_definition(Digest([*digest; 16]), *user)).collect();
        let [first, second] = [0, 1].map(|index| keys.get(index).map(<[u8; 24]>::as_slice));
        next_definition(first, second).map(|(digest, is_unused)| (digest.0[0], is_unused))
    }

    #[test]
    fn a_definition_with_only_its_marker_is_unused() {
        assert_eq!(next(&[(1, 0), (1, 7)]), Some((1, false)));
        assert_eq!(next(&[(1, 0), (2, 0)]), Some((1, true)));
        assert_eq!(next(&[(1, 0)]), Some((1, true)));
        assert_eq!(next(&[(1, 7)]), Some((1, false)), "a user without the marker");
        assert_eq!(next(&[]), None);
    }
}
