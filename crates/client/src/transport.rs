//! HTTP/1.1 transport with connection reuse and retries of failed connection attempts.

use std::time::Duration;

use api::Problem;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::{sleep, timeout};

use crate::address::Address;
use crate::client::Options;
use crate::error::Error;

/// Limit of a response read into memory. The largest expected response is a page of jobs with large results.
const RESPONSE_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Limit of an error response to a streaming request.
const PROBLEM_BYTES_MAX: usize = 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A followed log may be silent for hours; keep-alive probes detect a dead peer.
const TCP_KEEPALIVE: Duration = Duration::from_secs(20);

/// A request to the API.
#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    pub method: Method,
    pub path: String,
    pub body: Bytes,
    pub content_type: Option<&'static str>,
    pub idempotency_key: Option<String>,
    /// Response format, for endpoints with several.
    pub accept: Option<&'static str>,
    /// Position at which an event stream resumes.
    pub last_event_id: Option<String>,
    /// Position of the body within a chunked upload.
    pub content_range: Option<String>,
    /// Added to the timeout, for requests that ask the server to wait.
    pub extra_timeout: Duration,
}

impl ApiRequest {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            body: Bytes::new(),
            content_type: None,
            idempotency_key: None,
            accept: None,
            last_event_id: None,
            content_range: None,
            extra_timeout: Duration::ZERO,
        }
    }

    pub(crate) fn body(mut self, content_type: &'static str, body: Bytes) -> Self {
        self.content_type = Some(content_type);
        self.body = body;
        self
    }
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub head: hyper::http::response::Parts,
    pub body: Bytes,
}

#[derive(Debug)]
pub(crate) struct Transport {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    address: Address,
    options: Options,
}

impl Transport {
    pub(crate) fn new(address: Address, options: Options) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_keepalive(Some(TCP_KEEPALIVE));
        let http = legacy::Client::builder(TokioExecutor::new()).build(connector);
        Self { http, address, options }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Sends a request and reads the whole response. A non-success status is an error.
    pub(crate) async fn send(&self, request: &ApiRequest) -> Result<ApiResponse, Error> {
        let limit = self.options.timeout + request.extra_timeout;
        let response = timeout(limit, async {
            let response = self.send_with_retries(request).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES_MAX);
            let body = body.collect().await.map_err(|error| self.unreachable(error))?.to_bytes();
            Ok(ApiResponse { head, body })
        });
        let response = response.await.unwrap_or_else(|_| Err(self.no_response_within(limit)))?;
        if response.head.status.is_success() {
            return Ok(response);
        }
        Err(refusal(response.head.status, &response.body))
    }

    /// Sends a request and returns the streaming body. No timeout: a followed stream may start late.
    pub(crate) async fn open(&self, request: &ApiRequest) -> Result<Incoming, Error> {
        let response = self.send_with_retries(request).await?;
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let body = Limited::new(body, PROBLEM_BYTES_MAX).collect().await.map_err(|error| self.unreachable(error))?;
        Err(refusal(head.status, &body.to_bytes()))
    }

    /// Retries only failed connection attempts: a request that was sent may have been executed.
    async fn send_with_retries(&self, request: &ApiRequest) -> Result<Response<Incoming>, Error> {
        let mut pause = self.options.retry_pause;
        let mut retries_left = self.options.retries;
        loop {
            match self.http.request(self.http_request(request)?).await {
                Ok(response) => return Ok(response),
                Err(error) if error.is_connect() && retries_left > 0 => {
                    retries_left -= 1;
                    sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => return Err(self.unreachable(error)),
            }
        }
    }

    fn http_request(&self, request: &ApiRequest) -> Result<Request<Full<Bytes>>, Error> {
        let mut http = Request::new(Full::new(request.body.clone()));
        *http.method_mut() = request.method.clone();
        *http.uri_mut() = self.address.uri(&request.path)?;
        let headers = http.headers_mut();
        if let Some(content_type) = request.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if let Some(key) = &request.idempotency_key {
            headers.insert(HeaderName::from_static("idempotency-key"), header_value("the idempotency key", key)?);
        }
        if let Some(accept) = request.accept {
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
        }
        if let Some(id) = &request.last_event_id {
            headers.insert(HeaderName::from_static("last-event-id"), header_value("the id of the last event", id)?);
        }
        if let Some(range) = &request.content_range {
            headers.insert(CONTENT_RANGE, header_value("the content range", range)?);
        }
        if let Some(actor) = &self.options.actor {
            // Names may contain non-ASCII letters.
            let value = HeaderValue::from_bytes(actor.as_bytes());
            let value =
                value.map_err(|_| Error::Protocol("the actor's name contains control characters".to_owned()))?;
            headers.insert(HeaderName::from_static("outlast-actor"), value);
        }
        if let Some(token) = &self.options.token {
            let mut value = header_value("the token", &format!("Bearer {token}"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(http)
    }

    pub(crate) fn unreachable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Unreachable { url: self.address.to_string(), source: source.into() }
    }

    fn no_response_within(&self, limit: Duration) -> Error {
        self.unreachable(format!("no response within {limit:?}"))
    }
}

fn header_value(what: &str, text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(text)
        .map_err(|_| Error::Protocol(format!("{what} contains characters that an HTTP header cannot carry")))
}

/// The error of a non-success response. A proxy may have sent it, so that the body need not be a [`Problem`].
fn refusal(status: StatusCode, body: &[u8]) -> Error {
    let problem = serde_json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&body[..body.len().min(200)]).trim().to_owned();
        let reason = status.canonical_reason().unwrap_or("an unknown status");
        Problem {
            kind: "about:blank".to_owned(),
            title: reason.to_owned(),
            status: status.as_u16(),
            detail: if text.is_empty() { format!("the server returned {status}") } else { text },
            code: reason.to_lowercase().replace([' ', '-'], "_"),
            field: None,
            blobs: Vec::new(),
            offset: None,
            diagnostics: Vec::new(),
        }
    });
    Error::Refused(Box::new(problem))
}
