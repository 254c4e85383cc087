//! Nodes of the cluster, currently one: capacity, protections, cordon and drain.

use std::sync::Arc;

use ::api::{CapacityView, CordonNode, CordonView, DrainNode, NodeView, Page, ProtectionView};
use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use engine::Actor;
use model::id::{NodeId, RunnerId};
use model::limits;
use model::node::{Cordon, Drain, NodeDecisions};
use model::time::{Millis, Timestamp};
use runner::Enforcement;

use super::actor::actor;
use super::jobs::expect_no_form;
use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::{App, Core, body};
use crate::clock;

pub(crate) async fn list(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<JsonBody<Page<NodeView>>, Refused> {
    app.core()?.read(|core| Ok(JsonBody(Page::whole(vec![view(core)?])))).await
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<NodeView>, Refused> {
    let core = app.core()?;
    find(&core, &id)?;
    core.read(|core| Ok(JsonBody(view(core)?))).await
}

pub(crate) async fn cordon(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<NodeView>, Refused> {
    let CordonNode { reason } = body::read_optional(&headers, request_body).await?;
    check_reason(reason.as_deref())?;
    let at = clock::now();
    change(&app, &id, &headers, move |decisions, node, by| {
        decisions.cordon(node, at, by.as_deref().map(str::to_owned), reason.clone());
    })
    .await
}

pub(crate) async fn drain(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<NodeView>, Refused> {
    let DrainNode { reason, deadline_ms } = body::read_optional(&headers, request_body).await?;
    check_reason(reason.as_deref())?;
    let at = clock::now();
    let deadline = deadline_ms.map(|time| Millis(at.0.saturating_add(time)));
    change(&app, &id, &headers, move |decisions, node, by| {
        decisions.drain(node, Drain { at, deadline }, by.as_deref().map(str::to_owned), reason.clone());
    })
    .await
}

pub(crate) async fn uncordon(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<JsonBody<NodeView>, Refused> {
    expect_no_form(&headers)?;
    change(&app, &id, &headers, |decisions, node, _| decisions.uncordon(node)).await
}

async fn change(
    app: &App,
    id: &str,
    headers: &HeaderMap,
    change: impl Fn(&mut NodeDecisions, NodeId, &Actor) + Send + 'static,
) -> Result<JsonBody<NodeView>, Refused> {
    let core = app.core()?;
    let (node, by) = (find(&core, id)?, actor(headers)?);
    core.read(move |core| {
        core.nodes.change(|decisions| change(decisions, node, &by))?;
        Ok(JsonBody(view(core)?))
    })
    .await
}

fn check_reason(reason: Option<&str>) -> Result<(), Refused> {
    match reason {
        Some(reason) if reason.len() > limits::MESSAGE_BYTES_MAX => {
            let detail = format!("the reason has more than {} bytes", limits::MESSAGE_BYTES_MAX);
            Err(Refused::detailed(ProblemKind::InvalidField, detail).at("reason"))
        }
        Some(_) | None => Ok(()),
    }
}

fn find(core: &Core, id: &str) -> Result<NodeId, Refused> {
    if core.node.to_string() == id {
        return Ok(core.node);
    }
    Err(Refused::detailed(ProblemKind::UnknownNode, format!("there is no node `{id}`")).at("id"))
}

/// Blocks on the store.
fn view(core: &Core) -> Result<NodeView, Refused> {
    let shards = u32::from(core.shards.count());
    let capacity = core.runner.capacity();
    let protections = core.runner.protections().entries.into_iter().map(|(name, enforcement)| match enforcement {
        Enforcement::Active { mechanism } => ProtectionView { name, in_force: true, how: mechanism },
        Enforcement::Missing { reason } => ProtectionView { name, in_force: false, how: reason },
    });
    let runner = RunnerId(core.node.0);
    let counts = core.inboxes.iter().map(|inbox| inbox.status().in_flight.get(&runner).copied().unwrap_or(0));
    let in_flight = counts.sum();
    let cordon = core.nodes.read()?.cordoned.remove(&core.node);
    Ok(NodeView {
        id: core.node,
        incarnation: core.runner.incarnation().0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        state: state(cordon.as_ref(), in_flight).to_owned(),
        cordon: cordon.map(cordon_view),
        in_flight,
        capacity: CapacityView {
            process: capacity.process * shards,
            wasm: capacity.wasm * shards,
            echo: capacity.echo * shards,
        },
        memory_available_bytes: runner::pressure::available_memory(),
        protections: protections.collect(),
    })
}

fn state(cordon: Option<&Cordon>, in_flight: u32) -> &'static str {
    match cordon {
        None => "ready",
        Some(Cordon { drain: None, .. }) => "cordoned",
        Some(Cordon { drain: Some(_), .. }) if in_flight > 0 => "draining",
        Some(Cordon { drain: Some(_), .. }) => "drained",
    }
}

fn cordon_view(cordon: Cordon) -> CordonView {
    let Cordon { at, by, reason, drain } = cordon;
    let drain_deadline = drain.and_then(|drain| drain.deadline).map(Timestamp);
    CordonView { at: Timestamp(at), by, reason, drain_deadline }
}
