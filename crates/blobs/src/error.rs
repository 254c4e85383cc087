//! Errors of the blob store.

use std::io;
use std::path::{Path, PathBuf};

use model::blob::{BlobId, WorkerId};

/// Unless a variant says otherwise, the failed operation had no effect and left no files behind.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{id} does not exist. Upload it, then try again")]
    NotFound { id: BlobId },

    #[error("no worker {id} is registered. Register its directory, then try again")]
    WorkerNotFound { id: WorkerId },

    #[error("no upload of {id} is in progress. Start it again")]
    UploadNotFound { id: BlobId },

    /// The stored content is not what was written. It is not deleted; a new upload of the same content replaces it.
    #[error("{what} is damaged: {why}. Upload it again, or restore it from a backup")]
    Damaged { what: String, why: String },

    /// The upload was discarded.
    #[error(
        "the content is {found}, not {id} as announced. The upload was discarded; check the file and upload it again"
    )]
    Mismatch { id: BlobId, found: BlobId },

    /// The bytes received before are retained.
    #[error(
        "the upload of {id} continues at byte {expected}, not at {requested}. Query its progress and continue there"
    )]
    WrongOffset { id: BlobId, expected: u64, requested: u64 },

    #[error("the range {start} to {end} is not within the content of {bytes} bytes. Request a range within it")]
    BadRange { start: u64, end: u64, bytes: u64 },

    #[error("no space left in `{}`. Nothing was stored; free some space and try again", path.display())]
    Full { path: PathBuf },

    #[error(
        "{needed} bytes do not fit into the cache of {limit} bytes, of which running jobs use {pinned}. \
         Try again when some jobs have ended, or enlarge the cache"
    )]
    CacheFull { needed: u64, pinned: u64, limit: u64 },

    #[error("{what} of {bytes} bytes is too large: the limit is {limit} bytes")]
    TooLarge { what: String, bytes: u64, limit: u64 },

    #[error("too many {what}: the limit is {limit}")]
    TooMany { what: &'static str, limit: usize },

    #[error("the path `{path}` cannot be used: {why}")]
    BadPath { path: String, why: String },

    #[error("the glob `{glob}` cannot be used: {why}")]
    BadGlob { glob: String, why: String },

    #[error("the manifest cannot be used: {why}")]
    BadManifest { why: String },

    #[error(
        "{} of the bundle's blobs {} missing: {}. Upload them, then register again",
        ids.len(), is_or_are(ids), first_ids(ids)
    )]
    BlobsMissing { ids: Vec<BlobId> },

    #[error("{what}. Try again later")]
    Busy { what: String },

    #[error("`{}` is in use by another process. Stop that process, or choose another directory", directory.display())]
    InUse { directory: PathBuf },

    /// The received bytes of an upload in pieces are retained.
    #[error("the content ended early: {reason}. Continue the upload, or send it again")]
    Interrupted { reason: String },

    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    #[error("cannot {action}: {reason}. Check that the blob store is reachable and its credentials are correct")]
    Storage { action: &'static str, reason: String },

    /// The control node did not answer, after all retries. Worth waiting for: the blob may well exist.
    #[error(
        "the control node cannot be reached: {reason}. Check that it runs and that the network between this node and \
         it works, then try again"
    )]
    Unreachable { reason: String },

    /// The upload of a runner node was refused and removed.
    #[error("the upload of {what} was rejected: {why}. Nothing was stored; check the disk and memory of the sender")]
    Rejected { what: String, why: String },

    #[error("cannot {action} at this node: its blobs live at the control node. Send the request there")]
    NotAtThisNode { action: &'static str },

    #[error("the server is stopping")]
    Stopping,
}

impl Error {
    /// Stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "blob_not_found",
            Self::WorkerNotFound { .. } => "worker_not_found",
            Self::UploadNotFound { .. } => "upload_not_found",
            Self::Damaged { .. } => "damaged",
            Self::Mismatch { .. } => "blob_mismatch",
            Self::WrongOffset { .. } => "wrong_offset",
            Self::BadRange { .. } => "bad_range",
            Self::Full { .. } => "disk_full",
            Self::CacheFull { .. } => "cache_full",
            Self::TooLarge { .. } => "too_large",
            Self::TooMany { .. } => "too_many",
            Self::BadPath { .. } => "bad_path",
            Self::BadGlob { .. } => "bad_glob",
            Self::BadManifest { .. } => "bad_manifest",
            Self::BlobsMissing { .. } => "blobs_missing",
            Self::Busy { .. } => "busy",
            Self::InUse { .. } => "in_use",
            Self::Interrupted { .. } => "interrupted",
            Self::Io { .. } => "io",
            Self::Storage { .. } => "storage",
            Self::Unreachable { .. } => "control_node_unreachable",
            Self::Rejected { .. } => "upload_rejected",
            Self::NotAtThisNode { .. } => "not_at_this_node",
            Self::Stopping => "stopping",
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { action, path, source },
        }
    }

    pub(crate) fn storage(action: &'static str) -> impl FnOnce(object_store::Error) -> Self {
        move |source| Self::Storage { action, reason: source.to_string() }
    }

    pub(crate) fn damaged(what: impl ToString, why: impl Into<String>) -> Self {
        Self::Damaged { what: what.to_string(), why: why.into() }
    }

    pub(crate) fn bad_path(path: &str, why: impl Into<String>) -> Self {
        // Bounds the message: the path comes from a client.
        Self::BadPath { path: path.chars().take(200).collect(), why: why.into() }
    }

    pub(crate) fn bad_manifest(why: impl Into<String>) -> Self {
        Self::BadManifest { why: why.into() }
    }
}

/// Missing blobs named in a message.
const NAMED_MAX: usize = 5;

fn first_ids(ids: &[BlobId]) -> String {
    let mut text = ids.iter().take(NAMED_MAX).map(BlobId::to_string).collect::<Vec<_>>().join(", ");
    if ids.len() > NAMED_MAX {
        text.push_str(", …");
    }
    text
}

fn is_or_are(ids: &[BlobId]) -> &'static str {
    if ids.len() == 1 { "is" } else { "are" }
}
