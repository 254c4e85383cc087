//! Jobs: show, wait, act.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use ::api::{HistoryView, JobView, OriginalView, Page, is_hidden};
use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::Actor;
use model::id::{JobId, NodeId};
use model::job::Job;
use model::message::AttemptRef;
use model::queue::QueueRef;
use model::spec::ExecutorKind;
use model::state::State;
use shard::reads;
use shard::reads::jobs::Filter;

use super::access;
use super::actor::actor;
use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::workflows::view::complete_origin;
use super::{App, Core, list, queues};
use crate::cluster::PeerNode;
use crate::error::Error;
use crate::inbox::Watched;
use crate::request::{Cancel, ReadOriginal, Release, Remove, Request, Retract, Retry};

pub(crate) fn parse_id(text: &str) -> Result<JobId, Refused> {
    text.parse()
        .map_err(|error: model::id::ParseIdError| Refused::detailed(ProblemKind::InvalidId, error.to_string()).at("id"))
}

/// Blocks on the store.
pub(crate) fn load(core: &Core, id: JobId) -> Result<Job, Refused> {
    let shard = core.shard_of(id.slot());
    reads::job(core.store(), shard, id)?.ok_or_else(|| {
        Refused::detailed(ProblemKind::UnknownJob, format!("there is no job {id}; it may have been removed"))
    })
}

/// View of a job. Blocks on the store if the job has an origin.
pub(crate) fn view(core: &Core, job: &Job) -> Result<JobView, Refused> {
    let shard = core.shard_of(job.id.slot());
    let spec = job.decode_spec().map_err(|source| Error::record(shard, source))?;
    let mut shown = JobView::new(job, spec);
    add_usage(core, job, &mut shown);
    complete_origin(core, job.origin.as_deref(), shown.origin.as_mut())?;
    Ok(shown)
}

/// View of a job. Another thread is used only if the store is read.
pub(crate) async fn shown(core: &Arc<Core>, job: impl Borrow<Job> + Send + 'static) -> Result<JobView, Refused> {
    if job.borrow().origin.is_none() {
        return view(core, job.borrow());
    }
    core.read(move |core| view(core, job.borrow())).await
}

/// The node on which a job runs, if it is another one and connected.
pub(crate) fn peer_of(core: &Core, job: &Job) -> Option<Arc<PeerNode>> {
    let (runner, _) = job.runner().filter(|_| job.state.is_on_runner())?;
    core.cluster.peers().get(NodeId(runner.0))
}

/// Adds the current resource usage of a running job.
pub(crate) fn add_usage(core: &Core, job: &Job, shown: &mut JobView) {
    if !job.state.is_on_runner() {
        return;
    }
    let attempt_ref = AttemptRef { job: job.id, attempt: job.attempt };
    if let Some(current) = core.runner.sampling().of(attempt_ref) {
        shown.cpu_seconds = Some(current.cpu.as_secs_f64());
        shown.cpu_percent = current.cpu_percent;
        shown.memory_peak_bytes = Some(current.memory_bytes);
    } else if let Some(current) = peer_of(core, job).and_then(|peer| peer.usage_of(attempt_ref)) {
        shown.cpu_seconds = Some(current.cpu.0 as f64 / 1000.0);
        shown.cpu_percent = current.cpu_per_mille.map(|share| f64::from(share) / 10.0);
        shown.memory_peak_bytes = Some(current.memory_bytes);
    }
}

/// Samples the usage of a running process anew, on the node on which it runs.
async fn refresh_usage(core: &Core, job: &Job) {
    match peer_of(core, job) {
        Some(peer) => peer.refresh_usage().await,
        None => core.runner.sampling().refresh().await,
    }
}

/// Waits for the end of a job, at most for `wait` and until the node stops, and shows the job.
pub(crate) async fn when_ended(
    app: &App,
    core: &Arc<Core>,
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
        Some(job) => shown(core, job).await,
        None => core.read(move |core| view(core, &load(core, id)?)).await,
    }
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<JobView>, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    let job = core.read(move |core| load(core, id)).await?;
    let view = match parameters.wait()? {
        Some(wait) if !job.state.is_terminal() => {
            when_ended(&app, &core, id, core.inbox_of(id).watch(id)?, wait).await?
        }
        Some(_) | None => {
            if job.state == State::Running && job.executor == ExecutorKind::Process {
                refresh_usage(&core, &job).await;
            }
            shown(&core, job).await?
        }
    };
    Ok(JsonBody(view))
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
    let job = core.read(move |core| load(core, id)).await?;
    if !job.state.is_terminal() {
        let detail = format!("the job is {}: wait for it with GET /v1/jobs/{}?wait_ms=30000", job.state, job.id);
        return Err(Refused::detailed(ProblemKind::NotTerminal, detail));
    }
    if is_hidden(&job) {
        return Err(access::quarantined(&job));
    }
    let bytes = job.result.unwrap_or_default().as_bytes().to_vec();
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from(bytes)).into_response())
}

/// The original of a redacted result. The access is recorded in the audit log.
async fn original(app: &App, core: &Core, id: JobId, by: Actor) -> Result<Response, Refused> {
    if !app.show_originals {
        let detail = "set `show_originals: true` in the server's configuration, or release the quarantined result";
        return Err(Refused::detailed(ProblemKind::OriginalsNotShown, detail));
    }
    let job = core.inbox_of(id).request(ReadOriginal { job: id, by }).await?;
    match job.original {
        Some(original) => Ok(JsonBody(OriginalView::from(*original)).into_response()),
        None => Err(Refused::new(ProblemKind::NoOriginal)),
    }
}

pub(crate) async fn history(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<HistoryView>, Refused> {
    let core = app.core()?;
    let id = parse_id(&id)?;
    core.read(move |core| Ok(HistoryView::new(&load(core, id)?))).await.map(JsonBody)
}

/// A page of jobs, of one queue or of all.
pub(crate) async fn read_page(
    core: &Arc<Core>,
    queue: Option<QueueRef>,
    parameters: Parameters,
    narrow: impl FnOnce(&mut Filter) + Send + 'static,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    let page = core.read(move |core| {
        let queue = queue.map(|queue| queues::id_of(core, queue)).transpose()?;
        let mut filter = list::filter(core, &parameters)?;
        filter.queue = queue.or(filter.queue);
        narrow(&mut filter);
        list::page(core, &filter, &parameters)
    });
    page.await.map(JsonBody)
}

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    read_page(&app.core()?, None, parameters, |_| {}).await
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
    let core = app.core()?;
    core.runner.sampling().refresh().await;
    read_page(&core, None, parameters, only_running).await
}

pub(crate) async fn completed(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    read_page(&app.core()?, None, parameters, only_completed).await
}

/// Jobs with the times of their states, newest first.
pub(crate) async fn history_of_all(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    read_page(&app.core()?, None, parameters, |_| {}).await
}

/// Actions need no body. Forms are refused, since web pages can send them.
pub(crate) fn expect_no_form(headers: &HeaderMap) -> Result<(), Refused> {
    if headers.contains_key(header::CONTENT_TYPE) { super::body::expect_json(headers) } else { Ok(()) }
}

/// Sends a request about a job and shows the job.
pub(crate) async fn act<R: Request<Answer = Box<Job>>>(
    app: &App,
    id: &str,
    headers: &HeaderMap,
    request: impl FnOnce(JobId, Actor) -> R,
) -> Result<JsonBody<JobView>, Refused> {
    expect_no_form(headers)?;
    let core = app.core()?;
    let id = parse_id(id)?;
    let job = core.inbox_of(id).request(request(id, actor(headers)?)).await?;
    shown(&core, job).await.map(JsonBody)
}

/// Sends a request that removes a job.
pub(crate) async fn remove_by<R: Request<Answer = ()>>(
    app: &App,
    id: &str,
    headers: &HeaderMap,
    request: impl FnOnce(JobId, Actor) -> R,
) -> Result<StatusCode, Refused> {
    expect_no_form(headers)?;
    let core = app.core()?;
    let id = parse_id(id)?;
    core.inbox_of(id).request(request(id, actor(headers)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn cancel(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<JsonBody<JobView>, Refused> {
    act(&app, &id, &headers, |job, by| Cancel { job, by }).await
}

pub(crate) async fn retry(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<JsonBody<JobView>, Refused> {
    act(&app, &id, &headers, |job, by| Retry { job, by }).await
}

pub(crate) async fn retract(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<JsonBody<JobView>, Refused> {
    act(&app, &id, &headers, |job, by| Retract { job, by }).await
}

pub(crate) async fn release(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<JsonBody<JobView>, Refused> {
    act(&app, &id, &headers, |job, by| Release { job, by }).await
}

pub(crate) async fn remove(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<StatusCode, Refused> {
    remove_by(&app, &id, &headers, |job, by| Remove { job, by }).await
}
