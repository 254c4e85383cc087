//! Submitting jobs: one, a batch, or lines of NDJSON.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json as JsonBody;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Accepted, Actor, Answer, Input, Submission};
use model::id::{JobId, ShardId, Slot};
use model::limits;
use model::queue::QueueRef;
use model::spec::{JobSpec, KeyHash, Run, Sandbox, validate_key};
use model::time::Timestamp;
use model::view::{AcceptedView, BatchItem, BatchView, JobView};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::actor::actor;
use super::body::{self, Media};
use super::list::{Parameters, bad};
use super::needs::{Needs, Stock};
use super::path::Path;
use super::problem::{Fault, Refused};
use super::{App, Core, jobs};
use crate::clock;
use crate::reads;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody<'a> {
    #[serde(borrow)]
    jobs: Vec<&'a RawValue>,
}

/// What a body of the submit route is.
enum Ask<'a> {
    One(Box<JobSpec>),
    Many(Vec<&'a [u8]>),
}

// Both take the request as it is: an extractor of headers would copy them for every job.
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
        Ask::One(spec) => {
            let (submission, needs) = prepare(app, &core, *spec, queue, key, &by)?;
            let wait = parameters.wait()?;
            if !needs.is_empty() {
                Stock::look(&core.blobs, std::iter::once(&needs)).await?.check(&needs)?;
            }
            one(app, &core, submission, wait).await
        }
        Ask::Many(_) if key.is_some() => {
            let detail = "the header is for one job; in a batch give each job its own `idempotency_key`";
            Err(Refused::saying(Fault::InvalidField, detail).at("Idempotency-Key"))
        }
        Ask::Many(_) if parameters.wait()?.is_some() => Err(bad(
            "wait_ms",
            "a batch is answered at once: wait for its jobs one by one, or for their events".to_owned(),
        )),
        Ask::Many(parts) => many(app, &core, &parts, queue, &by).await,
    }
}

pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Refused> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = value.to_str().map_err(|_| {
        Refused::saying(Fault::InvalidField, "an idempotency key consists of visible ASCII characters")
            .at("Idempotency-Key")
    })?;
    validate_key(text)?;
    Ok(Some(text.to_owned()))
}

fn read(media: Media, bytes: &Bytes) -> Result<Ask<'_>, Refused> {
    match media {
        Media::Ndjson => {
            let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
            counted(lines.collect())
        }
        Media::Json => {
            let looks_like_batch = bytes.trim_ascii_start().starts_with(b"{\"jobs\"");
            if !looks_like_batch {
                match body::parse(bytes) {
                    Ok(spec) => return Ok(Ask::One(Box::new(spec))),
                    Err(refused) => {
                        return match serde_json::from_slice::<BatchBody<'_>>(bytes) {
                            Ok(batch) => batch_parts(batch),
                            Err(_) => Err(refused),
                        };
                    }
                }
            }
            let batch = serde_json::from_slice::<BatchBody<'_>>(bytes)
                .map_err(|error| Refused::saying(Fault::InvalidJson, error.to_string()))?;
            batch_parts(batch)
        }
    }
}

fn batch_parts(batch: BatchBody<'_>) -> Result<Ask<'_>, Refused> {
    counted(batch.jobs.into_iter().map(|raw| raw.get().as_bytes()).collect())
}

fn counted(parts: Vec<&[u8]>) -> Result<Ask<'_>, Refused> {
    if parts.len() > limits::BATCH_JOBS_MAX {
        let detail = format!("{} jobs: at most {}; nothing of it was accepted", parts.len(), limits::BATCH_JOBS_MAX);
        return Err(Refused::saying(Fault::TooManyJobs, detail));
    }
    Ok(Ask::Many(parts))
}

/// Whether a job can be accepted as it is. Whether what it refers to is there is another question.
pub(crate) fn check(app: &App, spec: &JobSpec) -> Result<(), Refused> {
    spec.validate()?;
    if spec.sandbox == Some(Sandbox::None) && matches!(spec.run, Run::Process(_)) && !app.allow_unsandboxed {
        let detail = "this server runs no process without a sandbox: leave `sandbox` out, or have `allow_unsandboxed: true` set in the server's configuration";
        return Err(Refused::saying(Fault::SandboxNotAllowed, detail).at("sandbox"));
    }
    let too_far = |Timestamp(time): Timestamp| time > clock::now() + limits::DURATION_MAX;
    if spec.not_before.is_some_and(too_far) {
        return Err(Refused::saying(Fault::InvalidField, "it lies more than a year ahead").at("not_before"));
    }
    Ok(())
}

/// Completes and checks a spec, and makes it ready for its shard. Whether what it refers to is there is for the caller to
/// find out: for all jobs of a request at once.
fn prepare(
    app: &App,
    core: &Core,
    mut spec: JobSpec,
    queue: Option<QueueRef>,
    key: Option<String>,
    by: &Actor,
) -> Result<(Submission, Needs), Refused> {
    if let Some(queue) = queue {
        if spec.queue.is_some_and(|own| own != queue) {
            return Err(Refused::saying(Fault::InvalidField, "the job names another queue than the route").at("queue"));
        }
        spec.queue = Some(queue);
    }
    if key.is_some() {
        spec.idempotency_key = key;
    }
    check(app, &spec)?;
    // Which queue it is in is no part of what is decided about: it may be named by a secret.
    let (queue, needs) = (spec.queue.take(), Needs::of(&spec));
    // What the rules are known to say of such a job spares a question; what they are not known to say is asked by its
    // shard once the job is durable.
    let decision = core.policy.known(&spec, by.as_deref(), clock::now()).map(Box::new);
    Ok((Submission { submitter: by.clone(), decision, ..Submission::new(spec.pack(), queue) }, needs))
}

/// The shard that a job belongs to: its queue's, its key's, or any.
fn route(app: &App, core: &Core, submission: &Submission, any: &mut Option<ShardId>) -> ShardId {
    match (submission.queue, submission.spec.key) {
        (Some(queue), _) => core.shard_of(queue.slot()),
        (None, Some(key)) => core.shard_of(key_slot(key)),
        (None, None) => *any.get_or_insert_with(|| {
            let turn = app.turn.fetch_add(1, Ordering::Relaxed) % usize::from(core.shards.count());
            ShardId(turn as u16)
        }),
    }
}

pub(crate) fn key_slot(key: KeyHash) -> Slot {
    Slot::of(key.number())
}

async fn one(app: &App, core: &Core, submission: Submission, wait: Option<Duration>) -> Result<Response, Refused> {
    let shard = route(app, core, &submission, &mut None);
    let inbox = core.inbox(shard);
    let input = |request| Input::Submit { request, jobs: vec![submission] };
    let Some(wait) = wait else {
        let accepted = only(inbox.ask(input).await?)?;
        return Ok(created(&view(core, shard, accepted)?, accepted));
    };
    let (answer, ended) = inbox.ask_and_watch(input).await?;
    let accepted = only(answer)?;
    let shown = jobs::when_ended(app, core, accepted.id, ended, wait).await;
    let job = shown.map_err(|refused| match accepted.deduplicated {
        true if refused.is(Fault::UnknownJob) => gone(accepted.id),
        _ => refused,
    })?;
    Ok(created(&Awaited { job, deduplicated: accepted.deduplicated }, accepted))
}

/// The answer to a submit that waits: the whole job, and whether it was there before.
#[derive(Serialize)]
struct Awaited {
    #[serde(flatten)]
    job: JobView,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    deduplicated: bool,
}

fn gone(id: JobId) -> Refused {
    Refused::saying(Fault::IdempotencyGone, format!("the key has made {id}, which was removed since: use a new key"))
}

/// The answer to a submit of one job.
fn only(answer: Answer) -> Result<Accepted, Refused> {
    match answer {
        Answer::Submitted(results) => match results.into_iter().next() {
            Some(result) => Ok(result?),
            None => Err(Refused::new(Fault::Internal)),
        },
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}

fn created<T: serde::Serialize>(shown: &T, accepted: Accepted) -> Response {
    let status = if accepted.deduplicated { StatusCode::OK } else { StatusCode::CREATED };
    let location = format!("/v1/jobs/{}", accepted.id);
    (status, [(header::LOCATION, location)], JsonBody(shown)).into_response()
}

fn view(core: &Core, shard: ShardId, accepted: Accepted) -> Result<AcceptedView, Refused> {
    let state = match accepted.state {
        Some(state) => state,
        // Accepted before under the same key, and not in the shard's memory any more.
        None => match reads::job(core.store.as_ref(), shard, accepted.id)? {
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

/// The jobs of a batch that one shard gets, with their places in the batch.
#[derive(Default)]
struct Portion {
    places: Vec<usize>,
    jobs: Vec<Submission>,
}

impl Portion {
    /// Leaves out the jobs whose place is one of these.
    fn leave_out(&mut self, refused: &[Option<BatchItem>]) {
        let places = std::mem::take(&mut self.places);
        let jobs = std::mem::take(&mut self.jobs);
        let kept = places.into_iter().zip(jobs).filter(|(place, _)| refused[*place].is_none());
        (self.places, self.jobs) = kept.unzip();
    }
}

async fn many(
    app: &App,
    core: &Core,
    parts: &[&[u8]],
    queue: Option<QueueRef>,
    by: &Actor,
) -> Result<Response, Refused> {
    let mut results: Vec<Option<BatchItem>> = vec![None; parts.len()];
    let mut portions: Vec<Portion> = Vec::new();
    portions.resize_with(usize::from(core.shards.count()), Portion::default);
    let mut any = None;
    let mut needy: Vec<(usize, Needs)> = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        match body::parse(part).and_then(|spec| prepare(app, core, spec, queue, None, by)) {
            Ok((submission, needs)) => {
                if !needs.is_empty() {
                    needy.push((place, needs));
                }
                let portion = &mut portions[usize::from(route(app, core, &submission, &mut any).0)];
                portion.places.push(place);
                portion.jobs.push(submission);
            }
            Err(refused) => results[place] = Some(BatchItem::Refused { error: refused.problem() }),
        }
    }
    if !needy.is_empty() {
        let stock = Stock::look(&core.blobs, needy.iter().map(|(_, needs)| needs)).await?;
        for (place, needs) in &needy {
            let checked = stock.check(needs);
            results[*place] = checked.err().map(|refused| BatchItem::Refused { error: refused.problem() });
        }
        portions.iter_mut().for_each(|portion| portion.leave_out(&results));
    }
    let asked =
        portions.into_iter().enumerate().filter(|(_, portion)| !portion.jobs.is_empty()).map(|(shard, portion)| {
            let shard = ShardId(shard as u16);
            async move {
                (
                    shard,
                    portion.places,
                    core.inbox(shard).ask(|request| Input::Submit { request, jobs: portion.jobs }).await,
                )
            }
        });
    for (shard, places, answer) in futures_util::future::join_all(asked).await {
        place_results(core, shard, &places, answer, &mut results);
    }
    let results = results.into_iter().flatten().collect();
    Ok(JsonBody(BatchView { results }).into_response())
}

/// Each job on its own merits, also when a whole shard could not be asked.
fn place_results(
    core: &Core,
    shard: ShardId,
    places: &[usize],
    answer: Result<Answer, crate::inbox::Unanswered>,
    results: &mut [Option<BatchItem>],
) {
    let refuse = |refused: Refused| BatchItem::Refused { error: refused.problem() };
    match answer {
        Ok(Answer::Submitted(accepted)) => {
            for (place, one) in places.iter().zip(accepted) {
                let item = one.map_err(Refused::from).and_then(|accepted| view(core, shard, accepted));
                results[*place] = Some(item.map_or_else(refuse, BatchItem::Accepted));
            }
        }
        Ok(_) => fill(places, results, &refuse(Refused::new(Fault::Internal))),
        Err(unanswered) => fill(places, results, &refuse(unanswered.into())),
    }
}

fn fill(places: &[usize], results: &mut [Option<BatchItem>], item: &BatchItem) {
    for place in places {
        results[*place] = Some(item.clone());
    }
}
