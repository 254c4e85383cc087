//! Nodes of the cluster: capacity, protections, liveness, cordon and drain.

use std::sync::Arc;

use ::api::{CapacityView, CordonNode, CordonView, DrainNode, NodeEventView, NodeView, Page, ProtectionView};
use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use engine::Actor;
use fabric::watch::TimelineEntry;
use model::envelope::{NodeReport, ReportedProtection};
use model::id::{NodeId, RunnerId};
use model::limits;
use model::node::{Cordon, Drain, NodeDecisions};
use model::time::{Millis, Timestamp};

use super::actor::actor;
use super::jobs::expect_no_form;
use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::{App, Core, body};
use crate::clock;
use crate::cluster::JoinedNode;

/// The number of attempts on a node is at most this old.
const COUNTED_WITHIN: Millis = Millis::from_secs(1);

pub(crate) async fn list(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<JsonBody<Page<NodeView>>, Refused> {
    let core = app.core()?;
    let nodes = core.read(|core| {
        let decisions = core.nodes.read()?;
        let mut nodes = vec![own(core, &decisions)];
        nodes.extend(core.cluster.nodes().into_iter().map(|(node, joined)| other(core, &decisions, node, joined)));
        Ok(nodes)
    });
    Ok(JsonBody(Page::whole(nodes.await?)))
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<NodeView>, Refused> {
    let core = app.core()?;
    let node = find(&core, &id)?;
    core.read(move |core| Ok(JsonBody(view(core, node)?))).await
}

pub(crate) async fn remove(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<StatusCode, Refused> {
    let core = app.core()?;
    let (node, by) = (find(&core, &id)?, actor(&headers)?);
    if node == core.node {
        return Err(Refused::new(ProblemKind::NodeNotRemovable));
    }
    core.read(move |core| {
        core.cluster.remove(node)?;
        core.nodes.change(|decisions| decisions.uncordon(node))?;
        tracing::info!(%node, by = by.as_deref(), "a node was removed from the cluster");
        Ok(StatusCode::NO_CONTENT)
    })
    .await
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
        Ok(JsonBody(view(core, node)?))
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
    let node = id.parse::<NodeId>().ok();
    let known = node.filter(|node| *node == core.node || core.cluster.node(*node).is_some());
    known.ok_or_else(|| Refused::detailed(ProblemKind::UnknownNode, format!("there is no node `{id}`")).at("id"))
}

/// A node with its timeline. Blocks on the store.
fn view(core: &Core, node: NodeId) -> Result<NodeView, Refused> {
    let decisions = core.nodes.read()?;
    let mut view = match core.cluster.node(node) {
        Some(joined) => other(core, &decisions, node, joined),
        None => own(core, &decisions),
    };
    let timeline = core.cluster.watch().timeline(node).into_iter();
    let event = |entry: TimelineEntry| NodeEventView {
        at: Timestamp(entry.at),
        event: entry.what.to_owned(),
        detail: entry.detail,
    };
    view.timeline = timeline.map(event).collect();
    Ok(view)
}

/// What a node reports, in the form of the API. The rest is to be filled in.
fn reported(core: &Core, decisions: &NodeDecisions, node: NodeId, report: NodeReport) -> NodeView {
    let runner = RunnerId(node.0);
    let counts = core.inboxes.iter().map(|inbox| inbox.status().in_flight.get(&runner).copied().unwrap_or(0));
    let in_flight = counts.sum();
    let cordon = decisions.cordoned.get(&node);
    let protections = report.protections.into_iter();
    let protection = |ReportedProtection { name, in_force, how }| ProtectionView { name, in_force, how };
    NodeView {
        id: node,
        name: report.name,
        role: String::new(),
        incarnation: 0,
        version: report.version,
        state: state(cordon, in_flight).to_owned(),
        probes: core.cluster.watch().member(node).map(|member| probes(member.state).to_owned()),
        address: None,
        connected_since: None,
        joined_at: None,
        cordon: cordon.cloned().map(cordon_view),
        in_flight,
        capacity: CapacityView {
            process: report.capacity.process,
            wasm: report.capacity.wasm,
            echo: report.capacity.echo,
        },
        refuses_work: report.refuses_work,
        pools: report.profile.pools,
        capabilities: report.profile.capabilities,
        labels: report.profile.labels,
        cores: report.cores,
        memory_bytes: report.memory_bytes,
        disk_bytes: report.disk_bytes,
        disk_available_bytes: report.disk_available_bytes,
        gpus: report.gpus,
        memory_available_bytes: report.memory_available_bytes,
        protections: protections.map(protection).collect(),
        timeline: Vec::new(),
    }
}

/// This node.
fn own(core: &Core, decisions: &NodeDecisions) -> NodeView {
    let view = reported(core, decisions, core.node, core.own_report());
    NodeView { role: "control".to_owned(), incarnation: core.runner.incarnation().0, ..view }
}

/// A runner node.
fn other(core: &Core, decisions: &NodeDecisions, node: NodeId, joined: JoinedNode) -> NodeView {
    let report = core.cluster.peers().report(node);
    let report = report.unwrap_or_else(|| NodeReport { name: joined.name, ..NodeReport::default() });
    let mut view = reported(core, decisions, node, report);
    view.role = "runner".to_owned();
    view.joined_at = Some(Timestamp(joined.joined_at));
    match core.cluster.peers().get(node) {
        Some(peer) => {
            view.incarnation = peer.incarnation.0;
            view.version.clone_from(&peer.version);
            view.address = Some(peer.address.to_string());
            view.connected_since = Some(Timestamp(peer.connected_at));
        }
        None => view.state = "disconnected".to_owned(),
    }
    if core.cluster.watch().is_lost(node) {
        view.state = "lost".to_owned();
    }
    view
}

fn probes(state: fabric::State) -> &'static str {
    match state {
        fabric::State::Alive => "alive",
        fabric::State::ProbeFailed => "probe_failed",
        fabric::State::Suspected => "suspected",
        fabric::State::Dead => "dead",
        fabric::State::Left => "left",
    }
}

fn state(cordon: Option<&Cordon>, in_flight: u32) -> &'static str {
    match cordon {
        None => "ready",
        Some(Cordon { drain: None, .. }) => "cordoned",
        // Attempts are counted every now and then: at first the number may be from before the drain.
        Some(Cordon { drain: Some(drain), .. }) if in_flight > 0 || clock::now() < drain.at + COUNTED_WITHIN => {
            "draining"
        }
        Some(Cordon { drain: Some(_), .. }) => "drained",
    }
}

fn cordon_view(cordon: Cordon) -> CordonView {
    let Cordon { at, by, reason, drain } = cordon;
    let drain_deadline = drain.and_then(|drain| drain.deadline).map(Timestamp);
    CordonView { at: Timestamp(at), by, reason, drain_deadline }
}
