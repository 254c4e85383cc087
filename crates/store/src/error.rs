//! Errors of a store, and the state each one leaves behind.

use std::path::PathBuf;

use model::batch::Keyspace;
use model::id::{Epoch, ShardId};

use crate::{DOCUMENT_BYTES_MAX, DOCUMENT_NAME_BYTES_MAX, Position};

impl Error {
    /// Refuses a document with an invalid name or a value that is too large.
    pub(crate) fn check_document(name: &str, value: Option<&[u8]>) -> Result<(), Self> {
        if name.is_empty() || name.len() > DOCUMENT_NAME_BYTES_MAX {
            return Err(Self::DocumentName { name: name.to_owned() });
        }
        Self::check_size(value.map_or(0, <[u8]>::len), DOCUMENT_BYTES_MAX)
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

    /// Nothing was written. The store is not where this owner left it: it lost commits, or the owner's last one is
    /// missing.
    #[error("shard {shard} is at position {found}, its owner expects {expected}: the commit was rejected")]
    Diverged { shard: ShardId, expected: Position, found: Position },

    /// Nothing was written. Other owners may have been forgotten that were known to runners and shards, so this one
    /// cannot continue, even if none of its own commits is missing.
    #[error("the store has failed over since shard {shard} was opened in epoch {}: the commit was rejected", epoch.0)]
    FailedOver { shard: ShardId, epoch: Epoch },

    /// Nothing was written.
    #[error("the document `{name}` was changed meanwhile. Read it again")]
    DocumentChanged { name: String },

    #[error("`{name}` is no name of a document: 1 to {DOCUMENT_NAME_BYTES_MAX} bytes")]
    DocumentName { name: String },

    /// Nothing was written.
    #[error("a commit of {bytes} bytes is too large: the store takes at most {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },

    /// The outcome is unknown: the batch was written completely or not at all.
    #[error("the commit failed: {reason}")]
    Failed { reason: String },

    /// The store accepts nothing until a restart. Acknowledged commits are safe in the journal.
    #[error("the store has stopped: {reason}. Check the disk, then restart: acknowledged commits are recovered")]
    Stopped { reason: String },

    #[error("these events have expired. Read the current state, then continue from there")]
    CursorExpired,

    #[error("the cursor belongs to another store. Read the current state, then continue from there")]
    ForeignCursor,

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
