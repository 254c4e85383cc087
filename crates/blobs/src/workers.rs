//! Workers: directories of executables, registered as content-addressed bundles.
//!
//! A bundle is a [`Manifest`]: which blob is at which path, what the environment is, which functions it offers. Its name
//! is the hash of that, so a registered worker never changes. On the client a directory becomes a manifest by
//! [`scan_directory`]; on the server it is checked, kept, and unpacked when a job needs it.

mod manifest;
pub(crate) mod registry;
mod scan;
mod unpack;
mod validate;

pub use manifest::{Entry, Function, Manifest, Program};
pub use registry::{Summary, Worker};
pub use scan::{DESCRIPTION, LocalFile, Scanned, scan_directory};
pub use unpack::Bundle;
