//! Liveness and readiness.

use std::sync::Arc;

use ::api::HealthView;
use axum::Json as JsonBody;
use axum::extract::State as Shared;

use super::problem::{ProblemKind, Refused};
use super::{App, Core};

fn health(status: &str) -> JsonBody<HealthView> {
    JsonBody(HealthView { status: status.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// A node that is given up is not healthy, although it responds.
fn check_session(core: &Core) -> Result<(), Refused> {
    match core.nodes.own_session() {
        state if state.is_given_up() => {
            let detail = format!("the session of {node} is {state}", node = core.node);
            Err(Refused::detailed(ProblemKind::NodeGivenUp, detail))
        }
        _ => Ok(()),
    }
}

/// The process responds, and its node is not given up.
pub(crate) async fn alive(Shared(app): Shared<Arc<App>>) -> Result<JsonBody<HealthView>, Refused> {
    // Without one it starts or stops.
    if let Ok(core) = app.core() {
        check_session(&core)?;
    }
    Ok(health("alive"))
}

/// All shards are rehydrated and serve requests, and the node is not given up.
pub(crate) async fn ready(Shared(app): Shared<Arc<App>>) -> Result<JsonBody<HealthView>, Refused> {
    let core = app.core()?;
    check_session(&core)?;
    for (shard, inbox) in core.inboxes.iter().enumerate() {
        if let Some(reason) = inbox.down() {
            let detail = format!("shard {shard} restarts: {reason}");
            return Err(Refused::detailed(ProblemKind::NotReady, detail));
        }
    }
    Ok(health("ready"))
}
