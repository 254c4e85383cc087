//! The programs in memory, each made once however many ask for it at the same time.

use std::sync::Arc;

use hashbrown::HashMap;
use model::blob::BlobId;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::error::Refused;
use crate::program::{Metering, Program};

/// What preparing a component came to. Refusals that are final are kept too: nobody compiles in vain twice.
pub(crate) type Prepared = Result<Arc<Program>, Refused>;

/// Where a program is, or will be. Whoever comes first makes it, the others wait.
type Place = Arc<OnceCell<Prepared>>;

pub(crate) type Key = (BlobId, Metering);

/// How often a place is held if nobody but the shelf and the asker has it. Places are handed out under the
/// shelf's lock alone, so under the lock this is certain.
const NOBODY_ELSE: usize = 2;

/// The most recently used programs.
pub(crate) struct Programs {
    count_max: usize,
    bytes_max: usize,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    entries: HashMap<Key, Entry, foldhash::fast::FixedState>,
    /// Counts uses.
    clock: u64,
}

struct Entry {
    place: Place,
    used: u64,
}

impl Programs {
    pub fn new(count_max: usize, bytes_max: usize) -> Self {
        Self { count_max, bytes_max, shelf: Mutex::default() }
    }

    /// If it is there already.
    pub fn get(&self, key: Key) -> Option<Prepared> {
        let mut shelf = self.shelf.lock();
        let prepared = shelf.entries.get(&key)?.place.get()?.clone();
        shelf.touch(key);
        Some(prepared)
    }

    /// Where it is, or is to be put. Whoever asks for it leaves the shelf tidy, whether they put something there
    /// or give up.
    pub fn visit(&self, key: Key) -> Visit<'_> {
        Visit { programs: self, key, place: self.place(key) }
    }

    fn place(&self, key: Key) -> Place {
        let mut shelf = self.shelf.lock();
        let place =
            shelf.entries.entry(key).or_insert_with(|| Entry { place: Place::default(), used: 0 }).place.clone();
        shelf.touch(key);
        place
    }

    /// Something was put in its place, or could not be: makes room for it, or forgets the place.
    fn settle(&self, key: Key, place: &Place) {
        let mut shelf = self.shelf.lock();
        if place.initialized() {
            shelf.entries.entry(key).or_insert_with(|| Entry { place: place.clone(), used: 0 });
            shelf.touch(key);
            while shelf.is_beyond(self.count_max, self.bytes_max) && shelf.drop_oldest(key) {}
        } else if Arc::strong_count(place) == NOBODY_ELSE {
            shelf.entries.remove(&key);
        }
    }
}

/// One who waits for a program, or makes it.
pub(crate) struct Visit<'a> {
    programs: &'a Programs,
    key: Key,
    pub place: Place,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.programs.settle(self.key, &self.place);
    }
}

impl Shelf {
    fn touch(&mut self, key: Key) {
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.used = self.clock;
        }
    }

    fn is_beyond(&self, count_max: usize, bytes_max: usize) -> bool {
        self.entries.len() > count_max || self.entries.values().map(Entry::bytes).sum::<usize>() > bytes_max
    }

    /// Drops the least recently used that is finished, but not `kept`; whether there was one.
    fn drop_oldest(&mut self, kept: Key) -> bool {
        let finished = self.entries.iter().filter(|(key, entry)| **key != kept && entry.place.initialized());
        let oldest = finished.min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
        oldest.is_some_and(|key| self.entries.remove(&key).is_some())
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        match self.place.get() {
            Some(Ok(program)) => program.code_bytes(),
            Some(Err(_)) | None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> Key {
        (BlobId([number; 32]), Metering::Off)
    }

    fn put(programs: &Programs, number: u8) {
        programs.visit(key(number)).place.set(Err(Refused::NoEntry)).unwrap();
    }

    #[test]
    fn the_least_recently_used_goes_when_there_are_too_many() {
        let programs = Programs::new(2, usize::MAX);
        put(&programs, 1);
        put(&programs, 2);
        assert!(programs.get(key(1)).is_some());
        put(&programs, 3);
        assert!(programs.get(key(1)).is_some());
        assert!(programs.get(key(2)).is_none());
        assert!(programs.get(key(3)).is_some());
    }

    #[test]
    fn what_is_being_made_does_not_go() {
        let programs = Programs::new(1, usize::MAX);
        let visit = programs.visit(key(1));
        put(&programs, 2);
        put(&programs, 3);
        assert!(Arc::ptr_eq(&visit.place, &programs.visit(key(1)).place));
    }

    #[test]
    fn a_place_where_nothing_was_put_is_forgotten_when_the_last_one_leaves() {
        let programs = Programs::new(1, usize::MAX);
        let (first, second) = (programs.visit(key(1)), programs.visit(key(1)));
        drop(first);
        assert_eq!(programs.shelf.lock().entries.len(), 1);
        drop(second);
        assert_eq!(programs.shelf.lock().entries.len(), 0);
    }
}
