//! Location and limits of the blob store.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::limits;

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
        }
    }
}

#[derive(Debug, Clone)]
pub enum Location {
    /// Created if missing.
    Directory(PathBuf),
    S3(S3),
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
