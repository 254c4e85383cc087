//! What was found, and where.

use std::collections::BTreeMap;

use crate::encoding::Encoding;
use crate::pattern::Kind;

/// Bytes `start` to `end` (exclusive), counted from the beginning of what was scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    pub start: u64,
    pub end: u64,
    pub pattern: &'static str,
    pub kind: Kind,
}

/// Findings of one pattern do not overlap; those of different ones may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// In order of where they start.
    pub items: Vec<Finding>,
    /// There were more than the limit, which `counts` tells and `items` does not. What is masked by `items` alone
    /// still contains the rest.
    pub truncated: bool,
    /// How many of each pattern, those left out of `items` included.
    pub counts: BTreeMap<&'static str, u64>,
    /// How many bytes were scanned.
    pub bytes: u64,
    pub encoding: Encoding,
}

impl Findings {
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// How many there are of all patterns together.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}
