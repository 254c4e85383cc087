//! Nodes of the cluster: capacity, protections, liveness, cordon and drain.

mod session;
mod view;

use std::sync::Arc;

use ::api::{CordonNode, DrainNode, NodeView, Page};
use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use engine::Actor;
use model::id::{Incarnation, NodeId};
use model::limits;
use model::node::{NodeDecisions, NodeStarts, Stamp};
use model::session::{ForbiddenMove, SessionState};
use model::time::Millis;

use super::actor::actor;
use super::jobs::expect_no_form;
use super::parameters::Parameters;
use super::path::Path;
use super::problem::{ProblemKind, Refused};
use super::{App, Core, body};
use crate::clock;
use crate::node_control::ChangeError;

pub(crate) use session::{move_other, move_own, show_other, show_own};
pub(crate) use view::NodeViews;

pub(crate) async fn list(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<JsonBody<Page<NodeView>>, Refused> {
    let core = app.core()?;
    core.read(|core| Ok(JsonBody(Page::whole(NodeViews::new(core).all())))).await
}

pub(crate) async fn show(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<NodeView>, Refused> {
    let core = app.core()?;
    let node = find(&core, &id)?;
    core.read(move |core| Ok(JsonBody(NodeViews::new(core).one(node)))).await
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
    let (node, stamp) = (find(&*app.core()?, &id)?, stamp(&headers, reason)?);
    change(&app, node, move |decisions, _| {
        decisions.cordon(node, &stamp);
        Ok(())
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
    let (node, stamp) = (find(&*app.core()?, &id)?, stamp(&headers, reason)?);
    let deadline = deadline_ms.map(|time| Millis(stamp.at.0.saturating_add(time)));
    change(&app, node, move |decisions, starts| decisions.drain(node, deadline, starts.newest, stamp.clone())).await
}

pub(crate) async fn uncordon(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    _: Parameters,
) -> Result<JsonBody<NodeView>, Refused> {
    expect_no_form(&headers)?;
    let (node, stamp) = (find(&*app.core()?, &id)?, stamp(&headers, None)?);
    change(&app, node, move |decisions, starts| {
        decisions.uncordon(node, starts, stamp.clone());
        Ok(())
    })
    .await
}

/// When, by whom and why something is decided.
fn stamp(headers: &HeaderMap, reason: Option<String>) -> Result<Stamp, Refused> {
    if reason.as_ref().is_some_and(|reason| reason.len() > limits::NODE_REASON_BYTES_MAX) {
        let detail = format!("the reason has more than {} bytes", limits::NODE_REASON_BYTES_MAX);
        return Err(Refused::detailed(ProblemKind::InvalidField, detail).at("reason"));
    }
    let by: Actor = actor(headers)?;
    Ok(Stamp { at: clock::now(), by: by.as_deref().map(str::to_owned), reason })
}

async fn change(
    app: &App,
    node: NodeId,
    change: impl Fn(&mut NodeDecisions, NodeStarts) -> Result<(), ForbiddenMove> + Send + 'static,
) -> Result<JsonBody<NodeView>, Refused> {
    let core = app.core()?;
    core.read(move |core| {
        decide(core, node, change)?;
        Ok(JsonBody(NodeViews::new(core).one(node)))
    })
    .await
}

/// Changes what is decided about a node. Blocks on the store.
fn decide(
    core: &Core,
    node: NodeId,
    change: impl Fn(&mut NodeDecisions, NodeStarts) -> Result<(), ForbiddenMove>,
) -> Result<(), Refused> {
    let starts = core.cluster.starts(node);
    core.nodes.change(node, |decisions| change(decisions, starts)).map_err(|error| refused(node, error))?;
    // A node that has connected meanwhile has seen its previous session.
    let starts = core.cluster.starts(node);
    if starts.is_connected && core.nodes.read().session_state(node) == SessionState::Created {
        core.nodes.started(node, starts.newest.max(Incarnation(1)))?;
    }
    Ok(())
}

fn refused(node: NodeId, error: ChangeError) -> Refused {
    match error {
        ChangeError::Failed(error) => error.into(),
        ChangeError::Forbidden(forbidden) => {
            let detail = format!("{forbidden}; to begin a new session, use `outlast nodes uncordon {node}`");
            Refused::detailed(ProblemKind::SessionState, detail)
        }
    }
}

fn find(core: &Core, id: &str) -> Result<NodeId, Refused> {
    let node = id.parse::<NodeId>().ok();
    let known = node.filter(|node| *node == core.node || core.cluster.node(*node).is_some());
    known.ok_or_else(|| Refused::detailed(ProblemKind::UnknownNode, format!("there is no node `{id}`")).at("id"))
}
