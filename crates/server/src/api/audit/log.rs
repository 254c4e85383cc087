//! Reads of one shard's chain. Entries are appended and removed between two reads.

use bytes::Bytes;
use model::audit::{Head, SignedCheckpoint};
use model::batch::Keyspace;
use model::codec;
use model::id::ShardId;
use model::key;
use store::{Key, Order, Range, Store};

use super::super::problem::Refused;
use crate::error::Error;

/// Entries read at once.
const CHUNK: usize = 1_000;

/// A shard's chain.
pub(super) trait Log {
    /// Its recorded beginning. Absent: no entry was removed.
    fn start(&self) -> Result<Option<SignedCheckpoint>, Refused>;

    /// Its recorded head.
    fn head(&self) -> Result<Head, Refused>;

    /// A chunk of stored entries after a number.
    fn chunk(&self, after: u64) -> Result<Vec<(Key, Bytes)>, Refused>;

    /// Its beginning, if entries after `number` were removed since they were looked for.
    fn moved_start(&self, number: u64) -> Result<Option<SignedCheckpoint>, Refused> {
        Ok(self.start()?.filter(|signed| signed.checkpoint.number > number))
    }
}

/// The end of the removed part of a chain.
pub(super) fn removed(start: Option<&SignedCheckpoint>) -> Head {
    start.map_or(Head::START, |signed| signed.checkpoint.head())
}

/// A chain in the store.
pub(super) struct StoredLog<'a> {
    pub store: &'a dyn Store,
    pub shard: ShardId,
}

impl StoredLog<'_> {
    fn metadata<T: for<'b> minicbor::Decode<'b, ()>>(&self, name: &[u8]) -> Result<Option<T>, Refused> {
        let stored = self.store.get(self.shard, Keyspace::Meta, name)?;
        let decode = |value: Bytes| codec::decode(&value).map_err(|source| Error::record(self.shard, source));
        Ok(stored.map(decode).transpose()?)
    }
}

impl Log for StoredLog<'_> {
    fn start(&self) -> Result<Option<SignedCheckpoint>, Refused> {
        self.metadata(key::META_AUDIT_START)
    }

    fn head(&self) -> Result<Head, Refused> {
        Ok(self.metadata(key::META_AUDIT)?.unwrap_or(Head::START))
    }

    fn chunk(&self, after: u64) -> Result<Vec<(Key, Bytes)>, Refused> {
        let range = Range::all().after(&Key::new(&key::audit(after)));
        Ok(self.store.scan(self.shard, Keyspace::Audit, range, Order::Ascending, CHUNK)?)
    }
}

/// A chain for tests, shortened at every read of a chunk.
#[cfg(test)]
pub(super) mod shortening {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;

    use model::audit::{Action, AuditEntry, Checkpoint};
    use model::time::Millis;

    use super::*;

    pub const SHARD: ShardId = ShardId(0);

    pub struct ShorteningLog {
        pub key: signing::Key,
        start: Cell<Option<SignedCheckpoint>>,
        head: Cell<Head>,
        entries: RefCell<Vec<(Key, Bytes)>>,
        chunk: usize,
        /// Numbers of entries to remove with each of the next reads of a chunk.
        removals: RefCell<VecDeque<u64>>,
    }

    impl ShorteningLog {
        /// A log of this length, read in chunks. With each read, as many entries are removed as `removals` tells, and one
        /// is appended.
        pub fn new(length: u64, chunk: usize, removals: &[u64]) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let log = Self {
                key: signing::Key::open(&directory.path().join("audit.key")).unwrap(),
                start: Cell::new(None),
                head: Cell::new(Head::START),
                entries: RefCell::default(),
                chunk,
                removals: RefCell::new(removals.iter().copied().collect()),
            };
            (0..length).for_each(|_| log.append(Action::Allowed));
            log
        }

        fn append(&self, action: Action) {
            let (mut head, mut stored) = (self.head.get(), Vec::new());
            head.append(&mut AuditEntry::of(action), &mut stored);
            self.entries.borrow_mut().push((Key::new(&key::audit(head.number)), stored.into()));
            self.head.set(head);
        }

        fn shorten(&self, count: u64) {
            let mut end = removed(self.start.get().as_ref());
            for (_, stored) in self.entries.borrow_mut().drain(..count as usize) {
                end.follow(&stored).unwrap();
            }
            let checkpoint = Checkpoint { shard: SHARD, number: end.number, link: end.link, at: Millis(1) };
            self.start.set(Some(self.key.sign(checkpoint, self.start.get().as_ref()).unwrap()));
            self.append(Action::AuditShortened);
        }
    }

    impl Log for ShorteningLog {
        fn start(&self) -> Result<Option<SignedCheckpoint>, Refused> {
            Ok(self.start.get())
        }

        fn head(&self) -> Result<Head, Refused> {
            Ok(self.head.get())
        }

        fn chunk(&self, after: u64) -> Result<Vec<(Key, Bytes)>, Refused> {
            if let Some(count) = self.removals.borrow_mut().pop_front().filter(|count| *count > 0) {
                self.shorten(count);
            }
            let entries = self.entries.borrow();
            let behind = entries.iter().filter(|(entry, _)| key::number_of_audit(entry) > Some(after));
            Ok(behind.take(self.chunk).cloned().collect())
        }
    }

    /// Removals that overtake a reader: before its first chunk, between chunks, repeatedly, and of all there was.
    pub const OVERTAKING: [&[u64]; 6] = [&[], &[3], &[0, 7], &[1, 6, 1, 5], &[20], &[0, 20, 1]];
}
