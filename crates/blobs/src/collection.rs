//! Removing what nobody refers to.
//!
//! In two steps, since only the caller knows who refers to what: it begins a collection, *then* gathers what is in use,
//! and sweeps with that. What is put, read or asked for after the beginning is safe, so it does not matter whether the
//! gathering saw it.
//!
//! Where several processes share one store, what was touched is known to its own process only; the age of the
//! objects protects what others have just put. One of them collects, and with a grace period that is longer than any
//! client takes from its question to its job.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::TryStreamExt;
use model::blob::BlobId;
use object_store::ObjectMeta;
use tokio::sync::OwnedMutexGuard;

use crate::blocking::{blocking, settled};
use crate::cache::Item;
use crate::keys::{self, blob_key, blob_of};
use crate::place::modified;
use crate::{Blobs, Error};

/// How many blobs are deleted in one go. While they are, nobody can put or ask for them.
const DELETED_AT_ONCE: usize = 500;

/// A collection that has begun. Dropping it ends it, with nothing removed.
#[derive(Debug)]
pub struct Collection {
    blobs: Blobs,
    round: u64,
    _only: OwnedMutexGuard<()>,
}

/// What a collection has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub deleted: u64,
    /// As they were kept.
    pub deleted_bytes: u64,
    pub kept: u64,
    pub abandoned_uploads: u64,
}

impl Blobs {
    /// Begins a collection. Gather what is in use only after this. One collection at a time.
    pub fn begin_collection(&self) -> Result<Collection, Error> {
        let only = Arc::clone(&self.shared.collecting).try_lock_owned();
        let only = only.map_err(|_| Error::Busy { what: "another collection is under way".to_owned() })?;
        Ok(Collection { blobs: self.clone(), round: self.shared.protection.begin(), _only: only })
    }
}

impl Collection {
    /// Deletes every blob that is not `in_use`, no part of a registered worker, not pinned, and was not put, read or
    /// asked for within the grace period before `now` or since the collection began. Removes abandoned uploads too.
    pub async fn sweep(self, in_use: impl Fn(&BlobId) -> bool, now: SystemTime) -> Result<Swept, Error> {
        let shared = &self.blobs.shared;
        let abandoned_uploads = self.blobs.remove_abandoned_uploads(now).await? as u64;
        let mut swept = Swept { abandoned_uploads, ..Swept::default() };
        let in_workers: HashSet<BlobId> = self.blobs.blobs_of_workers().await?;
        let mut candidates = Vec::new();
        let mut listed = shared.place.list(keys::BLOBS);
        while let Some(meta) = listed.try_next().await? {
            // What is no blob of ours is none of our business.
            let Some(id) = blob_of(&meta.location) else { continue };
            let old = modified(&meta).checked_add(shared.options.grace).is_some_and(|until| until <= now);
            if !old || in_use(&id) || in_workers.contains(&id) || shared.cache.is_pinned(Item::Blob(id)) {
                swept.kept += 1;
                continue;
            }
            candidates.push((id, meta));
            if candidates.len() == DELETED_AT_ONCE {
                self.delete(std::mem::take(&mut candidates), now, &mut swept).await?;
            }
        }
        self.delete(candidates, now, &mut swept).await?;
        Ok(swept)
    }

    async fn delete(
        &self,
        candidates: Vec<(BlobId, ObjectMeta)>,
        now: SystemTime,
        swept: &mut Swept,
    ) -> Result<(), Error> {
        let shared = Arc::clone(&self.blobs.shared);
        let condemned = shared.protection.condemn(candidates.iter().map(|(id, _)| *id), self.round, now);
        let going: HashSet<BlobId> = condemned.ids.iter().copied().collect();
        let bytes: u64 = candidates.iter().filter(|(id, _)| going.contains(id)).map(|(_, meta)| meta.size).sum();
        // In a task, so that nobody is let in before the deletion has really ended.
        settled(tokio::spawn(async move {
            let deleted = shared.place.delete(condemned.ids.iter().map(|id| blob_key(*id)).collect()).await;
            let cache = Arc::clone(&shared.cache);
            blocking(move || {
                for id in &condemned.ids {
                    cache.remove(Item::Blob(*id));
                }
                Ok(())
            })
            .await?;
            deleted
        }))
        .await?;
        swept.deleted += going.len() as u64;
        swept.deleted_bytes += bytes;
        swept.kept += (candidates.len() - going.len()) as u64;
        Ok(())
    }
}
