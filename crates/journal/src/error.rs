//! Errors of the journal, and the state each one leaves behind.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{ENTRY_BYTES_MAX, Position};

/// Cloneable: all callers that share a frame get the same error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: Arc<io::Error>,
    },

    /// Synced bytes differ from what was written. The files were not changed.
    #[error(
        "the journal file `{}` is damaged at offset {offset}: {reason}. Acknowledged data may be lost: \
         keep the directory as it is and restore from a backup",
        file.display()
    )]
    Damaged { file: PathBuf, offset: u64, reason: &'static str },

    #[error("the journal file `{}` is missing, but later files exist. Put it back or restore from a backup", file.display())]
    Missing { file: PathBuf },

    #[error(
        "the journal file `{}` has format {found}, this version reads up to {supported}. \
         Start the version of outlast that wrote it, or a newer one",
        file.display()
    )]
    NewerFormat { file: PathBuf, found: u32, supported: u32 },

    #[error("the journal `{}` is in use by another process. Stop that process first", directory.display())]
    InUse { directory: PathBuf },

    /// The entry was not written. The journal stays usable.
    #[error("an entry of {bytes} bytes is too large: the limit is {ENTRY_BYTES_MAX} bytes")]
    TooLarge { bytes: usize },

    /// Nothing was written. The journal stays usable, and later appends may succeed.
    #[error("no space left for a journal segment of {bytes} bytes in `{}`. Nothing was written; free some space and try again", directory.display())]
    NoSpace { directory: PathBuf, bytes: u64 },

    /// A write or sync failed earlier. The state on disk is unknown until the journal is opened again.
    #[error(
        "the journal stopped because an earlier write failed ({reason}). \
         Check the disk, then restart: acknowledged entries are recovered"
    )]
    Poisoned { reason: String },

    #[error("journal entries before {oldest} have expired")]
    Expired { oldest: Position },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source: Arc::new(source) }
    }

    pub(crate) fn is_no_space(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}
