//! Which workers are registered. Their manifests are objects beside the blobs, as durable as these.

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
use crate::cache::Item;
use crate::keys::{self, worker_key, worker_of};
use crate::limits::{MANIFEST_BYTES_MAX, WORKERS_MAX};
use crate::pack::Body;
use crate::{Blobs, Error};

/// So many manifests are kept in memory, none of them larger than this, so that starting a job reads none.
const RECENT_MAX: usize = 64;
const RECENT_MANIFEST_BYTES_MAX: usize = 1 << 20;

/// How many blobs of a bundle are looked at at the same time.
const LOOKS_AT_ONCE: usize = 32;

/// A registered worker, in full.
#[derive(Debug, Clone)]
pub struct Worker {
    pub id: WorkerId,
    pub manifest: Arc<Manifest>,
    pub registered_at: Timestamp,
}

/// A registered worker as it is listed: all but its files.
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

/// What was read before need not be read again: under one name there is ever only one manifest.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Of those that were listed last.
    summaries: Mutex<HashMap<WorkerId, Summary>>,
    /// The newest at the end.
    recent: Mutex<VecDeque<Worker>>,
}

impl Registry {
    pub fn recent(&self, id: WorkerId) -> Option<Worker> {
        self.recent.lock().iter().find(|worker| worker.id == id).cloned()
    }

    fn remember(&self, worker: &Worker, manifest_bytes: usize) {
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

    fn forget(&self, id: WorkerId) {
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
    /// Registers a bundle whose blobs are all there, durably when this returns. Registering it again changes nothing.
    pub async fn register(&self, manifest: Manifest) -> Result<WorkerId, Error> {
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
        // Registering and removing one worker at the same time ends with one or the other.
        let _turn = self.shared.cache.turns.wait(Item::Worker(id)).await;
        if self.shared.place.head(&worker_key(id)).await?.is_some() {
            return Ok(id);
        }
        let registered =
            self.shared.place.list(keys::WORKERS).take(WORKERS_MAX).try_fold(0, async |sum, _| Ok(sum + 1));
        if registered.await? >= WORKERS_MAX {
            return Err(Error::TooMany { what: "workers", limit: WORKERS_MAX });
        }
        self.shared.place.publish(worker_key(id), Body::Memory(canonical)).await?;
        Ok(id)
    }

    /// All registered workers, by name and version.
    pub async fn workers(&self) -> Result<Vec<Summary>, Error> {
        let metas: Vec<ObjectMeta> = self.shared.place.list(keys::WORKERS).try_collect().await?;
        let mut summaries = Vec::with_capacity(metas.len());
        for id in metas.iter().filter_map(|meta| worker_of(&meta.location)) {
            let known = self.shared.registry.summaries.lock().get(&id).cloned();
            match known {
                Some(summary) => summaries.push(summary),
                // It may have been removed since it was listed.
                None => summaries.extend(self.worker_if_any(id).await?.map(|worker| worker.summary())),
            }
        }
        let known = summaries.iter().map(|summary| (summary.id, summary.clone())).collect();
        *self.shared.registry.summaries.lock() = known;
        summaries.sort_by(|one, other| (&one.name, &one.version, one.id).cmp(&(&other.name, &other.version, other.id)));
        Ok(summaries)
    }

    pub async fn worker(&self, id: WorkerId) -> Result<Worker, Error> {
        self.worker_if_any(id).await?.ok_or(Error::WorkerNotFound { id })
    }

    /// What a registered worker is made of. For those who ask often: a manifest that was read before is not read again.
    pub async fn manifest(&self, id: WorkerId) -> Result<Arc<Manifest>, Error> {
        match self.shared.registry.recent(id) {
            Some(worker) => Ok(worker.manifest),
            None => Ok(self.worker(id).await?.manifest),
        }
    }

    /// Whether jobs refer to it is for the caller to know; while one runs from it, it stays. Its blobs go with the next
    /// collection.
    pub async fn remove_worker(&self, id: WorkerId) -> Result<(), Error> {
        let turn = self.shared.cache.turns.wait(Item::Worker(id)).await;
        if self.shared.place.head(&worker_key(id)).await?.is_none() {
            return Err(Error::WorkerNotFound { id });
        }
        let cache = Arc::clone(&self.shared.cache);
        let (gone, _turn) = blocking(move || Ok((cache.remove(Item::Worker(id)), turn))).await?;
        if !gone {
            return Err(Error::Busy { what: format!("a job is running from {id}") });
        }
        self.shared.registry.forget(id);
        self.shared.place.delete(vec![worker_key(id)]).await
    }

    /// Every blob that a registered worker is made of.
    pub(crate) async fn blobs_of_workers(&self) -> Result<HashSet<BlobId>, Error> {
        let metas: Vec<ObjectMeta> = self.shared.place.list(keys::WORKERS).try_collect().await?;
        let mut blobs = HashSet::new();
        for id in metas.iter().filter_map(|meta| worker_of(&meta.location)) {
            // A manifest that cannot be read ends the collection: who knows what it refers to.
            let recent = self.shared.registry.recent(id);
            let worker = if recent.is_some() { recent } else { self.worker_if_any(id).await? };
            if let Some(worker) = worker {
                blobs.extend(worker.manifest.blobs().map(|(id, _)| id));
            }
        }
        Ok(blobs)
    }

    async fn worker_if_any(&self, id: WorkerId) -> Result<Option<Worker>, Error> {
        let Some(object) = self.shared.place.get(&worker_key(id)).await? else { return Ok(None) };
        if object.meta.size > MANIFEST_BYTES_MAX as u64 {
            return Err(Error::damaged(id, "it is larger than any manifest"));
        }
        let registered_at = u64::try_from(object.meta.last_modified.timestamp_millis()).unwrap_or_default();
        let bytes = object.bytes().await.map_err(Error::storage("read an object"))?;
        let shared = Arc::clone(&self.shared);
        blocking(move || {
            if WorkerId::of(&bytes) != id {
                return Err(Error::damaged(id, "its manifest is not the one that was registered"));
            }
            let manifest = serde_json::from_slice(&bytes)
                .map_err(|error| Error::damaged(id, format!("its manifest cannot be read ({error})")))?;
            let registered_at = Timestamp(Millis(registered_at));
            let worker = Worker { id, manifest: Arc::new(manifest), registered_at };
            shared.registry.remember(&worker, bytes.len());
            Ok(Some(worker))
        })
        .await
    }

    /// Whether all blobs are there, with the sizes that the manifest states. They are safe from collection then, until
    /// the manifest itself protects them.
    async fn check_blobs(&self, manifest: &Manifest) -> Result<(), Error> {
        let mut wanted: Vec<(BlobId, u64)> = manifest.blobs().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let looks = futures_util::stream::iter(wanted).map(|(id, bytes)| async move {
            self.shared.protection.touch(id).await;
            if !self.has(id).await? {
                return Ok(Some(id));
            }
            match self.stat(id).await? {
                None => Ok(Some(id)),
                Some(stat) if stat.bytes == bytes => Ok(None),
                Some(stat) => {
                    Err(Error::bad_manifest(format!("{id} has {} bytes, not {bytes} as it states", stat.bytes)))
                }
            }
        });
        let looks = looks.buffered(LOOKS_AT_ONCE).try_filter_map(|missing| async move { Ok(missing) });
        let ids: Vec<BlobId> = looks.try_collect().await?;
        if ids.is_empty() { Ok(()) } else { Err(Error::BlobsMissing { ids }) }
    }
}
