//! Errors of files and certificates.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what} {path}: {source}. Check the directory and its permissions", path = path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },

    #[error(
        "{path} is damaged: restore the cluster's authority from a backup. Without it every node must join again",
        path = path.display()
    )]
    DamagedAuthority { path: PathBuf },

    #[error("{path} is damaged: remove it and join the cluster again", path = path.display())]
    DamagedIdentity { path: PathBuf },

    #[error("the signing request is invalid: {reason}")]
    SigningRequest { reason: String },

    #[error("the certificate is invalid: {reason}")]
    Certificate { reason: String },

    #[error("the certificate is for {found}, not for {expected}")]
    OtherIdentity { expected: String, found: String },

    #[error("the system has no random numbers")]
    NoRandomness,

    #[error("the listener is unusable: {source}")]
    Listener { source: io::Error },

    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl Error {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }

    pub(crate) fn certificate(reason: impl ToString) -> Self {
        Self::Certificate { reason: reason.to_string() }
    }
}

/// An error and its sources, without repetitions.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = cause.source();
    }
    text
}
