//! Whether the server is alive, and whether it is ready.

use std::sync::Arc;

use axum::Json as JsonBody;
use axum::extract::State as Shared;
use serde::Serialize;

use super::App;
use super::problem::Refused;

#[derive(Serialize)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
}

fn health(status: &'static str) -> JsonBody<Health> {
    JsonBody(Health { status, version: env!("CARGO_PKG_VERSION") })
}

/// The process runs and answers.
pub(crate) async fn alive() -> JsonBody<Health> {
    health("alive")
}

/// Everything is rehydrated and being served.
pub(crate) async fn ready(Shared(app): Shared<Arc<App>>) -> Result<JsonBody<Health>, Refused> {
    app.core()?;
    Ok(health("ready"))
}
