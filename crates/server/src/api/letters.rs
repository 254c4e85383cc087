//! Dead letters: what ended undone, for an operator to look at, try again or be done with.

use std::sync::Arc;

use axum::Json as JsonBody;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use axum::response::Response;
use engine::{Actor, Answer, Input, Refusal};
use futures_util::future::join_all;
use model::batch::Keyspace;
use model::codec;
use model::dead_letter::DeadLetter;
use model::id::{JobId, ShardId};
use model::time::Millis;
use model::view::{LetterDetailView, LetterView, Page, PurgedView};
use store::Store;

use super::across::{self, Across};
use super::actor::actor;
use super::list::{Parameters, bad};
use super::path::Path;
use super::problem::{Fault, Refused};
use super::{App, Core, jobs};
use crate::clock;
use crate::error::Error;

/// How many one request purges at most.
const PURGED_MAX: u64 = 1_000;
/// How many are purged at the same time: their commits ride together.
const PURGED_AT_ONCE: usize = 100;
/// How many letters one purge looks at: they are small.
const LOOKED_AT_MAX: usize = 1_000_000;

fn decode(shard: ShardId, value: &[u8]) -> Result<DeadLetter, Error> {
    codec::decode(value).map_err(|source| Error::Record { shard: shard.0, source })
}

/// Which letters are meant.
#[derive(Debug, Default)]
struct Filter {
    topic: Option<String>,
    tenant: Option<String>,
    reason: Option<String>,
    /// Only what ended before this.
    before: Option<Millis>,
}

impl Filter {
    fn from(parameters: &Parameters) -> Result<Self, Refused> {
        let text = |name| parameters.text(name).map(str::to_owned);
        let older_than = parameters.number("older_than_ms", u64::MAX)?;
        Ok(Self {
            topic: text("topic"),
            tenant: text("tenant"),
            reason: text("reason"),
            before: older_than.map(|age| clock::now() - Millis(age)),
        })
    }

    fn is_empty(&self) -> bool {
        let Self { topic, tenant, reason, before } = self;
        topic.is_none() && tenant.is_none() && reason.is_none() && before.is_none()
    }

    fn wants(&self, letter: &DeadLetter) -> bool {
        let reason = letter.reason.map(|code| code.as_str());
        self.topic.as_ref().is_none_or(|topic| *topic == letter.topic)
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == letter.tenant)
            && self.reason.as_deref().is_none_or(|wanted| Some(wanted) == reason)
            && self.before.is_none_or(|before| letter.at <= before)
    }
}

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<LetterView>>, Refused> {
    let read = move || {
        let core = app.core()?;
        let filter = Filter::from(&parameters)?;
        across::page(&core, Keyspace::DeadLetters, &parameters, |found| {
            let letter = decode(found.shard, &found.value)?;
            Ok(filter.wants(&letter).then(|| LetterView::new(found.id, letter)))
        })
    };
    let page = tokio::task::spawn_blocking(read).await.map_err(|error| Error::Panicked(error.to_string()))?;
    page.map(JsonBody)
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<LetterDetailView>, Refused> {
    let core = app.core()?;
    let id = jobs::parse_id(&id)?;
    let job = jobs::load(&core, id)?;
    let shard = core.shard_of(id.slot());
    let Some(value) = core.store.get(shard, Keyspace::DeadLetters, &id.key())? else {
        return Err(Refused::saying(Fault::NoDeadLetter, Refusal::NoLetter(job.state).to_string()));
    };
    let letter = LetterView::new(id, decode(shard, &value)?);
    Ok(JsonBody(LetterDetailView { letter, job: jobs::view(&core, &job)? }))
}

pub(crate) async fn retry(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    jobs::act(&app, &id, &headers, |request, job, by| Input::Retry { request, job, by }).await
}

pub(crate) async fn purge(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<Response, Refused> {
    jobs::act(&app, &id, &headers, |request, job, by| Input::Purge { request, job, by }).await
}

pub(crate) async fn purge_many(
    Shared(app): Shared<Arc<App>>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<JsonBody<PurgedView>, Refused> {
    jobs::expect_no_form(&headers)?;
    let core = app.core()?;
    let by = actor(&headers)?;
    let filter = Filter::from(&parameters)?;
    if filter.is_empty() && !parameters.flag("all")? {
        return Err(bad("all", "say which letters are meant, or all=true for all of them".to_owned()));
    }
    let limit = match parameters.number("limit", PURGED_MAX)? {
        Some(0) => return Err(bad("limit", "0 purges nothing".to_owned())),
        limit => limit.unwrap_or(PURGED_MAX) as usize,
    };
    let reading = core.clone();
    let choose = move || choose(&reading, &filter, limit);
    let chosen = tokio::task::spawn_blocking(choose).await.map_err(|error| Error::Panicked(error.to_string()))?;
    let (ids, more) = chosen?;
    let mut purged = 0;
    for some in ids.chunks(PURGED_AT_ONCE) {
        for done in join_all(some.iter().map(|id| purge_one(&core, *id, by.clone()))).await {
            purged += u64::from(done?);
        }
    }
    Ok(JsonBody(PurgedView { purged, more }))
}

/// The oldest letters that are meant, and whether there may be others. Blocking: it reads the store.
fn choose(core: &Core, filter: &Filter, limit: usize) -> Result<(Vec<JobId>, bool), Refused> {
    let mut across = Across::begin(core, Keyspace::DeadLetters, None)?;
    let mut ids = Vec::new();
    for _ in 0..LOOKED_AT_MAX {
        let Some(found) = across.next()? else { return Ok((ids, false)) };
        if filter.wants(&decode(found.shard, &found.value)?) {
            if ids.len() == limit {
                return Ok((ids, true));
            }
            ids.push(found.id);
        }
    }
    Ok((ids, true))
}

/// Whether it was there: somebody else may have been faster.
async fn purge_one(core: &Core, id: JobId, by: Actor) -> Result<bool, Refused> {
    match core.inbox_of(id).ask(|request| Input::Purge { request, job: id, by }).await? {
        Answer::Removed => Ok(true),
        Answer::Refused(Refusal::UnknownJob(_) | Refusal::NoLetter(_) | Refusal::WrongState { .. }) => Ok(false),
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}
