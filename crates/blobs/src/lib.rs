//! Content-addressed blob store: attachments, outputs and worker bundles.
//!
//! A blob's id is the BLAKE3 hash of its plain content. Content is verified against the id on write and on read. It is
//! stored compressed in an `object_store`: a local directory or an S3-compatible bucket. A runner node has no store of
//! its own: it fetches from and uploads to the store of the control node through an [`ObjectPeer`](peer::ObjectPeer).
//!
//! - [`Blobs::put`] and its variants are durable when they return. A blob with a known id can be
//!   [uploaded in pieces](Blobs::append); a restart does not lose the pieces.
//! - [`Blobs::materialise`] returns a plain, read-only file from a bounded cache, with a guard that pins it there.
//! - [`Blobs::register`] and [`Blobs::materialise_worker`] do the same for whole directories.
//! - [`Blobs::collect_outputs`] stores the output files of a job. The job's directory is untrusted.
//! - [`Blobs::begin_collection`] starts garbage collection of unreferenced blobs. Recently used blobs are protected.
//!
//! The crate does not depend on jobs, shards or HTTP. It accesses only its location, its work directory, and the
//! directories passed by callers.

mod blobs;
mod blocking;
mod cache;
mod collection;
mod content_stream;
mod damaged_blobs;
mod error;
mod format;
mod globs;
mod key_locks;
mod keys;
pub mod limits;
mod links;
mod local;
mod materialise;
mod options;
mod outputs;
mod pack;
mod paths;
pub mod peer;
mod protection;
mod reader;
mod remote;
mod scratch;
mod storage;
mod tree;
mod unpack;
mod uploads;
mod walk;
pub mod workers;

pub use blobs::{Blobs, Stat};
pub use cache::Pinned;
pub use collection::{Collection, SweepStats};
pub use content_stream::ContentStream;
pub use error::Error;
pub use globs::Globs;
pub use links::{copy_into, link_into};
pub use options::{Credentials, Location, Options, PeerRetry, PeerUploadLimits, S3, Secret};
pub use outputs::{OutputFile, OutputLimits, Outputs, SkippedFile};
pub use paths::safe_relative;
pub use uploads::Progress;
