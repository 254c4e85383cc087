//! Errors of requests.

use std::error::Error as StdError;
use std::path::PathBuf;

use api::Problem;

use crate::address::InvalidAddress;

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection, or the connection broke before the response was complete. In the second case the request may have
    /// been executed: use an idempotency key to retry safely.
    #[error("cannot reach the server at {url}: {}", innermost(.source.as_ref()))]
    Unreachable { url: String, source: Box<dyn StdError + Send + Sync> },
    /// The server refused the request.
    #[error("{}", describe(.0))]
    Refused(Box<Problem>),
    /// A response that is not valid for this API, or a request that cannot be encoded.
    #[error("protocol error: {0}")]
    Protocol(String),
    #[error(transparent)]
    Address(#[from] InvalidAddress),
    /// Error of a local file.
    #[error("cannot {action} {}: {source}", path.display())]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
}

impl Error {
    /// Stable error code of a refusal.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(problem) => Some(&problem.code),
            Self::Unreachable { .. } | Self::Protocol(_) | Self::Address(_) | Self::File { .. } => None,
        }
    }

    /// HTTP status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(problem) => Some(problem.status),
            Self::Unreachable { .. } | Self::Protocol(_) | Self::Address(_) | Self::File { .. } => None,
        }
    }
}

/// Field, detail and error code of a problem as one line.
pub fn describe(problem: &Problem) -> String {
    let field = problem.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
    format!("{field}{} ({})", problem.detail, problem.code)
}

/// HTTP libraries wrap errors several times; only the innermost one is informative.
fn innermost<'a>(error: &'a (dyn StdError + Send + Sync + 'static)) -> &'a dyn StdError {
    let mut error: &dyn StdError = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}
