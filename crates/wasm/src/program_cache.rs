//! In-memory LRU cache of prepared programs. Concurrent requests for one component prepare it once.

use std::sync::Arc;

use hashbrown::HashMap;
use model::blob::BlobId;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::error::PrepareError;
use crate::program::{Metering, Program};

/// Result of preparing a component. Permanent errors are cached too, so that they are not compiled again.
pub(crate) type PrepareResult = Result<Arc<Program>, PrepareError>;

/// A prepared program, or one in preparation. The first caller prepares it, the others wait.
type ProgramCell = Arc<OnceCell<PrepareResult>>;

pub(crate) type ProgramKey = (BlobId, Metering);

/// Reference count of a cell held only by the cache and one caller. Cells are cloned only under the cache's lock, so
/// the count is exact while the lock is held.
const UNSHARED_COUNT: usize = 2;

pub(crate) struct ProgramCache {
    count_max: usize,
    bytes_max: usize,
    lru: Mutex<Lru>,
}

#[derive(Default)]
struct Lru {
    entries: HashMap<ProgramKey, CachedProgram, foldhash::fast::FixedState>,
    /// Source of `last_use`.
    clock: u64,
}

struct CachedProgram {
    cell: ProgramCell,
    last_use: u64,
}

impl ProgramCache {
    pub fn new(count_max: usize, bytes_max: usize) -> Self {
        Self { count_max, bytes_max, lru: Mutex::default() }
    }

    /// The result, if already known.
    pub fn get(&self, key: ProgramKey) -> Option<PrepareResult> {
        let mut lru = self.lru.lock();
        let prepared = lru.entries.get(&key)?.cell.get()?.clone();
        lru.touch(key);
        Some(prepared)
    }

    /// The cell of a program, existing or new. The guard updates the cache on drop, whether or not the cell was filled.
    pub fn acquire(&self, key: ProgramKey) -> CellGuard<'_> {
        CellGuard { programs: self, key, cell: self.cell(key) }
    }

    fn cell(&self, key: ProgramKey) -> ProgramCell {
        let mut lru = self.lru.lock();
        let cell = lru
            .entries
            .entry(key)
            .or_insert_with(|| CachedProgram { cell: ProgramCell::default(), last_use: 0 })
            .cell
            .clone();
        lru.touch(key);
        cell
    }

    /// Evicts others if the cell was filled; removes the cell if it is empty and unshared.
    fn release(&self, key: ProgramKey, cell: &ProgramCell) {
        let mut lru = self.lru.lock();
        if cell.initialized() {
            lru.entries.entry(key).or_insert_with(|| CachedProgram { cell: cell.clone(), last_use: 0 });
            lru.touch(key);
            while lru.exceeds(self.count_max, self.bytes_max) && lru.evict_oldest(key) {}
        } else if Arc::strong_count(cell) == UNSHARED_COUNT {
            lru.entries.remove(&key);
        }
    }
}

/// A caller's use of a cell.
pub(crate) struct CellGuard<'a> {
    programs: &'a ProgramCache,
    key: ProgramKey,
    pub cell: ProgramCell,
}

impl Drop for CellGuard<'_> {
    fn drop(&mut self) {
        self.programs.release(self.key, &self.cell);
    }
}

impl Lru {
    fn touch(&mut self, key: ProgramKey) {
        self.clock += 1;
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.last_use = self.clock;
        }
    }

    fn exceeds(&self, count_max: usize, bytes_max: usize) -> bool {
        self.entries.len() > count_max || self.entries.values().map(CachedProgram::bytes).sum::<usize>() > bytes_max
    }

    /// Evicts the least recently used prepared program except `retained`. Returns whether there was one.
    fn evict_oldest(&mut self, retained: ProgramKey) -> bool {
        let finished = self.entries.iter().filter(|(key, entry)| **key != retained && entry.cell.initialized());
        let oldest = finished.min_by_key(|(_, entry)| entry.last_use).map(|(key, _)| *key);
        oldest.is_some_and(|key| self.entries.remove(&key).is_some())
    }
}

impl CachedProgram {
    fn bytes(&self) -> usize {
        match self.cell.get() {
            Some(Ok(program)) => program.code_bytes(),
            Some(Err(_)) | None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> ProgramKey {
        (BlobId([number; 32]), Metering::Off)
    }

    fn put(programs: &ProgramCache, number: u8) {
        programs.acquire(key(number)).cell.set(Err(PrepareError::NoEntry)).unwrap();
    }

    #[test]
    fn the_least_recently_used_program_is_evicted() {
        let programs = ProgramCache::new(2, usize::MAX);
        put(&programs, 1);
        put(&programs, 2);
        assert!(programs.get(key(1)).is_some());
        put(&programs, 3);
        assert!(programs.get(key(1)).is_some());
        assert!(programs.get(key(2)).is_none());
        assert!(programs.get(key(3)).is_some());
    }

    #[test]
    fn a_program_in_preparation_is_not_evicted() {
        let programs = ProgramCache::new(1, usize::MAX);
        let guard = programs.acquire(key(1));
        put(&programs, 2);
        put(&programs, 3);
        assert!(Arc::ptr_eq(&guard.cell, &programs.acquire(key(1)).cell));
    }

    #[test]
    fn an_empty_cell_is_removed_with_its_last_guard() {
        let programs = ProgramCache::new(1, usize::MAX);
        let (first, second) = (programs.acquire(key(1)), programs.acquire(key(1)));
        drop(first);
        assert_eq!(programs.lru.lock().entries.len(), 1);
        drop(second);
        assert_eq!(programs.lru.lock().entries.len(), 0);
    }
}
