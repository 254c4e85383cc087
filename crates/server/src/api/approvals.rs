//! Approvals: list, show, approve, reject.

use std::sync::Arc;

use ::api::{
    ApprovalDetailView, ApprovalRequest, ApprovalView, DecisionView, JobView, Page, digest_as_text, digest_of_text,
};
use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use engine::ApprovalDecision;
use model::batch::Keyspace;
use model::id::{JobId, ShardId};
use model::limits;
use model::state::State;
use model::time::Millis;
use shard::reads;
use shard::reads::merge::Records;
use store::Order;

use super::actor::actor;
use super::pages::{self, CursorForm};
use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::workflows::view::complete_origin;
use super::{App, Core, body, jobs};
use crate::error::Error;
use crate::request::Approve;

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<ApprovalView>>, Refused> {
    let (core, expiry) = (app.core()?, app.approval_expiry);
    let page = core.read(move |core| {
        let (topic, tenant) = (parameters.text("topic"), parameters.text("tenant"));
        let records = Records::<JobId>::new(core.store(), &[Keyspace::Live], Order::Ascending);
        pages::page(core, records, &parameters, CursorForm::Short, |shard, _, value| {
            let Some(waiting) = waiting(core, expiry, shard, value)? else { return Ok(None) };
            let accepted = topic.is_none_or(|topic| topic == waiting.topic)
                && tenant.is_none_or(|tenant| tenant == waiting.tenant);
            Ok(accepted.then_some(waiting))
        })
    });
    page.await.map(JsonBody)
}

/// The approval of a job that waits for one. Blocks on the store.
fn waiting(core: &Core, expiry: Millis, shard: ShardId, value: &[u8]) -> Result<Option<ApprovalView>, Refused> {
    let job = reads::decode(shard, value)?;
    if job.state != State::ApprovalRequired {
        return Ok(None);
    }
    let Some(job) = reads::complete(core.store(), shard, job)? else { return Ok(None) };
    let spec = job.decode_spec().map_err(|source| Error::record(shard, source))?;
    let mut shown = ApprovalView::new(&job, &spec, expiry);
    let origin = shown.as_mut().and_then(|shown| shown.origin.as_mut());
    complete_origin(core, job.origin.as_deref(), origin)?;
    Ok(shown)
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<ApprovalDetailView>, Refused> {
    let (core, expiry) = (app.core()?, app.approval_expiry);
    let id = jobs::parse_id(&id)?;
    let shown = core.read(move |core| {
        let job = jobs::load(core, id)?;
        let shard = core.shard_of(id.slot());
        let spec = job.decode_spec().map_err(|source| Error::record(shard, source))?;
        let Some(mut approval) = ApprovalView::new(&job, &spec, expiry) else {
            let detail = format!("the job is {} and never required an approval", job.state);
            return Err(Refused::detailed(ProblemKind::WrongState, detail));
        };
        complete_origin(core, job.origin.as_deref(), approval.origin.as_mut())?;
        let decisions = job.decisions.iter().map(DecisionView::from).collect();
        Ok(ApprovalDetailView { approval, job: jobs::view(core, &job)?, decisions })
    });
    shown.await.map(JsonBody)
}

pub(crate) async fn approve(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<JobView>, Refused> {
    decide(&app, &id, true, &headers, request_body).await
}

pub(crate) async fn reject(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<JobView>, Refused> {
    decide(&app, &id, false, &headers, request_body).await
}

async fn decide(
    app: &App,
    id: &str,
    approved: bool,
    headers: &HeaderMap,
    request_body: Body,
) -> Result<JsonBody<JobView>, Refused> {
    let core = app.core()?;
    let job = jobs::parse_id(id)?;
    let ApprovalRequest { comment, hash, rule } = body::read_optional(headers, request_body).await?;
    for (field, text) in [("comment", &comment), ("rule", &rule)] {
        if let Some(bytes) = text.as_ref().map(String::len).filter(|bytes| *bytes > limits::MESSAGE_BYTES_MAX) {
            let detail = format!("the text has {bytes} bytes: at most {}", limits::MESSAGE_BYTES_MAX);
            return Err(Refused::detailed(ProblemKind::InvalidField, detail).at(field));
        }
    }
    let digest = match hash {
        Some(hash) => Some(digest_of_text(&hash).ok_or_else(|| {
            let example = digest_as_text(model::spec::Digest([0; 16]));
            let detail =
                format!("a hash has {} hexadecimal digits: use the one shown with the approval", example.len());
            Refused::detailed(ProblemKind::InvalidField, detail).at("hash")
        })?),
        None => None,
    };
    let decision = Box::new(ApprovalDecision { by: actor(headers)?, approved, comment, digest, rule });
    let job = core.inbox_of(job).request(Approve { job, decision }).await?;
    jobs::shown(&core, job).await.map(JsonBody)
}
