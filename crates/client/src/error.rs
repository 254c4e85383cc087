//! What can go wrong between a client and its server.

use std::error::Error as StdError;
use std::path::PathBuf;

use model::view::Problem;

use crate::address::BadAddress;

/// Why a request has no good answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody answered, or the connection broke before the answer was complete. A request that creates something may
    /// have been carried out all the same, unless it never connected: an idempotency key makes it safe to ask again.
    #[error("cannot reach the server at {url}: {}", innermost(.source.as_ref()))]
    Unreachable { url: String, source: Box<dyn StdError + Send + Sync> },
    /// The server understood and said no.
    #[error("{}", in_words(.0))]
    Refused(Box<Problem>),
    /// The answer is not one that an Outlast server gives.
    #[error("the server's answer makes no sense: {0}")]
    Protocol(String),
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// A file on this side.
    #[error("cannot {action} {}: {source}", path.display())]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
}

impl Error {
    /// The stable code of a refusal.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(problem) => Some(&problem.code),
            Self::Unreachable { .. } | Self::Protocol(_) | Self::Address(_) | Self::File { .. } => None,
        }
    }

    /// The HTTP status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(problem) => Some(problem.status),
            Self::Unreachable { .. } | Self::Protocol(_) | Self::Address(_) | Self::File { .. } => None,
        }
    }
}

/// What is wrong with which field, and the stable code of it.
pub fn in_words(problem: &Problem) -> String {
    let field = problem.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
    format!("{field}{} ({})", problem.detail, problem.code)
}

/// HTTP libraries wrap an error many times, and only the innermost one tells a person something.
fn innermost<'a>(error: &'a (dyn StdError + Send + Sync + 'static)) -> &'a dyn StdError {
    let mut error: &dyn StdError = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}
