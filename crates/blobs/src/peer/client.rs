//! Requests to a peer, with timeouts and retries.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use model::blob::{BlobId, WorkerId};
use tokio::time::timeout;

use super::{ObjectPeer, PeerError, PeerFuture, PeerWorker};
use crate::blocking::blocking;
use crate::limits::{MANIFEST_BYTES_MAX, PIECE_BYTES_MAX};
use crate::options::PeerRetry;
use crate::{Error, Stat};

#[derive(Debug, Clone)]
pub(crate) struct PeerClient {
    pub(super) peer: Arc<dyn ObjectPeer>,
    pub(super) retry: PeerRetry,
}

impl PeerClient {
    pub fn new(peer: Arc<dyn ObjectPeer>, retry: PeerRetry) -> Self {
        Self { peer, retry }
    }

    pub async fn stat(&self, id: BlobId) -> Result<Option<Stat>, Error> {
        let mut retries = self.retries();
        loop {
            match self.timed(self.peer.stat(id)).await {
                Ok(stat) => return Ok(stat),
                Err(error) => retries.pause(error).await.map_err(|error| error.into_error(&id))?,
            }
        }
    }

    pub async fn missing(&self, ids: &[BlobId]) -> Result<Vec<BlobId>, Error> {
        let mut retries = self.retries();
        loop {
            match self.timed(self.peer.missing(ids.to_vec())).await {
                Ok(missing) => return Ok(missing),
                Err(error) => retries.pause(error).await.map_err(|error| error.into_error(&"a list of blobs"))?,
            }
        }
    }

    /// Verified manifest of a worker and the time of its registration.
    pub async fn manifest(&self, id: WorkerId) -> Result<Option<(Bytes, u64)>, Error> {
        let mut retries = self.retries();
        loop {
            let error = match self.timed(self.peer.worker(id)).await {
                Ok(None) => return Ok(None),
                Ok(Some(worker)) => {
                    let registered_at = worker.registered_at.0.0;
                    match self.read_manifest(id, worker).await {
                        Ok(manifest) => return Ok(Some((manifest, registered_at))),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            retries.pause(error).await.map_err(|error| error.into_error(&id))?;
        }
    }

    async fn read_manifest(&self, id: WorkerId, mut worker: PeerWorker) -> Result<Bytes, PeerError> {
        let limit = MANIFEST_BYTES_MAX as u64;
        if worker.manifest_bytes > limit {
            return Err(PeerError::TooLarge { bytes: worker.manifest_bytes, limit });
        }
        let mut manifest = BytesMut::new();
        while let Some(piece) = self.timed(Box::pin(worker.manifest.try_next())).await? {
            manifest.extend_from_slice(&piece);
            if manifest.len() as u64 > worker.manifest_bytes {
                return Err(PeerError::unreachable("a manifest was received with too many bytes"));
            }
        }
        let manifest = manifest.freeze();
        let hashed = manifest.clone();
        match blocking(move || Ok(WorkerId::of(&hashed))).await? {
            found if found == id => Ok(manifest),
            _ => Err(PeerError::unreachable("a manifest was not received as it was registered")),
        }
    }

    /// Bounds the time without an answer.
    pub(super) async fn timed<T>(&self, answer: PeerFuture<'_, T>) -> Result<T, PeerError> {
        let limit = self.retry.stall_timeout;
        timeout(limit, answer).await.unwrap_or_else(|_| Err(no_answer(limit)))
    }

    pub(super) fn retries(&self) -> Retries {
        Retries { options: self.retry, failures: 0, progress: 0 }
    }
}

pub(super) fn no_answer(limit: Duration) -> PeerError {
    PeerError::unreachable(format!("it did not answer for {} s", limit.as_secs_f64()))
}

/// Counts failures without progress and pauses between them.
pub(super) struct Retries {
    options: PeerRetry,
    failures: u32,
    progress: u64,
}

impl Retries {
    /// Records how many bytes are transferred. Progress of at least a piece resets the count of failures; a smaller
    /// one does not, so that a connection that is cut after every byte is given up.
    pub fn progress(&mut self, bytes: u64) {
        if bytes >= self.progress + PIECE_BYTES_MAX as u64 {
            self.progress = bytes;
            self.failures = 0;
        }
    }

    /// Pauses before the next attempt. Returns the error if it is not transient or too many attempts have failed.
    pub async fn pause(&mut self, error: PeerError) -> Result<(), PeerError> {
        self.failures += 1;
        if !error.is_transient() || self.failures >= self.options.attempts_max {
            return Err(error);
        }
        tracing::debug!("a request to the control node failed and is retried: {error}");
        let doubled = self.options.backoff_min.saturating_mul(1 << (self.failures - 1).min(16));
        let backoff = doubled.min(self.options.backoff_max);
        // Up to half is random, so that the runner nodes do not return all at once.
        let random = getrandom::u32().unwrap_or_default();
        tokio::time::sleep(backoff / 2 + (backoff / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))).await;
        Ok(())
    }
}
