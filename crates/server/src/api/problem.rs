//! Errors as clients see them: RFC 9457 problem documents with a stable code and a way out.

mod content;
mod flows;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::Refusal;
use model::blob::BlobId;
use model::spec::Invalid;
use model::view::{DiagnosticView, Problem};

use crate::error::Error;
use crate::inbox::Unanswered;
pub(crate) use content::ContentFault;
pub(crate) use flows::FlowFault;

/// Everything that can be wrong with a request, or with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    InvalidJson,
    UnknownField,
    InvalidField,
    UnsupportedField,
    InvalidId,
    InvalidParameter,
    InvalidCursor,
    BodyTooLarge,
    TooManyJobs,
    UnsupportedMediaType,
    ForeignOrigin,
    ForeignHost,
    SandboxNotAllowed,
    UnknownRoute,
    MethodNotAllowed,
    UpgradeRequired,
    UnknownJob,
    UnknownNode,
    UnknownQueue,
    NoLogs,
    NotTerminal,
    WrongState,
    RetriesUsedUp,
    QueueClosed,
    QueueNotEmpty,
    QueueImplicit,
    IdempotencyConflict,
    IdempotencyGone,
    TooManyKeys,
    Full,
    TooManyQueues,
    TooManySubscribers,
    OtherContent,
    OtherRule,
    AlreadyDecided,
    ApprovalExpired,
    OtherTenant,
    NoDeadLetter,
    NoOriginal,
    Quarantined,
    OriginalsNotShown,
    PolicyUnavailable,
    TenantFull,
    TenantTooFast,
    CursorExpired,
    NotReady,
    Busy,
    Stopping,
    Internal,
    /// Something about blobs and workers.
    Content(ContentFault),
    /// Something about workflows and schedules.
    Flow(FlowFault),
}

impl Fault {
    /// The status, the stable code, and what it is called.
    fn facts(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::InvalidJson => (S::BAD_REQUEST, "invalid_json", "The body is not the JSON that this route takes"),
            Self::UnknownField => {
                (S::BAD_REQUEST, "unknown_field", "The body has a field that this route does not know")
            }
            Self::InvalidField => (S::BAD_REQUEST, "invalid_field", "A field has a value that cannot be accepted"),
            Self::UnsupportedField => (S::BAD_REQUEST, "unsupported_field", "This version does not do that yet"),
            Self::InvalidId => (S::BAD_REQUEST, "invalid_id", "The id is malformed or of another kind"),
            Self::InvalidParameter => (S::BAD_REQUEST, "invalid_parameter", "A query parameter cannot be accepted"),
            Self::InvalidCursor => {
                (S::BAD_REQUEST, "invalid_cursor", "The cursor is not one that this server gave out")
            }
            Self::BodyTooLarge => (S::PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large"),
            Self::TooManyJobs => (S::PAYLOAD_TOO_LARGE, "too_many_jobs_in_batch", "The batch has too many jobs"),
            Self::UnsupportedMediaType => (
                S::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_media_type",
                "The body's type is not one that this route takes",
            ),
            Self::ForeignOrigin => (S::FORBIDDEN, "foreign_origin", "The request comes from a foreign web page"),
            Self::ForeignHost => (S::FORBIDDEN, "foreign_host", "The request names a host that this server is not"),
            Self::SandboxNotAllowed => (S::FORBIDDEN, "sandbox_not_allowed", "The job wants to run without a sandbox"),
            Self::UnknownRoute => (S::NOT_FOUND, "unknown_route", "There is no such route"),
            Self::MethodNotAllowed => {
                (S::METHOD_NOT_ALLOWED, "method_not_allowed", "The route does not know this method")
            }
            Self::UpgradeRequired => (S::UPGRADE_REQUIRED, "upgrade_required", "This route speaks WebSocket only"),
            Self::UnknownJob => (S::NOT_FOUND, "unknown_job", "There is no such job"),
            Self::UnknownNode => (S::NOT_FOUND, "unknown_node", "There is no such node"),
            Self::UnknownQueue => (S::NOT_FOUND, "unknown_queue", "There is no such queue"),
            Self::NoLogs => (S::NOT_FOUND, "no_logs", "There is no output of such an attempt"),
            Self::NotTerminal => (S::CONFLICT, "not_terminal", "The job has not ended yet"),
            Self::WrongState => (S::CONFLICT, "wrong_state", "The job's state does not allow that"),
            Self::RetriesUsedUp => (S::CONFLICT, "retries_used_up", "The job has no retries left"),
            Self::QueueClosed => (S::CONFLICT, "queue_closed", "The queue takes no new jobs"),
            Self::QueueNotEmpty => (S::CONFLICT, "queue_not_empty", "The queue has jobs that have not ended"),
            Self::QueueImplicit => (S::CONFLICT, "queue_implicit", "The implicit queue of a tenant stays as it is"),
            Self::IdempotencyConflict => {
                (S::CONFLICT, "idempotency_conflict", "The idempotency key was used with another body")
            }
            Self::IdempotencyGone => (S::CONFLICT, "idempotency_gone", "What the key has made was removed since"),
            Self::TooManyKeys => {
                (S::TOO_MANY_REQUESTS, "too_many_keys", "The tenant has used too many idempotency keys")
            }
            Self::Full => (S::TOO_MANY_REQUESTS, "too_many_jobs", "There are too many jobs that have not ended"),
            Self::TooManyQueues => (S::TOO_MANY_REQUESTS, "too_many_queues", "There are too many queues"),
            Self::TooManySubscribers => {
                (S::TOO_MANY_REQUESTS, "too_many_subscribers", "There are too many subscribers")
            }
            Self::OtherContent => (S::CONFLICT, "other_content", "The approval is about another content of the job"),
            Self::OtherRule => {
                (S::CONFLICT, "other_rule", "The approval is for another rule than the one that asks now")
            }
            Self::AlreadyDecided => (S::CONFLICT, "already_decided", "The job was approved or rejected before"),
            Self::ApprovalExpired => (S::CONFLICT, "approval_expired", "Nobody approved or rejected the job in time"),
            Self::OtherTenant => (S::CONFLICT, "other_tenant", "The queue belongs to another tenant"),
            Self::NoDeadLetter => (S::NOT_FOUND, "no_dead_letter", "The job has left no dead letter"),
            Self::NoOriginal => (S::NOT_FOUND, "no_original", "Nothing was kept of what the policy removed"),
            Self::Quarantined => {
                (S::CONFLICT, "quarantined", "The policy keeps the job's result and output from everybody")
            }
            Self::OriginalsNotShown => {
                (S::FORBIDDEN, "originals_not_shown", "This server shows nobody what the policy removed")
            }
            Self::PolicyUnavailable => (S::SERVICE_UNAVAILABLE, "policy_unavailable", "The policy cannot be asked now"),
            Self::TenantFull => {
                (S::TOO_MANY_REQUESTS, "tenant_full", "The tenant has too many jobs that have not ended")
            }
            Self::TenantTooFast => {
                (S::TOO_MANY_REQUESTS, "tenant_too_fast", "The tenant submits too many jobs a second")
            }
            Self::CursorExpired => (S::GONE, "cursor_expired", "The changes after this cursor are no longer kept"),
            Self::NotReady => (S::SERVICE_UNAVAILABLE, "not_ready", "The server is not ready yet"),
            Self::Busy => (S::SERVICE_UNAVAILABLE, "busy", "The server has too many requests in hand"),
            Self::Stopping => (S::SERVICE_UNAVAILABLE, "stopping", "The server is stopping"),
            Self::Internal => (S::INTERNAL_SERVER_ERROR, "internal", "The server has met a problem of its own"),
            Self::Content(fault) => fault.facts(),
            Self::Flow(fault) => fault.facts(),
        }
    }

    fn retry_after_secs(self) -> Option<u64> {
        match self {
            Self::Full
            | Self::TenantFull
            | Self::TenantTooFast
            | Self::Busy
            | Self::NotReady
            | Self::Stopping
            | Self::TooManySubscribers
            | Self::PolicyUnavailable => Some(1),
            Self::Content(fault) => fault.retry_after_secs(),
            Self::Flow(fault) => fault.retry_after_secs(),
            _ => None,
        }
    }
}

/// A refused request.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    fault: Fault,
    detail: Option<String>,
    field: Option<String>,
    blobs: Vec<BlobId>,
    offset: Option<u64>,
    diagnostics: Vec<DiagnosticView>,
}

impl Refused {
    pub fn new(fault: Fault) -> Self {
        Self { fault, detail: None, field: None, blobs: Vec::new(), offset: None, diagnostics: Vec::new() }
    }

    pub fn saying(fault: Fault, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..Self::new(fault) }
    }

    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Names the blobs that are missing.
    pub fn lacking(mut self, blobs: Vec<BlobId>) -> Self {
        self.blobs = blobs;
        self
    }

    /// Says where an upload goes on.
    pub fn going_on_at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    pub fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    pub fn problem(&self) -> Problem {
        let (status, code, title) = self.fault.facts();
        Problem {
            kind: format!("/docs#{code}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: self.detail.clone().unwrap_or_else(|| format!("{title}.")),
            code: code.to_owned(),
            field: self.field.clone(),
            blobs: self.blobs.clone(),
            offset: self.offset,
            diagnostics: self.diagnostics.clone(),
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, ..) = self.fault.facts();
        let body = serde_json::to_vec(&self.problem()).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(secs) = self.fault.retry_after_secs() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        response
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let fault = match &refusal {
            Refusal::UnknownJob(_) => Fault::UnknownJob,
            Refusal::UnknownQueue(_) => Fault::UnknownQueue,
            Refusal::QueueClosed(_) => Fault::QueueClosed,
            Refusal::QueueNotEmpty(_) => Fault::QueueNotEmpty,
            Refusal::QueueImplicit => Fault::QueueImplicit,
            Refusal::WrongState { .. } => Fault::WrongState,
            Refusal::RetriesUsedUp { .. } => Fault::RetriesUsedUp,
            Refusal::KeyConflict => Fault::IdempotencyConflict,
            Refusal::TooManyKeys { .. } => Fault::TooManyKeys,
            Refusal::Full { .. } => Fault::Full,
            Refusal::TooManyQueues { .. } => Fault::TooManyQueues,
            Refusal::OtherContent => Fault::OtherContent,
            Refusal::OtherRule => Fault::OtherRule,
            Refusal::AlreadyDecided { .. } => Fault::AlreadyDecided,
            Refusal::ApprovalExpired => Fault::ApprovalExpired,
            Refusal::OtherTenant { .. } => Fault::OtherTenant,
            Refusal::NoLetter(_) => Fault::NoDeadLetter,
            Refusal::NoOriginal => Fault::NoOriginal,
            Refusal::TenantFull { .. } => Fault::TenantFull,
            Refusal::TenantTooFast { .. } => Fault::TenantTooFast,
            Refusal::Unreadable => Fault::Internal,
            Refusal::UnknownWorkflow(_)
            | Refusal::WorkflowState { .. }
            | Refusal::UnknownTask { .. }
            | Refusal::NothingToRerun
            | Refusal::PartOfWorkflow(_)
            | Refusal::JobOfWorkflow(_)
            | Refusal::TooManySignals { .. }
            | Refusal::UnknownSchedule(_)
            | Refusal::ScheduleNameTaken { .. }
            | Refusal::TooManySchedules { .. }
            | Refusal::NoProgress => flows::fault_of(&refusal),
        };
        Self::saying(fault, refusal.to_string())
    }
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Self {
        Self::saying(Fault::InvalidField, invalid.message).at(invalid.field)
    }
}

impl From<Unanswered> for Refused {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Busy => Self::saying(Fault::Busy, "nothing was accepted: try again in a moment"),
            Unanswered::Stopping => {
                Self::saying(Fault::Stopping, "the server stopped before it could answer: ask again, with the same key")
            }
        }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        tracing::error!(%error, "a request could not be answered");
        Self::saying(Fault::Internal, error.to_string())
    }
}

impl From<store::Error> for Refused {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::CursorExpired { .. } => Self::saying(Fault::CursorExpired, error.to_string()),
            other => Self::from(Error::from(other)),
        }
    }
}

pub(crate) async fn unknown_route(uri: axum::http::Uri) -> Refused {
    Refused::saying(Fault::UnknownRoute, format!("`{}` is not a route; /docs lists them all", uri.path()))
}

pub(crate) async fn method_not_allowed(method: axum::http::Method, uri: axum::http::Uri) -> Refused {
    Refused::saying(Fault::MethodNotAllowed, format!("`{}` does not take {method}; /docs lists the routes", uri.path()))
}
