//! What can go wrong, and what each error means for the journal.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{ENTRY_BYTES_MAX, Position};

/// Cloneable, since all callers that share a frame share its fate.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: Arc<io::Error>,
    },

    /// Bytes that were synced are not what was written. Nothing was changed by finding out.
    #[error(
        "the journal file `{}` is damaged at offset {offset}: {reason}. Acknowledged data may be lost: \
         keep the directory as it is and restore from a backup",
        file.display()
    )]
    Damaged { file: PathBuf, offset: u64, reason: &'static str },

    #[error("the journal file `{}` is missing, later ones exist. Put it back or restore from a backup", file.display())]
    Missing { file: PathBuf },

    #[error(
        "the journal file `{}` has format {found}, this version reads up to {supported}. \
         Start the version of outlast that wrote it, or a newer one",
        file.display()
    )]
    NewerFormat { file: PathBuf, found: u32, supported: u32 },

    #[error("the journal `{}` is in use by another process. Stop that process first", directory.display())]
    InUse { directory: PathBuf },

    /// The entry was not written; the journal goes on.
    #[error("an entry of {bytes} bytes is too large: the limit is {ENTRY_BYTES_MAX} bytes")]
    TooLarge { bytes: usize },

    /// Nothing was written; the journal goes on and later appends may succeed.
    #[error("no space left for a journal segment of {bytes} bytes in `{}`. Nothing was written; free some space and try again", directory.display())]
    NoSpace { directory: PathBuf, bytes: u64 },

    /// A write or sync failed earlier. What the disk holds is unknown until the journal is opened again.
    #[error(
        "the journal stopped because an earlier write failed ({reason}). \
         Check the disk, then restart: what was acknowledged is recovered from it"
    )]
    Poisoned { reason: String },

    #[error("entries before {oldest} are no longer kept")]
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
