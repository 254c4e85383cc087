//! Registry of workers. Manifests are stored as objects next to the blobs, with the same durability.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};
use model::blob::{BlobId, WorkerId};
use model::time::{Millis, Timestamp};
use object_store::ObjectMeta;
use parking_lot::Mutex;
use serde::Serialize;

use super::manifest::{Function, Manifest};
use crate::blocking::blocking;
use crate::cache::CacheKey;
use crate::keys::{self, worker_key, worker_of};
use crate::limits::{MANIFEST_BYTES_MAX, WORKERS_MAX};
use crate::pack::Body;
use crate::{Blobs, Error};

/// Manifests cached in memory and their maximum size, so that starting a job usually reads none.
const RECENT_MAX: usize = 64;
const RECENT_MANIFEST_BYTES_MAX: usize = 1 << 20;

/// Blobs of a bundle checked concurrently.
const BLOB_CHECKS_CONCURRENT_MAX: usize = 32;

/// Registered worker with its manifest.
#[derive(Debug, Clone)]
pub struct Worker {
    pub id: WorkerId,
    pub manifest: Arc<Manifest>,
    pub registered_at: Timestamp,
}

/// Registered worker without its files, for lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub id: WorkerId,
    pub name: String,
    pub version: String,
    pub functions: Vec<Function>,
    pub files: usize,
    pub bytes: u64,
    pub registered_at: Timestamp,
}

/// Cache of manifests and summaries. An id always refers to the same manifest, so cached values never become stale.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Workers of the last list.
    summaries: Mutex<HashMap<WorkerId, Summary>>,
    /// Newest last.
    recent: Mutex<VecDeque<Worker>>,
}

impl Registry {
    pub fn recent(&self, id: WorkerId) -> Option<Worker> {
        self.recent.lock().iter().find(|worker| worker.id == id).cloned()
    }

    fn insert(&self, worker: &Worker, manifest_bytes: usize) {
        if manifest_bytes > RECENT_MANIFEST_BYTES_MAX {
            return;
        }
        let mut recent = self.recent.lock();
        recent.retain(|known| known.id != worker.id);
        recent.push_back(worker.clone());
        if recent.len() > RECENT_MAX {
            recent.pop_front();
        }
    }

    fn remove(&self, id: WorkerId) {
        self.summaries.lock().remove(&id);
        self.recent.lock().retain(|known| known.id != id);
    }
}

impl Worker {
    pub fn summary(&self) -> Summary {
        Summary {
            id: self.id,
            name: self.manifest.name.clone(),
            version: self.manifest.version.clone(),
            functions: self.manifest.functions.clone(),
            files: self.manifest.files.len(),
            bytes: self.manifest.bytes(),
            registered_at: self.registered_at,
        }
    }
}

impl Blobs {
    /// Registers a bundle whose blobs all exist, durably when this returns. Idempotent.
    pub async fn register(&self, manifest: Manifest) -> Result<WorkerId, Error> {
        self.shared.storage.require_own_store("register a worker")?;
        let bytes_max = self.shared.options.bundle_bytes_max;
        let (manifest, canonical) = blocking(move || {
            manifest.validate(bytes_max)?;
            let canonical = manifest.canonical();
            if canonical.len() > MANIFEST_BYTES_MAX {
                let (bytes, limit) = (canonical.len() as u64, MANIFEST_BYTES_MAX as u64);
                return Err(Error::TooLarge { what: "the manifest".to_owned(), bytes, limit });
            }
            Ok((manifest, canonical))
        })
        .await?;
        let id = WorkerId::of(&canonical);
        self.check_blobs(&manifest).await?;
        // Serialises registration and removal of one worker.
        let _guard = self.shared.cache.locks.lock(CacheKey::Worker(id)).await;
        if self.shared.storage.head(&worker_key(id)).await?.is_some() {
            return Ok(id);
        }
        let registered =
            self.shared.storage.list(keys::WORKERS).take(WORKERS_MAX).try_fold(0, async |sum, _| Ok(sum + 1));
        if registered.await? >= WORKERS_MAX {
            return Err(Error::TooMany { what: "workers", limit: WORKERS_MAX });
        }
        self.shared.storage.publish(worker_key(id), Body::Memory(canonical)).await?;
        Ok(id)
    }

    /// All registered workers, ordered by name and version.
    pub async fn workers(&self) -> Result<Vec<Summary>, Error> {
        let metas: Vec<ObjectMeta> = self.shared.storage.list(keys::WORKERS).try_collect().await?;
        let mut summaries = Vec::with_capacity(metas.len());
        for id in metas.iter().filter_map(|meta| worker_of(&meta.location)) {
            let known = self.shared.registry.summaries.lock().get(&id).cloned();
            match known {
                Some(summary) => summaries.push(summary),
                // The worker may have been removed since the list was read.
                None => summaries.extend(self.find_worker(id).await?.map(|worker| worker.summary())),
            }
        }
        let known = summaries.iter().map(|summary| (summary.id, summary.clone())).collect();
        *self.shared.registry.summaries.lock() = known;
        summaries.sort_by(|one, other| (&one.name, &one.version, one.id).cmp(&(&other.name, &other.version, other.id)));
        Ok(summaries)
    }

    pub async fn worker(&self, id: WorkerId) -> Result<Worker, Error> {
        self.find_worker(id).await?.ok_or(Error::WorkerNotFound { id })
    }

    /// Manifest of a registered worker, from memory if it was read recently.
    pub async fn manifest(&self, id: WorkerId) -> Result<Arc<Manifest>, Error> {
        match self.shared.registry.recent(id) {
            Some(worker) => Ok(worker.manifest),
            None => Ok(self.worker(id).await?.manifest),
        }
    }

    /// Removes a worker unless an attempt runs from it. The caller must check that no job refers to it. Its blobs are
    /// left to the next garbage collection.
    pub async fn remove_worker(&self, id: WorkerId) -> Result<(), Error> {
        self.shared.storage.require_own_store("remove a worker")?;
        let guard = self.shared.cache.locks.lock(CacheKey::Worker(id)).await;
        if self.shared.storage.head(&worker_key(id)).await?.is_none() {
            return Err(Error::WorkerNotFound { id });
        }
        let cache = Arc::clone(&self.shared.cache);
        let (removed, _guard) = blocking(move || Ok((cache.remove(CacheKey::Worker(id)), guard))).await?;
        if !removed {
            return Err(Error::Busy { what: format!("a running job uses {id}") });
        }
        self.shared.registry.remove(id);
        self.shared.storage.delete(vec![worker_key(id)]).await
    }

    /// Blobs of all registered workers.
    pub(crate) async fn worker_blobs(&self) -> Result<HashSet<BlobId>, Error> {
        let metas: Vec<ObjectMeta> = self.shared.storage.list(keys::WORKERS).try_collect().await?;
        let mut blobs = HashSet::new();
        for id in metas.iter().filter_map(|meta| worker_of(&meta.location)) {
            // An unreadable manifest aborts the collection, since its references are unknown.
            let recent = self.shared.registry.recent(id);
            let worker = if recent.is_some() { recent } else { self.find_worker(id).await? };
            if let Some(worker) = worker {
                blobs.extend(worker.manifest.blobs().map(|(id, _)| id));
            }
        }
        Ok(blobs)
    }

    async fn find_worker(&self, id: WorkerId) -> Result<Option<Worker>, Error> {
        let Some((bytes, registered_at)) = self.shared.storage.manifest(id).await? else { return Ok(None) };
        let shared = Arc::clone(&self.shared);
        blocking(move || {
            if WorkerId::of(&bytes) != id {
                return Err(Error::damaged(id, "its manifest is not the one that was registered"));
            }
            let manifest = serde_json::from_slice(&bytes)
                .map_err(|error| Error::damaged(id, format!("its manifest cannot be read ({error})")))?;
            let registered_at = Timestamp(Millis(registered_at));
            let worker = Worker { id, manifest: Arc::new(manifest), registered_at };
            shared.registry.insert(&worker, bytes.len());
            Ok(Some(worker))
        })
        .await
    }

    /// Checks that all blobs exist with the sizes in the manifest. Also protects them from garbage collection until the
    /// manifest refers to them.
    async fn check_blobs(&self, manifest: &Manifest) -> Result<(), Error> {
        let mut blobs: Vec<(BlobId, u64)> = manifest.blobs().collect();
        blobs.sort_unstable();
        blobs.dedup();
        let checks = futures_util::stream::iter(blobs).map(|(id, bytes)| async move {
            self.shared.protection.touch(id).await;
            if !self.has(id).await? {
                return Ok(Some(id));
            }
            match self.stat(id).await? {
                None => Ok(Some(id)),
                Some(stat) if stat.bytes == bytes => Ok(None),
                Some(stat) => Err(Error::bad_manifest(format!("{id} has {} bytes, not {bytes} as stated", stat.bytes))),
            }
        });
        let checks = checks.buffered(BLOB_CHECKS_CONCURRENT_MAX).try_filter_map(|missing| async move { Ok(missing) });
        let ids: Vec<BlobId> = checks.try_collect().await?;
        if ids.is_empty() { Ok(()) } else { Err(Error::BlobsMissing { ids }) }
    }
}
