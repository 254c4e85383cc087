//! Queues: create, list, show, drain, cancel, delete.

use std::sync::Arc;

use ::api::{JobView, Page, QueueSpec, QueueView};
use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Actor, NewQueue};
use model::batch::Keyspace;
use model::codec;
use model::id::{QueueId, ShardId};
use model::key;
use model::limits;
use model::queue::{Queue, QueueRef, QueueToken};
use model::spec::{Digest, KeyHash, name};
use shard::reads::jobs::Filter;
use shard::reads::merge::Records;
use store::Order;

use super::actor::actor;
use super::jobs::{expect_no_form, only_completed, only_running, read_page};
use super::pages::{self, CursorForm};
use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::submit::idempotency_key;
use super::{App, Core, body};
use crate::error::Error;
use crate::request::{CancelQueue, CreateQueue, CreatedQueue, DrainQueue, RemoveQueue, Request};

const BODY_BYTES_MAX: usize = 64 * 1024;

pub(crate) fn parse_ref(text: &str) -> Result<QueueRef, Refused> {
    text.parse().map_err(|error: model::queue::BadQueueRef| {
        Refused::detailed(ProblemKind::InvalidId, error.to_string()).at("queue")
    })
}

fn decode(shard: ShardId, value: &[u8]) -> Result<Queue, Refused> {
    Ok(codec::decode(value).map_err(|source| Error::record(shard, source))?)
}

fn records(core: &Core) -> Records<'_, QueueId> {
    Records::new(core.store(), &[Keyspace::Queues], Order::Ascending)
}

/// Blocks on the store.
pub(crate) fn load(core: &Core, reference: QueueRef) -> Result<Queue, Refused> {
    let shard = core.shard_of(reference.slot());
    let unknown =
        || Refused::detailed(ProblemKind::UnknownQueue, format!("there is no queue {reference}; it may have expired"));
    match reference {
        QueueRef::Id(id) => match core.store().get(shard, Keyspace::Queues, &id.key())? {
            Some(value) => decode(shard, &value),
            None => Err(unknown()),
        },
        QueueRef::Token(token) => find_by_token(core, shard, token)?.ok_or_else(unknown),
    }
}

fn find_by_token(core: &Core, shard: ShardId, token: QueueToken) -> Result<Option<Queue>, Refused> {
    let Some(id) = core.store().get(shard, Keyspace::Meta, &key::queue_token(token))? else { return Ok(None) };
    match core.store().get(shard, Keyspace::Queues, &id)? {
        Some(value) => decode(shard, &value).map(Some),
        // It expired between the two reads.
        None => Ok(None),
    }
}

/// The id of a queue. An expired queue is still known by its id, as are its jobs. Blocks on the
/// store if the reference is a token.
pub(crate) fn id_of(core: &Core, reference: QueueRef) -> Result<QueueId, Refused> {
    match reference {
        QueueRef::Id(id) => Ok(id),
        QueueRef::Token(_) => Ok(load(core, reference)?.id),
    }
}

/// Calls `visit` with every queue of all shards. Blocks on the store.
pub(crate) fn for_each(core: &Core, mut visit: impl FnMut(Queue)) -> Result<(), Refused> {
    let mut reader = records(core).merge(core.shards, None);
    while let Some((shard, (_, value))) = reader.next()? {
        visit(decode(shard, &value)?);
    }
    Ok(())
}

/// A queue with its token, if the request created it or named it by the token.
fn shown(queue: &Queue, reference: Option<QueueRef>) -> QueueView {
    let mut view = QueueView::new(queue);
    if matches!(reference, None | Some(QueueRef::Token(_))) {
        view.token = queue.token.map(|token| token.to_string());
    }
    view
}

pub(crate) async fn create(
    Shared(app): Shared<Arc<App>>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<Response, Refused> {
    let core = app.core()?;
    body::expect_json(&headers)?;
    let bytes = body::read(request_body, BODY_BYTES_MAX).await?;
    let spec: QueueSpec = body::parse(&bytes)?;
    let tenant = spec.tenant.unwrap_or_else(|| "default".to_owned());
    name("tenant", &tenant)?;
    if !spec.tag.is_empty() {
        name("tag", &spec.tag)?;
    }
    let max_retries = spec.max_retries.unwrap_or(limits::RETRIES_DEFAULT);
    if max_retries > limits::RETRIES_MAX {
        let detail = format!("{max_retries} retries: at most {}", limits::RETRIES_MAX);
        return Err(Refused::detailed(ProblemKind::InvalidField, detail).at("max_retries"));
    }
    if spec.max_running == Some(0) {
        return Err(Refused::detailed(ProblemKind::InvalidField, "the limit must be at least 1").at("max_running"));
    }
    // Keys of queues differ from keys of jobs: those have no control characters.
    let key = idempotency_key(&headers)?.map(|key| KeyHash::of(&tenant, &format!("\u{1}queue {key}")));
    let shard = match key {
        Some(key) => core.shard_of(key.slot()),
        None => app.any_shard(&core),
    };
    let queue = NewQueue {
        token: QueueToken::new(secret()?, core.shards.home_slot(shard)),
        tag: spec.tag,
        tenant,
        max_retries,
        max_running: spec.max_running,
        key: key.map(|key| (key, Digest::of(&bytes))),
    };
    let token = queue.token;
    match core.inbox(shard).request(CreateQueue { queue: Box::new(queue) }).await? {
        CreatedQueue::Queue(queue) => {
            let mut view = shown(&queue, None);
            // Each request draws a new token: another one is that of an existing queue.
            view.deduplicated = queue.token != Some(token);
            let status = if view.deduplicated { StatusCode::OK } else { StatusCode::CREATED };
            let location = format!("/v1/queues/{}", view.id);
            Ok((status, [(header::LOCATION, location)], JsonBody(view)).into_response())
        }
        CreatedQueue::Exists(id) => {
            let detail = format!("the key created {id}, which was deleted since: use a new key");
            Err(Refused::detailed(ProblemKind::IdempotencyGone, detail))
        }
    }
}

fn secret() -> Result<[u8; 16], Refused> {
    let mut secret = [0; 16];
    getrandom::fill(&mut secret).map_err(|error| {
        Refused::detailed(ProblemKind::Internal, format!("the system's random generator failed: {error}"))
    })?;
    Ok(secret)
}

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<QueueView>>, Refused> {
    let core = app.core()?;
    let page = core.read(move |core| {
        pages::page(core, records(core), &parameters, CursorForm::Id, |shard, _, value| {
            Ok(Some(QueueView::new(&decode(shard, value)?)))
        })
    });
    page.await.map(JsonBody)
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    _: Parameters,
) -> Result<JsonBody<QueueView>, Refused> {
    let core = app.core()?;
    let reference = parse_ref(&queue)?;
    core.read(move |core| Ok(shown(&load(core, reference)?, Some(reference)))).await.map(JsonBody)
}

async fn act<R: Request<Answer = Box<Queue>>>(
    app: &App,
    queue: &str,
    headers: &HeaderMap,
    request: impl FnOnce(QueueRef, Actor) -> R,
) -> Result<JsonBody<QueueView>, Refused> {
    expect_no_form(headers)?;
    let core = app.core()?;
    let reference = parse_ref(queue)?;
    let inbox = core.inbox(core.shard_of(reference.slot()));
    let queue = inbox.request(request(reference, actor(headers)?)).await?;
    Ok(JsonBody(shown(&queue, Some(reference))))
}

pub(crate) async fn drain(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<JsonBody<QueueView>, Refused> {
    act(&app, &queue, &headers, |queue, by| DrainQueue { queue, by }).await
}

pub(crate) async fn cancel(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<JsonBody<QueueView>, Refused> {
    act(&app, &queue, &headers, |queue, by| CancelQueue { queue, by }).await
}

pub(crate) async fn remove(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<StatusCode, Refused> {
    expect_no_form(&headers)?;
    let core = app.core()?;
    let queue = parse_ref(&queue)?;
    let by = actor(&headers)?;
    core.inbox(core.shard_of(queue.slot())).request(RemoveQueue { queue, by }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists jobs of a queue.
async fn scoped(
    app: &App,
    queue: &str,
    parameters: Parameters,
    narrow: impl FnOnce(&mut Filter) + Send + 'static,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    let core = app.core()?;
    read_page(&core, Some(parse_ref(queue)?), parameters, narrow).await
}

pub(crate) async fn jobs(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    scoped(&app, &queue, parameters, |_| {}).await
}

pub(crate) async fn completed(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    scoped(&app, &queue, parameters, only_completed).await
}

pub(crate) async fn running(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    scoped(&app, &queue, parameters, only_running).await
}

pub(crate) async fn history(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    scoped(&app, &queue, parameters, |_| {}).await
}
