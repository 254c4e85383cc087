//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;

use model::time::Millis;
use serde::Serialize;

/// The options cannot be used. Nothing was connected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "`{address}` is no address of a policy kernel: {why}. Write `host:port`, `http://host:port` or `https://host:port`"
    )]
    BadAddress { address: String, why: String },

    #[error("TLS is required for the policy kernel at `{address}`, but not set up. Name its CA, or do not require TLS")]
    TlsRequired { address: String },

    #[error("`{address}` says https, but no CA is named. Name the file with the CA of the policy kernel")]
    CaMissing { address: String },

    #[error("`{address}` says http, but TLS is set up. Write https, or remove the TLS settings")]
    NotHttps { address: String },

    #[error("cannot read `{}`: {source}. Check the path and its permissions", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    #[error("`{}` is no {what} in PEM: {why}. Check that the right file is named", path.display())]
    BadPem { path: PathBuf, what: &'static str, why: String },

    #[error(
        "the TLS settings of the policy kernel cannot be used: {why}. Check that key and certificate belong together"
    )]
    BadTls { why: String },

    #[error("`{name}` of the policy kernel must be {bounds}")]
    OutOfBounds { name: &'static str, bounds: &'static str },
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The breaker is open, or half-open with enough probes under way. The kernel was not asked.
    CircuitOpen,
    /// Too many calls at once. The kernel was not asked; this says nothing about it.
    Busy,
    TimedOut,
    /// It could not be reached, or what it said was not gRPC, or it answered with an error.
    Failed,
}

impl Why {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CircuitOpen => "circuit_open",
            Self::Busy => "busy",
            Self::TimedOut => "timed_out",
            Self::Failed => "failed",
        }
    }
}

/// The policy has not answered. What that means for the job is for [`crate::FailMode`] to say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unavailable {
    pub why: Why,
    pub message: String,
    /// When to ask again, where that is known.
    pub retry_at: Option<Millis>,
}
