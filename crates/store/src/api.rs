//! What every store promises.

use std::ops::Bound;

use bytes::Bytes;
use model::batch::{Batch, Keyspace};
use model::id::{Epoch, NodeId, ShardId};

use crate::{Error, Key, Position};

/// Called after commits with the newest durable position. It runs on a committing thread: it must not block and
/// must not use the store, only wake who does.
pub type CommitHook = Box<dyn Fn(Position) + Send + Sync>;

/// Durable state. Calls block; they may come from any thread.
pub trait Store: Send + Sync {
    /// Makes `owner` the only one who may commit to `shard`. Durable when it returns: from then on every earlier
    /// epoch is refused.
    fn open_shard(&self, shard: ShardId, owner: NodeId) -> Result<Epoch, Error>;

    /// Makes all of `batch` durable, or nothing. After [`Error::Fenced`] nothing was written; after any other
    /// error the outcome is unknown until the shard is opened again.
    fn commit(&self, shard: ShardId, epoch: Epoch, batch: &Batch) -> Result<Position, Error>;

    /// The value of a key. Sees every commit that returned before this call began.
    fn get(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, Error>;

    /// Up to `limit` entries of a range in key order or against it. Like [`Store::get`] it sees every commit that
    /// returned before; of a concurrent commit it sees all or nothing.
    fn scan(
        &self,
        shard: ShardId,
        keyspace: Keyspace,
        range: Range,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(Key, Bytes)>, Error>;

    /// Reads the events of commits after `after`, in commit order, over all shards.
    /// [`Error::CursorExpired`] when some of them are no longer kept.
    fn events(&self, after: Position) -> Result<Box<dyn EventReader>, Error>;

    /// The newest durable commit.
    fn durable(&self) -> Position;

    /// Asks to be told of commits, so that nobody has to poll for events.
    fn on_commit(&self, hook: CommitHook);
}

/// Reads events. At the end it says `None` and can be asked again later.
pub trait EventReader: Send {
    fn next(&mut self) -> Result<Option<Committed>, Error>;
}

/// The events of one commit, in the order in which they were added to its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub position: Position,
    pub shard: ShardId,
    pub events: Vec<Bytes>,
}

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

/// Which keys a scan covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub start: Bound<Key>,
    pub end: Bound<Key>,
}

impl Range {
    pub fn all() -> Self {
        Self { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// All keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        let start = Bound::Included(Key::new(prefix));
        // The first key after all those with the prefix: drop trailing 0xff, then count up the last byte.
        let last = prefix.iter().rposition(|byte| *byte != u8::MAX);
        let end = last.map_or(Bound::Unbounded, |last| {
            let mut after = prefix[..=last].to_vec();
            after[last] += 1;
            Bound::Excluded(Key::new(&after))
        });
        Self { start, end }
    }

    /// The same range, beginning after `key`: for reading page by page.
    pub fn after(self, key: &Key) -> Self {
        Self { start: Bound::Excluded(*key), ..self }
    }

    /// The same range, ending before `key`: for reading page by page backwards.
    pub fn before(self, key: &Key) -> Self {
        Self { end: Bound::Excluded(*key), ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
                start >= end
            }
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        }
    }
}
