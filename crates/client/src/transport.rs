//! Requests and answers over reused HTTP/1.1 connections, with retries where nothing can have happened yet.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use model::view::Problem;
use tokio::time::{sleep, timeout};

use crate::address::Address;
use crate::client::Options;
use crate::error::Error;

/// The largest answer that is taken into memory. A page of jobs with large results is the largest thing that is asked for.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;
/// The largest description of an error that is read.
const PROBLEM_BYTES_MAX: usize = 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A follower of logs may hear nothing for hours; this is how it still notices that the other side is gone.
const TCP_KEEPALIVE: Duration = Duration::from_secs(20);

/// What is to be asked.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub method: Method,
    pub path: String,
    pub body: Bytes,
    pub content_type: Option<&'static str>,
    pub idempotency_key: Option<String>,
    /// The form of the answer, where the server has more than one.
    pub accept: Option<&'static str>,
    /// Where a stream of events is taken up again.
    pub last_event_id: Option<String>,
    /// Where the body belongs in a whole that comes in pieces.
    pub content_range: Option<String>,
    /// How much longer than usual the server may take, because it was asked to wait.
    pub patience: Duration,
}

impl Ask {
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
            patience: Duration::ZERO,
        }
    }

    pub(crate) fn body(mut self, content_type: &'static str, body: Bytes) -> Self {
        self.content_type = Some(content_type);
        self.body = body;
        self
    }
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Answer {
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

    /// Asks and reads the whole answer; anything but success is an error.
    pub(crate) async fn ask(&self, ask: &Ask) -> Result<Answer, Error> {
        let limit = self.options.timeout + ask.patience;
        let answer = timeout(limit, async {
            let response = self.send(ask).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX);
            let body = body.collect().await.map_err(|error| self.unreachable(error))?.to_bytes();
            Ok(Answer { head, body })
        });
        let answer = answer.await.unwrap_or_else(|_| Err(self.no_answer_within(limit)))?;
        if answer.head.status.is_success() {
            return Ok(answer);
        }
        Err(refusal(answer.head.status, &answer.body))
    }

    /// Asks and gives the body as it comes in. Without a limit in time: what is followed may take its time to begin.
    pub(crate) async fn open(&self, ask: &Ask) -> Result<Incoming, Error> {
        let response = self.send(ask).await?;
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let body = Limited::new(body, PROBLEM_BYTES_MAX).collect().await.map_err(|error| self.unreachable(error))?;
        Err(refusal(head.status, &body.to_bytes()))
    }

    /// Sends until there is an answer. Only a connection that was never made is tried again: once a request is out,
    /// it may have been carried out.
    async fn send(&self, ask: &Ask) -> Result<Response<Incoming>, Error> {
        let mut pause = self.options.retry_pause;
        let mut retries_left = self.options.retries;
        loop {
            match self.http.request(self.request(ask)?).await {
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

    fn request(&self, ask: &Ask) -> Result<Request<Full<Bytes>>, Error> {
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = self.address.uri(&ask.path)?;
        let headers = request.headers_mut();
        if let Some(content_type) = ask.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if let Some(key) = &ask.idempotency_key {
            headers.insert(HeaderName::from_static("idempotency-key"), header_value("the idempotency key", key)?);
        }
        if let Some(accept) = ask.accept {
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
        }
        if let Some(id) = &ask.last_event_id {
            headers.insert(HeaderName::from_static("last-event-id"), header_value("the id of the last event", id)?);
        }
        if let Some(range) = &ask.content_range {
            headers.insert(CONTENT_RANGE, header_value("the place of a piece", range)?);
        }
        if let Some(actor) = &self.options.actor {
            // Names have letters beyond ASCII.
            let value = HeaderValue::from_bytes(actor.as_bytes());
            let value =
                value.map_err(|_| Error::Protocol("the actor's name has characters that no name has".to_owned()))?;
            headers.insert(HeaderName::from_static("outlast-actor"), value);
        }
        if let Some(token) = &self.options.token {
            let mut value = header_value("the token", &format!("Bearer {token}"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(request)
    }

    pub(crate) fn unreachable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Unreachable { url: self.address.to_string(), source: source.into() }
    }

    fn no_answer_within(&self, limit: Duration) -> Error {
        self.unreachable(format!("no answer within {limit:?}"))
    }
}

fn header_value(what: &str, text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(text)
        .map_err(|_| Error::Protocol(format!("{what} cannot be sent: it has characters that a header may not have")))
}

/// What the server said no with. Something between client and server may have answered in its stead, in its own words.
fn refusal(status: StatusCode, body: &[u8]) -> Error {
    let problem = serde_json::from_slice(body).unwrap_or_else(|_| {
        let words = String::from_utf8_lossy(&body[..body.len().min(200)]).trim().to_owned();
        let reason = status.canonical_reason().unwrap_or("an unknown status");
        Problem {
            kind: "about:blank".to_owned(),
            title: reason.to_owned(),
            status: status.as_u16(),
            detail: if words.is_empty() { format!("the server answered {status}") } else { words },
            code: reason.to_lowercase().replace([' ', '-'], "_"),
            field: None,
            blobs: Vec::new(),
            offset: None,
            diagnostics: Vec::new(),
        }
    });
    Error::Refused(Box::new(problem))
}
