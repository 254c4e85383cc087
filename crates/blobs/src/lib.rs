//! Content-addressed bytes: attachments, outputs, and the bundles that workers are made of.
//!
//! A blob is named by the BLAKE3 hash of its plain content, so the name says what must be found under it. Content is
//! checked against its name when it comes in and when it goes out; it is kept compressed in an `object_store`: a local
//! directory, or a bucket that speaks S3.
//!
//! - [`Blobs::put`] and its kin are durable when they return. A known blob can be [uploaded in pieces](Blobs::append)
//!   that survive a restart.
//! - [`Blobs::materialise`] gives a plain, read-only file out of a bounded cache; the guard it returns keeps it there.
//! - [`Blobs::register`] and [`Blobs::materialise_worker`] do the same for whole directories.
//! - [`Blobs::collect_outputs`] takes what a job has left, and trusts nothing that it finds there.
//! - [`Blobs::begin_collection`] removes what nobody refers to, never what somebody is about to.
//!
//! The crate knows nothing of jobs, shards or HTTP. It touches its location, its work directory, and the directories
//! that callers hand in.

mod blobs;
mod blocking;
mod cache;
mod collection;
mod damaged;
mod error;
mod format;
mod globs;
mod keys;
pub mod limits;
mod links;
mod local;
mod materialise;
mod options;
mod outputs;
mod pack;
mod paths;
mod place;
mod protection;
mod reading;
mod remote;
mod scratch;
mod source;
mod tree;
mod turns;
mod unpack;
mod uploads;
mod walk;
pub mod workers;

pub use blobs::{Blobs, Stat};
pub use cache::Pinned;
pub use collection::{Collection, Swept};
pub use error::Error;
pub use globs::Globs;
pub use links::{copy_into, link_into};
pub use options::{Credentials, Location, Options, S3, Secret};
pub use outputs::{Collected, OutputLimits, Outputs, Skipped};
pub use paths::safe_relative;
pub use reading::Reading;
pub use uploads::Progress;
