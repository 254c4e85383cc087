//! Resent requests: a request with an id is executed once, and a resend gets the first answer.
//!
//! Requests without the header pass through untouched, as do bodies that are not JSON or larger than
//! [`RESENT_BODY_BYTES_MAX`]: uploads and large batches are not held in memory.

mod memory;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use ::api::headers::{REPLAYED, REQUEST_ID, RESENT_BODY_BYTES_MAX};
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::future::RouteFuture;
use futures_util::future::{BoxFuture, Either};
use http_body_util::BodyExt;
use model::spec::Digest;
use tower_service::Service;

use super::App;
use super::body::{self, Media};
use super::problem::{ProblemKind, Refused};
pub(crate) use memory::Replays;
use memory::{ANSWER_BYTES_MAX, Answer, Begun, Execution, Outcome, Rejected, RequestId};

/// Headers that are part of an answer.
const KEPT_HEADERS: [HeaderName; 3] = [header::CONTENT_TYPE, header::LOCATION, header::RETRY_AFTER];

const TOO_LARGE: &str = "the request was executed, but its answer was too large to be kept: read the state";
const PANICKED: &str = "the server failed while it executed the request: read the state";

/// The router behind the memory of answers. A wrapper instead of a layer, for the reason of [`super::guard::Guarded`].
#[derive(Clone)]
pub(crate) struct Replaying {
    pub app: Arc<App>,
    pub router: Router,
}

impl Service<Request> for Replaying {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<RouteFuture<Infallible>, BoxFuture<'static, Result<Response, Infallible>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if !is_covered(&request) {
            return Either::Left(self.router.call(request));
        }
        let handled = execute_once(self.app.replays.clone(), self.router.clone(), request);
        Either::Right(Box::pin(async { Ok(handled.await.unwrap_or_else(IntoResponse::into_response)) }))
    }
}

/// Whether the request has an id and can be compared with another one of the same id.
fn is_covered(request: &Request) -> bool {
    let headers = request.headers();
    if !headers.contains_key(REQUEST_ID) {
        return false;
    }
    let changes = [Method::POST, Method::DELETE, Method::PUT, Method::PATCH].contains(request.method());
    let bytes_max = request.body().size_hint().upper();
    let fits = bytes_max.is_some_and(|bytes| bytes <= RESENT_BODY_BYTES_MAX as u64);
    let is_json = match headers.contains_key(header::CONTENT_TYPE) {
        true => matches!(body::media(headers), Ok(Media::Json)),
        false => bytes_max == Some(0),
    };
    changes && fits && is_json
}

async fn execute_once(replays: Arc<Replays>, router: Router, request: Request) -> Result<Response, Refused> {
    let (head, body) = request.into_parts();
    let id = request_id(&head.headers)?;
    let body = body::read(body, RESENT_BODY_BYTES_MAX).await?;
    match replays.begin(id, fingerprint(&head, &body), Instant::now()) {
        Ok(Begun::First(execution)) => {
            // A task of its own: if the connection breaks, the answer is kept for the resend.
            let executed = tokio::spawn(execute(router, Request::from_parts(head, Body::from(body)), execution));
            executed.await.map_err(|_| Refused::detailed(ProblemKind::AnswerLost, PANICKED))
        }
        Ok(Begun::Resent(resent)) => replay(resent.outcome().await),
        Err(Rejected::Conflict) => {
            let detail = "the id was used with another method, path or body; nothing was executed";
            Err(Refused::detailed(ProblemKind::RequestIdConflict, detail).at("Outlast-Request-Id"))
        }
        Err(Rejected::Full) => {
            Err(Refused::detailed(ProblemKind::Busy, "too many requests with an id are in progress: retry in a moment"))
        }
    }
}

fn request_id(headers: &HeaderMap) -> Result<RequestId, Refused> {
    let text = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let has_form = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u128::from_str_radix(text, 16).ok().filter(|_| has_form);
    id.map(RequestId).ok_or_else(|| {
        let detail = "a request id has 32 hexadecimal digits, chosen at random";
        Refused::detailed(ProblemKind::InvalidField, detail).at("Outlast-Request-Id")
    })
}

/// Identifies a request. It includes the token: nobody gets the answer to another one's request.
fn fingerprint(head: &Parts, body: &[u8]) -> Digest {
    let path = head.uri.path_and_query().map_or("", |path| path.as_str());
    let token = head.headers.get(header::AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    // Neither methods, paths nor header values contain line feeds.
    Digest::of(&[head.method.as_str().as_bytes(), path.as_bytes(), token, body].join(&b'\n'))
}

/// Executes a request and keeps its answer.
async fn execute(mut router: Router, request: Request, execution: Execution) -> Response {
    let response = match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (head, body) = response.into_parts();
    if body.size_hint().upper().is_none_or(|bytes| bytes > ANSWER_BYTES_MAX as u64) {
        execution.keep(Outcome::Lost(TOO_LARGE));
        return Response::from_parts(head, body);
    }
    let body: Bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        // The execution is dropped: the answer is lost.
        Err(error) => return Refused::detailed(ProblemKind::AnswerLost, error.to_string()).into_response(),
    };
    let headers = KEPT_HEADERS.into_iter().filter_map(|name| Some((name.clone(), head.headers.get(&name)?.clone())));
    let answer = Answer { status: head.status, headers: headers.collect(), body: body.clone() };
    if head.extensions.get::<ProblemKind>().is_some_and(|kind| kind.is_retryable()) {
        execution.forget(answer);
    } else {
        execution.keep(Outcome::Answer(answer));
    }
    Response::from_parts(head, Body::from(body))
}

fn replay(outcome: Outcome) -> Result<Response, Refused> {
    match outcome {
        Outcome::Answer(Answer { status, headers, body }) => {
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = status;
            response.headers_mut().extend(headers);
            response.headers_mut().insert(HeaderName::from_static(REPLAYED), HeaderValue::from_static("true"));
            Ok(response)
        }
        Outcome::Lost(why) => Err(Refused::detailed(ProblemKind::AnswerLost, why)),
    }
}
