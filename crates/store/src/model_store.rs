//! In-memory store for simulations, with the guarantees of a real one and fault injection.
//!
//! It is deterministic and never blocks. A clone is another handle to the same data, so that a simulated process can
//! crash and another one can continue with its data. Unlike in the embedded store, every shard has positions of its own.

mod failover;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::batch::{Batch, Keyspace, Op, ops};
use model::id::{Epoch, NodeId, ShardId};
use parking_lot::Mutex;

use crate::key::{FullKey, full_range};
use crate::leases::Leases;
use crate::{
    CommitHook, Committed, Cursor, Document, Durability, Error, EventReader, FencingToken, Key, Order, Position, Range,
    ShardOwner, Store, StoreId, Version,
};
use failover::{Suffix, Undo};

pub use failover::Lost;

/// Identity before the first failover.
const ID: StoreId = StoreId(1);

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
    /// The caller gets an error. The commit is on its way and reaches the store with [`ModelStore::land_late`].
    Late,
}

impl Fault {
    /// Whether the batch is written during the commit.
    pub fn lands(self) -> bool {
        match self {
            Self::None | Self::LandsButErrors | Self::Torn { lands: true } => true,
            Self::Refuse | Self::Torn { lands: false } | Self::Late => false,
        }
    }
}

type FaultPlan = Box<dyn FnMut(ShardId, &Batch) -> Fault + Send>;
type ReadFaultPlan = Box<dyn FnMut() -> bool + Send>;

/// In-memory store; a clone is another handle to the same data.
#[derive(Clone, Default)]
pub struct ModelStore {
    inner: Arc<Mutex<Inner>>,
}

/// Current owner of a shard and its last entry.
#[derive(Debug, Clone, Default)]
struct ShardHead {
    epoch: Epoch,
    owner: Option<ShardOwner>,
    position: Position,
    /// Events up to this position have expired.
    expired: Position,
}

#[derive(Default)]
struct Inner {
    tables: BTreeMap<Keyspace, BTreeMap<FullKey, Bytes>>,
    shards: BTreeMap<ShardId, ShardHead>,
    /// Commits of all shards, in their order.
    log: Vec<Committed>,
    documents: BTreeMap<String, Document>,
    document_writes: u64,
    leases: Leases,
    clock: Duration,
    late: Vec<(FencingToken, Batch)>,
    /// Number of commits and failovers so far.
    commits: u64,
    fault_plan: Option<FaultPlan>,
    read_fault_plan: Option<ReadFaultPlan>,
    hooks: Vec<Arc<CommitHook>>,
    durability: Durability,
    /// Number of failovers. Not part of the data.
    generation: u64,
    /// What a failover may lose.
    suffix: Suffix,
}

impl ModelStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// A store whose failovers may lose acknowledged commits, see [`ModelStore::lose_suffix`].
    pub fn lossy() -> Self {
        let inner = Inner { durability: Durability::MayLoseSuffix, ..Inner::default() };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Calls `plan` for every following commit to choose its fault.
    pub fn plan_faults(&self, plan: impl FnMut(ShardId, &Batch) -> Fault + Send + 'static) {
        self.inner.lock().fault_plan = Some(Box::new(plan));
    }

    /// Calls `plan` for every following read. The read fails if it returns true.
    pub fn plan_read_faults(&self, plan: impl FnMut() -> bool + Send + 'static) {
        self.inner.lock().read_fault_plan = Some(Box::new(plan));
    }

    /// Ends fault injection. Late commits are still under way.
    pub fn heal(&self) {
        let mut inner = self.inner.lock();
        (inner.fault_plan, inner.read_fault_plan) = (None, None);
    }

    /// Simulates a crash of all processes: the data stays, the commit hooks are removed.
    pub fn crash(&self) {
        self.inner.lock().hooks.clear();
    }

    /// The oldest late commit reaches the store. Returns whether it was written; `None` if there is none.
    pub fn land_late(&self) -> Option<Result<Position, Error>> {
        let mut inner = self.inner.lock();
        if inner.late.is_empty() {
            return None;
        }
        let (token, batch) = inner.late.remove(0);
        Some(inner.check(&token).map(|()| inner.apply(token.shard, &batch)))
    }

    /// Number of commits and failovers so far.
    pub fn commits(&self) -> u64 {
        self.inner.lock().commits
    }

    /// The value of a key, for invariant checks: without injected faults.
    pub fn value(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Option<Bytes> {
        self.inner.lock().value(keyspace, &FullKey::of(shard, key))
    }

    /// Expires the events of all commits so far.
    pub fn expire_events(&self) {
        for head in self.inner.lock().shards.values_mut() {
            head.expired = head.position;
        }
    }

    /// Advances the clock of the leases.
    pub fn advance_clock(&self, by: Duration) {
        self.inner.lock().clock += by;
    }

    /// Epoch and owner of a shard, for invariant checks.
    pub fn owner(&self, shard: ShardId) -> Option<(Epoch, NodeId)> {
        let head = self.inner.lock().head(shard);
        head.owner.map(|owner| (head.epoch, owner.node))
    }

    /// The token of a shard's current owner, to commit without being the owner.
    pub fn stolen_token(&self, shard: ShardId) -> Option<FencingToken> {
        let head = self.inner.lock().head(shard);
        head.owner.map(|owner| FencingToken { shard, epoch: head.epoch, nonce: owner.nonce, position: head.position })
    }

    fn call_hooks(&self) {
        // Hooks run outside the lock: they are foreign code.
        let hooks = self.inner.lock().hooks.clone();
        for hook in hooks {
            hook();
        }
    }
}

impl Inner {
    fn head(&self, shard: ShardId) -> ShardHead {
        self.shards.get(&shard).cloned().unwrap_or_default()
    }

    fn check(&self, token: &FencingToken) -> Result<(), Error> {
        let head = self.head(token.shard);
        token.check(head.epoch, head.owner.map(|owner| owner.nonce))?;
        token.check_position(head.position)?;
        self.check_generation(token)
    }

    fn check_read(&mut self) -> Result<(), Error> {
        match self.read_fault_plan.as_mut().is_some_and(|plan| plan()) {
            true => Err(Error::Failed { reason: "injected: the read failed".to_owned() }),
            false => Ok(()),
        }
    }

    fn value(&self, keyspace: Keyspace, key: &FullKey) -> Option<Bytes> {
        self.tables.get(&keyspace)?.get(key).cloned()
    }

    /// One position for each shard up to the last one in use.
    fn cursor(&self, position: impl Fn(&ShardHead) -> Position) -> Cursor {
        let shards = self.shards.last_key_value().map_or(0, |(last, _)| usize::from(last.0) + 1);
        let mut positions = vec![Position::NONE; shards];
        for (shard, head) in &self.shards {
            positions[usize::from(shard.0)] = position(head);
        }
        Cursor::new(self.id(), positions)
    }

    fn apply(&mut self, shard: ShardId, batch: &Batch) -> Position {
        let bytes = Bytes::copy_from_slice(batch.as_bytes());
        self.commits += 1;
        let head_before = self.head(shard);
        let (mut events, mut rows) = (Vec::new(), Vec::new());
        for op in ops(&bytes) {
            match op.expect("a batch in memory decodes") {
                Op::Put { keyspace, key, value } => {
                    let table = self.tables.entry(keyspace).or_default();
                    let before = table.insert(FullKey::of(shard, key), bytes.slice_ref(value));
                    rows.push((keyspace, FullKey::of(shard, key), before));
                }
                Op::Delete { keyspace, key } => {
                    let before = self.tables.entry(keyspace).or_default().remove(&FullKey::of(shard, key));
                    rows.push((keyspace, FullKey::of(shard, key), before));
                }
                Op::Event { payload } => events.push(bytes.slice_ref(payload)),
            }
        }
        let head = self.shards.entry(shard).or_default();
        head.position = head.position.next();
        let position = head.position;
        self.log.push(Committed { shard, position, events, batch: bytes });
        self.can_lose(Undo::Commit { shard, head: head_before, rows });
        position
    }
}

impl Store for ModelStore {
    fn id(&self) -> StoreId {
        self.inner.lock().id()
    }

    fn durability(&self) -> Durability {
        self.inner.lock().durability
    }

    fn newest_epoch(&self, shard: ShardId) -> Result<Epoch, Error> {
        let mut inner = self.inner.lock();
        inner.check_read()?;
        Ok(inner.head(shard).epoch)
    }

    fn open_shard(&self, shard: ShardId, owner: ShardOwner, expected: Epoch) -> Result<FencingToken, Error> {
        let mut inner = self.inner.lock();
        let epoch = expected.next(inner.generation);
        let head = inner.shards.entry(shard).or_default();
        let is_repeated = head.epoch == epoch && head.owner == Some(owner);
        if head.epoch != expected && !is_repeated {
            return Err(Error::Fenced { shard, stale: expected, current: head.epoch });
        }
        if !is_repeated {
            // As in the embedded store, opening takes a position, but is no commit.
            let position = head.position.next();
            let opened = ShardHead { epoch, owner: Some(owner), position, expired: head.expired };
            let before = std::mem::replace(head, opened);
            inner.can_lose(Undo::Opened { shard, head: before });
        }
        Ok(FencingToken { shard, epoch, nonce: owner.nonce, position: inner.head(shard).position })
    }

    fn commit_bytes_max(&self) -> usize {
        journal::ENTRY_BYTES_MAX
    }

    fn commit(&self, token: &mut FencingToken, batch: &Batch) -> Result<Position, Error> {
        Error::check_size(batch.as_bytes().len(), self.commit_bytes_max())?;
        let position = {
            let mut inner = self.inner.lock();
            inner.check(token)?;
            let fault = inner.fault_plan.as_mut().map_or(Fault::None, |plan| plan(token.shard, batch));
            if fault == Fault::Late {
                inner.late.push((token.clone(), batch.clone()));
            }
            let landed = fault.lands().then(|| inner.apply(token.shard, batch));
            match (fault, landed) {
                (Fault::None, Some(position)) => position,
                (fault, _) => return Err(Error::Failed { reason: format!("injected: {fault:?}") }),
            }
        };
        token.position = position;
        self.call_hooks();
        Ok(position)
    }

    fn confirm(&self, token: &FencingToken) -> Result<(), Error> {
        self.inner.lock().check(token)
    }

    fn get(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let mut inner = self.inner.lock();
        inner.check_read()?;
        Ok(inner.value(keyspace, &FullKey::of(shard, key)))
    }

    fn scan(
        &self,
        shard: ShardId,
        keyspace: Keyspace,
        range: Range,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(Key, Bytes)>, Error> {
        let mut inner = self.inner.lock();
        inner.check_read()?;
        let Some(table) = inner.tables.get(&keyspace).filter(|_| !range.is_empty()) else {
            return Ok(Vec::new());
        };
        let found = table.range(full_range(shard, &range)).map(|(key, value)| (key.key(), value.clone()));
        Ok(match order {
            Order::Ascending => found.take(limit).collect(),
            Order::Descending => found.rev().take(limit).collect(),
        })
    }

    fn events(&self, after: &Cursor) -> Result<Box<dyn EventReader>, Error> {
        let newest = self.newest_cursor()?;
        let beyond =
            |(index, position): (usize, &Position)| newest.positions().get(index).is_none_or(|at| position > at);
        if after.store() != newest.store() || after.positions().iter().enumerate().any(beyond) {
            return Err(Error::ForeignCursor);
        }
        let mut positions = after.positions().to_vec();
        positions.resize(newest.positions().len(), Position::NONE);
        let reader = ModelEvents { store: self.clone(), id: newest.store(), positions, next: 0 };
        reader.check()?;
        Ok(Box::new(reader))
    }

    fn newest_cursor(&self) -> Result<Cursor, Error> {
        Ok(self.inner.lock().cursor(|head| head.position))
    }

    fn oldest_cursor(&self) -> Result<Cursor, Error> {
        Ok(self.inner.lock().cursor(|head| head.expired))
    }

    fn on_commit(&self, hook: CommitHook) {
        self.inner.lock().hooks.push(Arc::new(hook));
    }

    fn document(&self, name: &str) -> Result<Option<Document>, Error> {
        Error::check_document(name, None)?;
        let mut inner = self.inner.lock();
        inner.check_read()?;
        Ok(inner.documents.get(name).cloned())
    }

    fn put_document(&self, name: &str, expected: Version, value: Option<&[u8]>) -> Result<Version, Error> {
        Error::check_document(name, value)?;
        let mut inner = self.inner.lock();
        let current = inner.documents.get(name).map_or(Version::NONE, |document| document.version);
        if current != expected {
            return Err(Error::DocumentChanged { name: name.to_owned() });
        }
        inner.document_writes += 1;
        let version = Version(inner.document_writes);
        let before = inner.documents.get(name).cloned();
        inner.can_lose(Undo::Document { name: name.to_owned(), before });
        let Some(value) = value else {
            inner.documents.remove(name);
            return Ok(Version::NONE);
        };
        inner.documents.insert(name.to_owned(), Document { version, value: Bytes::copy_from_slice(value) });
        Ok(version)
    }

    fn acquire_lease(&self, name: &str, holder: u64, time: Duration) -> Result<bool, Error> {
        let mut inner = self.inner.lock();
        let now = inner.clock;
        let before = inner.leases.clone();
        inner.can_lose(Undo::Leases { before });
        Ok(inner.leases.acquire(name, holder, now, time))
    }

    fn release_lease(&self, name: &str, holder: u64) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        let before = inner.leases.clone();
        inner.can_lose(Undo::Leases { before });
        inner.leases.release(name, holder);
        Ok(())
    }
}

struct ModelEvents {
    store: ModelStore,
    /// Identity of the store when reading began.
    id: StoreId,
    /// The last position read of each shard.
    positions: Vec<Position>,
    /// Index of the next entry of the log.
    next: usize,
}

impl ModelEvents {
    fn check(&self) -> Result<(), Error> {
        let expired = self.store.oldest_cursor()?;
        if expired.store() != self.id {
            return Err(Error::ForeignCursor);
        }
        match self.positions.iter().zip(expired.positions()).any(|(read, expired)| read < expired) {
            true => Err(Error::CursorExpired),
            false => Ok(()),
        }
    }
}

impl EventReader for ModelEvents {
    fn next(&mut self) -> Result<Option<Committed>, Error> {
        self.check()?;
        let inner = self.store.inner.lock();
        while let Some(committed) = inner.log.get(self.next) {
            self.next += 1;
            let shard = usize::from(committed.shard.0);
            if self.positions.len() <= shard {
                self.positions.resize(shard + 1, Position::NONE);
            }
            if committed.position > self.positions[shard] {
                self.positions[shard] = committed.position;
                return Ok(Some(committed.clone()));
            }
        }
        Ok(None)
    }

    fn cursor(&self) -> Cursor {
        Cursor::new(self.id, self.positions.clone())
    }
}
