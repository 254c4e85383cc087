//! Limits of a guest's memories and tables, and its peak memory.

use wasmtime::ResourceLimiter;

use crate::{CORE_INSTANCES_MAX, MEMORIES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX};

/// Limiter for the total of one guest's memories.
///
/// Granted growth stays counted even if it then fails for lack of physical memory. The engine also reports failures of
/// growth that it never requested here; a guest could use these to get its granted memory uncounted.
#[derive(Debug)]
pub struct MemoryLimiter {
    bytes_max: u64,
    bytes: u64,
    peak_bytes: u64,
    refused: bool,
}

impl MemoryLimiter {
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, bytes: 0, peak_bytes: 0, refused: false }
    }

    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Whether a growth beyond the limit was refused.
    pub fn was_refused(&self) -> bool {
        self.refused
    }
}

impl ResourceLimiter for MemoryLimiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        // The engine refuses growth beyond the module's own maximum. That is not a matter of this limit.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let growth = (desired - current) as u64;
        let granted = self.bytes.checked_add(growth).is_some_and(|bytes| bytes <= self.bytes_max);
        if granted {
            self.bytes += growth;
            self.peak_bytes = self.peak_bytes.max(self.bytes);
        } else {
            self.refused = true;
        }
        Ok(granted)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= maximum.unwrap_or(usize::MAX).min(TABLE_ELEMENTS_MAX))
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES_MAX as usize
    }

    fn tables(&self) -> usize {
        TABLES_MAX as usize
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_memories_share_one_limit() {
        let mut memory = MemoryLimiter::new(100);
        assert!(memory.memory_growing(0, 60, None).unwrap());
        assert!(memory.memory_growing(0, 40, None).unwrap());
        assert!(!memory.was_refused());
        assert!(!memory.memory_growing(60, 61, None).unwrap());
        assert!(memory.was_refused());
        assert_eq!(memory.peak_bytes(), 100);
    }

    #[test]
    fn growth_beyond_the_modules_own_maximum_is_not_recorded_as_refused() {
        let mut memory = MemoryLimiter::new(100);
        assert!(!memory.memory_growing(0, 60, Some(50)).unwrap());
        assert!(!memory.was_refused());
    }

    #[test]
    fn growth_that_fails_later_stays_counted() {
        let mut memory = MemoryLimiter::new(100);
        assert!(memory.memory_growing(0, 80, None).unwrap());
        memory.memory_grow_failed(wasmtime::Error::msg("beyond the type's limits")).unwrap();
        assert!(!memory.memory_growing(80, 160, None).unwrap());
    }

    #[test]
    fn a_table_grows_up_to_its_limit() {
        let mut memory = MemoryLimiter::new(0);
        assert!(memory.table_growing(0, TABLE_ELEMENTS_MAX, None).unwrap());
        assert!(!memory.table_growing(0, TABLE_ELEMENTS_MAX + 1, None).unwrap());
    }
}
