//! The audit log: read, verified by the server, or exported and verified here.

mod verify;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use model::id::JobId;
use model::view::{AuditEntryView, AuditReportView, Page};

use crate::client::Client;
use crate::error::Error;
use crate::query::Query;
use crate::transport::{Ask, Transport};
pub use verify::{Known, NotKnown, Unreadable, Verifier};

/// How long a server may take to go through its whole log.
const VERIFY_PATIENCE: Duration = Duration::from_secs(30 * 60);

/// Which entries a list shows. Absent: all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub job: Option<JobId>,
    pub action: Option<String>,
    pub newest_first: bool,
    pub shard: Option<u16>,
    /// Only entries after this number of the shard.
    pub after: Option<u64>,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

/// The exported log, in pieces.
#[derive(Debug)]
pub struct Export {
    body: Incoming,
    transport: Arc<Transport>,
}

impl Export {
    /// The next bytes; nothing at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| self.transport.unreachable(error))?;
            // Trailers are of no interest.
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
        self.get(query.after("/v1/audit")).await
    }

    /// Has the server go through its whole log.
    pub async fn verify_audit(&self) -> Result<AuditReportView, Error> {
        self.answer(&Ask { patience: VERIFY_PATIENCE, ..Ask::new(Method::GET, "/v1/audit/verify") }).await
    }

    /// The whole log as lines of JSON, see [`Verifier`].
    pub async fn export_audit(&self) -> Result<Export, Error> {
        let body = self.transport.open(&Ask::new(Method::GET, "/v1/audit/export")).await?;
        Ok(Export { body, transport: self.transport.clone() })
    }
}
