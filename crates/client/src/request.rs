//! A request to the API, and what a repetition of it does.

use std::time::Duration;

use api::headers::RESENT_BODY_BYTES_MAX;
use bytes::Bytes;
use hyper::Method;

pub(crate) const JSON: &str = "application/json";
pub(crate) const NDJSON: &str = "application/x-ndjson";

/// What a repetition of a request does, and thereby when a request that got no answer is sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It reads, or has an idempotency key.
    Harmless,
    /// It changes something, once: the same again has no further effect.
    Idempotent,
    /// The same for a deletion. What is missing the second time was deleted the first time.
    Deletion,
    /// It changes something each time. Only the server that may have executed it can answer it again. `check` is what
    /// to read to find out whether it was executed.
    Once { check: String },
}

impl Repeat {
    /// A request whose effect is shown by a GET of this path.
    pub(crate) fn once(path: impl AsRef<str>) -> Self {
        Self::Once { check: format!("GET {}", path.as_ref()) }
    }
}

/// A request to the API.
#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    pub method: Method,
    pub path: String,
    pub repeat: Repeat,
    pub body: Bytes,
    pub content_type: Option<&'static str>,
    pub idempotency_key: Option<String>,
    /// Response format, for endpoints with several.
    pub accept: Option<&'static str>,
    /// Position at which an event stream resumes.
    pub last_event_id: Option<String>,
    /// Position of the body within a chunked upload.
    pub content_range: Option<String>,
    /// Part of the content to send.
    pub range: Option<String>,
    /// Added to the timeout, for requests that ask the server to wait.
    pub extra_timeout: Duration,
    /// Whether the request is tried once only, with each server.
    pub single: bool,
}

impl ApiRequest {
    pub(crate) fn new(method: Method, path: impl Into<String>, repeat: Repeat) -> Self {
        Self {
            method,
            path: path.into(),
            repeat,
            body: Bytes::new(),
            content_type: None,
            idempotency_key: None,
            accept: None,
            last_event_id: None,
            content_range: None,
            range: None,
            extra_timeout: Duration::ZERO,
            single: false,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, Repeat::Harmless)
    }

    pub(crate) fn post(path: impl Into<String>, repeat: Repeat) -> Self {
        Self::new(Method::POST, path, repeat)
    }

    pub(crate) fn body(mut self, content_type: &'static str, body: Bytes) -> Self {
        self.content_type = Some(content_type);
        self.body = body;
        self
    }

    pub(crate) fn json(self, body: Bytes) -> Self {
        self.body(JSON, body)
    }

    /// Whether a server keeps the answer to this request under its id.
    pub(crate) fn is_covered_by_id(&self) -> bool {
        let has_id = match self.repeat {
            Repeat::Harmless => false,
            Repeat::Idempotent | Repeat::Deletion | Repeat::Once { .. } => true,
        };
        let is_json = self.content_type.map_or(self.body.is_empty(), |content_type| content_type == JSON);
        has_id && is_json && self.body.len() <= RESENT_BODY_BYTES_MAX
    }
}
