//! `http`: requests are sent by the node, which checks them against the module's allow-list.

use std::time::Duration;

use crate::bindings::outlast::module::http;
use crate::guest::Guest;

/// Sends requests of a module. Only to hosts that the module may reach, redirects included.
pub trait Outgoing: Send + Sync {
    /// Blocks for at most `timeout`.
    fn send(&self, request: HttpRequest, timeout: Duration) -> Result<HttpResponse, HttpError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("the module may not reach {0}")]
    Denied(String),
    #[error("{0}")]
    Invalid(String),
    /// The request may have reached the server.
    #[error("{0}")]
    Failed(String),
}

impl http::Host for Guest {
    fn send(&mut self, request: http::Request) -> wasmtime::Result<Result<http::Response, http::HttpError>> {
        let Some(outgoing) = self.capabilities.http.clone() else {
            return Ok(Err(http::HttpError::Denied("anything: its manifest allows no hosts".into())));
        };
        let http::Request { method, url, headers, body } = request;
        let timeout = self.remaining_time();
        let response = outgoing.send(HttpRequest { method, url, headers, body }, timeout);
        self.stop_conditions.check()?;
        Ok(match response {
            Ok(HttpResponse { status, headers, body }) => Ok(http::Response { status, headers, body }),
            Err(HttpError::Denied(host)) => Err(http::HttpError::Denied(host)),
            Err(HttpError::Invalid(why)) => Err(http::HttpError::Invalid(why)),
            Err(HttpError::Failed(why)) => Err(http::HttpError::Failed(why)),
        })
    }
}

impl Guest {
    fn remaining_time(&self) -> Duration {
        let deadline = self.stop_conditions.deadline;
        deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(std::time::Instant::now()))
    }
}
