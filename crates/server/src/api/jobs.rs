//! One job: show it, wait for it, act on it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Actor, Answer, Input, RequestId};
use model::id::JobId;
use model::job::Job;
use model::message::Ticket;
use model::spec::Lane;
use model::state::State;
use model::view::{HistoryView, JobView, OriginalView, Page, is_hidden};

use super::access;
use super::actor::actor;
use super::list::{self, Filter, Parameters};
use super::path::Path;
use super::problem::{Fault, Refused};
use super::workflows::view::complete_origin;
use super::{App, Core};
use crate::error::Error;
use crate::inbox::Watched;
use crate::reads;

pub(crate) fn parse_id(text: &str) -> Result<JobId, Refused> {
    text.parse().map_err(|error: model::id::ParseIdError| Refused::saying(Fault::InvalidId, error.to_string()).at("id"))
}

pub(crate) fn load(core: &Core, id: JobId) -> Result<Job, Refused> {
    let shard = core.shard_of(id.slot());
    reads::job(core.store.as_ref(), shard, id)?
        .ok_or_else(|| Refused::saying(Fault::UnknownJob, format!("there is no job {id}; it may have been removed")))
}

pub(crate) fn view(core: &Core, job: &Job) -> Result<JobView, Refused> {
    let shard = core.shard_of(job.id.slot());
    let spec = job.decode_spec().map_err(|source| Error::Record { shard: shard.0, source })?;
    let mut shown = JobView::new(job, spec);
    add_usage(core, job, &mut shown);
    complete_origin(core, job.origin.as_deref(), shown.origin.as_mut())?;
    Ok(shown)
}

/// What a job that runs here uses right now.
pub(crate) fn add_usage(core: &Core, job: &Job, shown: &mut JobView) {
    if !job.state.is_on_runner() {
        return;
    }
    if let Some(current) = core.runner.sampling().of(Ticket { job: job.id, attempt: job.attempt }) {
        shown.cpu_seconds = Some(current.cpu.as_secs_f64());
        shown.cpu_percent = current.cpu_percent;
        shown.memory_peak_bytes = Some(current.memory_bytes);
    }
}

/// The job once it has ended, or as it is when the time is up or the node stops.
pub(crate) async fn when_ended(
    app: &App,
    core: &Core,
    id: JobId,
    ended: Watched,
    wait: Duration,
) -> Result<JobView, Refused> {
    let job = tokio::select! {
        job = ended => job.ok(),
        () = tokio::time::sleep(wait) => None,
        () = app.stopping() => None,
    };
    match job {
        Some(job) => view(core, &job),
        None => view(core, &load(core, id)?),
    }
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<JobView>, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let job = load(&core, id)?;
    let shown = match parameters.wait()? {
        Some(wait) if !job.state.is_terminal() => {
            when_ended(&app, &core, id, core.inbox_of(id).watch(id)?, wait).await?
        }
        Some(_) | None => {
            if job.state == State::Running && job.lane == Lane::Process {
                core.runner.sampling().refresh().await;
            }
            view(&core, &job)?
        }
    };
    Ok(JsonBody(shown))
}

pub(crate) async fn result(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    if parameters.flag("original")? {
        return original(&app, &core, id, actor(&headers)?).await;
    }
    let job = load(&core, id)?;
    if !job.state.is_terminal() {
        let detail = format!("the job is {}: wait for it with GET /v1/jobs/{}?wait_ms=30000", job.state, job.id);
        return Err(Refused::saying(Fault::NotTerminal, detail));
    }
    if is_hidden(&job) {
        return Err(access::quarantined(&job));
    }
    let bytes = job.result.unwrap_or_default().as_bytes().to_vec();
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from(bytes)).into_response())
}

/// What the policy had removed from a result and kept. Whoever looks at it is noted.
async fn original(app: &App, core: &Core, id: JobId, by: Actor) -> Result<Response, Refused> {
    if !app.show_originals {
        let detail = "have `show_originals: true` set in the server's configuration, or release what is quarantined";
        return Err(Refused::saying(Fault::OriginalsNotShown, detail));
    }
    match core.inbox_of(id).ask(|request| Input::ReadOriginal { request, job: id, by }).await? {
        Answer::Job(job) => match job.original {
            Some(original) => Ok(JsonBody(OriginalView::from(*original)).into_response()),
            None => Err(Refused::new(Fault::NoOriginal)),
        },
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}

pub(crate) async fn history(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<HistoryView>, Refused> {
    let core = app.core()?;
    Ok(JsonBody(HistoryView::new(&load(&core, parse_id(&id)?)?)))
}

/// Reads a page away from the threads that answer requests.
pub(crate) async fn read_page(
    app: Arc<App>,
    parameters: Parameters,
    narrow: impl FnOnce(&mut Filter) + Send + 'static,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    let read = move || {
        let core = app.core()?;
        let mut filter = Filter::from(&core, &parameters)?;
        narrow(&mut filter);
        list::page(&core, &filter, &parameters)
    };
    let page = tokio::task::spawn_blocking(read).await.map_err(|error| Error::Panicked(error.to_string()))?;
    page.map(JsonBody)
}

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    read_page(app, parameters, |_| {}).await
}

pub(crate) fn only_running(filter: &mut Filter) {
    filter.narrow(State::is_on_runner);
}

pub(crate) fn only_completed(filter: &mut Filter) {
    filter.narrow(State::is_terminal);
}

pub(crate) async fn running(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    app.core()?.runner.sampling().refresh().await;
    read_page(app, parameters, only_running).await
}

pub(crate) async fn completed(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    read_page(app, parameters, only_completed).await
}

/// Every job with the time of each of its states, newest first.
pub(crate) async fn history_of_all(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    read_page(app, parameters, |_| {}).await
}

/// Actions have no body, or an empty one; a form's is refused like everywhere.
pub(crate) fn expect_no_form(headers: &HeaderMap) -> Result<(), Refused> {
    if headers.contains_key(header::CONTENT_TYPE) { super::body::expect_json(headers) } else { Ok(()) }
}

pub(crate) async fn act(
    app: &App,
    id: &str,
    headers: &HeaderMap,
    input: impl FnOnce(RequestId, JobId, Actor) -> Input,
) -> Result<Response, Refused> {
    expect_no_form(headers)?;
    let core = app.core()?;
    let id = parse_id(id)?;
    let by = actor(headers)?;
    match core.inbox_of(id).ask(|request| input(request, id, by)).await? {
        Answer::Job(job) => Ok(JsonBody(view(&core, &job)?).into_response()),
        Answer::Removed => Ok(StatusCode::NO_CONTENT.into_response()),
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}

pub(crate) async fn cancel(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    act(&app, &id, &headers, |request, job, by| Input::Cancel { request, job, by }).await
}

pub(crate) async fn retry(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    act(&app, &id, &headers, |request, job, by| Input::Retry { request, job, by }).await
}

pub(crate) async fn retract(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    act(&app, &id, &headers, |request, job, by| Input::Retract { request, job, by }).await
}

/// Lets out what is quarantined.
pub(crate) async fn release(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    act(&app, &id, &headers, |request, job, by| Input::Release { request, job, by }).await
}

pub(crate) async fn remove(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    act(&app, &id, &headers, |request, job, by| Input::Remove { request, job, by }).await
}
