//! Export of the audit log as lines of JSON, with the bytes that its links cover, for verification elsewhere.

use std::io;
use std::sync::Arc;

use ::api::{AuditEntryView, AuditHeadView, ExportedEntry, ExportedHead};
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use model::audit;
use model::id::ShardId;
use tokio::sync::{mpsc, watch};

use super::super::Core;
use super::super::blocking::allow;
use super::super::permit::Permit;
use super::super::problem::Refused;
use super::chain;
use crate::error::Error;

/// Pieces buffered for a slow client.
const PIECES_WAITING_MAX: usize = 4;
/// A stored entry begins with its link.
const LINK_BYTES: usize = 32;

/// Why an export ends early.
enum Ended {
    /// The client is gone, or the node stops.
    Unread,
    Failed(Refused),
}

impl From<Refused> for Ended {
    fn from(refused: Refused) -> Self {
        Self::Failed(refused)
    }
}

/// Streams the log as of now, without later entries.
pub(super) fn stream(core: Arc<Core>, stopping: watch::Receiver<bool>, permit: Permit) -> Response {
    let (pieces, output) = mpsc::channel(PIECES_WAITING_MAX);
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        if let Err(Ended::Failed(refused)) = allow(|| write(&core, &stopping, &pieces)) {
            let problem = refused.problem();
            tracing::warn!(detail = problem.detail, "the export of the audit log failed");
            // The body is aborted, so that the client does not take it for a complete one.
            let _ = pieces.blocking_send(Err(io::Error::other(problem.detail)));
        }
    });
    let body = Body::from_stream(stream::unfold(output, |mut output| async move {
        let piece = output.recv().await?;
        Some((piece, output))
    }));
    ([(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")], body).into_response()
}

type Pieces = mpsc::Sender<io::Result<Bytes>>;

fn write(core: &Core, stopping: &watch::Receiver<bool>, pieces: &Pieces) -> Result<(), Ended> {
    for shard in core.shards.all() {
        let end = chain::head(core, shard)?;
        let mut written = 0;
        while written < end.number {
            if *stopping.borrow() {
                return Err(Ended::Unread);
            }
            let chunk = chain::chunk(core, shard, written).map_err(Refused::from)?;
            let mut lines = Vec::new();
            for (_, stored) in chunk.iter().take(usize::try_from(end.number - written).unwrap_or(usize::MAX)) {
                add_line(&mut lines, &entry(shard, stored)?);
            }
            if chunk.is_empty() {
                // The head that follows has the number of entries.
                break;
            }
            written += chunk.len() as u64;
            pieces.blocking_send(Ok(lines.into())).map_err(|_| Ended::Unread)?;
        }
        let head = AuditHeadView { number: end.number, link: end.link.to_string() };
        let mut line = Vec::new();
        add_line(&mut line, &ExportedHead { shard: shard.0, head });
        pieces.blocking_send(Ok(line.into())).map_err(|_| Ended::Unread)?;
    }
    Ok(())
}

fn entry(shard: ShardId, stored: &[u8]) -> Result<ExportedEntry, Refused> {
    let (link, entry) = audit::decode(stored).map_err(|source| Error::record(shard, source))?;
    let encoded = STANDARD.encode(&stored[LINK_BYTES..]);
    Ok(ExportedEntry { entry: AuditEntryView::new(shard, link, entry), encoded })
}

fn add_line(lines: &mut Vec<u8>, value: &impl serde::Serialize) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(&mut *lines, value);
    lines.push(b'\n');
}
