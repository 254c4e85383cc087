//! How the embedded store uses memory and disk.

use std::time::Duration;

/// Every field has a sensible default.
#[derive(Debug, Clone)]
pub struct Options {
    /// Commits wait while this many bytes are not in the tables yet. It bounds the memory of the overlay and
    /// the time of a replay at start.
    pub backlog_bytes_max: u64,

    /// Once this many bytes have gathered in memory they are written to the tables. Larger means less work for
    /// the tables: what is deleted before it is written costs them nothing.
    pub flush_bytes: u64,

    /// What has gathered is written to the tables after this time at the latest.
    pub flush_after: Duration,

    /// The tables' cache of blocks, in bytes.
    pub cache_bytes: u64,

    /// The journal; what it keeps for event readers is set there.
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
