//! Garbage collection of unreferenced blobs.
//!
//! Mark and sweep, since only the caller knows the references: it begins a collection, *then* gathers the blobs in use,
//! and sweeps with that set. Blobs that are put, read or queried after the beginning are protected, whether or not the
//! set contains them.
//!
//! If several processes share one store, each knows only its own touches; the age of an object protects recent puts of
//! the others. Only one process may collect, with a grace period longer than any client takes from its query to its
//! job.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::TryStreamExt;
use model::blob::BlobId;
use object_store::ObjectMeta;
use tokio::sync::OwnedMutexGuard;

use crate::blocking::{blocking, join};
use crate::cache::CacheKey;
use crate::keys::{self, blob_key, blob_of};
use crate::storage::modified;
use crate::{Blobs, Error};

/// Blobs deleted in one batch. Puts and queries of these blobs wait meanwhile.
const DELETE_BATCH_MAX: usize = 500;

/// A collection in progress. Dropping it ends it without deleting anything.
#[derive(Debug)]
pub struct Collection {
    blobs: Blobs,
    round: u64,
    _exclusive: OwnedMutexGuard<()>,
}

/// Result of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepStats {
    pub deleted: u64,
    /// Stored size.
    pub deleted_bytes: u64,
    pub retained: u64,
    pub abandoned_uploads: u64,
}

impl Blobs {
    /// Begins a collection. Gather the blobs in use only after this call. One collection at a time.
    pub fn begin_collection(&self) -> Result<Collection, Error> {
        self.shared.storage.require_own_store("collect garbage")?;
        let lock = Arc::clone(&self.shared.collecting).try_lock_owned();
        let lock = lock.map_err(|_| Error::Busy { what: "another garbage collection is in progress".to_owned() })?;
        Ok(Collection { blobs: self.clone(), round: self.shared.protection.begin_collection(), _exclusive: lock })
    }
}

impl Collection {
    /// Deletes every blob that is not `in_use`, not part of a registered worker, not pinned, and not put, read or
    /// queried within the grace period before `now` or since the collection began. Also removes abandoned uploads.
    pub async fn sweep(self, in_use: impl Fn(&BlobId) -> bool, now: SystemTime) -> Result<SweepStats, Error> {
        let shared = &self.blobs.shared;
        let abandoned_uploads = self.blobs.remove_abandoned_uploads(now).await? as u64;
        let mut stats = SweepStats { abandoned_uploads, ..SweepStats::default() };
        let in_workers: HashSet<BlobId> = self.blobs.worker_blobs().await?;
        let mut candidates = Vec::new();
        let mut listed = shared.storage.list(keys::BLOBS);
        while let Some(meta) = listed.try_next().await? {
            // Objects that are not blobs are left alone.
            let Some(id) = blob_of(&meta.location) else { continue };
            let old = modified(&meta).checked_add(shared.options.grace).is_some_and(|until| until <= now);
            if !old || in_use(&id) || in_workers.contains(&id) || shared.cache.is_pinned(CacheKey::Blob(id)) {
                stats.retained += 1;
                continue;
            }
            candidates.push((id, meta));
            if candidates.len() == DELETE_BATCH_MAX {
                self.delete(std::mem::take(&mut candidates), now, &mut stats).await?;
            }
        }
        self.delete(candidates, now, &mut stats).await?;
        Ok(stats)
    }

    async fn delete(
        &self,
        candidates: Vec<(BlobId, ObjectMeta)>,
        now: SystemTime,
        stats: &mut SweepStats,
    ) -> Result<(), Error> {
        let shared = Arc::clone(&self.blobs.shared);
        let deletion = shared.protection.begin_deletion(candidates.iter().map(|(id, _)| *id), self.round, now);
        let deleting: HashSet<BlobId> = deletion.ids.iter().copied().collect();
        let bytes: u64 = candidates.iter().filter(|(id, _)| deleting.contains(id)).map(|(_, meta)| meta.size).sum();
        // In a task: if the caller is dropped, the blobs stay locked until the deletion has ended.
        join(tokio::spawn(async move {
            let deleted = shared.storage.delete(deletion.ids.iter().map(|id| blob_key(*id)).collect()).await;
            let cache = Arc::clone(&shared.cache);
            blocking(move || {
                for id in &deletion.ids {
                    cache.remove(CacheKey::Blob(*id));
                }
                Ok(())
            })
            .await?;
            deleted
        }))
        .await?;
        stats.deleted += deleting.len() as u64;
        stats.deleted_bytes += bytes;
        stats.retained += (candidates.len() - deleting.len()) as u64;
        Ok(())
    }
}
