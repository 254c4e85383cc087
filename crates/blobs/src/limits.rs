//! Limits of this crate, with units. Each has a test at the limit.
//!
//! Configurable limits are defaults of [`crate::Options`].

use std::time::Duration;

/// Maximum size of a blob, in plain bytes.
pub const BLOB_BYTES_MAX_DEFAULT: u64 = 64 << 30;
/// Maximum disk usage of the cache of plain files and unpacked bundles.
pub const CACHE_BYTES_MAX_DEFAULT: u64 = 20 << 30;
/// Total size of a bundle's files, in plain bytes.
pub const BUNDLE_BYTES_MAX_DEFAULT: u64 = 16 << 30;
/// Unfinished uploads.
pub const UPLOADS_MAX_DEFAULT: usize = 10_000;
/// Time without an append after which an upload is abandoned.
pub const UPLOAD_ABANDONED_AFTER_DEFAULT: Duration = Duration::from_secs(24 * 3600);
/// Time for which a put, read or query protects an unreferenced blob from garbage collection.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(3600);

/// Unfinished uploads of one runner node.
pub const PEER_UPLOADS_PER_PEER_MAX_DEFAULT: usize = 64;
/// Announced bytes of the unfinished uploads of one runner node.
pub const PEER_UPLOAD_BYTES_PER_PEER_MAX_DEFAULT: u64 = 256 << 30;
/// Unfinished uploads of all runner nodes.
pub const PEER_UPLOADS_MAX_DEFAULT: usize = 4096;
/// Announced bytes of the unfinished uploads of all runner nodes.
pub const PEER_UPLOAD_BYTES_MAX_DEFAULT: u64 = 1 << 40;
/// Time without a request after which an upload of a runner node is removed.
pub const PEER_UPLOAD_ABANDONED_AFTER_DEFAULT: Duration = Duration::from_secs(3600);

/// Failed requests to the control node in a row, without progress, before an operation fails.
pub const PEER_ATTEMPTS_MAX_DEFAULT: u32 = 10;
/// Pause after the first failed request; it doubles with every further one.
pub const PEER_BACKOFF_MIN_DEFAULT: Duration = Duration::from_millis(100);
pub const PEER_BACKOFF_MAX_DEFAULT: Duration = Duration::from_secs(5);
/// Time without an answer or a byte after which a request counts as failed.
pub const PEER_STALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Blobs in one query for missing blobs.
pub const IDS_MAX: usize = 10_000;

/// Path of a bundle file, an input or an output: short enough to be joined to any directory of the server.
pub const PATH_BYTES_MAX: usize = 1024;
pub const PATH_PART_BYTES_MAX: usize = 255;
pub const PATH_DEPTH_MAX: usize = 64;

pub const BUNDLE_FILES_MAX: usize = 100_000;
pub const BUNDLE_FUNCTIONS_MAX: usize = 1_000;
/// A manifest in its canonical encoding.
pub const MANIFEST_BYTES_MAX: usize = 32 << 20;
/// Registered workers.
pub const WORKERS_MAX: usize = 10_000;

/// Output globs of one job.
pub const GLOBS_MAX: usize = 256;
pub const GLOB_BYTES_MAX: usize = 1024;
/// Entries in a walked directory tree.
pub const WALK_ENTRIES_MAX: usize = 1_000_000;
/// Skipped output files reported by name; the rest are only counted.
pub const SKIPPED_NAMED_MAX: usize = 100;

/// Blobs recorded as touched. Beyond it, garbage collection is suspended for a grace period.
pub(crate) const PROTECTED_MAX: usize = 1_000_000;
/// Blobs recorded as damaged, so that a new upload can replace them.
pub(crate) const DAMAGED_MAX: usize = 10_000;

/// Packed content up to this size stays in memory.
pub(crate) const SPILL_BYTES: usize = 1 << 20;
/// Bytes read from a stored object at once.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// Maximum size of a piece of plain content.
pub(crate) const PIECE_BYTES_MAX: usize = 256 << 10;
