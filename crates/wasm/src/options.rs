//! How an executor is sized.

use std::path::PathBuf;

/// An executor's settings.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where compiled components are kept. The directory is made if it is missing, and is only for this
    /// process's user to read or write: what lies there is run as it is.
    pub cache: PathBuf,

    /// The compiled components on disk, in bytes; the least recently used go first.
    pub cache_bytes_max: u64,

    /// How many guests may run at a time.
    pub slots: u32,

    /// How many runs may wait for a slot.
    pub queue_max: usize,

    /// The most memory that any guest may have, in bytes. A task may set less, not more.
    pub memory_bytes_max: u64,

    /// The largest component, in bytes.
    pub component_bytes_max: usize,

    /// How many prepared components are kept in memory, and how many bytes of code they may have together.
    /// Those that run are not counted once they are put aside.
    pub programs_max: usize,
    pub programs_bytes_max: usize,
}

impl Options {
    /// Everything but the place of the cache has a sensible default.
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
