//! Settings of the executor.

use std::path::PathBuf;

/// Settings of the executor.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of compiled components, created if missing. Accessible only to this process's user, since its files
    /// are executed.
    pub cache: PathBuf,

    /// Maximum size of the compiled components on disk, in bytes. The least recently used are evicted.
    pub cache_bytes_max: u64,

    /// Concurrent guests.
    pub slots: u32,

    /// Runs waiting for a slot.
    pub queue_max: usize,

    /// Maximum memory of any guest, in bytes. A run may set a lower limit.
    pub memory_bytes_max: u64,

    /// Maximum size of a component, in bytes.
    pub component_bytes_max: usize,

    /// Maximum number and total code size of prepared components cached in memory. An evicted component that is still
    /// running does not count.
    pub programs_max: usize,
    pub programs_bytes_max: usize,
}

impl Options {
    /// Defaults for everything but the cache directory.
    pub fn new(cache: impl Into<PathBuf>) -> Self {
        Self {
            cache: cache.into(),
            cache_bytes_max: 1 << 30,
            slots: 64,
            queue_max: 64 << 10,
            memory_bytes_max: 1 << 30,
            component_bytes_max: 64 << 20,
            programs_max: 256,
            programs_bytes_max: 256 << 20,
        }
    }
}
