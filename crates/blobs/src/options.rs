//! Location and limits of the blob store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::limits;
use crate::peer::ObjectPeer;

/// Settings of the blob store. [`Options::new`] fills in the defaults.
#[derive(Debug, Clone)]
pub struct Options {
    pub location: Location,

    /// Local directory for uploads in progress and the caches. Only one process may use it.
    pub work: PathBuf,

    /// Maximum size of a blob, in plain bytes.
    pub blob_bytes_max: u64,

    /// Maximum disk usage of the cache of plain files and unpacked bundles, including files used by running jobs.
    pub cache_bytes_max: u64,

    /// Maximum size of a bundle, in plain bytes. A bundle above `cache_bytes_max` can be registered but not used.
    pub bundle_bytes_max: u64,

    /// Maximum number of unfinished uploads.
    pub uploads_max: usize,

    /// Time without an append after which an upload is abandoned.
    pub upload_abandoned_after: Duration,

    /// Time for which a put, read or query protects a blob from garbage collection. It must exceed the time a client
    /// takes from querying missing blobs to the acknowledgement of the job that names them. Nothing is collected for
    /// the same time after a start, since earlier queries are not recorded.
    pub grace: Duration,

    /// Retries of requests to a peer. Its `stall_timeout` also bounds the wait for bytes of a runner node's upload.
    pub peer_retry: PeerRetry,

    /// Limits of uploads by runner nodes.
    pub peer_uploads: PeerUploadLimits,
}

/// How long a runner node tries to reach the control node.
#[derive(Debug, Clone, Copy)]
pub struct PeerRetry {
    /// Failures in a row, without progress, before an operation fails.
    pub attempts_max: u32,
    /// Pause after the first failure. It doubles up to `backoff_max`.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// Time without an answer or a byte after which a request counts as failed.
    pub stall_timeout: Duration,
}

impl Default for PeerRetry {
    fn default() -> Self {
        Self {
            attempts_max: limits::PEER_ATTEMPTS_MAX_DEFAULT,
            backoff_min: limits::PEER_BACKOFF_MIN_DEFAULT,
            backoff_max: limits::PEER_BACKOFF_MAX_DEFAULT,
            stall_timeout: limits::PEER_STALL_TIMEOUT_DEFAULT,
        }
    }
}

/// Limits of unfinished uploads by runner nodes. Bytes are the announced stored sizes.
#[derive(Debug, Clone, Copy)]
pub struct PeerUploadLimits {
    pub uploads_per_peer_max: usize,
    pub bytes_per_peer_max: u64,
    pub uploads_max: usize,
    pub bytes_max: u64,
    /// Time without a request after which an upload is removed.
    pub abandoned_after: Duration,
}

impl Default for PeerUploadLimits {
    fn default() -> Self {
        Self {
            uploads_per_peer_max: limits::PEER_UPLOADS_PER_PEER_MAX_DEFAULT,
            bytes_per_peer_max: limits::PEER_UPLOAD_BYTES_PER_PEER_MAX_DEFAULT,
            uploads_max: limits::PEER_UPLOADS_MAX_DEFAULT,
            bytes_max: limits::PEER_UPLOAD_BYTES_MAX_DEFAULT,
            abandoned_after: limits::PEER_UPLOAD_ABANDONED_AFTER_DEFAULT,
        }
    }
}

impl Options {
    pub fn new(location: Location, work: impl Into<PathBuf>) -> Self {
        Self {
            location,
            work: work.into(),
            blob_bytes_max: limits::BLOB_BYTES_MAX_DEFAULT,
            cache_bytes_max: limits::CACHE_BYTES_MAX_DEFAULT,
            bundle_bytes_max: limits::BUNDLE_BYTES_MAX_DEFAULT,
            uploads_max: limits::UPLOADS_MAX_DEFAULT,
            upload_abandoned_after: limits::UPLOAD_ABANDONED_AFTER_DEFAULT,
            grace: limits::GRACE_DEFAULT,
            peer_retry: PeerRetry::default(),
            peer_uploads: PeerUploadLimits::default(),
        }
    }
}

#[derive(Debug, Clone)]
pub enum Location {
    /// Created if missing.
    Directory(PathBuf),
    S3(S3),
    /// The store of the control node, for a runner node. Opening it sends no request.
    Peer(Arc<dyn ObjectPeer>),
}

/// Bucket of Amazon S3 or a compatible service.
#[derive(Debug, Clone)]
pub struct S3 {
    pub bucket: String,
    /// `https://host:port` of the service; Amazon's if `None`. `http://` works but is not encrypted.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// Key prefix of all objects, so that a bucket can be shared.
    pub prefix: String,
    pub credentials: Credentials,
}

#[derive(Debug, Clone)]
pub enum Credentials {
    /// From the `AWS_…` variables, otherwise from the instance's metadata service.
    Environment,
    Explicit {
        access_key_id: String,
        secret_access_key: Secret,
    },
}

/// Text that must not appear in logs.
#[derive(Clone)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
