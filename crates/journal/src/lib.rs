//! Append-only log with group commit: the basis of all durable state.
//!
//! A journal is a directory of segment files. Callers append *entries* (opaque bytes). Each entry gets a
//! [`Position`], counted from 1 without gaps. Concurrent entries share a *frame*: one write and one `fdatasync`.
//! [`Journal::append`] returns when its entry is durable, never before.
//!
//! Recovery distinguishes the traces of a crash from damage. An unfinished last frame (a *torn tail*) is truncated
//! with a warning: it was never acknowledged. Damage anywhere else is an error with file and offset. Two rules make
//! this possible. A frame is written only after the previous one is synced. When the writer goes idle, a small *seal*
//! follows the last frame. Every frame with a valid successor was therefore synced, and must be readable.
//!
//! The crate is independent of jobs, shards and stores. It touches only its own directory.

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
pub use recover::{Recovery, TornTail, read_entries};

use std::fmt;

/// The largest entry that can be appended, in bytes.
pub const ENTRY_BYTES_MAX: usize = 128 << 20;

/// Limit of a frame's entries, in bytes. Further entries go into the next frame. A single larger entry gets its own
/// frame.
pub const GROUP_BYTES_MAX: usize = 8 << 20;

/// Limit of spare segments. Released segments beyond it are deleted.
pub const SPARES_MAX: usize = 2;

/// Number of an entry: from 1, without gaps, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    /// The position before the first entry.
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
