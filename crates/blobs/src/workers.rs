//! Workers: directories of executables, registered as content-addressed bundles.
//!
//! A [`Manifest`] describes a bundle: the blob at each path, the environment, and the functions offered. The worker's
//! id is the hash of its manifest, so a registered worker never changes. On the client, [`scan_directory`] turns a
//! directory into a manifest; the server validates and stores it, and unpacks it when a job needs it.

mod manifest;
pub(crate) mod registry;
mod scan;
mod unpack;
mod validate;

pub use manifest::{Function, Manifest, ManifestEntry, Program};
pub use registry::{Summary, Worker};
pub use scan::{DESCRIPTION, LocalFile, ScannedDirectory, scan_directory};
pub use unpack::Bundle;
