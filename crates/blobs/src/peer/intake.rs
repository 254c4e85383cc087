//! Uploads of runner nodes at the control node.
//!
//! Unfinished uploads are bounded in number and announced bytes, per runner node and in all. They live in the scratch
//! directory: a restart of the control node discards them, and the runner nodes begin again.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt;
use model::blob::BlobId;
use model::id::NodeId;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};
use tokio::time::timeout;

use super::prefetch::{self, Pieces};
use super::slot::{Fed, Partial, Receiving, Verification, stored_bytes_max};
use super::{PeerStream, PeerUpload, PutOffset};
use crate::blocking::blocking;
use crate::options::PeerUploadLimits;
use crate::pack::{Body, Packed};
use crate::{Blobs, Error};

/// An upload without a request for this long gives way to a new one if the limits are reached.
const IDLE_GIVES_WAY_AFTER: Duration = Duration::from_secs(60);

/// Times a request looks for its upload again, if that ended while the request waited for it.
const LOOKUPS_MAX: usize = 4;

/// Counters of uploads by runner nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PeerUploadStats {
    /// Uploads in progress or interrupted.
    pub unfinished: usize,
    /// Their announced sizes.
    pub unfinished_bytes: u64,
    /// What they use on disk.
    pub received_bytes: u64,
    /// Verified and stored since the start.
    pub accepted: u64,
    /// Refused and removed since the start: wrong content, wrong size, or not a stored object.
    pub rejected: u64,
    /// Removed since the start because they were not continued.
    pub expired: u64,
}

#[derive(Debug)]
pub(crate) struct Intake {
    limits: PeerUploadLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    uploads: HashMap<(NodeId, BlobId), Arc<Upload>>,
    accepted: u64,
    rejected: u64,
    expired: u64,
}

#[derive(Debug)]
struct Upload {
    stored_bytes: u64,
    received: AtomicU64,
    partial: Arc<AsyncMutex<Partial>>,
    activity: Mutex<Activity>,
}

#[derive(Debug)]
struct Activity {
    last: SystemTime,
    /// Ends the request that currently writes.
    current: Option<Arc<Notify>>,
}

impl Upload {
    fn new(stored_bytes: u64, now: SystemTime) -> Self {
        Self {
            stored_bytes,
            received: AtomicU64::new(0),
            partial: Arc::default(),
            activity: Mutex::new(Activity { last: now, current: None }),
        }
    }

    /// Exclusive access. A request that still writes is ended: the runner node has given it up.
    async fn take_over(&self) -> OwnedMutexGuard<Partial> {
        if let Some(current) = &self.activity.lock().current {
            current.notify_one();
        }
        Arc::clone(&self.partial).lock_owned().await
    }

    fn is_idle_since(&self, now: SystemTime, age: Duration) -> bool {
        now.duration_since(self.activity.lock().last).is_ok_and(|idle| idle >= age)
    }
}

impl Intake {
    pub fn new(limits: PeerUploadLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    pub fn stats(&self) -> PeerUploadStats {
        let state = self.state.lock();
        let mut stats = PeerUploadStats {
            unfinished: state.uploads.len(),
            accepted: state.accepted,
            rejected: state.rejected,
            expired: state.expired,
            ..PeerUploadStats::default()
        };
        for upload in state.uploads.values() {
            stats.unfinished_bytes += upload.stored_bytes;
            stats.received_bytes += upload.received.load(Ordering::Relaxed);
        }
        stats
    }

    /// Blocks. Removes uploads that were not continued and returns their number.
    pub fn remove_abandoned(&self, now: SystemTime) -> usize {
        self.state.lock().expire(now, self.limits.abandoned_after, |_| true)
    }

    fn find(&self, peer: NodeId, id: BlobId) -> Option<Arc<Upload>> {
        self.state.lock().uploads.get(&(peer, id)).map(Arc::clone)
    }

    /// Finds or begins an upload. Blocks while files of expired uploads are removed.
    fn admit(&self, peer: NodeId, id: BlobId, stored_bytes: u64, now: SystemTime) -> Result<Arc<Upload>, Error> {
        let limits = &self.limits;
        let bytes_max = limits.bytes_per_peer_max.min(limits.bytes_max);
        if stored_bytes > bytes_max {
            return Err(Error::TooLarge { what: id.to_string(), bytes: stored_bytes, limit: bytes_max });
        }
        let mut state = self.state.lock();
        if let Some(upload) = state.uploads.get(&(peer, id)) {
            // The request that ended an upload may have been dropped before it removed the upload.
            let has_ended = upload.partial.try_lock().is_ok_and(|partial| partial.ended);
            if upload.stored_bytes == stored_bytes && !has_ended {
                return Ok(Arc::clone(upload));
            }
            // Otherwise the runner node has packed the content again. The file is removed with the last reference.
            state.uploads.remove(&(peer, id));
        }
        if !state.fits(peer, stored_bytes, limits) {
            // Uploads of the same runner node first.
            state.expire(now, IDLE_GIVES_WAY_AFTER, |owner| owner == peer);
        }
        if !state.fits(peer, stored_bytes, limits) {
            state.expire(now, IDLE_GIVES_WAY_AFTER, |_| true);
        }
        if !state.fits(peer, stored_bytes, limits) {
            return Err(Error::Busy { what: "too many uploads of runner nodes are unfinished".to_owned() });
        }
        let upload = Arc::new(Upload::new(stored_bytes, now));
        state.uploads.insert((peer, id), Arc::clone(&upload));
        Ok(upload)
    }

    /// Forgets an upload that has ended.
    fn remove(&self, peer: NodeId, id: BlobId, ended: &Arc<Upload>, count: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        count(&mut state);
        if state.uploads.get(&(peer, id)).is_some_and(|found| Arc::ptr_eq(found, ended)) {
            state.uploads.remove(&(peer, id));
        }
    }
}

impl State {
    /// Derived from the uploads, so that no sum can drift.
    fn fits(&self, peer: NodeId, stored_bytes: u64, limits: &PeerUploadLimits) -> bool {
        let (mut own, mut own_bytes, mut bytes) = (0, stored_bytes, stored_bytes);
        for ((owner, _), upload) in &self.uploads {
            bytes = bytes.saturating_add(upload.stored_bytes);
            if *owner == peer {
                own += 1;
                own_bytes = own_bytes.saturating_add(upload.stored_bytes);
            }
        }
        own < limits.uploads_per_peer_max
            && own_bytes <= limits.bytes_per_peer_max
            && self.uploads.len() < limits.uploads_max
            && bytes <= limits.bytes_max
    }

    fn expire(&mut self, now: SystemTime, age: Duration, of: impl Fn(NodeId) -> bool) -> usize {
        let before = self.uploads.len();
        self.uploads.retain(|(owner, _), upload| {
            if !of(*owner) || !upload.is_idle_since(now, age) {
                return true;
            }
            // A locked upload is in use.
            let Ok(mut partial) = upload.partial.try_lock() else { return true };
            drop(partial.end());
            false
        });
        let expired = before - self.uploads.len();
        self.expired += expired as u64;
        expired
    }
}

impl Blobs {
    /// Counters of uploads by runner nodes.
    pub fn peer_upload_stats(&self) -> PeerUploadStats {
        self.shared.intake.stats()
    }

    pub(super) async fn peer_put_offset(
        &self,
        peer: NodeId,
        id: BlobId,
        stored_bytes: u64,
    ) -> Result<PutOffset, Error> {
        self.check_stored_size(id, stored_bytes)?;
        let found = self.shared.intake.find(peer, id).filter(|upload| upload.stored_bytes == stored_bytes);
        let received = match found {
            Some(upload) => {
                let partial = upload.take_over().await;
                if partial.ended { 0 } else { partial.received }
            }
            None => 0,
        };
        // After the wait, which may have ended with the blob stored.
        Ok(if self.is_durable(id).await? { PutOffset::Complete } else { PutOffset::At(received) })
    }

    pub(super) async fn peer_put(&self, peer: NodeId, id: BlobId, upload: PeerUpload) -> Result<(), Error> {
        let PeerUpload { stored_bytes, offset, content } = upload;
        self.check_stored_size(id, stored_bytes)?;
        for _ in 0..LOOKUPS_MAX {
            if self.is_durable(id).await? {
                return Ok(());
            }
            let shared = Arc::clone(&self.shared);
            let upload = blocking(move || shared.intake.admit(peer, id, stored_bytes, SystemTime::now())).await?;
            let partial = upload.take_over().await;
            if partial.ended {
                continue;
            }
            let claimed = Claim { blobs: self, peer, id, upload };
            return claimed.receive(partial, offset, content).await;
        }
        Err(Error::Busy { what: format!("several uploads of {id} are in progress") })
    }

    fn check_stored_size(&self, id: BlobId, stored_bytes: u64) -> Result<(), Error> {
        let limit = stored_bytes_max(self.shared.options.blob_bytes_max);
        if stored_bytes > limit {
            self.shared.intake.state.lock().rejected += 1;
            return Err(Error::TooLarge { what: id.to_string(), bytes: stored_bytes, limit });
        }
        Ok(())
    }

    /// Whether the blob exists, durably. Protects it from garbage collection.
    async fn is_durable(&self, id: BlobId) -> Result<bool, Error> {
        self.shared.protection.touch(id).await;
        if !self.has(id).await? {
            return Ok(false);
        }
        // A concurrent put may have made it visible but not yet durable.
        drop(self.shared.put_locks.lock(id).await);
        Ok(true)
    }
}

/// One request that appends to an upload.
struct Claim<'a> {
    blobs: &'a Blobs,
    peer: NodeId,
    id: BlobId,
    upload: Arc<Upload>,
}

type Guarded = Receiving<OwnedMutexGuard<Partial>>;

impl Claim<'_> {
    async fn receive(self, partial: OwnedMutexGuard<Partial>, offset: u64, content: PeerStream) -> Result<(), Error> {
        if partial.received != offset {
            return Err(Error::WrongOffset { id: self.id, expected: partial.received, requested: offset });
        }
        let taken_over = Arc::new(Notify::new());
        *self.upload.activity.lock() = Activity { last: SystemTime::now(), current: Some(Arc::clone(&taken_over)) };
        let _ended = Ended { upload: Arc::clone(&self.upload), current: Arc::clone(&taken_over) };
        let stored_bytes = self.upload.stored_bytes;
        let receiving = Receiving {
            partial,
            scratch: Arc::clone(&self.blobs.shared.storage.scratch),
            id: self.id,
            stored_bytes,
            verification: (offset == 0).then(|| self.verification()),
        };
        let pieces = self.prefetch(content, stored_bytes - offset);
        let received = tokio::select! {
            received = self.receive_all(receiving, pieces) => received,
            () = taken_over.notified() => {
                return Err(Error::Interrupted { reason: "another request continues the upload".to_owned() });
            }
        };
        let verified = match received {
            Ok(receiving) => self.verify(receiving).await,
            Err(error) => Err(error),
        };
        match verified {
            Ok((receiving, plain_bytes)) => self.store(receiving, plain_bytes).await,
            Err(error) => Err(self.fail(error).await),
        }
    }

    fn verification(&self) -> Verification {
        Verification::new(self.id, self.upload.stored_bytes, self.blobs.shared.options.blob_bytes_max)
    }

    /// Receives in a task, ahead of the writes.
    fn prefetch(&self, content: PeerStream, bytes: u64) -> Pieces {
        let stall_timeout = self.blobs.shared.options.peer_retry.stall_timeout;
        let (mut sender, pieces) = prefetch::channel();
        tokio::spawn(async move {
            let watch = sender.watch();
            let receive = async move {
                let mut content = pin!(content);
                let mut left = bytes;
                // Stops at the announced size; the excess is noticed, but not all of it is received.
                loop {
                    let reason = match timeout(stall_timeout, content.try_next()).await {
                        Ok(Ok(Some(piece))) => {
                            let is_excess = piece.len() as u64 > left;
                            left = left.saturating_sub(piece.len() as u64);
                            sender.piece(piece).await?;
                            match is_excess {
                                true => return sender.flush().await,
                                false => continue,
                            }
                        }
                        Ok(Ok(None)) if left == 0 => return sender.flush().await,
                        Ok(Ok(None)) => format!("{left} bytes are missing"),
                        Ok(Err(error)) => error.to_string(),
                        Err(_) => format!("nothing was received for {} s", stall_timeout.as_secs_f64()),
                    };
                    return sender.error(Error::Interrupted { reason }).await;
                }
            };
            tokio::select! {
                _ = receive => {}
                () = watch.closed() => {}
            }
        });
        pieces
    }

    async fn receive_all(&self, mut receiving: Guarded, mut pieces: Pieces) -> Result<Guarded, Error> {
        while let Some(piece) = pieces.recv().await {
            let mut piece = Some(piece?);
            loop {
                let (back, fed) = blocking(move || {
                    let fed = match piece {
                        Some(piece) => receiving.accept(piece)?,
                        None => receiving.resume()?,
                    };
                    Ok((receiving, fed))
                })
                .await?;
                receiving = back;
                match fed {
                    Fed::All => break,
                    Fed::Part => piece = None,
                }
            }
            self.upload.received.store(receiving.partial.received, Ordering::Relaxed);
            self.upload.activity.lock().last = SystemTime::now();
        }
        Ok(receiving)
    }

    /// Returns the plain size of the verified content.
    async fn verify(&self, mut receiving: Guarded) -> Result<(Guarded, u64), Error> {
        let mut verification = match receiving.verification.take() {
            Some(complete) => complete,
            None => {
                let mut verification = self.verification();
                loop {
                    let (back, state, fed) = blocking(move || {
                        let fed = receiving.verify_file(&mut verification)?;
                        Ok((receiving, verification, fed))
                    })
                    .await?;
                    (receiving, verification) = (back, state);
                    if fed == Fed::All {
                        break verification;
                    }
                }
            }
        };
        // A blob without content has no input after its header.
        while verification.resume()? == Fed::Part {}
        Ok((receiving, verification.finish()?))
    }

    async fn store(self, mut receiving: Guarded, plain_bytes: u64) -> Result<(), Error> {
        let Some(file) = receiving.partial.end() else { return Err(Error::UploadNotFound { id: self.id }) };
        let packed = Packed { id: self.id, plain_bytes, body: Body::File(file) };
        let stored = self.blobs.store(packed).await;
        let Self { blobs, peer, id, upload } = self;
        blobs.shared.intake.remove(peer, id, &upload, |state| state.accepted += u64::from(stored.is_ok()));
        stored.map(drop)
    }

    /// Removes the upload unless it can be continued.
    async fn fail(self, error: Error) -> Error {
        let rejected = matches!(error, Error::Rejected { .. } | Error::TooLarge { .. } | Error::Damaged { .. });
        if rejected {
            tracing::warn!("an upload of {} was rejected: {error}", self.peer);
        }
        // On a full disk the upload is discarded to free space.
        if rejected || matches!(error, Error::Full { .. }) {
            drop(self.upload.partial.lock().await.end());
            let Self { blobs, peer, id, upload } = self;
            blobs.shared.intake.remove(peer, id, &upload, |state| state.rejected += u64::from(rejected));
        }
        error
    }
}

/// Marks the end of a request, also if it is dropped.
struct Ended {
    upload: Arc<Upload>,
    current: Arc<Notify>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let mut activity = self.upload.activity.lock();
        activity.last = SystemTime::now();
        if activity.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &self.current)) {
            activity.current = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> BlobId {
        BlobId::of(&[number])
    }

    #[test]
    fn idle_uploads_give_way_to_new_ones_but_not_those_in_use() {
        let limits = PeerUploadLimits { uploads_max: 2, ..PeerUploadLimits::default() };
        let intake = Intake::new(limits);
        let start = SystemTime::now();
        let used = intake.admit(NodeId(1), id(1), 10, start).unwrap();
        let _guard = used.partial.try_lock().unwrap();
        intake.admit(NodeId(1), id(2), 10, start).unwrap();
        let almost = start + IDLE_GIVES_WAY_AFTER - Duration::from_millis(1);
        assert!(matches!(intake.admit(NodeId(2), id(3), 10, almost), Err(Error::Busy { .. })));
        intake.admit(NodeId(2), id(3), 10, start + IDLE_GIVES_WAY_AFTER).unwrap();
        assert!(intake.find(NodeId(1), id(1)).is_some());
        assert!(intake.find(NodeId(1), id(2)).is_none());
        assert_eq!((intake.stats().unfinished, intake.stats().expired), (2, 1));
    }

    #[test]
    fn an_upload_that_ended_without_removal_begins_again() {
        let intake = Intake::new(PeerUploadLimits::default());
        let now = SystemTime::now();
        let first = intake.admit(NodeId(1), id(1), 10, now).unwrap();
        assert!(Arc::ptr_eq(&first, &intake.admit(NodeId(1), id(1), 10, now).unwrap()));
        first.partial.try_lock().unwrap().end();
        let second = intake.admit(NodeId(1), id(1), 10, now).unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        // Another size means that the content was packed again.
        assert!(!Arc::ptr_eq(&second, &intake.admit(NodeId(1), id(1), 11, now).unwrap()));
        assert_eq!(intake.stats().unfinished, 1);
    }
}
