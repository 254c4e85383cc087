//! The append-only log under everything that must not be lost.
//!
//! A journal is a directory of segment files. Callers hand in *entries* (opaque bytes); each gets a
//! [`Position`], counted from 1 without gaps. Entries that wait at the same time share a *frame*: one
//! write and one `fdatasync`. [`Journal::append`] returns when its entry is durable, never before.
//!
//! After a crash the journal tells apart what a crash may leave and what it may not: an unfinished last
//! frame (a *torn tail*) is cut with a warning, since nobody was told that it exists. Damage anywhere else
//! is a loud error that names the file and the offset. The rule that makes this possible: a frame is
//! written only after the one before it is synced, and when the writer goes idle a tiny *seal* follows
//! the last frame. So a frame followed by something valid was synced, and must be readable.
//!
//! The crate knows nothing of jobs, shards or stores; it touches only its own directory.

mod commit;
mod error;
mod format;
mod frames;
mod journal;
mod maintenance;
mod options;
mod reader;
mod recover;
mod segment;
mod spare;

pub use error::Error;
pub use journal::Journal;
pub use options::Options;
pub use reader::Reader;
pub use recover::{Cut, Recovery};

use std::fmt;

/// The largest entry that can be appended, in bytes.
pub const ENTRY_BYTES_MAX: usize = 128 << 20;

/// How many bytes of entries one frame gathers before the next ones wait for the following frame.
/// A single larger entry has a frame of its own.
pub const GROUP_BYTES_MAX: usize = 8 << 20;

/// How many prepared segments are kept for reuse; released ones beyond that are deleted.
pub const SPARES_MAX: usize = 2;

/// The number of an entry, from 1, without gaps, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    /// Before the first entry.
    pub const NONE: Self = Self(0);

    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
