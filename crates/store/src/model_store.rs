//! In-memory store for simulations, with the guarantees of a real one and fault injection.
//!
//! It is deterministic and never blocks. A clone is another handle to the same data, so that a simulated process can
//! crash and another one can continue with its data.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use model::batch::{Batch, Keyspace, Op, ops};
use model::id::{Epoch, NodeId, ShardId};
use parking_lot::Mutex;

use crate::key::{FullKey, full_range};
use crate::{CommitHook, Committed, Error, EventReader, Key, Order, Position, Range, Store};

/// Fault injected into one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    #[default]
    None,
    /// Nothing is written, the caller gets an error.
    Refuse,
    /// The batch is written, the caller gets an error.
    LandsButErrors,
    /// The process crashes during the commit: the batch is written completely or not at all.
    Torn { lands: bool },
}

impl Fault {
    fn lands(self) -> bool {
        match self {
            Self::None | Self::LandsButErrors | Self::Torn { lands: true } => true,
            Self::Refuse | Self::Torn { lands: false } => false,
        }
    }
}

type FaultPlan = Box<dyn FnMut(ShardId, &Batch) -> Fault + Send>;

/// In-memory store; a clone is another handle to the same data.
#[derive(Clone, Default)]
pub struct ModelStore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    tables: BTreeMap<Keyspace, BTreeMap<FullKey, Bytes>>,
    epochs: BTreeMap<ShardId, (Epoch, NodeId)>,
    log: Vec<Option<Committed>>,
    /// Events up to this position have expired.
    expired: Position,
    fault_plan: Option<FaultPlan>,
    hooks: Vec<Arc<CommitHook>>,
}

impl ModelStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `plan` for every following commit to choose its fault.
    pub fn plan_faults(&self, plan: impl FnMut(ShardId, &Batch) -> Fault + Send + 'static) {
        self.inner.lock().fault_plan = Some(Box::new(plan));
    }

    /// Ends fault injection.
    pub fn heal(&self) {
        self.inner.lock().fault_plan = None;
    }

    /// Simulates a crash of all processes: the data stays, the commit hooks are removed.
    pub fn crash(&self) {
        self.inner.lock().hooks.clear();
    }

    /// Expires the events up to and including `upto`.
    pub fn expire_events(&self, upto: Position) {
        let mut inner = self.inner.lock();
        inner.expired = inner.expired.max(upto);
    }

    /// Epoch and owner of a shard, for invariant checks.
    pub fn owner(&self, shard: ShardId) -> Option<(Epoch, NodeId)> {
        self.inner.lock().epochs.get(&shard).copied()
    }

    fn call_hooks(&self, position: Position) {
        // Hooks run outside the lock: they are foreign code.
        let hooks = self.inner.lock().hooks.clone();
        for hook in hooks {
            hook(position);
        }
    }
}

impl Inner {
    fn newest_epoch(&self, shard: ShardId) -> Epoch {
        self.epochs.get(&shard).map_or(Epoch(0), |(epoch, _)| *epoch)
    }

    fn durable(&self) -> Position {
        Position(self.log.len() as u64)
    }

    fn apply(&mut self, shard: ShardId, batch: &Batch) -> Position {
        let bytes = Bytes::copy_from_slice(batch.as_bytes());
        let position = self.durable().next();
        let mut events = Vec::new();
        for op in ops(&bytes) {
            match op.expect("a batch in memory decodes") {
                Op::Put { keyspace, key, value } => {
                    let table = self.tables.entry(keyspace).or_default();
                    table.insert(FullKey::of(shard, key), bytes.slice_ref(value));
                }
                Op::Delete { keyspace, key } => {
                    self.tables.entry(keyspace).or_default().remove(&FullKey::of(shard, key));
                }
                Op::Event { payload } => events.push(bytes.slice_ref(payload)),
            }
        }
        self.log.push(Some(Committed { position, shard, events }));
        position
    }
}

impl Store for ModelStore {
    fn open_shard(&self, shard: ShardId, owner: NodeId) -> Result<Epoch, Error> {
        let mut inner = self.inner.lock();
        let epoch = Epoch(inner.epochs.get(&shard).map_or(0, |(epoch, _)| epoch.0) + 1);
        inner.epochs.insert(shard, (epoch, owner));
        // As in the embedded store, opening takes a position, but is no commit.
        inner.log.push(None);
        Ok(epoch)
    }

    fn commit_bytes_max(&self) -> usize {
        journal::ENTRY_BYTES_MAX
    }

    fn commit(&self, shard: ShardId, epoch: Epoch, batch: &Batch) -> Result<Position, Error> {
        Error::check_size(batch.as_bytes().len(), self.commit_bytes_max())?;
        let position = {
            let mut inner = self.inner.lock();
            Error::check_epoch(shard, epoch, inner.newest_epoch(shard))?;
            let fault = inner.fault_plan.as_mut().map_or(Fault::None, |plan| plan(shard, batch));
            let landed = fault.lands().then(|| inner.apply(shard, batch));
            match (fault, landed) {
                (Fault::None, Some(position)) => position,
                (fault, _) => return Err(Error::Failed { reason: format!("injected: {fault:?}") }),
            }
        };
        self.call_hooks(position);
        Ok(position)
    }

    fn confirm(&self, shard: ShardId, epoch: Epoch) -> Result<(), Error> {
        Error::check_epoch(shard, epoch, self.inner.lock().newest_epoch(shard))
    }

    fn get(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let inner = self.inner.lock();
        Ok(inner.tables.get(&keyspace).and_then(|table| table.get(&FullKey::of(shard, key))).cloned())
    }

    fn scan(
        &self,
        shard: ShardId,
        keyspace: Keyspace,
        range: Range,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(Key, Bytes)>, Error> {
        let inner = self.inner.lock();
        let Some(table) = inner.tables.get(&keyspace).filter(|_| !range.is_empty()) else {
            return Ok(Vec::new());
        };
        let found = table.range(full_range(shard, &range)).map(|(key, value)| (key.key(), value.clone()));
        Ok(match order {
            Order::Ascending => found.take(limit).collect(),
            Order::Descending => found.rev().take(limit).collect(),
        })
    }

    fn events(&self, after: Position) -> Result<Box<dyn EventReader>, Error> {
        let expired = self.inner.lock().expired;
        if after < expired {
            return Err(Error::CursorExpired { oldest: expired.next() });
        }
        Ok(Box::new(ModelEvents { store: self.clone(), after }))
    }

    fn durable(&self) -> Position {
        self.inner.lock().durable()
    }

    fn on_commit(&self, hook: CommitHook) {
        self.inner.lock().hooks.push(Arc::new(hook));
    }
}

struct ModelEvents {
    store: ModelStore,
    after: Position,
}

impl EventReader for ModelEvents {
    fn next(&mut self) -> Result<Option<Committed>, Error> {
        let inner = self.store.inner.lock();
        if self.after < inner.expired {
            return Err(Error::CursorExpired { oldest: inner.expired.next() });
        }
        while let Some(entry) = inner.log.get(self.after.0 as usize) {
            self.after = self.after.next();
            if let Some(committed) = entry {
                return Ok(Some(committed.clone()));
            }
        }
        Ok(None)
    }
}
