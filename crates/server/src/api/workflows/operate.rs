//! What users do to a workflow, and what its running tasks say of themselves.

use std::sync::Arc;

use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Actor, Answer, Input, Refusal, RequestId};
use model::id::WorkflowId;
use model::json::Json;
use model::limits;
use model::time::Millis;
use model::view::{CancelWorkflow, ProgressReport, RerunWorkflow, SignalledView};
use model::workflow::Signal;

use super::{blocking, load, optional_word, parse_id, shard_of, view};
use crate::api::actor::actor;
use crate::api::jobs::{self, expect_no_form};
use crate::api::list::Parameters;
use crate::api::path::Path;
use crate::api::problem::{Fault, Refused};
use crate::api::{App, body};
use crate::reads::flows;

const PERCENT_MAX: u8 = 100;

async fn act(
    app: &App,
    id: &str,
    headers: &HeaderMap,
    input: impl FnOnce(RequestId, WorkflowId, Actor) -> Input,
) -> Result<Response, Refused> {
    let core = app.core()?;
    let id = parse_id(id)?;
    let by = actor(headers)?;
    match core.inbox(shard_of(&core, id)).ask(|request| input(request, id, by)).await? {
        Answer::Workflow(workflow) => {
            let shown = blocking(move || view::of(&core, &workflow)).await?;
            Ok(JsonBody(shown).into_response())
        }
        Answer::WorkflowRemoved => Ok(StatusCode::NO_CONTENT.into_response()),
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}

pub(crate) async fn cancel(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<Response, Refused> {
    let CancelWorkflow { compensate } = optional_word(&headers, request_body).await?;
    let input = |request, workflow, by| Input::CancelWorkflow { request, workflow, by, compensate };
    act(&app, &id, &headers, input).await
}

pub(crate) async fn pause(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    expect_no_form(&headers)?;
    act(&app, &id, &headers, |request, workflow, by| Input::PauseWorkflow { request, workflow, by }).await
}

pub(crate) async fn resume(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    expect_no_form(&headers)?;
    act(&app, &id, &headers, |request, workflow, by| Input::ResumeWorkflow { request, workflow, by }).await
}

pub(crate) async fn rerun(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<Response, Refused> {
    let RerunWorkflow { from } = optional_word(&headers, request_body).await?;
    act(&app, &id, &headers, |request, workflow, by| Input::RerunWorkflow { request, workflow, from, by }).await
}

pub(crate) async fn remove(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    expect_no_form(&headers)?;
    let core = app.core()?;
    // A part goes with the whole; only what the whole has left behind may go by itself.
    if let Some((parent, _)) = load(&core, parse_id(&id)?)?.parent
        && flows::workflow(core.store.as_ref(), shard_of(&core, parent), parent)?.is_some()
    {
        return Err(Refusal::PartOfWorkflow(parent).into());
    }
    act(&app, &id, &headers, |request, workflow, by| Input::RemoveWorkflow { request, workflow, by }).await
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
        return Err(Refused::saying(Fault::InvalidField, detail).at("name"));
    }
    let bytes = body::read(request_body, limits::SIGNAL_BYTES_MAX).await?;
    if headers.contains_key(header::CONTENT_TYPE) || !bytes.is_empty() {
        body::expect_json(&headers)?;
    }
    let payload: Json = if bytes.is_empty() { Json::null() } else { body::parse(&bytes)? };
    // The shard has the time.
    let signal = Box::new(Signal { name, payload, at: Millis(0), by });
    let inbox = core.inbox(shard_of(&core, id));
    match inbox.ask(|request| Input::SignalWorkflow { request, workflow: id, signal }).await? {
        Answer::Workflow(_) => Ok(JsonBody(SignalledView { accepted: true })),
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}

/// How far the running task of a workflow is that a job does.
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
    let bytes = body::read(request_body, super::WORD_BYTES_MAX).await?;
    let ProgressReport { percent, message } = body::parse(&bytes)?;
    if percent > PERCENT_MAX {
        let detail = format!("{percent} is more than all of it: at most {PERCENT_MAX}");
        return Err(Refused::saying(Fault::InvalidField, detail).at("percent"));
    }
    if let Some(bytes) = message.as_ref().map(String::len).filter(|bytes| *bytes > limits::MESSAGE_BYTES_MAX) {
        let detail = format!("it has {bytes} bytes: at most {}", limits::MESSAGE_BYTES_MAX);
        return Err(Refused::saying(Fault::InvalidField, detail).at("message"));
    }
    match core.inbox_of(job).ask(|request| Input::Progress { request, job, percent, message }).await? {
        Answer::Progressed => Ok(StatusCode::NO_CONTENT),
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}
