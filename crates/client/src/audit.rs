//! Audit log: list, verify on the server, export and verify locally.

mod verify;

use std::sync::Arc;
use std::time::Duration;

use api::{AuditEntryView, AuditReportView, Page};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use model::id::JobId;

use crate::client::Client;
use crate::error::Error;
use crate::query::Query;
use crate::request::ApiRequest;
use crate::transport::Transport;
pub use verify::{InvalidKnownLink, InvalidLine, KnownLink, Verifier};

/// Timeout of the verification of the whole log by the server.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Filter of the entry list. `None` fields match all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub job: Option<JobId>,
    pub action: Option<String>,
    pub newest_first: bool,
    pub shard: Option<u16>,
    /// Only entries of the shard with a larger number.
    pub after: Option<u64>,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

/// Stream of the exported log.
#[derive(Debug)]
pub struct Export {
    body: Incoming,
    transport: Arc<Transport>,
}

impl Export {
    /// The next bytes; `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| self.transport.unreachable(error))?;
            // Trailers are ignored.
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl Client {
    pub async fn audit(&self, filter: &Filter) -> Result<Page<AuditEntryView>, Error> {
        let query = Query::default()
            .with("job", filter.job)
            .with("action", filter.action.as_deref())
            .with("newest_first", filter.newest_first.then_some(true))
            .with("shard", filter.shard)
            .with("after", filter.after)
            .with("limit", filter.limit)
            .with("cursor", filter.cursor.as_deref());
        self.get(query.append_to("/v1/audit")).await
    }

    /// Lets the server verify its whole log.
    pub async fn verify_audit(&self) -> Result<AuditReportView, Error> {
        self.request_json(&ApiRequest { extra_timeout: VERIFY_TIMEOUT, ..ApiRequest::get("/v1/audit/verify") }).await
    }

    /// The whole log as JSON lines, see [`Verifier`].
    pub async fn export_audit(&self) -> Result<Export, Error> {
        let body = self.transport.open(&ApiRequest::get("/v1/audit/export")).await?;
        Ok(Export { body, transport: self.transport.clone() })
    }
}
