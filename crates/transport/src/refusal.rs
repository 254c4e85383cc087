//! Refusals: a kind for programs, a text for people. Between nodes a refusal is a gRPC status with details.

use std::fmt;

use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};

use crate::proto;
use crate::token::TokenRefusal;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    TokenUnknown,
    TokenWrong,
    TokenExpired,
    TokenUsed,
    TokenRevoked,
    /// The proposed node id belongs to another node.
    NodeIdTaken,
    /// The request needs a client certificate.
    NoCertificate,
    /// The certificate does not permit this request.
    NotAllowed,
    /// The protocol versions do not overlap.
    Incompatible,
    /// A limit is reached. The same request may succeed later.
    Busy,
    /// The request is malformed.
    Invalid,
    NotFound,
    /// An error of the other side.
    Failed,
}

const KINDS: [(RefusalKind, u32, Code); 13] = [
    (RefusalKind::TokenUnknown, 1, Code::PermissionDenied),
    (RefusalKind::TokenWrong, 2, Code::PermissionDenied),
    (RefusalKind::TokenExpired, 3, Code::PermissionDenied),
    (RefusalKind::TokenUsed, 4, Code::PermissionDenied),
    (RefusalKind::TokenRevoked, 5, Code::PermissionDenied),
    (RefusalKind::NodeIdTaken, 6, Code::AlreadyExists),
    (RefusalKind::NoCertificate, 7, Code::Unauthenticated),
    (RefusalKind::NotAllowed, 8, Code::PermissionDenied),
    (RefusalKind::Incompatible, 9, Code::FailedPrecondition),
    (RefusalKind::Busy, 10, Code::ResourceExhausted),
    (RefusalKind::Invalid, 11, Code::InvalidArgument),
    (RefusalKind::NotFound, 12, Code::NotFound),
    (RefusalKind::Failed, 13, Code::Internal),
];

/// A request was refused. It had no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    kind: RefusalKind,
    text: String,
}

impl Refusal {
    pub fn new(kind: RefusalKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(RefusalKind::Invalid, text)
    }

    pub fn kind(&self) -> RefusalKind {
        self.kind
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn to_proto(&self) -> proto::Refusal {
        let number = KINDS.iter().find(|(kind, ..)| *kind == self.kind).map_or(0, |(_, number, _)| *number);
        proto::Refusal { kind: number, text: self.text.clone() }
    }

    /// An unknown kind, of a later version, counts as a failure.
    pub(crate) fn from_proto(refusal: proto::Refusal) -> Self {
        let kind = KINDS.iter().find(|(_, number, _)| *number == refusal.kind);
        Self { kind: kind.map_or(RefusalKind::Failed, |(kind, ..)| *kind), text: refusal.text }
    }

    pub(crate) fn to_status(&self) -> Status {
        let code = KINDS.iter().find(|(kind, ..)| *kind == self.kind).map_or(Code::Internal, |(.., code)| *code);
        Status::with_details(code, self.text.clone(), Bytes::from(self.to_proto().encode_to_vec()))
    }

    /// The refusal in a status. `None` if the status has another origin, such as a broken connection.
    pub(crate) fn from_status(status: &Status) -> Option<Self> {
        if status.details().is_empty() {
            return None;
        }
        proto::Refusal::decode(status.details()).ok().map(Self::from_proto)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

impl From<TokenRefusal> for Refusal {
    fn from(refusal: TokenRefusal) -> Self {
        let kind = match refusal {
            TokenRefusal::Unknown => RefusalKind::TokenUnknown,
            TokenRefusal::Wrong => RefusalKind::TokenWrong,
            TokenRefusal::Expired { .. } => RefusalKind::TokenExpired,
            TokenRefusal::Used => RefusalKind::TokenUsed,
            TokenRefusal::Revoked => RefusalKind::TokenRevoked,
        };
        Self::new(kind, refusal.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_round_trip_through_their_status() {
        for (kind, ..) in KINDS {
            let refusal = Refusal::new(kind, "text");
            assert_eq!(Refusal::from_status(&refusal.to_status()), Some(refusal));
        }
        assert_eq!(Refusal::from_status(&Status::unavailable("broken")), None);
        let later = Refusal::from_proto(proto::Refusal { kind: 99, text: "text".to_owned() });
        assert_eq!(later, Refusal::new(RefusalKind::Failed, "text"));
    }
}
