//! Errors of connections and requests.

use std::io;

use crate::refusal::Refusal;
use crate::wire::Fault;

/// No connection was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot reach {address}: {reason}")]
    Unreachable { address: String, reason: String },

    #[error("{address} is not a control node of this cluster: {reason}")]
    WrongServer { address: String, reason: String },

    #[error(
        "{address} rejected the certificate of this node: {reason}. It may be expired or of another cluster: join again"
    )]
    CertificateRejected { address: String, reason: String },

    #[error(transparent)]
    Refused(Refusal),

    #[error("{address} violated the protocol: {reason}")]
    Protocol { address: String, reason: String },
}

impl ConnectError {
    pub(super) fn unreachable(address: &str, reason: impl ToString) -> Self {
        Self::Unreachable { address: address.to_owned(), reason: reason.to_string() }
    }

    pub(super) fn timeout(address: &str) -> Self {
        Self::unreachable(address, "no answer in time")
    }

    pub(super) fn protocol(address: &str, reason: &str) -> Self {
        Self::Protocol { address: address.to_owned(), reason: reason.to_owned() }
    }

    /// A failed TLS handshake.
    pub(super) fn handshake(address: &str, error: &io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match tls {
            Some(rustls::Error::AlertReceived(_)) | None => Self::broken(address, Fault::of(error)),
            Some(tls) => {
                let reason = match tls {
                    rustls::Error::General(text) => text.clone(),
                    other => other.to_string(),
                };
                Self::WrongServer { address: address.to_owned(), reason }
            }
        }
    }

    /// A broken connection.
    pub(super) fn broken(address: &str, fault: Fault) -> Self {
        match fault.is_certificate_rejected {
            true => Self::CertificateRejected { address: address.to_owned(), reason: fault.text },
            false => Self::unreachable(address, fault.text),
        }
    }
}

/// A request has no answer, or an incomplete one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Refused(Refusal),
    #[error(transparent)]
    Connect(ConnectError),
    /// The request may have had its effect.
    #[error("the connection broke during the request: {0}")]
    Interrupted(String),
    #[error("the answer is invalid: {0}")]
    Invalid(String),
}
