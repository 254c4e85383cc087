//! Errors of the key file.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what} the signing key {path}: {source}", path = path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },

    #[error(
        "{path} is not a signing key: restore it from a backup. Without it, move it away: a new key is created, but \
         checkpoints of the audit log signed with the old one are reported as foreign",
        path = path.display()
    )]
    Malformed { path: PathBuf },

    #[error("cannot create a signing key: the system has no random numbers")]
    NoRandomness,
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
