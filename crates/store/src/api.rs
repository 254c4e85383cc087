//! The interface of a store and its guarantees.

use std::ops::Bound;

use bytes::Bytes;
use model::batch::{Batch, Keyspace};
use model::id::{Epoch, NodeId, ShardId};

use crate::{Error, Key, Position};

/// Called after commits with the newest durable position. The hook runs on a committing thread: it must not block and
/// must not use the store, only wake another thread.
pub type CommitHook = Box<dyn Fn(Position) + Send + Sync>;

/// Durable state of shards. Calls block, and may come from any thread.
pub trait Store: Send + Sync {
    /// Makes `owner` the only node that may commit to `shard`. Durable on return: from then on commits of every
    /// earlier epoch are rejected.
    fn open_shard(&self, shard: ShardId, owner: NodeId) -> Result<Epoch, Error>;

    /// Largest batch that [`Store::commit`] takes, in bytes.
    fn commit_bytes_max(&self) -> usize;

    /// Makes `batch` durable, completely or not at all. After [`Error::Fenced`] and [`Error::TooLarge`] nothing was
    /// written. After any other error the outcome is unknown until the shard is opened again.
    fn commit(&self, shard: ShardId, epoch: Epoch, batch: &Batch) -> Result<Position, Error>;

    /// Confirms that `epoch` is the newest of the shard, at some time during the call. An owner without anything to
    /// commit calls it before it answers: an owner that was superseded gets [`Error::Fenced`] and must say nothing.
    /// Whatever the owner has read before is current if this succeeds.
    fn confirm(&self, shard: ShardId, epoch: Epoch) -> Result<(), Error>;

    /// Returns the value of a key. Sees every commit that returned before this call.
    fn get(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, Error>;

    /// Returns up to `limit` entries of a range in ascending or descending key order. Sees every commit that returned
    /// before this call. A concurrent commit is visible completely or not at all.
    fn scan(
        &self,
        shard: ShardId,
        keyspace: Keyspace,
        range: Range,
        order: Order,
        limit: usize,
    ) -> Result<Vec<(Key, Bytes)>, Error>;

    /// Reads the events of commits after `after`, in commit order, over all shards.
    /// [`Error::CursorExpired`] if some of them have expired.
    fn events(&self, after: Position) -> Result<Box<dyn EventReader>, Error>;

    /// Position of the newest durable commit.
    fn durable(&self) -> Position;

    /// Registers a hook that is called after commits, so that readers of events need not poll.
    fn on_commit(&self, hook: CommitHook);
}

/// Reader of events. Returns `None` at the end, and continues when there are more.
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

/// Direction of a scan, by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Ascending,
    Descending,
}

/// Key range of a scan.
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
        // The first key after all keys with the prefix: drop trailing 0xff, then increment the last byte.
        let last = prefix.iter().rposition(|byte| *byte != u8::MAX);
        let end = last.map_or(Bound::Unbounded, |last| {
            let mut after = prefix[..=last].to_vec();
            after[last] += 1;
            Bound::Excluded(Key::new(&after))
        });
        Self { start, end }
    }

    /// The same range, starting after `key`, for ascending pagination.
    pub fn after(self, key: &Key) -> Self {
        Self { start: Bound::Excluded(*key), ..self }
    }

    /// The same range, ending before `key`, for descending pagination.
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
