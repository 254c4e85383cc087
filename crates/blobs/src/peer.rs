//! Blobs at a control node: a runner node fetches and uploads them through an [`ObjectPeer`].
//!
//! [`ObjectPeer`] is the wall between the blob store and the network. The runner node opens its store at
//! [`Location::Peer`](crate::Location::Peer) with an implementation that sends requests; the control node answers them
//! with [`Blobs::serve_peer`](crate::Blobs::serve_peer), which implements the same trait on its own store.
//!
//! Stored objects are transferred as they are, compressed, and verified by the receiver in both directions: a runner
//! node verifies what it fetches, the control node what it is sent. Transfers resume at the offset where they were cut.

mod client;
mod download;
mod file_chunks;
mod intake;
mod prefetch;
mod service;
mod slot;
mod upload;

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;
use model::blob::{BlobId, WorkerId};
use model::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Error, Stat};

pub(crate) use client::PeerClient;
pub(crate) use intake::Intake;
pub use intake::PeerUploadStats;
pub(crate) use prefetch::Pieces;
pub use service::PeerService;

/// Answer of a peer.
pub type PeerFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, PeerError>> + Send + 'a>>;

/// Bytes of a stored object. Pieces of 256 KiB and more are passed on without a copy. An error or an early end
/// interrupts the transfer; it resumes at the number of bytes received.
pub type PeerStream = Pin<Box<dyn Stream<Item = Result<Bytes, PeerError>> + Send>>;

/// The store of another node. Listing, deletion and garbage collection are not part of it.
///
/// Every method may be called again after an error. The caller bounds the time it waits, retries and verifies; an
/// implementation only transfers.
pub trait ObjectPeer: fmt::Debug + Send + Sync {
    /// Sizes of a blob; `None` if it does not exist or is known to be damaged.
    fn stat(&self, id: BlobId) -> PeerFuture<'_, Option<Stat>>;

    /// The stored object from `offset` on; `None` if the blob does not exist.
    fn get(&self, id: BlobId, offset: u64) -> PeerFuture<'_, Option<PeerObject>>;

    /// How much the peer has of an interrupted upload of `stored_bytes`. Ends an upload of the caller that is still
    /// in progress, since its connection is considered dead.
    fn put_offset(&self, id: BlobId, stored_bytes: u64) -> PeerFuture<'_, PutOffset>;

    /// Uploads a stored object. The blob is verified and durable when this returns. A peer that has the blob already
    /// returns without reading the content.
    fn put(&self, id: BlobId, upload: PeerUpload) -> PeerFuture<'_, ()>;

    /// The subset of `ids` that the peer does not have. At most [`IDS_MAX`](crate::limits::IDS_MAX) ids.
    fn missing(&self, ids: Vec<BlobId>) -> PeerFuture<'_, Vec<BlobId>>;

    /// Manifest of a registered worker; `None` if it is not registered. Its files are blobs.
    fn worker(&self, id: WorkerId) -> PeerFuture<'_, Option<PeerWorker>>;
}

/// Stored object of a peer.
pub struct PeerObject {
    /// Size of the whole object.
    pub stored_bytes: u64,
    /// Content from the requested offset on.
    pub content: PeerStream,
}

/// Upload of a stored object to a peer.
pub struct PeerUpload {
    /// Size of the whole object.
    pub stored_bytes: u64,
    /// Position of the first byte of `content`.
    pub offset: u64,
    pub content: PeerStream,
}

/// Manifest of a worker of a peer.
pub struct PeerWorker {
    pub registered_at: Timestamp,
    pub manifest_bytes: u64,
    /// Canonical encoding, whose hash is the worker's id.
    pub manifest: PeerStream,
}

/// State of an upload at a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PutOffset {
    /// The blob exists and is durable.
    Complete,
    /// The upload continues at this offset.
    At(u64),
}

/// Failed request to a peer. Serialisable, so that the network can carry the refusals of the control node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PeerError {
    /// The request or its answer was lost. Retried.
    #[error("{reason}")]
    Unreachable { reason: String },

    /// A limit of the peer is reached for now. Retried.
    #[error("{reason}")]
    Busy { reason: String },

    /// The peer failed, for example its disk is full. Retried.
    #[error("{reason}")]
    Failed { reason: String },

    /// The upload continues at another offset. Retried there.
    #[error("the upload continues at byte {expected}")]
    WrongOffset { expected: u64 },

    /// The peer's object is damaged.
    #[error("{reason}")]
    Damaged { reason: String },

    #[error("{bytes} bytes exceed the limit of {limit} bytes")]
    TooLarge { bytes: u64, limit: u64 },

    /// The peer does not accept the request. A retry would be refused as well.
    #[error("{reason}")]
    Rejected { reason: String },
}

impl PeerError {
    pub(crate) fn unreachable(reason: impl Into<String>) -> Self {
        Self::Unreachable { reason: reason.into() }
    }

    /// Whether the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Busy { .. } | Self::Failed { .. } | Self::WrongOffset { .. } => true,
            Self::Damaged { .. } | Self::TooLarge { .. } | Self::Rejected { .. } => false,
        }
    }

    /// The error for the caller of the blob store, after the last retry. `what` is a blob or worker.
    pub(crate) fn into_error(self, what: &dyn fmt::Display) -> Error {
        match self {
            Self::Unreachable { reason } => Error::Unreachable { reason },
            Self::Busy { reason } => Error::Busy { what: format!("the control node is busy: {reason}") },
            Self::Failed { reason } => Error::Storage { action: "use the blob store of the control node", reason },
            Self::WrongOffset { .. } => {
                let action = "upload to the control node";
                Error::Storage { action, reason: "its offset changes with every request".to_owned() }
            }
            Self::Damaged { reason } => Error::damaged(what, reason),
            Self::TooLarge { bytes, limit } => Error::TooLarge { what: what.to_string(), bytes, limit },
            Self::Rejected { reason } => Error::Rejected { what: what.to_string(), why: reason },
        }
    }
}

/// Answer of the control node to a runner node.
impl From<Error> for PeerError {
    fn from(error: Error) -> Self {
        match error {
            Error::WrongOffset { expected, .. } => Self::WrongOffset { expected },
            Error::Damaged { why, .. } => Self::Damaged { reason: why },
            Error::TooLarge { bytes, limit, .. } => Self::TooLarge { bytes, limit },
            Error::Busy { what } => Self::Busy { reason: what },
            Error::Rejected { why, .. } => Self::Rejected { reason: why },
            error @ (Error::Stopping | Error::Unreachable { .. }) => Self::Unreachable { reason: error.to_string() },
            error @ (Error::Full { .. }
            | Error::CacheFull { .. }
            | Error::InUse { .. }
            | Error::Interrupted { .. }
            | Error::Io { .. }
            | Error::Storage { .. }) => Self::Failed { reason: error.to_string() },
            error @ (Error::NotFound { .. }
            | Error::WorkerNotFound { .. }
            | Error::UploadNotFound { .. }
            | Error::Mismatch { .. }
            | Error::BadRange { .. }
            | Error::TooMany { .. }
            | Error::BadPath { .. }
            | Error::BadGlob { .. }
            | Error::BadManifest { .. }
            | Error::BlobsMissing { .. }
            | Error::NotAtThisNode { .. }) => Self::Rejected { reason: error.to_string() },
        }
    }
}

impl fmt::Debug for PeerObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerObject").field("stored_bytes", &self.stored_bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for PeerUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PeerUpload");
        shown.field("stored_bytes", &self.stored_bytes).field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl fmt::Debug for PeerWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PeerWorker");
        shown.field("registered_at", &self.registered_at).field("manifest_bytes", &self.manifest_bytes);
        shown.finish_non_exhaustive()
    }
}
