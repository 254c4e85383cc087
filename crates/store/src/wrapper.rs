//! Stores in front of another store, for tests and simulations.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use model::batch::{Batch, Keyspace};
use model::id::{Epoch, ShardId};
use parking_lot::Mutex;

use crate::{
    CommitHook, Cursor, Document, Durability, Error, EventReader, FencingToken, Key, ModelStore, Order, Position,
    Range, ShardOwner, Store, StoreId, Version,
};

/// A store that passes all calls on to another one, but for the methods that it overrides.
pub trait Wrapper: Send + Sync {
    fn inner(&self) -> &dyn Store;

    fn open_shard(&self, shard: ShardId, owner: ShardOwner, expected: Epoch) -> Result<FencingToken, Error> {
        self.inner().open_shard(shard, owner, expected)
    }

    fn commit(&self, token: &mut FencingToken, batch: &Batch) -> Result<Position, Error> {
        self.inner().commit(token, batch)
    }

    fn get(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.inner().get(shard, keyspace, key)
    }

    fn scan(
        &self,
        shard: ShardId,
        keyspace: Keyspace,
        range: Range,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(Key, Bytes)>, Error> {
        self.inner().scan(shard, keyspace, range, order, limit)
    }

    fn events(&self, after: &Cursor) -> Result<Box<dyn EventReader>, Error> {
        self.inner().events(after)
    }

    fn newest_cursor(&self) -> Result<Cursor, Error> {
        self.inner().newest_cursor()
    }
}

impl<W: Wrapper> Store for W {
    fn id(&self) -> StoreId {
        self.inner().id()
    }

    fn durability(&self) -> Durability {
        self.inner().durability()
    }

    fn newest_epoch(&self, shard: ShardId) -> Result<Epoch, Error> {
        self.inner().newest_epoch(shard)
    }

    fn open_shard(&self, shard: ShardId, owner: ShardOwner, expected: Epoch) -> Result<FencingToken, Error> {
        Wrapper::open_shard(self, shard, owner, expected)
    }

    fn commit_bytes_max(&self) -> usize {
        self.inner().commit_bytes_max()
    }

    fn commit(&self, token: &mut FencingToken, batch: &Batch) -> Result<Position, Error> {
        Wrapper::commit(self, token, batch)
    }

    fn confirm(&self, token: &FencingToken) -> Result<(), Error> {
        self.inner().confirm(token)
    }

    fn get(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, Error> {
        Wrapper::get(self, shard, keyspace, key)
    }

    fn scan(
        &self,
        shard: ShardId,
        keyspace: Keyspace,
        range: Range,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(Key, Bytes)>, Error> {
        Wrapper::scan(self, shard, keyspace, range, order, limit)
    }

    fn events(&self, after: &Cursor) -> Result<Box<dyn EventReader>, Error> {
        Wrapper::events(self, after)
    }

    fn newest_cursor(&self) -> Result<Cursor, Error> {
        Wrapper::newest_cursor(self)
    }

    fn oldest_cursor(&self) -> Result<Cursor, Error> {
        self.inner().oldest_cursor()
    }

    fn on_commit(&self, hook: CommitHook) {
        self.inner().on_commit(hook);
    }

    fn document(&self, name: &str) -> Result<Option<Document>, Error> {
        self.inner().document(name)
    }

    fn put_document(&self, name: &str, expected: Version, value: Option<&[u8]>) -> Result<Version, Error> {
        self.inner().put_document(name, expected, value)
    }

    fn acquire_lease(&self, name: &str, holder: u64, time: Duration) -> Result<bool, Error> {
        self.inner().acquire_lease(name, holder, time)
    }

    fn release_lease(&self, name: &str, holder: u64) -> Result<(), Error> {
        self.inner().release_lease(name, holder)
    }
}

/// A store that counts reads of records, and lets a test write before each of them.
pub struct Observed {
    inner: ModelStore,
    reads: AtomicUsize,
    records_read: AtomicUsize,
    before_read: Mutex<Box<dyn FnMut() + Send>>,
}

impl Observed {
    pub fn new(inner: ModelStore) -> Self {
        Self { inner, reads: 0.into(), records_read: 0.into(), before_read: Mutex::new(Box::new(|| {})) }
    }

    /// Calls `write` before each following read.
    pub fn before_each_read(&self, write: impl FnMut() + Send + 'static) {
        *self.before_read.lock() = Box::new(write);
    }

    /// Number of reads since the last call.
    pub fn take_reads(&self) -> usize {
        self.reads.swap(0, Ordering::Relaxed)
    }

    /// Number of records read since the last call.
    pub fn take_records_read(&self) -> usize {
        self.records_read.swap(0, Ordering::Relaxed)
    }

    fn observe<T>(&self, read: impl FnOnce() -> T, records: impl FnOnce(&T) -> usize) -> T {
        (self.before_read.lock())();
        let result = read();
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.records_read.fetch_add(records(&result), Ordering::Relaxed);
        result
    }
}

impl Wrapper for Observed {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn get(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.observe(|| self.inner.get(shard, keyspace, key), |_| 1)
    }

    fn scan(
        &self,
        shard: ShardId,
        keyspace: Keyspace,
        range: Range,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(Key, Bytes)>, Error> {
        self.observe(|| self.inner.scan(shard, keyspace, range, order, limit), |page| page.as_ref().map_or(0, Vec::len))
    }
}
