//! How a journal is sized and how long it keeps what recovery no longer needs.

use std::time::Duration;

/// Every field has a sensible default.
#[derive(Debug, Clone)]
pub struct Options {
    /// The size of a segment file, in bytes. A frame that needs more gets a larger segment.
    pub segment_bytes: u64,

    /// The size of the segment that is made while opening, if no spare lies ready: small, so that a start is quick.
    pub first_segment_bytes: u64,

    /// How many bytes of released segments are kept for readers. A segment goes when it exceeds this *or* `keep_for`.
    pub keep_bytes: u64,

    /// How long released segments are kept for readers, counted from when their last entry was written.
    pub keep_for: Duration,

    /// How long the writer must be idle before the last frame is sealed. Until then a damaged last frame
    /// counts as torn.
    pub seal_after: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            first_segment_bytes: 4 << 20,
            keep_bytes: 256 << 20,
            keep_for: Duration::from_secs(60 * 60),
            seal_after: Duration::from_millis(50),
        }
    }
}
