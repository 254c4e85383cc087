//! A store in memory, for simulations: the same promises, and failures on demand.
//!
//! It is deterministic and never blocks. Cloning gives another handle to the same data, so a simulated process
//! may die and another one go on with what is "on disk".

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use model::batch::{Batch, Keyspace, Op, ops};
use model::id::{Epoch, NodeId, ShardId};
use parking_lot::Mutex;

use crate::key::{FullKey, full_range};
use crate::{CommitHook, Committed, Error, EventReader, Key, Order, Position, Range, Store};

/// What happens to one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    #[default]
    None,
    /// Nothing is written, the caller sees an error.
    Refuse,
    /// It is written, the caller sees an error all the same.
    LandsButErrors,
    /// The process dies in the middle: everything is written or nothing, the caller never learns which.
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

type Plan = Box<dyn FnMut(ShardId, &Batch) -> Fault + Send>;

/// See the module's description.
#[derive(Clone, Default)]
pub struct ModelStore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    tables: BTreeMap<Keyspace, BTreeMap<FullKey, Bytes>>,
    epochs: BTreeMap<ShardId, (Epoch, NodeId)>,
    log: Vec<Option<Committed>>,
    /// Events up to here are forgotten.
    forgotten: Position,
    plan: Option<Plan>,
    hooks: Vec<Arc<CommitHook>>,
}

impl ModelStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks `plan` about every commit from now on.
    pub fn plan_faults(&self, plan: impl FnMut(ShardId, &Batch) -> Fault + Send + 'static) {
        self.inner.lock().plan = Some(Box::new(plan));
    }

    /// From now on commits succeed.
    pub fn heal(&self) {
        self.inner.lock().plan = None;
    }

    /// What a crash of every process leaves: the data. Who wanted to be told of commits is gone.
    pub fn crash(&self) {
        self.inner.lock().hooks.clear();
    }

    /// Forgets the events up to and including `upto`.
    pub fn expire_events(&self, upto: Position) {
        let mut inner = self.inner.lock();
        inner.forgotten = inner.forgotten.max(upto);
    }

    /// Who owns a shard, and since which epoch: for checking invariants.
    pub fn owner(&self, shard: ShardId) -> Option<(Epoch, NodeId)> {
        self.inner.lock().epochs.get(&shard).copied()
    }

    fn tell(&self, position: Position) {
        // Outside the lock, like everything that is not ours.
        let hooks = self.inner.lock().hooks.clone();
        for hook in hooks {
            hook(position);
        }
    }
}

impl Inner {
    fn durable(&self) -> Position {
        Position(self.log.len() as u64)
    }

    fn apply(&mut self, shard: ShardId, batch: &Batch) -> Position {
        let bytes = Bytes::copy_from_slice(batch.as_bytes());
        let position = self.durable().next();
        let mut events = Vec::new();
        for op in ops(&bytes) {
            match op.expect("a batch reads back what it was given") {
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
        // Like the embedded store: opening takes a position, too, but is no commit.
        inner.log.push(None);
        Ok(epoch)
    }

    fn commit(&self, shard: ShardId, epoch: Epoch, batch: &Batch) -> Result<Position, Error> {
        let position = {
            let mut inner = self.inner.lock();
            let current = inner.epochs.get(&shard).map_or(Epoch(0), |(epoch, _)| *epoch);
            if current != epoch {
                return Err(Error::Fenced { shard, stale: epoch, current });
            }
            let fault = inner.plan.as_mut().map_or(Fault::None, |plan| plan(shard, batch));
            let landed = fault.lands().then(|| inner.apply(shard, batch));
            match (fault, landed) {
                (Fault::None, Some(position)) => position,
                (fault, _) => return Err(Error::Failed { reason: format!("injected: {fault:?}") }),
            }
        };
        self.tell(position);
        Ok(position)
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
        let forgotten = self.inner.lock().forgotten;
        if after < forgotten {
            return Err(Error::CursorExpired { oldest: forgotten.next() });
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
        if self.after < inner.forgotten {
            return Err(Error::CursorExpired { oldest: inner.forgotten.next() });
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
