//! The audit log: read, verified and exported.
//!
//! Each shard has a chain of its own. Lists show the entries of all of them by their time.

mod chain;
mod export;
mod listing;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json as JsonBody;
use axum::extract::State as Shared;
use axum::response::Response;
use model::view::{AuditEntryView, AuditReportView, Page};

use super::App;
use super::list::Parameters;
use super::problem::{Fault, Refused};
use crate::error::Error;

/// How many may go through the whole log at the same time.
const READERS_MAX: usize = 4;

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<AuditEntryView>>, Refused> {
    let read = move || listing::page(&*app.core()?, &parameters);
    let page = tokio::task::spawn_blocking(read).await.map_err(|error| Error::Panicked(error.to_string()))?;
    page.map(JsonBody)
}

pub(crate) async fn verify(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<JsonBody<AuditReportView>, Refused> {
    let turn = Turn::take(&app)?;
    let stopping = app.stopping.clone();
    let read = move || {
        let _turn = turn;
        chain::verify(&*app.core()?, &stopping)
    };
    let report = tokio::task::spawn_blocking(read).await.map_err(|error| Error::Panicked(error.to_string()))?;
    report.map(JsonBody)
}

pub(crate) async fn export(Shared(app): Shared<Arc<App>>, _: Parameters) -> Result<Response, Refused> {
    let turn = Turn::take(&app)?;
    Ok(export::stream(app.core()?, app.stopping.clone(), turn))
}

/// A place among those who go through the whole log.
struct Turn(Arc<App>);

impl Turn {
    fn take(app: &Arc<App>) -> Result<Self, Refused> {
        if app.audit_readers.fetch_add(1, Ordering::Relaxed) >= READERS_MAX {
            app.audit_readers.fetch_sub(1, Ordering::Relaxed);
            let detail = "too many are going through the audit log: try again in a moment";
            return Err(Refused::saying(Fault::TooManySubscribers, detail));
        }
        Ok(Self(app.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.audit_readers.fetch_sub(1, Ordering::Relaxed);
    }
}
