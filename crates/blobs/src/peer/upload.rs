//! Upload of a stored object to a peer that resumes where it was cut.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use model::blob::BlobId;
use tokio::time::timeout;

use super::client::{PeerClient, no_answer};
use super::{PeerError, PeerStream, PeerUpload, PutOffset, file_chunks};
use crate::Error;
use crate::limits::CHUNK_BYTES;
use crate::pack::{Body, Packed};
use crate::scratch::TempFile;

/// Slowest accepted verification of an upload at the control node, in plain bytes.
const VERIFIED_BYTES_PER_SEC_MIN: u64 = 32 << 20;

/// Bytes to upload. Clones share them.
#[derive(Clone)]
enum Content {
    Memory(Bytes),
    File(Arc<TempFile>),
}

/// Owner of a temporary file, as [`file_chunks::read`] needs it.
#[derive(Clone)]
struct SharedFile(Arc<TempFile>);

impl AsRef<File> for SharedFile {
    fn as_ref(&self) -> &File {
        &self.0.file
    }
}

impl Content {
    /// Bytes from `offset` on. `sent` is the position up to which they were taken.
    fn stream(&self, offset: u64, bytes: u64, sent: Arc<AtomicU64>) -> PeerStream {
        let chunks = match self {
            Self::Memory(content) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
                let mut rest = content.slice(start..);
                let chunks = std::iter::from_fn(move || {
                    let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
                    (!chunk.is_empty()).then_some(Ok(chunk))
                });
                stream::iter(chunks).boxed()
            }
            Self::File(file) => file_chunks::read(SharedFile(Arc::clone(file)), offset..bytes).boxed(),
        };
        let counted = chunks.inspect_ok(move |chunk| {
            sent.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        });
        counted.map_err(PeerError::from).boxed()
    }
}

impl PeerClient {
    /// Uploads an object. It is durable at the peer when this returns.
    pub async fn publish(&self, packed: Packed) -> Result<(), Error> {
        let Packed { id, plain_bytes, body } = packed;
        // A small object is sent without asking for an offset, which saves a round trip.
        let (content, stored_bytes, mut offset) = match body {
            Body::Memory(bytes) => {
                let stored_bytes = bytes.len() as u64;
                (Content::Memory(bytes.into()), stored_bytes, Some(0))
            }
            Body::File(file) => {
                let found = file.file.metadata().map_err(Error::io("read the size of", &file.path))?;
                (Content::File(Arc::new(file)), found.len(), None)
            }
        };
        let mut retries = self.retries();
        let patience = self.retry.stall_timeout + Duration::from_secs(plain_bytes / VERIFIED_BYTES_PER_SEC_MIN);
        loop {
            let error = match self.try_put(id, &content, stored_bytes, offset, patience).await {
                Ok(Sent::Durable) => return Ok(()),
                Ok(Sent::Cut { from, error }) => {
                    retries.progress(from);
                    error
                }
                Err(error) => error,
            };
            offset = match &error {
                PeerError::WrongOffset { expected } => Some(*expected).filter(|expected| *expected <= stored_bytes),
                _ => None,
            };
            retries.pause(error).await.map_err(|error| error.into_error(&id))?;
        }
    }

    /// `patience` is how long the peer may take to verify an upload and make it durable.
    async fn try_put(
        &self,
        id: BlobId,
        content: &Content,
        stored_bytes: u64,
        offset: Option<u64>,
        patience: Duration,
    ) -> Result<Sent, PeerError> {
        let asked = match offset {
            Some(offset) => PutOffset::At(offset),
            // The peer may first have to finish the verification of what it has.
            None => {
                let asked = timeout(patience, self.peer.put_offset(id, stored_bytes));
                asked.await.unwrap_or_else(|_| Err(no_answer(patience)))?
            }
        };
        let from = match asked {
            PutOffset::Complete => return Ok(Sent::Durable),
            PutOffset::At(from) if from <= stored_bytes => from,
            PutOffset::At(from) => {
                let reason = format!("it expects byte {from} of an upload of {stored_bytes} bytes");
                return Err(PeerError::Failed { reason });
            }
        };
        let sent = Arc::new(AtomicU64::new(from));
        let content = content.stream(from, stored_bytes, Arc::clone(&sent));
        let mut put = self.peer.put(id, PeerUpload { stored_bytes, offset: from, content });
        let mut seen = from;
        loop {
            let limit = if seen == stored_bytes { patience } else { self.retry.stall_timeout };
            match timeout(limit, &mut put).await {
                Ok(Ok(())) => return Ok(Sent::Durable),
                Ok(Err(error)) => return Ok(Sent::Cut { from, error }),
                Err(_) => {
                    let now = sent.load(Ordering::Relaxed);
                    if now == seen {
                        return Ok(Sent::Cut { from, error: no_answer(limit) });
                    }
                    seen = now;
                }
            }
        }
    }
}

enum Sent {
    Durable,
    /// The upload began at `from`, which the peer had received before.
    Cut {
        from: u64,
        error: PeerError,
    },
}
