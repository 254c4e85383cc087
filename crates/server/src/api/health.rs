//! Liveness and readiness.

use std::sync::Arc;

use ::api::HealthView;
use axum::Json as JsonBody;
use axum::extract::State as Shared;

use super::App;
use super::problem::{ProblemKind, Refused};

fn health(status: &str) -> JsonBody<HealthView> {
    JsonBody(HealthView { status: status.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// The process responds.
pub(crate) async fn alive() -> JsonBody<HealthView> {
    health("alive")
}

/// All shards are rehydrated and serve requests.
pub(crate) async fn ready(Shared(app): Shared<Arc<App>>) -> Result<JsonBody<HealthView>, Refused> {
    let core = app.core()?;
    for (shard, inbox) in core.inboxes.iter().enumerate() {
        if let Some(reason) = inbox.down() {
            let detail = format!("shard {shard} restarts: {reason}");
            return Err(Refused::detailed(ProblemKind::NotReady, detail));
        }
    }
    Ok(health("ready"))
}
