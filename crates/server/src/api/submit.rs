//! Submits: one job, a batch, or lines of NDJSON.

use std::sync::Arc;
use std::time::Duration;

use ::api::{AcceptedView, AwaitedView, BatchItem, BatchRefusal, BatchSpec, BatchView};
use axum::Json as JsonBody;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Accepted, Actor, Refusal, Submission};
use model::id::{JobId, ShardId};
use model::limits;
use model::queue::QueueRef;
use model::spec::{JobSpec, Run, Sandbox, validate_key};
use model::time::Timestamp;
use serde_json::value::RawValue;
use shard::reads;

use super::actor::actor;
use super::body::{self, Media};
use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::references::{Available, References};
use super::{App, Core, jobs};
use crate::clock;
use crate::request::{RequestError, Submit};

/// A body of the submit route.
enum Submitted<'a> {
    One(Box<JobSpec>),
    Many(Vec<&'a [u8]>),
}

// Both take the whole request: an extractor of headers would copy them for every job.
pub(crate) async fn submit(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refused> {
    accept(&app, None, request).await
}

pub(crate) async fn submit_to_queue(
    State(app): State<Arc<App>>,
    Path(queue): Path<String>,
    request: Request,
) -> Result<Response, Refused> {
    let queue: QueueRef = super::queues::parse_ref(&queue)?;
    accept(&app, Some(queue), request).await
}

async fn accept(app: &App, queue: Option<QueueRef>, request: Request) -> Result<Response, Refused> {
    let core = app.core()?;
    let (mut head, body) = request.into_parts();
    let parameters = Parameters::from_request_parts(&mut head, &()).await?;
    let media = body::media(&head.headers)?;
    let bytes = body::read(body, limits::BATCH_BODY_BYTES_MAX).await?;
    let key = idempotency_key(&head.headers)?;
    let by = actor(&head.headers)?;
    match read(media, &bytes)? {
        Submitted::One(spec) => {
            let (submission, references) = prepare(app, &core, *spec, queue, key, &by)?;
            let wait = parameters.wait()?;
            if !references.is_empty() {
                Available::of(&core.blobs, std::iter::once(&references)).await?.check(&references)?;
            }
            one(app, &core, submission, wait).await
        }
        Submitted::Many(_) if key.is_some() => {
            let detail = "the header applies to single jobs: in a batch, set `idempotency_key` of each job";
            Err(Refused::detailed(ProblemKind::InvalidField, detail).at("Idempotency-Key"))
        }
        Submitted::Many(_) if parameters.wait()?.is_some() => Err(Refused::parameter(
            "wait_ms",
            "a batch cannot be waited for: wait for its jobs one by one, or subscribe to events",
        )),
        Submitted::Many(parts) => many(app, &core, &parts, queue, &by).await,
    }
}

pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Refused> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().map_err(|_| {
        Refused::detailed(ProblemKind::InvalidField, "an idempotency key consists of visible ASCII characters")
            .at("Idempotency-Key")
    })?;
    validate_key(text)?;
    Ok(Some(text.to_owned()))
}

fn read(media: Media, bytes: &Bytes) -> Result<Submitted<'_>, Refused> {
    match media {
        Media::Ndjson => {
            let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
            counted(lines.collect())
        }
        Media::Json => {
            let looks_like_batch = bytes.trim_ascii_start().starts_with(b"{\"jobs\"");
            if !looks_like_batch {
                match body::parse(bytes) {
                    Ok(spec) => return Ok(Submitted::One(Box::new(spec))),
                    Err(refused) => {
                        return match serde_json::from_slice::<BatchSpec<&RawValue>>(bytes) {
                            Ok(batch) => batch_parts(batch),
                            Err(_) => Err(refused),
                        };
                    }
                }
            }
            let batch = serde_json::from_slice::<BatchSpec<&RawValue>>(bytes)
                .map_err(|error| Refused::detailed(ProblemKind::InvalidJson, error.to_string()))?;
            batch_parts(batch)
        }
    }
}

fn batch_parts(batch: BatchSpec<&RawValue>) -> Result<Submitted<'_>, Refused> {
    counted(batch.jobs.into_iter().map(|raw| raw.get().as_bytes()).collect())
}

fn counted(parts: Vec<&[u8]>) -> Result<Submitted<'_>, Refused> {
    if parts.len() > limits::BATCH_JOBS_MAX {
        let detail = format!("{} jobs: at most {}; nothing was accepted", parts.len(), limits::BATCH_JOBS_MAX);
        return Err(Refused::detailed(ProblemKind::TooManyJobs, detail));
    }
    Ok(Submitted::Many(parts))
}

/// Checks a job by itself, without the blobs and workers it refers to.
pub(crate) fn check(app: &App, spec: &JobSpec) -> Result<(), Refused> {
    spec.validate()?;
    if spec.sandbox == Some(Sandbox::None) && matches!(spec.run, Run::Process(_)) && !app.allow_unsandboxed {
        let detail = "this server runs no process without a sandbox: leave `sandbox` out, or have `allow_unsandboxed: true` set in the server's configuration";
        return Err(Refused::detailed(ProblemKind::SandboxNotAllowed, detail).at("sandbox"));
    }
    let too_far = |Timestamp(time): Timestamp| time > clock::now() + limits::DURATION_MAX;
    if spec.not_before.is_some_and(too_far) {
        return Err(Refused::detailed(ProblemKind::InvalidField, "the time is more than a year ahead").at("not_before"));
    }
    Ok(())
}

/// Completes and checks a spec and prepares it for its shard. The caller checks the references of all jobs of a request
/// at once.
fn prepare(
    app: &App,
    core: &Core,
    mut spec: JobSpec,
    queue: Option<QueueRef>,
    key: Option<String>,
    by: &Actor,
) -> Result<(Submission, References), Refused> {
    if let Some(queue) = queue {
        if spec.queue.is_some_and(|own| own != queue) {
            return Err(
                Refused::detailed(ProblemKind::InvalidField, "the job names another queue than the path").at("queue")
            );
        }
        spec.queue = Some(queue);
    }
    if key.is_some() {
        spec.idempotency_key = key;
    }
    check(app, &spec)?;
    // The policy does not see the queue: it may be named by its secret token.
    let (queue, references) = (spec.queue.take(), References::of(&spec));
    // A cached decision saves a policy check. Without one, the shard requests the check once the job is durable.
    let decision = core.policy.cached(&spec, by.as_deref(), clock::now()).map(Box::new);
    Ok((Submission { submitter: by.clone(), decision, ..Submission::new(spec.pack(), queue) }, references))
}

/// The shard of a job: that of its queue, of its idempotency key, or any. Jobs of one batch share any.
fn route(app: &App, core: &Core, submission: &Submission, any: &mut Option<ShardId>) -> ShardId {
    match (submission.queue, submission.spec.key) {
        (Some(queue), _) => core.shard_of(queue.slot()),
        (None, Some(key)) => core.shard_of(key.slot()),
        (None, None) => *any.get_or_insert_with(|| app.any_shard(core)),
    }
}

async fn one(app: &App, core: &Arc<Core>, submission: Submission, wait: Option<Duration>) -> Result<Response, Refused> {
    let shard = route(app, core, &submission, &mut None);
    let inbox = core.inbox(shard);
    let request = Submit { jobs: vec![submission] };
    let Some(wait) = wait else {
        let accepted = only(inbox.request(request).await?)?;
        let shown = match accepted.state {
            Some(_) => view(core, shard, accepted)?,
            None => core.read(move |core| view(core, shard, accepted)).await?,
        };
        return Ok(created(&shown, accepted));
    };
    let (results, ended) = inbox.request_and_watch(request).await?;
    let accepted = only(results)?;
    let shown = jobs::when_ended(app, core, accepted.id, ended, wait).await;
    let job = shown.map_err(|refused| match accepted.deduplicated {
        true if refused.is(ProblemKind::UnknownJob) => gone(accepted.id),
        _ => refused,
    })?;
    Ok(created(&AwaitedView { job, deduplicated: accepted.deduplicated }, accepted))
}

fn gone(id: JobId) -> Refused {
    Refused::detailed(
        ProblemKind::IdempotencyGone,
        format!("the key created {id}, which was deleted since: use a new key"),
    )
}

/// The result of a submit of one job.
fn only(results: Vec<Result<Accepted, Refusal>>) -> Result<Accepted, Refused> {
    match results.into_iter().next() {
        Some(result) => Ok(result?),
        None => Err(RequestError::Mismatch.into()),
    }
}

fn created<T: serde::Serialize>(shown: &T, accepted: Accepted) -> Response {
    let status = if accepted.deduplicated { StatusCode::OK } else { StatusCode::CREATED };
    let location = format!("/v1/jobs/{}", accepted.id);
    (status, [(header::LOCATION, location)], JsonBody(shown)).into_response()
}

/// View of an accepted job. Blocks on the store if the job has no state.
fn view(core: &Core, shard: ShardId, accepted: Accepted) -> Result<AcceptedView, Refused> {
    let state = match accepted.state {
        Some(state) => state,
        // Accepted before under the same key, and no longer in the memory of the shard.
        None => match reads::job(core.store(), shard, accepted.id)? {
            Some(job) => job.state,
            None => return Err(gone(accepted.id)),
        },
    };
    Ok(AcceptedView {
        id: accepted.id,
        seq: accepted.seq,
        state,
        created_at: Timestamp(accepted.created_at),
        deduplicated: accepted.deduplicated,
    })
}

/// The jobs of a batch for one shard, with their indexes in the batch.
#[derive(Default)]
struct Portion {
    places: Vec<usize>,
    jobs: Vec<Submission>,
}

impl Portion {
    /// Removes the jobs that already have a result.
    fn remove_refused(&mut self, refused: &[Option<BatchItem>]) {
        let places = std::mem::take(&mut self.places);
        let jobs = std::mem::take(&mut self.jobs);
        let remaining = places.into_iter().zip(jobs).filter(|(place, _)| refused[*place].is_none());
        (self.places, self.jobs) = remaining.unzip();
    }
}

async fn many(
    app: &App,
    core: &Arc<Core>,
    parts: &[&[u8]],
    queue: Option<QueueRef>,
    by: &Actor,
) -> Result<Response, Refused> {
    let mut results: Vec<Option<BatchItem>> = vec![None; parts.len()];
    let mut portions: Vec<Portion> = Vec::new();
    portions.resize_with(usize::from(core.shards.count()), Portion::default);
    let mut any = None;
    let mut with_references: Vec<(usize, References)> = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        match body::parse(part).and_then(|spec| prepare(app, core, spec, queue, None, by)) {
            Ok((submission, references)) => {
                if !references.is_empty() {
                    with_references.push((place, references));
                }
                let portion = &mut portions[usize::from(route(app, core, &submission, &mut any).0)];
                portion.places.push(place);
                portion.jobs.push(submission);
            }
            Err(refused) => results[place] = Some(refusal(&refused)),
        }
    }
    if !with_references.is_empty() {
        let available = Available::of(&core.blobs, with_references.iter().map(|(_, references)| references)).await?;
        for (place, references) in &with_references {
            let checked = available.check(references);
            results[*place] = checked.err().map(|refused| refusal(&refused));
        }
        portions.iter_mut().for_each(|portion| portion.remove_refused(&results));
    }
    let requests = portions.into_iter().enumerate().filter(|(_, portion)| !portion.jobs.is_empty());
    let requests = requests.map(|(shard, Portion { places, jobs })| async move {
        let shard = ShardId(shard as u16);
        let items = match core.inbox(shard).request(Submit { jobs }).await {
            Ok(accepted) => items(core, shard, accepted).await,
            Err(error) => Err(error.into()),
        };
        (places, items)
    });
    for (places, items) in futures_util::future::join_all(requests).await {
        place_results(&places, items, &mut results);
    }
    let results = results.into_iter().flatten().collect();
    Ok(JsonBody(BatchView { results }).into_response())
}

fn refusal(refused: &Refused) -> BatchItem {
    BatchItem::Refused(BatchRefusal { error: refused.problem() })
}

/// Results of the jobs of one shard. Another thread is used only if the store is read.
async fn items(
    core: &Arc<Core>,
    shard: ShardId,
    results: Vec<Result<Accepted, Refusal>>,
) -> Result<Vec<BatchItem>, Refused> {
    let all_known = results.iter().flatten().all(|accepted| accepted.state.is_some());
    let items = move |core: &Core| {
        let items = results.into_iter().map(|result| {
            let item = result.map_err(Refused::from).and_then(|accepted| view(core, shard, accepted));
            item.map_or_else(|refused| refusal(&refused), BatchItem::Accepted)
        });
        Ok(items.collect())
    };
    if all_known { items(core) } else { core.read(items).await }
}

/// Sets the result of each job. An error of a whole shard is the result of all its jobs.
fn place_results(places: &[usize], items: Result<Vec<BatchItem>, Refused>, results: &mut [Option<BatchItem>]) {
    match items {
        Ok(items) => {
            for (place, item) in places.iter().zip(items) {
                results[*place] = Some(item);
            }
        }
        Err(refused) => {
            let item = refusal(&refused);
            for place in places {
                results[*place] = Some(item.clone());
            }
        }
    }
}
