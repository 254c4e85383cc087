//! Workers: registered bundles of executables and the functions they offer.

use std::sync::Arc;

use ::api::{FunctionView, Page, WorkerDetailView, WorkerFileView, WorkerView};
use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use blobs::limits::MANIFEST_BYTES_MAX;
use blobs::workers::{Function, Manifest, ManifestEntry, Summary, Worker};
use model::blob::WorkerId;

use super::blocking::blocking;
use super::jobs::expect_no_form;
use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::{App, Core, body, queues};

/// Limit of the files on a page of worker details. The page ends with the worker that reaches it.
const PAGE_FILES_MAX: usize = 20_000;

fn parse_id(text: &str) -> Result<WorkerId, Refused> {
    text.parse()
        .map_err(|error: model::blob::BadName| Refused::detailed(ProblemKind::InvalidId, error.to_string()).at("id"))
}

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<WorkerView>>, Refused> {
    let core = app.core()?;
    page(&core, &parameters).await
}

/// The workers of a queue: all workers.
pub(crate) async fn of_queue(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<Page<WorkerView>>, Refused> {
    let core = app.core()?;
    let queue = queues::parse_ref(&queue)?;
    core.read(move |core| queues::load(core, queue)).await?;
    page(&core, &parameters).await
}

async fn page(core: &Core, parameters: &Parameters) -> Result<JsonBody<Page<WorkerView>>, Refused> {
    let summaries = after_cursor(core.blobs.workers().await?, parameters)?;
    let limit = parameters.limit()?;
    let more = summaries.len() > limit;
    let items: Vec<WorkerView> = summaries.into_iter().take(limit).map(summary_view).collect();
    let next_cursor = items.last().filter(|_| more).map(|last| last.id.to_string());
    Ok(JsonBody(Page { items, next_cursor }))
}

/// The workers after the last one of the previous page.
fn after_cursor(mut all: Vec<Summary>, parameters: &Parameters) -> Result<Vec<Summary>, Refused> {
    let Some(cursor) = parameters.text("cursor") else { return Ok(all) };
    match all.iter().position(|worker| worker.id.to_string() == cursor) {
        Some(place) => Ok(all.split_off(place + 1)),
        None => {
            let detail = format!("`{cursor}` is not a cursor of this list, or its worker was deleted: start again");
            Err(Refused::detailed(ProblemKind::InvalidCursor, detail).at("cursor"))
        }
    }
}

/// Workers with their files.
pub(crate) async fn all(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<WorkerDetailView>>, Refused> {
    let core = app.core()?;
    let summaries = after_cursor(core.blobs.workers().await?, &parameters)?;
    let limit = parameters.limit()?;
    let mut items = Vec::new();
    let mut files = 0;
    let mut ids = summaries.iter().map(|summary| summary.id);
    for id in ids.by_ref() {
        match core.blobs.worker(id).await {
            Ok(worker) => {
                files += worker.manifest.files.len();
                items.push(detail_view(&worker));
            }
            // Removed meanwhile.
            Err(blobs::Error::WorkerNotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        if items.len() == limit || files >= PAGE_FILES_MAX {
            break;
        }
    }
    let more = ids.next().is_some();
    let next_cursor = items.last().filter(|_| more).map(|last| last.id.to_string());
    Ok(JsonBody(Page { items, next_cursor }))
}

pub(crate) async fn register(
    Shared(app): Shared<Arc<App>>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<Response, Refused> {
    let core = app.core()?;
    body::expect_json(&headers)?;
    let bytes = body::read(request_body, MANIFEST_BYTES_MAX).await?;
    // A large manifest would block other requests on this thread.
    let manifest = blocking(move || body::parse_large::<Manifest>(&bytes)).await?;
    let id = core.blobs.register(manifest).await?;
    let worker = core.blobs.worker(id).await?;
    let location = format!("/v1/workers/{id}");
    let shown = summary_view(worker.summary());
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], JsonBody(shown)).into_response())
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<WorkerDetailView>, Refused> {
    let core = app.core()?;
    let worker = core.blobs.worker(parse_id(&id)?).await?;
    Ok(JsonBody(detail_view(&worker)))
}

pub(crate) async fn remove(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<StatusCode, Refused> {
    expect_no_form(&headers)?;
    let core = app.core()?;
    core.blobs.remove_worker(parse_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn function(function: &Function) -> FunctionView {
    let Function { name, version, command } = function.clone();
    FunctionView { name, version, command }
}

fn summary_view(summary: Summary) -> WorkerView {
    WorkerView {
        id: summary.id,
        functions: summary.functions.iter().map(function).collect(),
        name: summary.name,
        version: summary.version,
        files: summary.files as u64,
        bytes: summary.bytes,
        registered_at: summary.registered_at,
    }
}

fn detail_view(worker: &Worker) -> WorkerDetailView {
    let manifest = &worker.manifest;
    WorkerDetailView {
        id: worker.id,
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        functions: manifest.functions.iter().map(function).collect(),
        env: manifest.env.clone(),
        files: manifest.files.iter().map(|(path, entry)| (path.clone(), file(entry))).collect(),
        bytes: manifest.bytes(),
        registered_at: worker.registered_at,
    }
}

fn file(entry: &ManifestEntry) -> WorkerFileView {
    match entry {
        ManifestEntry::File { blob, bytes, executable } => {
            WorkerFileView { blob: Some(*blob), bytes: Some(*bytes), executable: *executable, link: None }
        }
        ManifestEntry::Link { target } => WorkerFileView { link: Some(target.clone()), ..WorkerFileView::default() },
    }
}
