//! Export of the audit log as lines of JSON, with the bytes that its links cover, for verification elsewhere.

use std::io;
use std::sync::Arc;

use ::api::{AuditEntryView, AuditHeadView, CheckpointView, ExportedCheckpoint, ExportedEntry, ExportedHead};
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use model::audit::{self, SignedCheckpoint};
use model::id::ShardId;
use model::key;
use tokio::sync::{mpsc, watch};

use super::super::Core;
use super::super::blocking::allow;
use super::super::permit::Permit;
use super::super::problem::Refused;
use super::log::{Log, StoredLog, removed};
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
        let log = StoredLog { store: core.store(), shard };
        write_shard(&log, shard, stopping, |lines| pieces.blocking_send(Ok(lines.into())).map_err(|_| Ended::Unread))?;
    }
    Ok(())
}

fn write_shard(
    log: &impl Log,
    shard: ShardId,
    stopping: &watch::Receiver<bool>,
    mut send: impl FnMut(Vec<u8>) -> Result<(), Ended>,
) -> Result<(), Ended> {
    let start = log.start()?;
    let mut end = log.head()?;
    let mut written = removed(start.as_ref()).number;
    let mut lines = Vec::new();
    if let Some(signed) = &start {
        add_line(&mut lines, &checkpoint(shard, signed));
    }
    while written < end.number {
        if *stopping.borrow() {
            return Err(Ended::Unread);
        }
        let chunk = log.chunk(written)?;
        let numbers = || chunk.iter().filter_map(|(entry_key, _)| key::number_of_audit(entry_key));
        if numbers().next() != Some(written + 1)
            && let Some(moved) = log.moved_start(written)?
        {
            add_line(&mut lines, &checkpoint(shard, &moved));
            written = moved.checkpoint.number;
            end = log.head()?;
            continue;
        }
        let Some(last) = numbers().next_back() else {
            // The head that follows has the number of the last entry.
            break;
        };
        for ((_, stored), _) in chunk.iter().zip(numbers()).take_while(|(_, number)| *number <= end.number) {
            add_line(&mut lines, &entry(shard, stored)?);
        }
        written = last;
        send(std::mem::take(&mut lines))?;
    }
    let head = AuditHeadView { number: end.number, link: end.link.to_string() };
    add_line(&mut lines, &ExportedHead { shard: shard.0, head });
    send(lines)
}

fn checkpoint(shard: ShardId, signed: &SignedCheckpoint) -> ExportedCheckpoint {
    let encoded = STANDARD.encode(signed.checkpoint.bytes_to_sign());
    ExportedCheckpoint { shard: shard.0, checkpoint: CheckpointView::new(signed), encoded }
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

#[cfg(test)]
mod tests {
    use ::api::ExportedLine;
    use model::audit::{Head, Link};

    use super::super::log::shortening::{OVERTAKING, SHARD, ShorteningLog};
    use super::*;

    #[test]
    fn the_export_of_a_log_that_is_being_shortened_has_no_gap() {
        for removals in OVERTAKING {
            let log = ShorteningLog::new(20, 4, removals);
            let (_stop, stopping) = watch::channel(false);
            let mut export = Vec::new();
            let written = write_shard(&log, SHARD, &stopping, |lines| {
                export.extend(lines);
                Ok(())
            });
            assert!(written.is_ok(), "{removals:?}");
            let mut at = Head::START;
            let mut ended = false;
            for line in export.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                assert!(!ended, "{removals:?}");
                match serde_json::from_slice(line).unwrap() {
                    ExportedLine::Entry(line) => {
                        let link: Link = line.entry.link.parse().unwrap();
                        let stored = [link.0.to_vec(), STANDARD.decode(&line.encoded).unwrap()].concat();
                        at.follow(&stored).unwrap_or_else(|broken| panic!("{removals:?}: {broken}"));
                    }
                    ExportedLine::Checkpoint(line) => {
                        let signed = line.checkpoint.signed(SHARD).unwrap();
                        assert_eq!(log.key.verify_own(&signed, SHARD), Ok(()));
                        assert!(signed.checkpoint.number > at.number, "{removals:?}");
                        at = signed.checkpoint.head();
                    }
                    ExportedLine::Head(line) => {
                        assert_eq!(
                            (line.head.number, line.head.link),
                            (at.number, at.link.to_string()),
                            "{removals:?}"
                        );
                        ended = true;
                    }
                }
            }
            assert!(ended && at.number >= 20, "{removals:?}");
        }
    }
}
