//! Every limit of this crate, in one place, with its unit. Each has a test at the limit.
//!
//! Those that an operator may want to change are defaults of [`crate::Options`].

use std::time::Duration;

/// The largest blob, counted in plain bytes.
pub const BLOB_BYTES_MAX_DEFAULT: u64 = 64 << 30;
/// What the cache of plain files and unpacked bundles may take on the disk.
pub const CACHE_BYTES_MAX_DEFAULT: u64 = 20 << 30;
/// The files of one bundle together, counted in plain bytes.
pub const BUNDLE_BYTES_MAX_DEFAULT: u64 = 16 << 30;
/// Uploads that were begun and are not finished.
pub const UPLOADS_MAX_DEFAULT: usize = 10_000;
/// An upload that nothing was added to for so long is given up.
pub const UPLOAD_ABANDONED_AFTER_DEFAULT: Duration = Duration::from_secs(24 * 3600);
/// How long a blob that was put, read or asked for is safe from collection, though nobody refers to it yet.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(3600);

/// How many blobs one question may name.
pub const IDS_MAX: usize = 10_000;

/// A path in a bundle, of an input or of an output: short enough to be put under any directory of ours.
pub const PATH_BYTES_MAX: usize = 1024;
pub const PATH_PART_BYTES_MAX: usize = 255;
pub const PATH_DEPTH_MAX: usize = 64;

pub const BUNDLE_FILES_MAX: usize = 100_000;
pub const BUNDLE_FUNCTIONS_MAX: usize = 1_000;
/// A manifest in its canonical encoding.
pub const MANIFEST_BYTES_MAX: usize = 32 << 20;
/// How many workers may be registered.
pub const WORKERS_MAX: usize = 10_000;

/// How many globs one job may collect its outputs by.
pub const GLOBS_MAX: usize = 256;
pub const GLOB_BYTES_MAX: usize = 1024;
/// How many entries of a directory tree are looked at before its owner is told that it is too much.
pub const WALK_ENTRIES_MAX: usize = 1_000_000;
/// Of files that could not be taken so many are named; the rest is counted.
pub const SKIPPED_NAMED_MAX: usize = 100;

/// Blobs remembered as put, read or asked for. Beyond that, for a while, nothing at all is collected.
pub(crate) const PROTECTED_MAX: usize = 1_000_000;
/// Blobs remembered as damaged, so that a new upload may replace them.
pub(crate) const DAMAGED_MAX: usize = 10_000;

/// Packed content up to this size never touches a scratch file.
pub(crate) const SPILL_BYTES: usize = 1 << 20;
/// Plain content is handed on in pieces of at most this size.
pub(crate) const PIECE_BYTES_MAX: usize = 256 << 10;
