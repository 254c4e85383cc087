//! Queues.

use std::sync::Arc;

use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Actor, Answer, Input, NewQueue, RequestId};
use model::batch::Keyspace;
use model::codec;
use model::id::{QueueId, ShardId};
use model::limits;
use model::queue::{Queue, QueueRef, QueueToken};
use model::spec::{Digest, KeyHash, name};
use model::view::{JobView, Page, QueueSpec, QueueView};
use store::{Key, Order, Range, Store};

use super::actor::actor;
use super::jobs::{expect_no_form, only_completed, only_running, read_page};
use super::list::{Filter, Parameters};
use super::path::Path;
use super::problem::{Fault, Refused};
use super::submit::{idempotency_key, key_slot};
use super::{App, Core, body};
use crate::error::Error;

const BODY_BYTES_MAX: usize = 64 * 1024;

pub(crate) fn parse_ref(text: &str) -> Result<QueueRef, Refused> {
    text.parse()
        .map_err(|error: model::queue::BadQueueRef| Refused::saying(Fault::InvalidId, error.to_string()).at("queue"))
}

pub(crate) fn decode(shard: ShardId, value: &[u8]) -> Result<Queue, Refused> {
    Ok(codec::decode(value).map_err(|source| Error::Record { shard: shard.0, source })?)
}

pub(crate) fn load(core: &Core, reference: QueueRef) -> Result<Queue, Refused> {
    let shard = core.shard_of(reference.slot());
    let unknown =
        || Refused::saying(Fault::UnknownQueue, format!("there is no queue {reference}; it may have expired"));
    match reference {
        QueueRef::Id(id) => match core.store.get(shard, Keyspace::Queues, &id.key())? {
            Some(value) => decode(shard, &value),
            None => Err(unknown()),
        },
        QueueRef::Token(token) => find(core, shard, |queue| queue.token == Some(token))?.ok_or_else(unknown),
    }
}

/// Looks through all queues of a shard; there are never more than its limit.
fn find(core: &Core, shard: ShardId, matches: impl Fn(&Queue) -> bool) -> Result<Option<Queue>, Refused> {
    let mut range = Range::all();
    loop {
        let page = core.store.scan(shard, Keyspace::Queues, range, Order::Ascending, 1_000)?;
        for (_, value) in &page {
            let queue = decode(shard, value)?;
            if matches(&queue) {
                return Ok(Some(queue));
            }
        }
        match page.last() {
            Some((last, _)) => range = Range::all().after(last),
            None => return Ok(None),
        }
    }
}

/// Whoever knows the token may see it.
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
        let detail = format!("{max_retries} retries are too many: at most {}", limits::RETRIES_MAX);
        return Err(Refused::saying(Fault::InvalidField, detail).at("max_retries"));
    }
    if spec.max_running == Some(0) {
        return Err(Refused::saying(Fault::InvalidField, "with 0 nothing would ever run").at("max_running"));
    }
    // Keys of queues and of jobs are apart: a control character is in no key of a job.
    let key = idempotency_key(&headers)?.map(|key| KeyHash::of(&tenant, &format!("\u{1}queue {key}")));
    let shard = match key {
        Some(key) => core.shard_of(key_slot(key)),
        None => {
            let turn = app.turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            ShardId((turn % usize::from(core.shards.count())) as u16)
        }
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
    let answer = core.inbox(shard).ask(|request| Input::CreateQueue { request, queue: Box::new(queue) }).await?;
    answer_create(answer, token)
}

fn answer_create(answer: Answer, token: QueueToken) -> Result<Response, Refused> {
    match answer {
        Answer::Queue(queue) => {
            let mut view = shown(&queue, None);
            // The token is drawn for each request: another one means that the queue was there before.
            view.deduplicated = queue.token != Some(token);
            let status = if view.deduplicated { StatusCode::OK } else { StatusCode::CREATED };
            let location = format!("/v1/queues/{}", view.id);
            Ok((status, [(header::LOCATION, location)], JsonBody(view)).into_response())
        }
        Answer::QueueExists(id) => {
            let detail = format!("the key has made {id}, which was removed since: use a new key");
            Err(Refused::saying(Fault::IdempotencyGone, detail))
        }
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}

fn secret() -> Result<[u8; 16], Refused> {
    let mut secret = [0; 16];
    getrandom::fill(&mut secret)
        .map_err(|error| Refused::saying(Fault::Internal, format!("the system has no randomness: {error}")))?;
    Ok(secret)
}

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<QueueView>>, Refused> {
    let core = app.core()?;
    let limit = parameters.limit()?;
    let after = parameters.text("cursor").map(parse_cursor).transpose()?;
    let mut items: Vec<QueueView> = Vec::new();
    for shard in core.shards.all() {
        let range = after.map_or_else(Range::all, |id| Range::all().after(&Key::new(&id.key())));
        for (_, value) in core.store.scan(shard, Keyspace::Queues, range, Order::Ascending, limit)? {
            items.push(QueueView::new(&decode(shard, &value)?));
        }
    }
    items.sort_by_key(|queue| queue.id);
    let more = items.len() >= limit;
    items.truncate(limit);
    let next_cursor = items.last().filter(|_| more).map(|last| last.id.to_string());
    Ok(JsonBody(Page { items, next_cursor }))
}

fn parse_cursor(text: &str) -> Result<QueueId, Refused> {
    text.parse().map_err(|_| Refused::saying(Fault::InvalidCursor, format!("`{text}` is not a cursor")).at("cursor"))
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    _: Parameters,
) -> Result<JsonBody<QueueView>, Refused> {
    let core = app.core()?;
    let reference = parse_ref(&queue)?;
    Ok(JsonBody(shown(&load(&core, reference)?, Some(reference))))
}

async fn act(
    app: &App,
    queue: &str,
    headers: &HeaderMap,
    input: impl FnOnce(RequestId, QueueRef, Actor) -> Input,
) -> Result<Response, Refused> {
    expect_no_form(headers)?;
    let core = app.core()?;
    let reference = parse_ref(queue)?;
    let inbox = core.inbox(core.shard_of(reference.slot()));
    let by = actor(headers)?;
    match inbox.ask(|request| input(request, reference, by)).await? {
        Answer::Queue(queue) => Ok(JsonBody(shown(&queue, Some(reference))).into_response()),
        Answer::QueueRemoved => Ok(StatusCode::NO_CONTENT.into_response()),
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}

pub(crate) async fn drain(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    act(&app, &queue, &headers, |request, queue, by| Input::DrainQueue { request, queue, by }).await
}

pub(crate) async fn cancel(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    act(&app, &queue, &headers, |request, queue, by| Input::CancelQueue { request, queue, by }).await
}

pub(crate) async fn remove(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    act(&app, &queue, &headers, |request, queue, by| Input::RemoveQueue { request, queue, by }).await
}

async fn scoped(
    app: Arc<App>,
    queue: &str,
    parameters: Parameters,
    narrow: impl FnOnce(&mut Filter) + Send + 'static,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    let core = app.core()?;
    let id = match parse_ref(queue)? {
        // The jobs of a queue that has expired are still there.
        QueueRef::Id(id) => id,
        reference @ QueueRef::Token(_) => load(&core, reference)?.id,
    };
    read_page(app, parameters, move |filter| {
        filter.queue = Some(id);
        narrow(filter);
    })
    .await
}

pub(crate) async fn jobs(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    scoped(app, &queue, parameters, |_| {}).await
}

pub(crate) async fn completed(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    scoped(app, &queue, parameters, only_completed).await
}

pub(crate) async fn running(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    scoped(app, &queue, parameters, only_running).await
}

pub(crate) async fn history(
    Shared(app): Shared<Arc<App>>,
    Path(queue): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<Page<JobView>>, Refused> {
    scoped(app, &queue, parameters, |_| {}).await
}
