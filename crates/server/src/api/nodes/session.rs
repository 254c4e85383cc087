//! Sessions of nodes.

use std::sync::Arc;

use ::api::{MoveSession, SessionMove, SessionView};
use axum::Json as JsonBody;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::HeaderMap;
use model::id::NodeId;

use super::{NodeViews, decide, find, stamp};
use crate::api::parameters::Parameters;
use crate::api::path::Path;
use crate::api::problem::{ProblemKind, Refused};
use crate::api::{App, body};

pub(crate) async fn show_own(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<JsonBody<SessionView>, Refused> {
    let core = app.core()?;
    Ok(JsonBody(NodeViews::new(&core).session(core.node)))
}

pub(crate) async fn show_other(
    Shared(app): Shared<Arc<App>>,
    Path(id): Path<String>,
    _: Parameters,
) -> Result<JsonBody<SessionView>, Refused> {
    let core = app.core()?;
    let node = find(&core, &id)?;
    Ok(JsonBody(NodeViews::new(&core).session(node)))
}

pub(crate) async fn move_own(
    Shared(app): Shared<Arc<App>>,
    Path(what): Path<String>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<SessionView>, Refused> {
    let node = app.core()?.node;
    move_session(&app, node, &what, &headers, request_body).await
}

pub(crate) async fn move_other(
    Shared(app): Shared<Arc<App>>,
    Path((id, what)): Path<(String, String)>,
    headers: HeaderMap,
    _: Parameters,
    request_body: Body,
) -> Result<JsonBody<SessionView>, Refused> {
    let node = find(&*app.core()?, &id)?;
    move_session(&app, node, &what, &headers, request_body).await
}

async fn move_session(
    app: &App,
    node: NodeId,
    what: &str,
    headers: &HeaderMap,
    request_body: Body,
) -> Result<JsonBody<SessionView>, Refused> {
    let Some(chosen) = SessionMove::ALL.into_iter().find(|known| known.as_str() == what) else {
        let known = SessionMove::ALL.map(SessionMove::as_str).join(", ");
        let detail = format!("`{what}` is not a move of a session: use one of {known}");
        return Err(Refused::detailed(ProblemKind::UnknownRoute, detail));
    };
    let MoveSession { reason } = body::read_optional(headers, request_body).await?;
    let stamp = stamp(headers, reason)?;
    let core = app.core()?;
    core.read(move |core| {
        decide(core, node, |decisions, starts| decisions.enter(node, chosen.target(), starts.newest, stamp.clone()))?;
        Ok(JsonBody(NodeViews::new(core).session(node)))
    })
    .await
}
