//! Refused requests and the problem documents made of them.

mod content;
mod workflows;

pub(crate) use ::api::ProblemKind;
use ::api::{DiagnosticView, Problem};
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::Refusal;
use model::blob::BlobId;
use model::spec::Invalid;

use crate::error::Error;
use crate::inbox::Unanswered;
use crate::request::RequestError;

/// A refused request.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    kind: ProblemKind,
    detail: Option<String>,
    field: Option<String>,
    blobs: Vec<BlobId>,
    offset: Option<u64>,
    diagnostics: Vec<DiagnosticView>,
}

impl Refused {
    pub fn new(kind: ProblemKind) -> Self {
        Self { kind, detail: None, field: None, blobs: Vec::new(), offset: None, diagnostics: Vec::new() }
    }

    pub fn detailed(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..Self::new(kind) }
    }

    /// A query parameter with an invalid value.
    pub fn parameter(name: &str, detail: impl Into<String>) -> Self {
        Self::detailed(ProblemKind::InvalidParameter, detail).at(name)
    }

    /// A cursor that this server did not issue.
    pub fn cursor(text: &str) -> Self {
        Self::detailed(ProblemKind::InvalidCursor, format!("`{text}` is not a cursor of this list")).at("cursor")
    }

    /// Names the field, parameter or header at fault.
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Names missing blobs.
    pub fn missing_blobs(mut self, blobs: Vec<BlobId>) -> Self {
        self.blobs = blobs;
        self
    }

    /// Names the offset at which an upload continues.
    pub fn continue_at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    pub fn is(&self, kind: ProblemKind) -> bool {
        self.kind == kind
    }

    pub fn problem(&self) -> Problem {
        Problem {
            field: self.field.clone(),
            blobs: self.blobs.clone(),
            offset: self.offset,
            diagnostics: self.diagnostics.clone(),
            ..self.kind.problem(self.detail.clone())
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.problem()).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(self.kind);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(secs) = self.kind.retry_after_secs() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        response
    }
}

fn kind_of(refusal: &Refusal) -> ProblemKind {
    match refusal {
        Refusal::UnknownJob(_) => ProblemKind::UnknownJob,
        Refusal::UnknownQueue(_) => ProblemKind::UnknownQueue,
        Refusal::QueueClosed(_) => ProblemKind::QueueClosed,
        Refusal::QueueNotEmpty(_) => ProblemKind::QueueNotEmpty,
        Refusal::QueueImplicit => ProblemKind::QueueImplicit,
        Refusal::WrongState { .. } => ProblemKind::WrongState,
        Refusal::RetriesUsedUp { .. } => ProblemKind::RetriesUsedUp,
        Refusal::KeyConflict => ProblemKind::IdempotencyConflict,
        Refusal::KeyHomeSilent { .. } => ProblemKind::KeyUnavailable,
        Refusal::TooManyKeys { .. } => ProblemKind::TooManyKeys,
        Refusal::Full { .. } => ProblemKind::Full,
        Refusal::TooManyQueues { .. } => ProblemKind::TooManyQueues,
        Refusal::OtherContent => ProblemKind::OtherContent,
        Refusal::OtherRule => ProblemKind::OtherRule,
        Refusal::AlreadyDecided { .. } => ProblemKind::AlreadyDecided,
        Refusal::ApprovalExpired => ProblemKind::ApprovalExpired,
        Refusal::OtherTenant { .. } => ProblemKind::OtherTenant,
        Refusal::NoDeadLetter(_) => ProblemKind::NoDeadLetter,
        Refusal::UnknownDeadLetter(_) => ProblemKind::UnknownDeadLetter,
        Refusal::CompensationUnreadable { .. } => ProblemKind::CompensationUnreadable,
        Refusal::NoOriginal => ProblemKind::NoOriginal,
        Refusal::TenantFull { .. } => ProblemKind::TenantFull,
        Refusal::TenantTooFast { .. } => ProblemKind::TenantTooFast,
        Refusal::Unreadable => ProblemKind::Internal,
        Refusal::UnknownWorkflow(_) => ProblemKind::UnknownWorkflow,
        Refusal::WorkflowSuspended(_) => ProblemKind::WorkflowSuspended,
        Refusal::WorkflowState { .. } => ProblemKind::WorkflowState,
        Refusal::UnknownTask { .. } => ProblemKind::UnknownTask,
        Refusal::NothingToRerun => ProblemKind::NothingToRerun,
        Refusal::PartOfWorkflow(_) => ProblemKind::PartOfWorkflow,
        Refusal::JobOfWorkflow(_) => ProblemKind::JobOfWorkflow,
        Refusal::TooManySignals { .. } => ProblemKind::TooManySignals,
        Refusal::UnknownSchedule(_) => ProblemKind::UnknownSchedule,
        Refusal::ScheduleNameTaken { .. } => ProblemKind::ScheduleNameTaken,
        Refusal::TooManySchedules { .. } => ProblemKind::TooManySchedules,
        Refusal::NoProgress => ProblemKind::NoProgress,
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self::detailed(kind_of(&refusal), refusal.to_string())
    }
}

impl From<RequestError> for Refused {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(refusal) => refusal.into(),
            RequestError::Unanswered(unanswered) => unanswered.into(),
            RequestError::Mismatch => Self::new(ProblemKind::Internal),
        }
    }
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Self {
        Self::detailed(ProblemKind::InvalidField, invalid.message).at(invalid.field)
    }
}

impl From<Unanswered> for Refused {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Busy => Self::detailed(ProblemKind::Busy, "nothing was accepted: retry in a moment"),
            Unanswered::Interrupted => Self::detailed(
                ProblemKind::AnswerLost,
                "the request may have been executed: repeat it with its idempotency key, or read the state",
            ),
            Unanswered::Stopping => Self::detailed(
                ProblemKind::Stopping,
                "the server stopped before it could respond: repeat the request with the same idempotency key",
            ),
        }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        tracing::error!(%error, "a request failed");
        Self::detailed(ProblemKind::Internal, error.to_string())
    }
}

impl From<shard::Error> for Refused {
    fn from(error: shard::Error) -> Self {
        Self::from(Error::from(error))
    }
}

impl From<store::Error> for Refused {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::CursorExpired | store::Error::ForeignCursor => {
                Self::detailed(ProblemKind::CursorExpired, error.to_string())
            }
            other => Self::from(Error::from(other)),
        }
    }
}

pub(crate) async fn unknown_route(uri: axum::http::Uri) -> Refused {
    Refused::detailed(ProblemKind::UnknownRoute, format!("`{}` is not a route; /docs lists all routes", uri.path()))
}

pub(crate) async fn method_not_allowed(method: axum::http::Method, uri: axum::http::Uri) -> Refused {
    let detail = format!("`{}` does not support {method}; /docs lists all routes", uri.path());
    Refused::detailed(ProblemKind::MethodNotAllowed, detail)
}
