//! HTTP/1.1 transport: connection reuse, several servers, and requests that are sent again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::headers::{GENERATION, IF_GENERATION, REQUEST_ID};
use api::{Problem, ProblemKind};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue, RANGE};
use hyper::http::response::Parts;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::{sleep, timeout};

use crate::address::Address;
use crate::attempts::{Attempt, Attempts, FOREIGN, Failure};
use crate::client::Options;
use crate::error::{Error, seconds};
use crate::request::ApiRequest;
use crate::servers::{ServerIndex, Servers};

/// Limit of a response read into memory. The largest expected response is a page of jobs with large results.
const RESPONSE_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Limit of an error response to a streaming request.
const PROBLEM_BYTES_MAX: usize = 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A followed log may be silent for hours; keep-alive probes detect a dead peer.
const TCP_KEEPALIVE: Duration = Duration::from_secs(20);

/// A complete response.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub head: Parts,
    pub body: Bytes,
}

impl ApiResponse {
    /// The response to a deletion.
    fn deleted() -> Self {
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = StatusCode::NO_CONTENT;
        Self { head, body: Bytes::new() }
    }
}

#[derive(Debug)]
pub(crate) struct Transport {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    servers: Arc<Servers>,
    options: Options,
}

impl Transport {
    /// `addresses`: at least one.
    pub(crate) fn new(addresses: Vec<Address>, options: Options) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_keepalive(Some(TCP_KEEPALIVE));
        let http = legacy::Client::builder(TokioExecutor::new()).build(connector);
        Self { http, servers: Arc::new(Servers::new(addresses)), options }
    }

    /// The same connections with other options.
    pub(crate) fn with_options(&self, options: Options) -> Self {
        Self { http: self.http.clone(), servers: self.servers.clone(), options }
    }

    /// Address of the server that answered last.
    pub(crate) fn address(&self) -> &Address {
        self.servers.address(self.servers.current())
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Sends a request and reads the whole response. A non-success status is an error.
    pub(crate) async fn send(&self, request: &ApiRequest) -> Result<ApiResponse, Error> {
        let mut attempts = Attempts::new(request, &self.servers, &self.options, Instant::now())?;
        match self.exchange::<Whole>(request, &mut attempts).await {
            Err(error) if attempts.has_deleted(&error) => Ok(ApiResponse::deleted()),
            result => result,
        }
    }

    /// Sends a request and returns the streaming body. No timeout: a followed stream may start late.
    pub(crate) async fn open(&self, request: &ApiRequest) -> Result<Incoming, Error> {
        Ok(self.open_response(request).await?.into_body())
    }

    /// The same with status and headers.
    pub(crate) async fn open_response(&self, request: &ApiRequest) -> Result<Response<Incoming>, Error> {
        let mut attempts = Attempts::new(request, &self.servers, &self.options, Instant::now())?;
        self.exchange::<Stream>(request, &mut attempts).await
    }

    /// Makes attempts until one has an answer or the last one has failed.
    async fn exchange<R: Receive>(
        &self,
        request: &ApiRequest,
        attempts: &mut Attempts<'_>,
    ) -> Result<R::Received, Error> {
        loop {
            let known = match attempts.needs_generation() {
                Some(server) => self.learn_generation(server).await,
                None => Ok(()),
            };
            let attempt = attempts.next(Instant::now());
            let received = match known {
                Ok(()) => R::receive(self, request, &attempt).await,
                Err(failure) => Err(failure),
            };
            match received {
                Ok(received) => {
                    self.servers.set_current(attempt.server);
                    return Ok(received);
                }
                Err(failure) => sleep(attempts.failed(&attempt, failure, Instant::now())?).await,
            }
        }
    }

    /// Any response names the generation of its server.
    async fn learn_generation(&self, server: ServerIndex) -> Result<(), Failure> {
        let attempt = Attempt { server, request_id: None, generation: None, timeout: self.options.timeout };
        match Whole::receive(self, &ApiRequest::get("/healthz"), &attempt).await {
            Ok(_) | Err(Failure::Refused(_)) => Ok(()),
            // The request itself was not sent yet.
            Err(Failure::Unsent(source) | Failure::Unanswered(source)) => Err(Failure::Unsent(source)),
            Err(Failure::Final(error)) => Err(Failure::Final(error)),
        }
    }

    async fn receive_head(&self, request: &ApiRequest, attempt: &Attempt) -> Result<Response<Incoming>, Failure> {
        let http = self.http_request(request, attempt).map_err(Failure::Final)?;
        match self.http.request(http).await {
            Ok(response) => {
                self.servers.set_reached();
                self.servers.record_generation(attempt.server, response.headers().get(GENERATION));
                Ok(response)
            }
            Err(error) if error.is_connect() => Err(Failure::Unsent(error.into())),
            Err(error) => {
                self.servers.set_reached();
                Err(Failure::Unanswered(error.into()))
            }
        }
    }

    fn refusal(&self, server: ServerIndex, status: StatusCode, body: &[u8]) -> Failure {
        let problem = problem(status, body);
        if problem.code == ProblemKind::NotReady.code() {
            self.servers.expect_generation(server);
        }
        Failure::Refused(Box::new(problem))
    }

    fn http_request(&self, request: &ApiRequest, attempt: &Attempt) -> Result<Request<Full<Bytes>>, Error> {
        let mut http = Request::new(Full::new(request.body.clone()));
        *http.method_mut() = request.method.clone();
        *http.uri_mut() = self.servers.address(attempt.server).uri(&request.path)?;
        let headers = http.headers_mut();
        if let Some(content_type) = request.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if let Some(key) = &request.idempotency_key {
            headers.insert(HeaderName::from_static("idempotency-key"), header_value("the idempotency key", key)?);
        }
        if let Some(id) = &attempt.request_id {
            headers.insert(HeaderName::from_static(REQUEST_ID), id.clone());
        }
        if let Some(generation) = &attempt.generation {
            headers.insert(HeaderName::from_static(IF_GENERATION), generation.clone());
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
        if let Some(range) = &request.range {
            headers.insert(RANGE, header_value("the range", range)?);
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

    /// A stream that broke.
    pub(crate) fn unreachable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Unreachable { servers: self.address().to_string(), tried_for: Duration::ZERO, source: source.into() }
    }
}

/// What is read of a response.
trait Receive {
    type Received;

    fn receive(
        transport: &Transport,
        request: &ApiRequest,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<Self::Received, Failure>> + Send;
}

/// The whole response.
struct Whole;

impl Receive for Whole {
    type Received = ApiResponse;

    async fn receive(transport: &Transport, request: &ApiRequest, attempt: &Attempt) -> Result<ApiResponse, Failure> {
        let response = timeout(attempt.timeout, async {
            let (head, body) = transport.receive_head(request, attempt).await?.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await.map_err(incomplete)?;
            Ok(ApiResponse { head, body: body.to_bytes() })
        });
        let response = response.await.unwrap_or_else(|_| {
            let silence = format!("no response within {}", seconds(attempt.timeout));
            Err(Failure::Unanswered(silence.into()))
        })?;
        match response.head.status.is_success() {
            true => Ok(response),
            false => Err(transport.refusal(attempt.server, response.head.status, &response.body)),
        }
    }
}

/// The head; the body is a stream.
struct Stream;

impl Receive for Stream {
    type Received = Response<Incoming>;

    async fn receive(
        transport: &Transport,
        request: &ApiRequest,
        attempt: &Attempt,
    ) -> Result<Self::Received, Failure> {
        let response = transport.receive_head(request, attempt).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let body = Limited::new(body, PROBLEM_BYTES_MAX).collect().await.map_err(incomplete)?;
        Err(transport.refusal(attempt.server, head.status, &body.to_bytes()))
    }
}

/// A response whose body cannot be read to its end.
fn incomplete(error: Box<dyn std::error::Error + Send + Sync>) -> Failure {
    if error.is::<LengthLimitError>() {
        return Failure::Final(Error::Protocol("the response is larger than its limit".to_owned()));
    }
    Failure::Unanswered(error)
}

fn header_value(what: &str, text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(text)
        .map_err(|_| Error::Protocol(format!("{what} contains characters that an HTTP header cannot carry")))
}

/// The problem of a non-success response. A proxy may have sent it, so that the body need not be a [`Problem`].
fn problem(status: StatusCode, body: &[u8]) -> Problem {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&body[..body.len().min(200)]).trim().to_owned();
        let reason = status.canonical_reason().unwrap_or("an unknown status");
        Problem {
            kind: FOREIGN.to_owned(),
            title: reason.to_owned(),
            status: status.as_u16(),
            detail: if text.is_empty() { format!("the server returned {status}") } else { text },
            code: reason.to_lowercase().replace([' ', '-'], "_"),
            field: None,
            blobs: Vec::new(),
            offset: None,
            diagnostics: Vec::new(),
        }
    })
}
