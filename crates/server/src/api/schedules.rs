//! Schedules: what starts workflows by the clock.

mod find;

use std::sync::Arc;

use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Actor, Answer, Input, NewSchedule, RequestId};
use model::id::{ScheduleId, ShardId};
use model::queue::QueueRef;
use model::spec::{KeyHash, name};
use model::time::{Millis, Timestamp};
use model::view::{Page, ScheduleView};
use model::workflow::{CatchUp, Overlap, Schedule, ScheduleSpec};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use workflow::cron::Cron;

use super::actor::actor;
use super::jobs::expect_no_form;
use super::list::Parameters;
use super::path::Path;
use super::problem::{Fault, Refused};
use super::submit::key_slot;
use super::workflows::{self, Ask};
use super::{App, Core, body};
use crate::clock;
use crate::error::Error;

/// The largest body: the largest definition, and what is said of it.
const BODY_BYTES_MAX: usize = ::workflow::limits::DEFINITION_BYTES_MAX + 1024 * 1024;
/// The longest that a start may be put off.
const JITTER_MAX: Millis = Millis::from_secs(24 * 3600);
const ZONE_DEFAULT: &str = "UTC";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateBody<'a> {
    name: String,
    cron: String,
    #[serde(default)]
    timezone: Option<String>,
    #[serde(borrow, default)]
    definition: Option<&'a RawValue>,
    #[serde(default)]
    yaml: Option<String>,
    #[serde(default)]
    inputs: Option<Map<String, Value>>,
    #[serde(default)]
    queue: Option<QueueRef>,
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default)]
    catch_up: CatchUp,
    #[serde(default)]
    overlap: Overlap,
    #[serde(default)]
    jitter_ms: u64,
    #[serde(default)]
    paused: bool,
}

/// A schedule as the API shows it.
pub(crate) fn view(schedule: &Schedule) -> ScheduleView {
    #[derive(Deserialize, Default)]
    struct Named {
        name: String,
    }
    let named: Named = serde_json::from_slice(&schedule.spec.definition).unwrap_or_default();
    let cron = Cron::parse(&schedule.spec.cron, &schedule.spec.zone).ok().filter(|_| !schedule.paused);
    let after = clock::now().max(schedule.last_slot);
    let next_slot = cron.and_then(|cron| cron.next_after(after)).map(Timestamp);
    ScheduleView { workflow: named.name, next_slot, ..ScheduleView::new(schedule) }
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
    let body: CreateBody<'_> = body::parse_large(&bytes)?;
    name("name", &body.name)?;
    if body.name.starts_with(ScheduleId::PREFIX) {
        let detail = format!("a name that begins with `{}` looks like an id: choose another", ScheduleId::PREFIX);
        return Err(Refused::saying(Fault::InvalidField, detail).at("name"));
    }
    if Millis(body.jitter_ms) > JITTER_MAX {
        let detail = format!("a start is put off by at most a day ({} ms)", JITTER_MAX.0);
        return Err(Refused::saying(Fault::InvalidField, detail).at("jitter_ms"));
    }
    let cron = Cron::parse(&body.cron, body.timezone.as_deref().unwrap_or(ZONE_DEFAULT));
    let cron = cron.map_err(|error| Refused::untimely(&error))?;
    let text = workflows::text_of(&bytes, body.definition, body.yaml)?;
    let ask = Ask::new(text, body.inputs, body.queue, body.tenant);
    let compiled = ask.compile(&app, &core).await?;
    let inputs = ask.bind(&compiled.plan)?;
    ask.look_for_blobs(&core, &compiled, &inputs).await?;
    let plan = compiled.plan.clone();
    let schedule = NewSchedule {
        name: body.name,
        tenant: ask.tenant,
        queue: ask.queue,
        spec: ScheduleSpec {
            cron: cron.expression().to_owned(),
            zone: cron.zone().to_owned(),
            catch_up: body.catch_up,
            overlap: body.overlap,
            jitter: Millis(body.jitter_ms),
            digest: plan.digest,
            definition: plan.source.to_vec(),
            inputs,
        },
        plan,
        cron: Arc::new(cron),
        submitter: actor(&headers)?,
        paused: body.paused,
    };
    make(&app, &core, schedule).await
}

/// Names are unique within a tenant, over all shards: schedules are made one after the other.
async fn make(app: &App, core: &Arc<Core>, schedule: NewSchedule) -> Result<Response, Refused> {
    let _turn = app.making_schedules.lock().await;
    if find::by_name(core, &schedule.name, Some(&schedule.tenant)).await?.is_some() {
        let taken = engine::Refusal::ScheduleNameTaken { name: schedule.name };
        return Err(Refused::from(taken).at("name"));
    }
    let shard = route(core, &schedule);
    let input = |request| Input::CreateSchedule { request, schedule: Box::new(schedule) };
    match core.inbox(shard).ask(input).await? {
        Answer::Schedule(schedule) => {
            let location = format!("/v1/schedules/{}", schedule.id);
            Ok((StatusCode::CREATED, [(header::LOCATION, location)], JsonBody(view(&schedule))).into_response())
        }
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}

/// A schedule lives where its queue does, so that one commit changes both; without a queue its name says where.
fn route(core: &Core, schedule: &NewSchedule) -> ShardId {
    match schedule.queue {
        Some(queue) => core.shard_of(queue.slot()),
        None => core.shard_of(key_slot(KeyHash::of(&schedule.tenant, &schedule.name))),
    }
}

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<ScheduleView>>, Refused> {
    let core = app.core()?;
    let page = tokio::task::spawn_blocking(move || find::page(&core, &parameters)).await;
    page.map_err(|error| Error::Panicked(error.to_string()))?.map(JsonBody)
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(reference): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<ScheduleView>, Refused> {
    let core = app.core()?;
    Ok(JsonBody(view(&find::schedule(&core, &reference, &parameters).await?)))
}

async fn act(
    app: &App,
    reference: &str,
    headers: &HeaderMap,
    parameters: &Parameters,
    input: impl FnOnce(RequestId, ScheduleId, Actor) -> Input,
) -> Result<Response, Refused> {
    expect_no_form(headers)?;
    let core = app.core()?;
    let by = actor(headers)?;
    let id = find::schedule(&core, reference, parameters).await?.id;
    match core.inbox(core.shard_of(id.slot())).ask(|request| input(request, id, by)).await? {
        Answer::Schedule(schedule) => Ok(JsonBody(view(&schedule)).into_response()),
        Answer::ScheduleRemoved => Ok(StatusCode::NO_CONTENT.into_response()),
        Answer::Workflow(workflow) => {
            let shown = tokio::task::spawn_blocking(move || workflows::view::of(&core, &workflow)).await;
            let shown = shown.map_err(|error| Error::Panicked(error.to_string()))??;
            Ok(workflows::created(StatusCode::CREATED, &shown))
        }
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(Refused::new(Fault::Internal)),
    }
}

pub(crate) async fn pause(
    Shared(app): Shared<Arc<App>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, Refused> {
    let input = |request, schedule, by| Input::PauseSchedule { request, schedule, paused: true, by };
    act(&app, &reference, &headers, &parameters, input).await
}

pub(crate) async fn resume(
    Shared(app): Shared<Arc<App>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, Refused> {
    let input = |request, schedule, by| Input::PauseSchedule { request, schedule, paused: false, by };
    act(&app, &reference, &headers, &parameters, input).await
}

pub(crate) async fn trigger(
    Shared(app): Shared<Arc<App>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, Refused> {
    let input = |request, schedule, by| Input::TriggerSchedule { request, schedule, by };
    act(&app, &reference, &headers, &parameters, input).await
}

pub(crate) async fn remove(
    Shared(app): Shared<Arc<App>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, Refused> {
    let input = |request, schedule, by| Input::RemoveSchedule { request, schedule, by };
    act(&app, &reference, &headers, &parameters, input).await
}
