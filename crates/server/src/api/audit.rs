//! The audit log: list, verify, export.
//!
//! Each shard has its own chain. Lists show the entries of all shards by time.

mod chain;
mod export;
mod listing;
mod log;

use std::sync::Arc;

use ::api::{AuditEntryView, AuditReportView, Page};
use axum::Json as JsonBody;
use axum::extract::State as Shared;
use axum::response::Response;

use super::App;
use super::parameters::Parameters;
use super::problem::Refused;

/// Limit of concurrent verifications and exports.
pub(super) const READERS_MAX: usize = 4;

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<AuditEntryView>>, Refused> {
    app.core()?.read(move |core| listing::page(core, &parameters)).await.map(JsonBody)
}

pub(crate) async fn verify(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<JsonBody<AuditReportView>, Refused> {
    let permit = app.audit_readers.acquire()?;
    let stopping = app.stopping.clone();
    let core = app.core()?;
    let report = core.read(move |core| {
        let _permit = permit;
        chain::verify(core, &stopping)
    });
    report.await.map(JsonBody)
}

pub(crate) async fn export(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<Response, Refused> {
    let permit = app.audit_readers.acquire()?;
    Ok(export::stream(app.core()?, app.stopping.clone(), permit))
}
