//! Compiled definitions, kept so that what is started again and again is read once.
//!
//! A definition is found by its digest, by the very text in which it came, or by a workflow that was started with it.
//! What was not used for the longest time goes first when there are too many.

mod demands;

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hashbrown::HashMap;
use model::id::{ShardId, WorkflowId};
use model::spec::Digest;
use model::workflow::{Schedule, WorkflowSpec};
use parking_lot::Mutex;
use store::Store;
use tokio::sync::Semaphore;
use workflow::{Diagnostics, Plan, Source};

use crate::error::Error;
use crate::reads::flows;
pub(crate) use demands::Demands;

/// How many definitions are kept.
const PLANS_MAX: usize = 256;
/// How large all of them may be together, as text. A single one may be larger, and is then the only one.
const SOURCE_BYTES_MAX: usize = 256 << 20;
/// In how many different writings one definition is recognised.
const TEXTS_MAX: usize = 16;
/// Of how many of its workflows it is remembered that they belong to one definition.
const WORKFLOWS_MAX: usize = 1_000;
/// A larger text is compiled where it keeps nobody waiting, one or two at a time.
const INLINE_BYTES_MAX: usize = 64 * 1024;
const LARGE_AT_ONCE: usize = 2;

type Map<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// A text in which a definition came.
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
            // What is no text is shown as far as it is one; the marks in it are no YAML and are named with their line.
            Self::Yaml(bytes) => workflow::compile(Source::Yaml(&String::from_utf8_lossy(bytes))),
        }
    }
}

/// The same bytes as JSON and as YAML may mean different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct TextKey {
    is_yaml: bool,
    digest: Digest,
}

/// A definition, and what it asks of a server.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub plan: Arc<Plan>,
    demands: OnceLock<Demands>,
}

impl Compiled {
    fn new(plan: Arc<Plan>) -> Arc<Self> {
        Arc::new(Self { plan, demands: OnceLock::new() })
    }

    /// Looked for when it is first asked for: what is brought back after a restart was accepted before.
    pub fn demands(&self) -> &Demands {
        self.demands.get_or_init(|| Demands::of(&self.plan.source))
    }
}

/// All of them. Shared by everything that reads definitions.
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
    /// Reads a definition, unless the very same text was read before.
    pub async fn compile(&self, text: Text) -> Result<Result<Arc<Compiled>, Diagnostics>, Error> {
        let key = text.key();
        if let Some(known) = self.cache.lock().by_text(key) {
            return Ok(Ok(known));
        }
        let compiled = if text.bytes().len() > INLINE_BYTES_MAX {
            // It is never closed.
            let turn = self.large.acquire().await;
            let compiled = tokio::task::spawn_blocking(move || {
                let compiled = Compiled::new(text.compile()?);
                compiled.demands();
                Ok(compiled)
            });
            let compiled = compiled.await.map_err(|error| Error::Panicked(error.to_string()))?;
            drop(turn);
            compiled
        } else {
            text.compile().map(Compiled::new)
        };
        Ok(compiled.map(|compiled| self.cache.lock().insert(compiled.plan.digest, compiled, Some(key))))
    }

    /// The plan that a workflow was started with.
    pub fn load(&self, spec: &WorkflowSpec) -> Result<Arc<Plan>, Diagnostics> {
        self.find(spec.digest, &spec.definition)
    }

    /// The plan of what a schedule starts.
    pub fn of_schedule(&self, schedule: &Schedule) -> Result<Arc<Plan>, Diagnostics> {
        self.find(schedule.spec.digest, &schedule.spec.definition)
    }

    fn find(&self, digest: Digest, definition: &[u8]) -> Result<Arc<Plan>, Diagnostics> {
        if let Some(known) = self.cache.lock().by_digest(digest) {
            return Ok(known.plan.clone());
        }
        let compiled = Compiled::new(Plan::load(definition)?);
        Ok(self.cache.lock().insert(digest, compiled, None).plan.clone())
    }

    /// Which definition a workflow was started with never changes: it need not be read again.
    pub fn remember(&self, workflow: WorkflowId, digest: Digest) {
        self.cache.lock().remember(workflow, digest);
    }

    /// The plan of a workflow on record. Nothing where its definition is gone or cannot be read. Blocking where it is
    /// not known: it reads the store.
    pub fn of_workflow(&self, store: &dyn Store, shard: ShardId, id: WorkflowId) -> Result<Option<Arc<Plan>>, Error> {
        if let Some(known) = self.cache.lock().by_workflow(id) {
            return Ok(Some(known.plan.clone()));
        }
        let Some(spec) = flows::spec(store, shard, id)? else { return Ok(None) };
        match self.load(&spec) {
            Ok(plan) => {
                self.remember(id, spec.digest);
                Ok(Some(plan))
            }
            Err(diagnostics) => {
                tracing::error!(workflow = %id, %diagnostics, "the definition of a workflow cannot be read");
                Ok(None)
            }
        }
    }
}

/// What is kept of one definition.
struct Slot {
    compiled: Arc<Compiled>,
    bytes: usize,
    last_use: u64,
    /// Everything else that leads to it, oldest first.
    texts: VecDeque<TextKey>,
    workflows: VecDeque<WorkflowId>,
}

#[derive(Default)]
struct Cache {
    slots: Map<Digest, Slot>,
    texts: Map<TextKey, Digest>,
    workflows: Map<WorkflowId, Digest>,
    bytes: usize,
    uses: u64,
}

impl Cache {
    fn by_digest(&mut self, digest: Digest) -> Option<Arc<Compiled>> {
        self.uses += 1;
        let slot = self.slots.get_mut(&digest)?;
        slot.last_use = self.uses;
        Some(slot.compiled.clone())
    }

    fn by_text(&mut self, text: TextKey) -> Option<Arc<Compiled>> {
        let digest = *self.texts.get(&text)?;
        self.by_digest(digest)
    }

    fn by_workflow(&mut self, workflow: WorkflowId) -> Option<Arc<Compiled>> {
        let digest = *self.workflows.get(&workflow)?;
        self.by_digest(digest)
    }

    /// Keeps a definition, and gives the one that is kept: of the same one read twice at once the first stays.
    fn insert(&mut self, digest: Digest, compiled: Arc<Compiled>, text: Option<TextKey>) -> Arc<Compiled> {
        let kept = match self.by_digest(digest) {
            Some(known) => known,
            None => {
                let bytes = compiled.plan.source.len();
                self.make_room(bytes);
                self.bytes += bytes;
                let slot = Slot {
                    compiled: compiled.clone(),
                    bytes,
                    last_use: self.uses,
                    texts: VecDeque::new(),
                    workflows: VecDeque::new(),
                };
                self.slots.insert(digest, slot);
                compiled
            }
        };
        if let (Some(text), Some(slot)) = (text, self.slots.get_mut(&digest)) {
            add(&mut self.texts, &mut slot.texts, text, digest, TEXTS_MAX);
        }
        kept
    }

    fn remember(&mut self, workflow: WorkflowId, digest: Digest) {
        if let Some(slot) = self.slots.get_mut(&digest) {
            add(&mut self.workflows, &mut slot.workflows, workflow, digest, WORKFLOWS_MAX);
        }
    }

    /// Lets go of those that were not used for the longest time.
    fn make_room(&mut self, bytes: usize) {
        while !self.slots.is_empty() && (self.slots.len() >= PLANS_MAX || self.bytes + bytes > SOURCE_BYTES_MAX) {
            let oldest = self.slots.iter().min_by_key(|(_, slot)| slot.last_use).map(|(digest, _)| *digest);
            let Some(slot) = oldest.and_then(|digest| self.slots.remove(&digest)) else { return };
            self.bytes -= slot.bytes;
            for text in &slot.texts {
                self.texts.remove(text);
            }
            for workflow in &slot.workflows {
                self.workflows.remove(workflow);
            }
        }
    }
}

/// One more thing that leads to a definition; beyond `max` the oldest is forgotten.
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
