//! The generation of the server: node and incarnation, in every response.
//!
//! Clients recognise a restart by it: the answers kept for resent requests (see [`super::replay`]) are gone then.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::api::headers::{GENERATION, IF_GENERATION};
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::future::{Either, Join, Map, Ready, join, ready};
use model::id::{Incarnation, NodeId};
use tower_service::Service;

use super::App;
use super::guard::Guarded;
use super::problem::{ProblemKind, Refused};

/// The value of the header. Opaque to clients.
pub(crate) fn value(node: NodeId, incarnation: Incarnation) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("{node}.{}", incarnation.0)).ok()
}

/// Adds the generation to the responses of the API, and refuses requests for another generation.
#[derive(Clone)]
pub(crate) struct Stamped {
    pub app: Arc<App>,
    pub inner: Guarded,
}

type Outcome = Result<Response, Infallible>;
type Handled = Either<Ready<Outcome>, <Guarded as Service<Request>>::Future>;
type StampFn = fn((Outcome, Option<HeaderValue>)) -> Outcome;

impl Service<Request> for Stamped {
    type Response = Response;
    type Error = Infallible;
    // The value travels beside the response, so that the type of the future has a name and nothing is boxed.
    type Future = Map<Join<Handled, Ready<Option<HeaderValue>>>, StampFn>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let own = self.app.generation().cloned();
        let handled = match check(&request, own.as_ref()) {
            Ok(()) => Either::Right(self.inner.call(request)),
            Err(refused) => Either::Left(ready(Ok(refused.into_response()))),
        };
        join(handled, ready(own)).map(stamp as StampFn)
    }
}

fn stamp((outcome, generation): (Outcome, Option<HeaderValue>)) -> Outcome {
    outcome.map(|mut response| {
        if let Some(generation) = generation {
            response.headers_mut().insert(HeaderName::from_static(GENERATION), generation);
        }
        response
    })
}

fn check(request: &Request, own: Option<&HeaderValue>) -> Result<(), Refused> {
    let Some(wanted) = request.headers().get(IF_GENERATION) else { return Ok(()) };
    match own {
        Some(own) if own == wanted => Ok(()),
        Some(own) => {
            let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            let detail = format!(
                "the request is for generation {}, this server is {}; nothing was executed",
                text(wanted),
                text(own)
            );
            Err(Refused::detailed(ProblemKind::OtherGeneration, detail).at("Outlast-If-Generation"))
        }
        None => Err(Refused::new(ProblemKind::NotReady)),
    }
}
