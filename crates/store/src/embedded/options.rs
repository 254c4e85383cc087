//! Memory and disk settings of the embedded store.

use std::time::Duration;

/// Settings of the embedded store, each with a default.
#[derive(Debug, Clone)]
pub struct Options {
    /// Commits wait while this many bytes are not in the tables yet. Limits the memory of the overlay and the duration
    /// of a replay.
    pub backlog_bytes_max: u64,

    /// The active layer is flushed to the tables at this size, in bytes. A larger value means less work for the tables:
    /// records that are deleted before the flush cost nothing.
    pub flush_bytes: u64,

    /// The active layer is flushed to the tables after this time at the latest.
    pub flush_after: Duration,

    /// Block cache of the tables, in bytes.
    pub cache_bytes: u64,

    /// Settings of the journal, including the retention for event readers.
    pub journal: journal::Options,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backlog_bytes_max: 128 << 20,
            flush_bytes: 32 << 20,
            flush_after: Duration::from_secs(10),
            cache_bytes: 16 << 20,
            journal: journal::Options::default(),
        }
    }
}
