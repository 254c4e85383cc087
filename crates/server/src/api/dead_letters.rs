//! Dead letters: list, show, retry, purge.

use std::sync::Arc;

use ::api::routes::PURGED_MAX;
use ::api::{DeadLetterDetailView, DeadLetterView, JobView, Page, PurgedView};
use axum::Json as JsonBody;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use engine::{Actor, Refusal};
use futures_util::future::join_all;
use model::batch::Keyspace;
use model::codec;
use model::dead_letter::{DeadLetter, UnsubmittedCompensation};
use model::id::{JobId, ShardId, WorkflowId};
use model::time::Millis;
use shard::reads::merge::Records;
use store::Order;

use super::actor::actor;
use super::pages::{self, CursorForm};
use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::{App, Core, jobs};
use crate::clock;
use crate::error::Error;
use crate::request::{Purge, PurgeCompensation, RequestError, Retry, RetryCompensation};

/// Dead letters purged concurrently. Their changes share commits.
const PURGED_AT_ONCE: usize = 100;
/// Dead letters read for one purge: they are small.
const READ_MAX: usize = 1_000_000;

fn decode(shard: ShardId, value: &[u8]) -> Result<DeadLetter, Error> {
    codec::decode(value).map_err(|source| Error::record(shard, source))
}

fn records(core: &Core) -> Records<'_, JobId> {
    Records::new(core.store(), &[Keyspace::DeadLetters], Order::Ascending)
}

#[derive(Debug, Default)]
struct Filter {
    topic: Option<String>,
    tenant: Option<String>,
    reason: Option<String>,
    /// Only jobs that ended before this time.
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

    fn accepts(&self, letter: &DeadLetter) -> bool {
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
) -> Result<JsonBody<Page<DeadLetterView>>, Refused> {
    let core = app.core()?;
    let page = core.read(move |core| {
        let filter = Filter::from(&parameters)?;
        pages::page(core, records(core), &parameters, CursorForm::Short, |shard, id, value| {
            let letter = decode(shard, value)?;
            Ok(filter.accepts(&letter).then(|| DeadLetterView::new(id, letter)))
        })
    });
    page.await.map(JsonBody)
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<DeadLetterDetailView>, Refused> {
    let core = app.core()?;
    let id = jobs::parse_id(&id)?;
    let shown = core.read(move |core| {
        let Some(letter) = find(core, id)? else {
            let job = jobs::load(core, id)?;
            return Err(Refused::detailed(ProblemKind::NoDeadLetter, Refusal::NoDeadLetter(job.state).to_string()));
        };
        let job = match letter.compensation {
            Some(_) => None,
            None => Some(jobs::view(core, &jobs::load(core, id)?)?),
        };
        Ok(DeadLetterDetailView { letter: DeadLetterView::new(id, letter), job })
    });
    shown.await.map(JsonBody)
}

/// Blocks on the store.
fn find(core: &Core, id: JobId) -> Result<Option<DeadLetter>, Error> {
    let shard = core.shard_of(id.slot());
    let value = core.store().get(shard, Keyspace::DeadLetters, &id.key())?;
    value.map(|value| decode(shard, &value)).transpose()
}

/// The compensation of a dead letter without a job.
async fn compensation(core: &Arc<Core>, id: &str) -> Result<Option<UnsubmittedCompensation>, Refused> {
    let id = jobs::parse_id(id)?;
    core.read(move |core| Ok(find(core, id)?.and_then(|letter| letter.compensation))).await
}

pub(crate) async fn retry(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<JsonBody<JobView>, Refused> {
    match compensation(&app.core()?, &id).await? {
        None => jobs::act(&app, &id, &headers, |job, by| Retry { job, by }).await,
        Some(UnsubmittedCompensation { workflow, .. }) => {
            jobs::act(&app, &id, &headers, |letter, by| RetryCompensation { workflow, letter, by }).await
        }
    }
}

pub(crate) async fn purge(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<StatusCode, Refused> {
    match compensation(&app.core()?, &id).await? {
        None => jobs::remove_by(&app, &id, &headers, |job, by| Purge { job, by }).await,
        Some(UnsubmittedCompensation { workflow, .. }) => {
            jobs::remove_by(&app, &id, &headers, |letter, by| PurgeCompensation { workflow, letter, by }).await
        }
    }
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
        return Err(Refused::parameter("all", "give a filter, or all=true to purge all dead letters"));
    }
    let limit = match parameters.number("limit", PURGED_MAX)? {
        Some(0) => return Err(Refused::parameter("limit", "the limit must be at least 1")),
        limit => limit.unwrap_or(PURGED_MAX) as usize,
    };
    let read = core.read(move |core| {
        records(core).merge(core.shards, None).take(limit, READ_MAX, |shard, (id, value)| {
            let letter = decode(shard, &value)?;
            Ok(filter.accepts(&letter).then(|| (id, letter.compensation.map(|compensation| compensation.workflow))))
        })
    });
    let (ids, next) = read.await?;
    let mut purged = 0;
    for some in ids.chunks(PURGED_AT_ONCE) {
        for done in join_all(some.iter().map(|(id, workflow)| purge_one(&core, *id, *workflow, by.clone()))).await {
            purged += u64::from(done?);
        }
    }
    Ok(JsonBody(PurgedView { purged, more: next.is_some() }))
}

/// `workflow`: that of a compensation without a job. False if another request removed or retried the dead letter first.
async fn purge_one(core: &Core, id: JobId, workflow: Option<WorkflowId>, by: Actor) -> Result<bool, Refused> {
    let inbox = core.inbox_of(id);
    let purged = match workflow {
        None => inbox.request(Purge { job: id, by }).await,
        Some(workflow) => inbox.request(PurgeCompensation { workflow, letter: id, by }).await,
    };
    match purged {
        Ok(()) => Ok(true),
        Err(RequestError::Refused(
            Refusal::UnknownJob(_)
            | Refusal::NoDeadLetter(_)
            | Refusal::UnknownDeadLetter(_)
            | Refusal::WrongState { .. },
        )) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
