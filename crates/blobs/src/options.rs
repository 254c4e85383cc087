//! Where blobs are kept, and how much of everything.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::limits;

/// Made by [`Options::new`]; every other field has a sensible default.
#[derive(Debug, Clone)]
pub struct Options {
    pub location: Location,

    /// A local directory for uploads in progress and the caches. One process at a time.
    pub work: PathBuf,

    /// The largest blob, in plain bytes.
    pub blob_bytes_max: u64,

    /// What the cache of plain files and unpacked bundles may take on the disk. What running jobs use counts too.
    pub cache_bytes_max: u64,

    /// The largest bundle, in plain bytes. One above `cache_bytes_max` can be registered but not used.
    pub bundle_bytes_max: u64,

    /// How many uploads may be unfinished at the same time.
    pub uploads_max: usize,

    /// After how long an upload that nothing was added to is given up.
    pub upload_abandoned_after: Duration,

    /// How long what was put, read or asked for is safe from collection. It must be longer than a client takes from
    /// asking what is missing to the acknowledgement of the job that names it. Right after the start nothing is
    /// collected for the same time, since what was asked for before is not remembered.
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
    /// Made if it is not there.
    Directory(PathBuf),
    S3(S3),
}

/// A bucket of Amazon S3 or of anything that speaks its protocol.
#[derive(Debug, Clone)]
pub struct S3 {
    pub bucket: String,
    /// `https://host:port` of the service; that of Amazon if not said. `http://` works and protects nothing.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// Everything is kept below this name, so that a bucket can be shared.
    pub prefix: String,
    pub credentials: Credentials,
}

#[derive(Debug, Clone)]
pub enum Credentials {
    /// From the `AWS_…` variables, else from what the cloud gives to its machines.
    Environment,
    Explicit {
        access_key_id: String,
        secret_access_key: Secret,
    },
}

/// A text that must not show up in logs.
#[derive(Clone)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
