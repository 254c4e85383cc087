//! Segment sizes, and retention of entries that recovery no longer needs.

use std::time::Duration;

/// Settings of a journal, each with a default.
#[derive(Debug, Clone)]
pub struct Options {
    /// Size of a segment file, in bytes. A larger frame gets a larger segment.
    pub segment_bytes: u64,

    /// Size of the segment created at opening if there is no spare, in bytes. Small, for a quick start.
    pub first_segment_bytes: u64,

    /// Released segments retained for readers, in bytes. A segment expires when it exceeds this *or* `keep_for`.
    pub keep_bytes: u64,

    /// Retention time of released segments for readers, counted from their last entry.
    pub keep_for: Duration,

    /// Idle time of the writer before the last frame is sealed. Until then a damaged last frame counts as torn.
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
