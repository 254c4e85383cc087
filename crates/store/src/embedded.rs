//! The built-in store: one data directory, no external service.
//!
//! A commit is one journal entry, which makes it durable. It then goes into the overlay, a sorted map in memory that
//! serves reads. Later many commits together are written to the tables. After each such flush a checkpoint is appended
//! to the journal, and older entries are released. Recovery opens the tables and replays the journal entries after
//! their position into the overlay.

mod directory;
mod entry;
mod events;
mod merge;
mod options;
mod overlay;
mod pipeline;
mod replay;
mod system;
mod table_id;
mod tables;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::Journal;
use model::batch::{Batch, Keyspace};
use model::id::{Epoch, Incarnation, NodeId, ShardId};
use parking_lot::{Mutex, RwLock};

pub use directory::DataDirectory;
pub use options::Options;
pub use tables::Verification;

use crate::key::{FullKey, full_range};
use crate::leases::Leases;
use crate::{
    CommitHook, Cursor, Document, Durability, Error, EventReader, FencingToken, Key, Order, Position, Range,
    ShardOwner, Store, StoreId, Version,
};
use overlay::{FullRange, ValueOrTombstone};
use pipeline::{FlushLimits, Pipeline};
use table_id::TableId;
use tables::{TableItem, Tables};

/// An open embedded store.
pub struct Embedded {
    shards: RwLock<HashMap<ShardId, Arc<Mutex<ShardHead>>>>,
    /// Held while a document is compared and written.
    document_writes: Mutex<()>,
    leases: Mutex<Leases>,
    /// Start of the clock of the leases.
    started: Instant,
    pipeline: Arc<Pipeline>,
    journal: Arc<Journal>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    // The last field, so that the directory is unlocked after everything else is dropped.
    directory: DataDirectory,
}

/// Current owner of a shard and its last entry. Commits of one shard are serialised: the lock is held from the check of
/// the token until the entry is durable, so that no commit of an old owner follows the entry of a new one.
#[derive(Debug, Default)]
struct ShardHead {
    epoch: Epoch,
    /// Nonce of the owner in this process. No earlier process has one any more.
    nonce: Option<u64>,
    position: Position,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("directory", &self.directory.path()).finish_non_exhaustive()
    }
}

impl Embedded {
    /// Opens the store in `directory`, creates it if necessary, and recovers the commits of earlier processes.
    pub fn open(directory: &Path, options: Options) -> Result<Self, Error> {
        let directory = DataDirectory::open(directory)?;
        let journal = Arc::new(Journal::open(&directory.journal(), options.journal.clone())?);
        let tables = Tables::open(&directory.tables(), options.cache_bytes)?;
        let applied = tables.applied()?;
        let limits = FlushLimits {
            backlog_bytes_max: options.backlog_bytes_max,
            flush_bytes: options.flush_bytes,
            flush_after: options.flush_after,
        };
        let pipeline = Arc::new(Pipeline::new(tables, applied, limits));
        let store = Self {
            shards: RwLock::default(),
            document_writes: Mutex::default(),
            leases: Mutex::default(),
            started: Instant::now(),
            pipeline,
            journal,
            threads: Mutex::default(),
            directory,
        };
        store.start_threads()?;
        replay::replay(&store.journal, &store.pipeline, applied, store.directory.path())?;
        store.pipeline.allow_flush();
        store.load_epochs()?;
        Ok(store)
    }

    /// ID of this node, stored in the directory.
    pub fn node(&self) -> NodeId {
        self.directory.node()
    }

    /// Number of times the directory has been opened.
    pub fn incarnation(&self) -> Incarnation {
        self.directory.incarnation()
    }

    /// Writes all commits to the tables.
    pub fn flush(&self) -> Result<(), Error> {
        self.pipeline.flush()
    }

    /// Flushes, then reads and verifies every record in the tables.
    pub fn verify(&self) -> Result<Verification, Error> {
        self.flush()?;
        Ok(self.pipeline.tables.verify())
    }

    /// Flushes to the tables, appends a checkpoint and seals the journal, so that the next start has nothing to replay.
    /// Dropping the store without closing is safe.
    pub fn close(self) -> Result<(), Error> {
        self.flush()?;
        self.stop_threads();
        Ok(())
    }

    fn start_threads(&self) -> Result<(), Error> {
        let overlay = Arc::clone(&self.pipeline);
        self.start_thread("store-overlay", move || overlay.run_overlay())?;
        let (tables, journal) = (Arc::clone(&self.pipeline), Arc::clone(&self.journal));
        self.start_thread("store-tables", move || {
            tables.run_tables(|applied| checkpoint(&tables, &journal, applied));
        })
    }

    fn start_thread(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let pipeline = Arc::clone(&self.pipeline);
        let guarded = move || {
            // After a panic, which is a bug, commits and reads must fail instead of waiting for ever.
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
                let reason = "a background thread of the store panicked. This is a bug, please report it".to_owned();
                pipeline.fail(&Error::Tables { reason });
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(guarded).map_err(|error| Error::Io {
            action: "start a thread for",
            path: self.directory.path().to_path_buf(),
            reason: error.to_string(),
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    fn stop_threads(&self) {
        self.pipeline.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a background thread of the store panicked");
            }
        }
    }

    fn load_epochs(&self) -> Result<(), Error> {
        self.wait_readable()?;
        let unbounded = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let sources = self.sources(TableId::SYSTEM, unbounded, Order::Ascending, usize::MAX);
        let mut epochs: HashMap<ShardId, Epoch> = HashMap::new();
        // From the oldest source to the newest, so that the newest epoch wins.
        for source in sources.into_iter().rev() {
            for item in source {
                let (key, value) = item?;
                if key[2..] != *system::OWNER_KEY {
                    continue;
                }
                let damaged = || Error::DamagedRecord { keyspace: None, key: format!("{key:?}") };
                let shard = ShardId(u16::from_be_bytes([key[0], key[1]]));
                let epoch = value.as_deref().and_then(system::decode_epoch).ok_or_else(damaged)?;
                epochs.insert(shard, epoch);
            }
        }
        let head = |epoch| Arc::new(Mutex::new(ShardHead { epoch, ..ShardHead::default() }));
        self.shards.write().extend(epochs.into_iter().map(|(shard, epoch)| (shard, head(epoch))));
        Ok(())
    }

    fn shard_head(&self, shard: ShardId) -> Arc<Mutex<ShardHead>> {
        if let Some(found) = self.shards.read().get(&shard) {
            return Arc::clone(found);
        }
        Arc::clone(self.shards.write().entry(shard).or_default())
    }

    /// Waits until all durable entries are readable, including those not submitted yet by their committing thread: a
    /// reader of an event must find the commit of that event.
    fn wait_readable(&self) -> Result<(), Error> {
        self.pipeline.wait_readable(self.journal.durable())
    }

    /// Consistent snapshot of the overlay's layers and the tables, newest source first.
    fn sources(
        &self,
        table: TableId,
        range: FullRange,
        order: Order,
        limit: usize,
    ) -> Vec<Box<dyn Iterator<Item = TableItem> + '_>> {
        let layers = self.pipeline.layers.read();
        // The active layer keeps changing, so its part of the range is copied, up to `limit` values that are not
        // deleted: later ones cannot be part of the result.
        let mut values = 0;
        let mut within_limit = |(_, value): &(FullKey, ValueOrTombstone)| {
            let wanted = values < limit;
            values += usize::from(value.is_some());
            wanted
        };
        let active = layers.active.map(table).range(range).map(|(key, value)| (*key, value.clone()));
        let active: Vec<_> = match order {
            Order::Ascending => active.take_while(&mut within_limit).collect(),
            Order::Descending => active.rev().take_while(&mut within_limit).collect(),
        };
        let frozen = layers.frozen.clone();
        // Opened under the lock: the frozen layer is dropped only after it is in the tables.
        let tables = self.pipeline.tables.range(table, range);
        drop(layers);
        let tables: Box<dyn Iterator<Item = TableItem> + '_> = match order {
            Order::Ascending => Box::new(tables),
            Order::Descending => Box::new(tables.rev()),
        };
        let mut sources: Vec<Box<dyn Iterator<Item = TableItem> + '_>> = vec![Box::new(active.into_iter().map(Ok))];
        if let Some(frozen) = frozen {
            sources.push(Box::new(overlay::LayerRange::new(frozen, table, range, order).map(Ok)));
        }
        sources.push(tables);
        sources
    }
}

/// Appends a checkpoint to the journal, then releases the entries up to it.
fn checkpoint(pipeline: &Pipeline, journal: &Journal, applied: Position) -> Result<(), Error> {
    let (position, entry) = journal.append_shared(&[&entry::checkpoint(applied)])?;
    pipeline.submit(position, entry);
    journal.release(applied);
    Ok(())
}

impl Store for Embedded {
    fn id(&self) -> StoreId {
        StoreId(self.directory.node().0)
    }

    fn newest_epoch(&self, shard: ShardId) -> Result<Epoch, Error> {
        Ok(self.shard_head(shard).lock().epoch)
    }

    fn open_shard(&self, shard: ShardId, owner: ShardOwner, expected: Epoch) -> Result<FencingToken, Error> {
        self.pipeline.wait_for_backlog()?;
        let head = self.shard_head(shard);
        let mut head = head.lock();
        let epoch = Epoch(expected.0 + 1);
        let is_repeated = head.epoch == epoch && head.nonce == Some(owner.nonce);
        if head.epoch != expected && !is_repeated {
            return Err(Error::Fenced { shard, stale: expected, current: head.epoch });
        }
        if !is_repeated {
            let (position, entry) = self.journal.append_shared(&[&entry::open_shard(shard, epoch, owner.node)])?;
            *head = ShardHead { epoch, nonce: Some(owner.nonce), position };
            self.pipeline.submit(position, entry);
        }
        Ok(FencingToken { shard, epoch, nonce: owner.nonce, position: head.position })
    }

    fn durability(&self) -> Durability {
        Durability::Durable
    }

    fn commit_bytes_max(&self) -> usize {
        // The rest is for the head of the entry.
        journal::ENTRY_BYTES_MAX - 64
    }

    fn commit(&self, token: &mut FencingToken, batch: &Batch) -> Result<Position, Error> {
        Error::check_size(batch.as_bytes().len(), self.commit_bytes_max())?;
        self.pipeline.wait_for_backlog()?;
        let head = self.shard_head(token.shard);
        let mut head = head.lock();
        token.check(head.epoch, head.nonce)?;
        token.check_position(head.position)?;
        let entry_head = entry::commit_head(token.shard, token.epoch);
        let (position, entry) = self.journal.append_shared(&[&entry_head, batch.as_bytes()])?;
        (head.position, token.position) = (position, position);
        self.pipeline.submit(position, entry);
        Ok(position)
    }

    fn confirm(&self, token: &FencingToken) -> Result<(), Error> {
        let head = self.shard_head(token.shard);
        let head = head.lock();
        token.check(head.epoch, head.nonce)?;
        token.check_position(head.position)
    }

    fn get(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.wait_readable()?;
        let (table, key) = (TableId::of(keyspace), FullKey::of(shard, key));
        let in_overlay = self.pipeline.layers.read().get(table, &key);
        match in_overlay {
            Some(value) => Ok(value),
            None => self.pipeline.tables.get(table, &key),
        }
    }

    fn scan(
        &self,
        shard: ShardId,
        keyspace: Keyspace,
        range: Range,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(Key, Bytes)>, Error> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        self.wait_readable()?;
        let sources = self.sources(TableId::of(keyspace), full_range(shard, &range), order, limit);
        merge::merge(sources, order, limit)
    }

    fn events(&self, after: &Cursor) -> Result<Box<dyn EventReader>, Error> {
        events::read(&self.journal, self.id(), after)
    }

    fn newest_cursor(&self) -> Result<Cursor, Error> {
        Ok(Cursor::new(self.id(), vec![self.journal.durable()]))
    }

    fn oldest_cursor(&self) -> Result<Cursor, Error> {
        Ok(Cursor::new(self.id(), vec![events::before_oldest(&self.journal)?]))
    }

    fn on_commit(&self, hook: CommitHook) {
        self.journal.on_durable(Box::new(move |_| hook()));
    }

    fn document(&self, name: &str) -> Result<Option<Document>, Error> {
        Error::check_document(name, None)?;
        self.wait_readable()?;
        let key = system::document_key(name);
        let in_overlay = self.pipeline.layers.read().get(TableId::SYSTEM, &key);
        let record = match in_overlay {
            Some(record) => record,
            None => self.pipeline.tables.get(TableId::SYSTEM, &key)?,
        };
        let damaged = || Error::DamagedRecord { keyspace: None, key: name.to_owned() };
        record.map(|record| system::decode_document(record).ok_or_else(damaged)).transpose()
    }

    fn put_document(&self, name: &str, expected: Version, value: Option<&[u8]>) -> Result<Version, Error> {
        Error::check_document(name, value)?;
        self.pipeline.wait_for_backlog()?;
        let _writes = self.document_writes.lock();
        let current = self.document(name)?.map_or(Version::NONE, |document| document.version);
        if current != expected {
            return Err(Error::DocumentChanged { name: name.to_owned() });
        }
        let head = entry::document_head(name, value.is_none());
        let (position, entry) = self.journal.append_shared(&[&head, value.unwrap_or_default()])?;
        self.pipeline.submit(position, entry);
        Ok(value.map_or(Version::NONE, |_| Version(position.0)))
    }

    fn acquire_lease(&self, name: &str, holder: u64, time: Duration) -> Result<bool, Error> {
        Ok(self.leases.lock().acquire(name, holder, self.started.elapsed(), time))
    }

    fn release_lease(&self, name: &str, holder: u64) -> Result<(), Error> {
        self.leases.lock().release(name, holder);
        Ok(())
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop_threads();
    }
}
