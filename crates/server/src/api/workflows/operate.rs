//! Actions on workflows, signals, and progress reports of tasks.

use std::sync::Arc;

use ::api::{ProgressReport, SignalledView, WorkflowView};
use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use engine::{Actor, Refusal};
use model::id::WorkflowId;
use model::json::Json;
use model::limits;
use model::time::Millis;
use model::workflow::{Signal, Workflow};
use shard::reads::workflows;

use super::{load, parse_id, shard_of, view};
use crate::api::actor::actor;
use crate::api::jobs::{self, expect_no_form};
use crate::api::parameters::Parameters;
use crate::api::path::Path;
use crate::api::problem::{ProblemKind, Refused};
use crate::api::{App, body};
use crate::request::{
    CancelWorkflow, PauseWorkflow, Progress, RemoveWorkflow, Request, RerunWorkflow, ResumeWorkflow, SignalWorkflow,
};

const PERCENT_MAX: u8 = 100;

/// Sends a request about a workflow and shows the workflow.
async fn act<R: Request<Answer = Box<Workflow>>>(
    app: &App,
    id: &str,
    headers: &HeaderMap,
    request: impl FnOnce(WorkflowId, Actor) -> R,
) -> Result<JsonBody<WorkflowView>, Refused> {
    let core = app.core()?;
    let id = parse_id(id)?;
    let workflow = core.inbox(shard_of(&core, id)).request(request(id, actor(headers)?)).await?;
    core.read(move |core| view::of(core, &workflow)).await.map(JsonBody)
}

pub(crate) async fn cancel(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<WorkflowView>, Refused> {
    let body: ::api::CancelWorkflow = body::read_optional(&headers, request_body).await?;
    let request = |workflow, by| CancelWorkflow { workflow, by, compensate: body.compensate };
    act(&app, &id, &headers, request).await
}

pub(crate) async fn pause(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<JsonBody<WorkflowView>, Refused> {
    expect_no_form(&headers)?;
    act(&app, &id, &headers, |workflow, by| PauseWorkflow { workflow, by }).await
}

pub(crate) async fn resume(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<JsonBody<WorkflowView>, Refused> {
    expect_no_form(&headers)?;
    act(&app, &id, &headers, |workflow, by| ResumeWorkflow { workflow, by }).await
}

pub(crate) async fn rerun(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<WorkflowView>, Refused> {
    let body: ::api::RerunWorkflow = body::read_optional(&headers, request_body).await?;
    act(&app, &id, &headers, |workflow, by| RerunWorkflow { workflow, from: body.from, by }).await
}

pub(crate) async fn remove(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<StatusCode, Refused> {
    expect_no_form(&headers)?;
    let core = app.core()?;
    let workflow = parse_id(&id)?;
    // A child is removed with its parent, unless the parent is gone already.
    let parent = core.read(move |core| match load(core, workflow)?.parent {
        Some((parent, _)) => Ok(workflows::workflow(core.store(), shard_of(core, parent), parent)?),
        None => Ok(None),
    });
    if let Some(parent) = parent.await? {
        return Err(Refusal::PartOfWorkflow(parent.id).into());
    }
    let by = actor(&headers)?;
    core.inbox(shard_of(&core, workflow)).request(RemoveWorkflow { workflow, by }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn signal(
    Shared(app): Shared<Arc<App>>,
    Path((id, name)): Path<(String, String)>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<SignalledView>, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let by = actor(&headers)?;
    model::spec::name("name", &name)?;
    if name.len() > workflow::limits::NAME_BYTES_MAX {
        let detail = format!("the name has {} bytes: at most {}", name.len(), workflow::limits::NAME_BYTES_MAX);
        return Err(Refused::detailed(ProblemKind::InvalidField, detail).at("name"));
    }
    let bytes = body::read(request_body, limits::SIGNAL_BYTES_MAX).await?;
    if headers.contains_key(header::CONTENT_TYPE) || !bytes.is_empty() {
        body::expect_json(&headers)?;
    }
    let payload: Json = if bytes.is_empty() { Json::null() } else { body::parse(&bytes)? };
    // The shard sets the time.
    let signal = Box::new(Signal { name, payload, at: Millis(0), by });
    let inbox = core.inbox(shard_of(&core, id));
    inbox.request(SignalWorkflow { workflow: id, signal }).await?;
    Ok(JsonBody(SignalledView { accepted: true }))
}

/// Progress of the task that a job executes.
pub(crate) async fn progress(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<StatusCode, Refused> {
    let core = app.core()?;
    let job = jobs::parse_id(&id)?;
    body::expect_json(&headers)?;
    let bytes = body::read(request_body, body::SMALL_BODY_BYTES_MAX).await?;
    let ProgressReport { percent, message } = body::parse(&bytes)?;
    if percent > PERCENT_MAX {
        let detail = format!("{percent} is too large: at most {PERCENT_MAX}");
        return Err(Refused::detailed(ProblemKind::InvalidField, detail).at("percent"));
    }
    if let Some(bytes) = message.as_ref().map(String::len).filter(|bytes| *bytes > limits::MESSAGE_BYTES_MAX) {
        let detail = format!("the message has {bytes} bytes: at most {}", limits::MESSAGE_BYTES_MAX);
        return Err(Refused::detailed(ProblemKind::InvalidField, detail).at("message"));
    }
    core.inbox_of(job).request(Progress { job, percent, message }).await?;
    Ok(StatusCode::NO_CONTENT)
}
