//! Schedules: create, list, show, pause, resume, trigger, delete.

mod find;

use std::sync::Arc;

use ::api::{Page, ScheduleStart, ScheduleView};
use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Actor, NewSchedule};
use model::id::{ScheduleId, ShardId};
use model::spec::{KeyHash, name};
use model::time::{Millis, Timestamp};
use model::workflow::{Schedule, ScheduleSpec};
use serde::Deserialize;
use serde_json::value::RawValue;
use workflow::cron::Cron;

use super::actor::actor;
use super::jobs::expect_no_form;
use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::workflows::{self, StartRequest};
use super::{App, Core, body};
use crate::clock;
use crate::request::{CreateSchedule, PauseSchedule, RemoveSchedule, Request, TriggerSchedule};

/// Limit of the body: the largest definition and the other fields.
const BODY_BYTES_MAX: usize = ::workflow::limits::DEFINITION_BYTES_MAX + 1024 * 1024;
/// Limit of the random delay of a start.
const JITTER_MAX: Millis = Millis::from_secs(24 * 3600);
const ZONE_DEFAULT: &str = "UTC";

pub(crate) fn view(schedule: &Schedule) -> ScheduleView {
    let workflow = schedule.workflow.clone().unwrap_or_else(|| name_in(&schedule.spec.definition));
    let cron = Cron::parse(&schedule.spec.cron, &schedule.spec.zone).ok().filter(|_| !schedule.paused);
    let after = clock::now().max(schedule.last_slot);
    let next_slot = cron.and_then(|cron| cron.next_after(after)).map(Timestamp);
    ScheduleView { workflow, next_slot, ..ScheduleView::new(schedule) }
}

/// The name in a definition that is part of its record.
fn name_in(definition: &[u8]) -> String {
    #[derive(Deserialize, Default)]
    struct Named {
        name: String,
    }
    let named: Named = serde_json::from_slice(definition).unwrap_or_default();
    named.name
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
    let body: ScheduleStart<&RawValue> = body::parse_large(&bytes)?;
    name("name", &body.name)?;
    if body.name.starts_with(ScheduleId::PREFIX) {
        let detail = format!("a name must not begin with `{}`, the prefix of ids", ScheduleId::PREFIX);
        return Err(Refused::detailed(ProblemKind::InvalidField, detail).at("name"));
    }
    if Millis(body.jitter_ms) > JITTER_MAX {
        let detail = format!("the jitter is at most a day ({} ms)", JITTER_MAX.0);
        return Err(Refused::detailed(ProblemKind::InvalidField, detail).at("jitter_ms"));
    }
    let cron = Cron::parse(&body.cron, body.timezone.as_deref().unwrap_or(ZONE_DEFAULT));
    let cron = cron.map_err(|error| Refused::invalid_cron(&error))?;
    let text = workflows::text_of(&bytes, body.definition, body.yaml)?;
    let start = StartRequest::new(text, body.inputs, body.queue, body.tenant);
    let compiled = start.compile(&app, &core).await?;
    let inputs = start.bind(&compiled.plan)?;
    start.protect_blobs(&core, &compiled, &inputs).await?;
    let plan = compiled.plan.clone();
    let schedule = NewSchedule {
        name: body.name,
        tenant: start.tenant,
        queue: start.queue,
        spec: ScheduleSpec {
            cron: cron.expression().to_owned(),
            zone: cron.zone().to_owned(),
            catch_up: body.catch_up,
            overlap: body.overlap,
            jitter: Millis(body.jitter_ms),
            digest: plan.digest,
            // The shard stores it by its digest.
            definition: Vec::new(),
            inputs,
        },
        plan,
        cron: Arc::new(cron),
        submitter: actor(&headers)?,
        paused: body.paused,
    };
    create_named(&app, &core, schedule).await
}

/// Names are unique within a tenant, over all shards: schedules are created one at a time.
async fn create_named(app: &App, core: &Arc<Core>, schedule: NewSchedule) -> Result<Response, Refused> {
    let _only_one = app.creating_schedules.lock().await;
    if find::by_name(core, &schedule.name, Some(&schedule.tenant)).await?.is_some() {
        let taken = engine::Refusal::ScheduleNameTaken { name: schedule.name };
        return Err(Refused::from(taken).at("name"));
    }
    let shard = route(core, &schedule);
    let schedule = core.inbox(shard).request(CreateSchedule { schedule: Box::new(schedule) }).await?;
    let location = format!("/v1/schedules/{}", schedule.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], JsonBody(view(&schedule))).into_response())
}

/// The shard of a schedule: that of its queue, so that one commit changes both, else one chosen by its name.
fn route(core: &Core, schedule: &NewSchedule) -> ShardId {
    match schedule.queue {
        Some(queue) => core.shard_of(queue.slot()),
        None => core.shard_of(KeyHash::of(&schedule.tenant, &schedule.name).slot()),
    }
}

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<ScheduleView>>, Refused> {
    let core = app.core()?;
    core.read(move |core| find::page(core, &parameters)).await.map(JsonBody)
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(reference): Path<String>,
    parameters: Parameters,
) -> Result<JsonBody<ScheduleView>, Refused> {
    let core = app.core()?;
    Ok(JsonBody(view(&find::schedule(&core, &reference, &parameters).await?)))
}

/// Sends a request about a schedule.
async fn act<R: Request>(
    app: &App,
    reference: &str,
    headers: &HeaderMap,
    parameters: &Parameters,
    request: impl FnOnce(ScheduleId, Actor) -> R,
) -> Result<(Arc<Core>, R::Answer), Refused> {
    expect_no_form(headers)?;
    let core = app.core()?;
    let by = actor(headers)?;
    let id = find::schedule(&core, reference, parameters).await?.id;
    let answer = core.inbox(core.shard_of(id.slot())).request(request(id, by)).await?;
    Ok((core, answer))
}

pub(crate) async fn pause(
    Shared(app): Shared<Arc<App>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<JsonBody<ScheduleView>, Refused> {
    let request = |schedule, by| PauseSchedule { schedule, paused: true, by };
    let (_, schedule) = act(&app, &reference, &headers, &parameters, request).await?;
    Ok(JsonBody(view(&schedule)))
}

pub(crate) async fn resume(
    Shared(app): Shared<Arc<App>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<JsonBody<ScheduleView>, Refused> {
    let request = |schedule, by| PauseSchedule { schedule, paused: false, by };
    let (_, schedule) = act(&app, &reference, &headers, &parameters, request).await?;
    Ok(JsonBody(view(&schedule)))
}

pub(crate) async fn trigger(
    Shared(app): Shared<Arc<App>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<Response, Refused> {
    let request = |schedule, by| TriggerSchedule { schedule, by };
    let (core, workflow) = act(&app, &reference, &headers, &parameters, request).await?;
    let shown = core.read(move |core| workflows::view::of(core, &workflow)).await?;
    Ok(workflows::created(StatusCode::CREATED, &shown))
}

pub(crate) async fn remove(
    Shared(app): Shared<Arc<App>>,
    Path(reference): Path<String>,
    headers: HeaderMap,
    parameters: Parameters,
) -> Result<StatusCode, Refused> {
    act(&app, &reference, &headers, &parameters, |schedule, by| RemoveSchedule { schedule, by }).await?;
    Ok(StatusCode::NO_CONTENT)
}
