//! LRU cache of compiled workflow definitions.
//!
//! A plan is found by the digest of its definition, by the exact text of a request, or by a workflow that uses it.

mod prerequisites;

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use model::id::{ShardId, WorkflowId};
use model::spec::Digest;
use model::workflow::WorkflowSpec;
use parking_lot::Mutex;
use shard::reads::workflows;
use shard::{PlanCache, Unreadable};
use store::Store;
use tokio::sync::Semaphore;
use workflow::{Diagnostics, Plan, Source};

use crate::error::Error;
pub(crate) use prerequisites::Prerequisites;

/// Limit of cached plans.
const PLANS_MAX: usize = 256;
/// Limit of the total size of their sources. A single larger one is cached alone.
const SOURCE_BYTES_MAX: usize = 256 << 20;
/// Limit of texts that map to one plan.
const TEXTS_MAX: usize = 16;
/// Limit of workflows that map to one plan.
const WORKFLOWS_MAX: usize = 1_000;
/// Larger texts are compiled on a blocking thread, at most `LARGE_AT_ONCE` at a time.
const INLINE_BYTES_MAX: usize = 64 * 1024;
const LARGE_AT_ONCE: usize = 2;

type Map<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// Text of a definition as received.
#[derive(Debug, Clone)]
pub(crate) enum Text {
    Json(Bytes),
    Yaml(Bytes),
}

impl Text {
    fn bytes(&self) -> &Bytes {
        match self {
            Self::Json(bytes) | Self::Yaml(bytes) => bytes,
        }
    }

    fn key(&self) -> TextKey {
        TextKey { is_yaml: matches!(self, Self::Yaml(_)), digest: Digest::of(self.bytes()) }
    }

    fn compile(&self) -> Result<Arc<Plan>, Diagnostics> {
        match self {
            Self::Json(bytes) => workflow::compile(Source::Json(bytes)),
            // Invalid UTF-8 becomes replacement characters, which the YAML parser reports with their line.
            Self::Yaml(bytes) => workflow::compile(Source::Yaml(&String::from_utf8_lossy(bytes))),
        }
    }
}

/// Cache key of a text. The same bytes may mean different things as JSON and as YAML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct TextKey {
    is_yaml: bool,
    digest: Digest,
}

/// A plan and the prerequisites of starting it.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub plan: Arc<Plan>,
    prerequisites: OnceLock<Prerequisites>,
}

impl Compiled {
    fn new(plan: Arc<Plan>) -> Arc<Self> {
        Arc::new(Self { plan, prerequisites: OnceLock::new() })
    }

    /// Computed on first use: workflows that are rehydrated were checked when they were started.
    pub fn prerequisites(&self) -> &Prerequisites {
        self.prerequisites.get_or_init(|| Prerequisites::of(&self.plan.source))
    }
}

/// The cache. Shared by the API, the shards and the fetcher.
pub(crate) struct Plans {
    cache: Mutex<Cache>,
    large: Semaphore,
}

impl Default for Plans {
    fn default() -> Self {
        Self { cache: Mutex::default(), large: Semaphore::new(LARGE_AT_ONCE) }
    }
}

impl Plans {
    /// Compiles a definition, unless the same text is cached.
    pub async fn compile(&self, text: Text) -> Result<Result<Arc<Compiled>, Diagnostics>, Error> {
        let key = text.key();
        if let Some(cached) = self.cache.lock().by_text(key) {
            return Ok(Ok(cached));
        }
        let compiled = if text.bytes().len() > INLINE_BYTES_MAX {
            // The semaphore is never closed.
            let permit = self.large.acquire().await;
            let compiled = tokio::task::spawn_blocking(move || {
                let compiled = Compiled::new(text.compile()?);
                compiled.prerequisites();
                Ok(compiled)
            });
            let compiled = compiled.await.map_err(|error| Error::Panicked(error.to_string()))?;
            drop(permit);
            compiled
        } else {
            text.compile().map(Compiled::new)
        };
        Ok(compiled.map(|compiled| self.cache.lock().insert(compiled.plan.digest, compiled, Some(key))))
    }

    /// The plan of a workflow. Blocking: reads the store if the plan is not cached.
    pub fn load(
        &self,
        store: &dyn Store,
        shard: ShardId,
        spec: &WorkflowSpec,
    ) -> Result<Result<Arc<Plan>, Unreadable>, Error> {
        Ok(shard::load_plan(store, self, shard, spec.digest, &spec.definition)?)
    }

    /// Maps a workflow to its plan. The definition of a workflow never changes.
    pub fn map_workflow(&self, workflow: WorkflowId, digest: Digest) {
        self.cache.lock().map_workflow(workflow, digest);
    }

    /// The plan of a workflow on record. `None` if its definition is missing or unreadable. Blocking: reads the store
    /// if the plan is not cached.
    pub fn of_workflow(&self, store: &dyn Store, shard: ShardId, id: WorkflowId) -> Result<Option<Arc<Plan>>, Error> {
        if let Some(cached) = self.cache.lock().by_workflow(id) {
            return Ok(Some(cached.plan.clone()));
        }
        let Some(spec) = workflows::spec(store, shard, id)? else { return Ok(None) };
        match self.load(store, shard, &spec)? {
            Ok(plan) => {
                self.map_workflow(id, spec.digest);
                Ok(Some(plan))
            }
            Err(error) => {
                tracing::error!(workflow = %id, %error, "unreadable workflow definition");
                Ok(None)
            }
        }
    }
}

impl PlanCache for Plans {
    fn find(&self, digest: Digest) -> Option<Arc<Plan>> {
        self.cache.lock().by_digest(digest).map(|cached| cached.plan.clone())
    }

    fn insert(&self, digest: Digest, plan: Arc<Plan>) -> Arc<Plan> {
        self.cache.lock().insert(digest, Compiled::new(plan), None).plan.clone()
    }
}

/// Cache entry of one plan.
struct CachedPlan {
    compiled: Arc<Compiled>,
    bytes: usize,
    last_use: u64,
    /// Other keys of the plan, oldest first.
    texts: VecDeque<TextKey>,
    workflows: VecDeque<WorkflowId>,
}

#[derive(Default)]
struct Cache {
    entries: Map<Digest, CachedPlan>,
    texts: Map<TextKey, Digest>,
    workflows: Map<WorkflowId, Digest>,
    bytes: usize,
    uses: u64,
}

impl Cache {
    fn by_digest(&mut self, digest: Digest) -> Option<Arc<Compiled>> {
        self.uses += 1;
        let entry = self.entries.get_mut(&digest)?;
        entry.last_use = self.uses;
        Some(entry.compiled.clone())
    }

    fn by_text(&mut self, text: TextKey) -> Option<Arc<Compiled>> {
        let digest = *self.texts.get(&text)?;
        self.by_digest(digest)
    }

    fn by_workflow(&mut self, workflow: WorkflowId) -> Option<Arc<Compiled>> {
        let digest = *self.workflows.get(&workflow)?;
        self.by_digest(digest)
    }

    /// Inserts a plan and returns the cached one: of two concurrent compilations the first stays.
    fn insert(&mut self, digest: Digest, compiled: Arc<Compiled>, text: Option<TextKey>) -> Arc<Compiled> {
        let cached = match self.by_digest(digest) {
            Some(cached) => cached,
            None => {
                let bytes = compiled.plan.source.len();
                self.evict(bytes);
                self.bytes += bytes;
                let entry = CachedPlan {
                    compiled: compiled.clone(),
                    bytes,
                    last_use: self.uses,
                    texts: VecDeque::new(),
                    workflows: VecDeque::new(),
                };
                self.entries.insert(digest, entry);
                compiled
            }
        };
        if let (Some(text), Some(entry)) = (text, self.entries.get_mut(&digest)) {
            add(&mut self.texts, &mut entry.texts, text, digest, TEXTS_MAX);
        }
        cached
    }

    fn map_workflow(&mut self, workflow: WorkflowId, digest: Digest) {
        if let Some(entry) = self.entries.get_mut(&digest) {
            add(&mut self.workflows, &mut entry.workflows, workflow, digest, WORKFLOWS_MAX);
        }
    }

    /// Evicts the least recently used plans.
    fn evict(&mut self, bytes: usize) {
        while !self.entries.is_empty() && (self.entries.len() >= PLANS_MAX || self.bytes + bytes > SOURCE_BYTES_MAX) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_use).map(|(digest, _)| *digest);
            let Some(entry) = oldest.and_then(|digest| self.entries.remove(&digest)) else { return };
            self.bytes -= entry.bytes;
            for text in &entry.texts {
                self.texts.remove(text);
            }
            for workflow in &entry.workflows {
                self.workflows.remove(workflow);
            }
        }
    }
}

/// Adds a key of a plan. Beyond `max` the oldest key is removed.
fn add<K: Copy + Eq + Hash>(index: &mut Map<K, Digest>, keys: &mut VecDeque<K>, key: K, digest: Digest, max: usize) {
    if index.insert(key, digest).is_none() {
        keys.push_back(key);
        if keys.len() > max
            && let Some(oldest) = keys.pop_front()
        {
            index.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
