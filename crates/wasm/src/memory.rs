//! Keeps a guest's memories and tables within their limits, and remembers how far they went.

use wasmtime::ResourceLimiter;

use crate::{CORE_INSTANCES_MAX, MEMORIES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX};

/// The memories of one guest, counted together.
///
/// What was granted stays counted, even if the growth then fails for want of real memory: the engine reports
/// such a failure also for growth it never asked about, and a guest could use that to have its own forgotten.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes_max: u64,
    bytes: u64,
    peak_bytes: u64,
    refused: bool,
}

impl Memory {
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, bytes: 0, peak_bytes: 0, refused: false }
    }

    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Whether the guest wanted more than it may have.
    pub fn was_refused(&self) -> bool {
        self.refused
    }
}

impl ResourceLimiter for Memory {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        // Growing beyond what the module itself declares is refused by the engine: no matter of ours.
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
    fn memories_grow_up_to_their_limit_together() {
        let mut memory = Memory::new(100);
        assert!(memory.memory_growing(0, 60, None).unwrap());
        assert!(memory.memory_growing(0, 40, None).unwrap());
        assert!(!memory.was_refused());
        assert!(!memory.memory_growing(60, 61, None).unwrap());
        assert!(memory.was_refused());
        assert_eq!(memory.peak_bytes(), 100);
    }

    #[test]
    fn what_the_module_itself_rules_out_is_not_a_matter_of_the_limit() {
        let mut memory = Memory::new(100);
        assert!(!memory.memory_growing(0, 60, Some(50)).unwrap());
        assert!(!memory.was_refused());
    }

    #[test]
    fn a_growth_that_fails_later_does_not_make_room_for_another() {
        let mut memory = Memory::new(100);
        assert!(memory.memory_growing(0, 80, None).unwrap());
        memory.memory_grow_failed(wasmtime::Error::msg("beyond the type's limits")).unwrap();
        assert!(!memory.memory_growing(80, 160, None).unwrap());
    }

    #[test]
    fn a_table_grows_up_to_its_limit() {
        let mut memory = Memory::new(0);
        assert!(memory.table_growing(0, TABLE_ELEMENTS_MAX, None).unwrap());
        assert!(!memory.table_growing(0, TABLE_ELEMENTS_MAX + 1, None).unwrap());
    }
}
