//! Errors of the configuration and of calls.

use std::io;
use std::path::PathBuf;

use model::time::Millis;
use serde::Serialize;

/// Invalid options. No connection was made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "invalid address `{address}` of the policy service: {reason}. Write `host:port`, `http://host:port` or `https://host:port`"
    )]
    BadAddress { address: String, reason: String },

    #[error(
        "TLS is required for the policy service at `{address}`, but not configured. Set `ca`, or unset `require_tls`"
    )]
    TlsRequired { address: String },

    #[error(
        "the policy service address `{address}` is https, but no CA is configured. Set `ca` to the file with its CA"
    )]
    CaMissing { address: String },

    #[error(
        "the policy service address `{address}` is http, but TLS is configured. Write https, or remove the TLS settings"
    )]
    NotHttps { address: String },

    #[error("cannot read `{}`: {source}. Check the path and its permissions", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    #[error("`{}` is not a {kind} in PEM: {reason}. Check the path", path.display())]
    BadPem { path: PathBuf, kind: &'static str, reason: String },

    #[error("invalid TLS settings of the policy service: {reason}. Check that key and certificate belong together")]
    BadTls { reason: String },

    #[error("`{name}` of the policy service must be {bounds}")]
    OutOfBounds { name: &'static str, bounds: &'static str },
}

/// Why a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnavailableReason {
    /// The breaker is open, or half-open with all probes in flight. No call was made.
    CircuitOpen,
    /// Too many calls in flight and waiting. No call was made; this says nothing about the service.
    Busy,
    TimedOut,
    /// No connection, no valid gRPC, or an error status.
    Failed,
}

impl UnavailableReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CircuitOpen => "circuit_open",
            Self::Busy => "busy",
            Self::TimedOut => "timed_out",
            Self::Failed => "failed",
        }
    }
}

/// No answer of the policy service. [`crate::FailMode`] says what that means for the job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unavailable {
    pub reason: UnavailableReason,
    pub message: String,
    /// Earliest useful retry, where known.
    pub retry_at: Option<Millis>,
}
