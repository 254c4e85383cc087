//! Errors of requests.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::time::Duration;

use api::Problem;

use crate::address::InvalidAddress;

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No server was reached, or none answered, for `tried_for`. The request may have been executed. It may be repeated:
    /// it reads, is idempotent, has an idempotency key, or was not sent at all.
    #[error("cannot reach {}: {}{}", place(servers), innermost(.source.as_ref()), duration(*tried_for))]
    Unreachable { servers: String, tried_for: Duration, source: Box<dyn StdError + Send + Sync> },
    /// The server refused the request.
    #[error("{}", describe(.0))]
    Refused(Box<Problem>),
    /// The request may have been executed, and to repeat it could execute it twice. `check` is what to read first.
    #[error("it is unknown whether {server} has executed {request}: {why}; read {check} before you repeat the request")]
    OutcomeUnknown { request: String, server: String, why: String, check: String },
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
        self.problem().map(|problem| problem.code.as_str())
    }

    /// HTTP status of a refusal.
    pub fn status(&self) -> Option<u16> {
        self.problem().map(|problem| problem.status)
    }

    fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            Self::Unreachable { .. }
            | Self::OutcomeUnknown { .. }
            | Self::Protocol(_)
            | Self::Address(_)
            | Self::File { .. } => None,
        }
    }
}

/// Field, detail and error code of a problem as one line.
pub fn describe(problem: &Problem) -> String {
    let field = problem.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
    format!("{field}{} ({})", problem.detail, problem.code)
}

fn place(servers: &str) -> String {
    if servers.contains(", ") { format!("any of the servers {servers}") } else { format!("the server at {servers}") }
}

fn duration(tried_for: Duration) -> String {
    if tried_for < Duration::from_secs(1) { String::new() } else { format!(" (tried for {})", seconds(tried_for)) }
}

/// A duration for messages.
pub(crate) fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        seconds => format!("{seconds} s"),
    }
}

/// HTTP libraries wrap errors several times; only the innermost one is informative.
pub(crate) fn innermost<'a>(error: &'a (dyn StdError + Send + Sync + 'static)) -> &'a dyn StdError {
    let mut error: &dyn StdError = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_server_is_described_with_all_addresses_and_the_time() {
        let error = |servers: &str, secs| Error::Unreachable {
            servers: servers.to_owned(),
            tried_for: Duration::from_secs(secs),
            source: "connection refused".into(),
        };
        assert_eq!(error("http://a:1", 0).to_string(), "cannot reach the server at http://a:1: connection refused");
        assert_eq!(
            error("http://a:1, http://b:2", 60).to_string(),
            "cannot reach any of the servers http://a:1, http://b:2: connection refused (tried for 60 s)"
        );
    }
}
