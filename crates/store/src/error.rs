//! Errors of a store, and the state each one leaves behind.

use std::path::PathBuf;

use model::batch::Keyspace;
use model::id::{Epoch, ShardId};

use crate::Position;

impl Error {
    /// Refuses an owner that is not the newest.
    pub(crate) fn check_epoch(shard: ShardId, epoch: Epoch, current: Epoch) -> Result<(), Self> {
        if epoch == current { Ok(()) } else { Err(Self::Fenced { shard, stale: epoch, current }) }
    }

    /// Refuses a batch beyond the limit of a store.
    pub(crate) fn check_size(bytes: usize, bytes_max: usize) -> Result<(), Self> {
        if bytes > bytes_max { Err(Self::TooLarge { bytes, bytes_max }) } else { Ok(()) }
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Nothing was written. The caller no longer owns the shard.
    #[error("shard {shard} is at epoch {}, the commit of epoch {} was rejected: the shard has a new owner", current.0, stale.0)]
    Fenced { shard: ShardId, stale: Epoch, current: Epoch },

    /// Nothing was written.
    #[error("a commit of {bytes} bytes is too large: the store takes at most {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },

    /// The outcome is unknown: the batch was written completely or not at all.
    #[error("the commit failed: {reason}")]
    Failed { reason: String },

    /// The store accepts nothing until a restart. Acknowledged commits are safe in the journal.
    #[error("the store has stopped: {reason}. Check the disk, then restart: acknowledged commits are recovered")]
    Stopped { reason: String },

    #[error("events up to {} have expired. Read the current state, then continue from there", oldest.0.saturating_sub(1))]
    CursorExpired { oldest: Position },

    #[error(
        "`{}` is in use by another outlast process{}. Stop that process, or choose another data directory",
        directory.display(),
        pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    InUse { directory: PathBuf, pid: Option<u32> },

    #[error("`{}` is not a directory. Choose another data directory", directory.display())]
    NotADirectory { directory: PathBuf },

    #[error("`{}` cannot be written ({reason}). Make it writable for the user that runs outlast, or choose another data directory", directory.display())]
    NotWritable { directory: PathBuf, reason: String },

    #[error("no space left in `{}`. Free some space, then start again", directory.display())]
    NoSpace { directory: PathBuf },

    #[error(
        "`{}` has data format {found}, this version reads up to {supported}. \
         Start the version of outlast that wrote it, or a newer one",
        directory.display()
    )]
    NewerFormat { directory: PathBuf, found: u32, supported: u32 },

    #[error("`{}` cannot be read: {reason}. Restore it from a backup", file.display())]
    Malformed { file: PathBuf, reason: String },

    /// The tables lost data that the journal no longer has.
    #[error(
        "the tables in `{}` are at position {applied}, but a checkpoint records {checkpoint}: they lost data. \
         Restore the data directory from a backup",
        directory.display()
    )]
    TablesBehind { directory: PathBuf, applied: Position, checkpoint: Position },

    /// The journal lost entries that the tables contain. Continuing would reuse positions.
    #[error(
        "the tables in `{}` are at position {applied}, but the journal ends at {durable}: it lost data. \
         Restore the data directory from a backup",
        directory.display()
    )]
    JournalBehind { directory: PathBuf, applied: Position, durable: Position },

    #[error("the record `{key}` in the table `{}` is damaged. Restore the data directory from a backup", keyspace.map_or("system", Keyspace::name))]
    DamagedRecord { keyspace: Option<Keyspace>, key: String },

    #[error("the tables of the store failed: {reason}")]
    Tables { reason: String },

    #[error(transparent)]
    Journal(#[from] journal::Error),

    #[error("cannot {action} `{}`: {reason}", path.display())]
    Io { action: &'static str, path: PathBuf, reason: String },
}
