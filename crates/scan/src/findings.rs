//! Results of a scan.

use std::collections::BTreeMap;

use crate::encoding::Encoding;
use crate::pattern::Kind;

/// A match of a pattern: bytes `start` to `end` (exclusive) of the scanned text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    pub start: u64,
    pub end: u64,
    pub pattern: &'static str,
    pub kind: Kind,
}

/// All findings of a scan. Those of one pattern do not overlap; those of different patterns may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Ordered by start.
    pub items: Vec<Finding>,
    /// There are more findings than the limit: they are in `counts`, but not in `items`. A text masked by `items` still
    /// contains them.
    pub truncated: bool,
    /// Number of findings by pattern, including those not in `items`.
    pub counts: BTreeMap<&'static str, u64>,
    /// Number of bytes scanned.
    pub bytes: u64,
    pub encoding: Encoding,
}

impl Findings {
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Number of findings of all patterns.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}
