//! The interface of a store and its guarantees.

use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use model::batch::{Batch, KEY_BYTES_MAX, Keyspace};
use model::id::{Epoch, NodeId, ShardId};

use crate::{Cursor, Error, Key, Position};

/// Called after commits, from a committing thread: it must not block and must not use the store, only wake another
/// thread.
pub type CommitHook = Box<dyn Fn() + Send + Sync>;

/// Durable state of shards. Calls block, and may come from any thread.
///
/// Positions order the commits of one shard. Nothing follows from the positions of different shards.
pub trait Store: Send + Sync {
    /// Identity of the data, the same for every process that uses it. Changes with each failover of a store that may
    /// lose commits: earlier cursors are rejected, because events after them may be missing.
    fn id(&self) -> StoreId;

    /// What the store promises about acknowledged commits.
    fn durability(&self) -> Durability;

    /// The newest epoch of a shard. 0: the shard was never opened.
    fn newest_epoch(&self, shard: ShardId) -> Result<Epoch, Error>;

    /// Makes `owner` the only one that may commit to `shard`, if `expected` is the shard's newest epoch, else
    /// [`Error::Fenced`]. Durable on return: from then on commits of every earlier owner are rejected.
    ///
    /// The new epoch is larger than every one ever issued, also if a failover has lost some (see
    /// [`Durability::MayLoseSuffix`]).
    ///
    /// After an error the outcome is unknown. The same call again, by the same owner, then succeeds whether or not the
    /// first one had an effect, unless another owner has opened the shard.
    fn open_shard(&self, shard: ShardId, owner: ShardOwner, expected: Epoch) -> Result<FencingToken, Error>;

    /// Opens a shard after its newest epoch, whichever that is.
    fn take_over(&self, shard: ShardId, owner: ShardOwner) -> Result<FencingToken, Error> {
        self.open_shard(shard, owner, self.newest_epoch(shard)?)
    }

    /// Largest batch that [`Store::commit`] takes, in bytes.
    fn commit_bytes_max(&self) -> usize;

    /// Makes `batch` durable, completely or not at all, and advances the token. Rejected with [`Error::Fenced`] unless
    /// the token is that of the newest owner, with [`Error::Diverged`] unless the shard is at the token's position, and
    /// with [`Error::FailedOver`] if the store has failed over since the token was issued. After these three and
    /// [`Error::TooLarge`] nothing was written. After any other error the outcome is unknown until
    /// the shard is opened again.
    fn commit(&self, token: &mut FencingToken, batch: &Batch) -> Result<Position, Error>;

    /// Confirms that a commit with this token would be accepted, at some time during the call. An owner without anything
    /// to commit calls it before it answers: an owner that was superseded gets [`Error::Fenced`], one whose commits were
    /// lost [`Error::Diverged`] or [`Error::FailedOver`], and must say nothing.
    /// Whatever the owner has read before is current if this succeeds.
    fn confirm(&self, token: &FencingToken) -> Result<(), Error>;

    /// Returns the value of a key. Sees every commit that returned before this call.
    fn get(&self, shard: ShardId, keyspace: Keyspace, key: &[u8]) -> Result<Option<Bytes>, Error>;

    /// Returns the values of several keys, in their order, like [`Store::get`] for each of them.
    fn get_many(&self, shard: ShardId, keyspace: Keyspace, keys: &[Key]) -> Result<Vec<Option<Bytes>>, Error> {
        keys.iter().map(|key| self.get(shard, keyspace, key)).collect()
    }

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

    /// Reads the commits after `after`, each shard's in commit order. [`Error::CursorExpired`] if some of them have
    /// expired, [`Error::ForeignCursor`] if the cursor is not of this store.
    fn events(&self, after: &Cursor) -> Result<Box<dyn EventReader>, Error>;

    /// The cursor after the newest durable commits.
    fn newest_cursor(&self) -> Result<Cursor, Error>;

    /// The cursor before the oldest events that are still kept.
    fn oldest_cursor(&self) -> Result<Cursor, Error>;

    /// Registers a hook that is called after commits, so that readers of events need not poll.
    fn on_commit(&self, hook: CommitHook);

    /// A document by its name.
    fn document(&self, name: &str) -> Result<Option<Document>, Error>;

    /// Writes a document if its version is still `expected`, else [`Error::DocumentChanged`]. [`Version::NONE`]: it
    /// must not exist. `None` deletes it. Returns the new version; versions of a name are never used again, also not
    /// those that a failover has lost.
    fn put_document(&self, name: &str, expected: Version, value: Option<&[u8]>) -> Result<Version, Error>;

    /// Gives `holder` the lease `name` for a time, or extends it. False while another holder has it. Time counts on the
    /// store's own monotonic clock, from some moment during the call: a holder counts from before it.
    fn acquire_lease(&self, name: &str, holder: u64, time: Duration) -> Result<bool, Error>;

    /// Ends a lease early, if `holder` has it.
    fn release_lease(&self, name: &str, holder: u64) -> Result<(), Error>;
}

/// What a store promises about acknowledged commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// It keeps all of them.
    #[default]
    Durable,
    /// A failover may lose the newest ones, together with openings, documents and leases: the promoted replica lacks
    /// them. What it keeps is a state that the store had. Each failover begins a new **generation**, whose number comes
    /// from whatever elects the replica and not from the data, so that it is never lost. Owners of earlier generations
    /// are rejected, and epochs, document versions and cursors of earlier generations are never issued again.
    MayLoseSuffix,
}

/// Identity of a store's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreId(pub u64);

/// Who opens a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardOwner {
    pub node: NodeId,
    /// Random, new for each opening. Two owners differ even if a store loses an epoch and issues it again.
    pub nonce: u64,
}

/// Proof of the ownership of a shard, presented with every commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencingToken {
    pub shard: ShardId,
    pub epoch: Epoch,
    pub nonce: u64,
    /// Position of the shard's last commit, or of its opening.
    pub position: Position,
}

/// Reader of commits. Returns `None` at the end, and continues when there are more.
pub trait EventReader: Send {
    fn next(&mut self) -> Result<Option<Committed>, Error>;

    /// The cursor after the last returned commit.
    fn cursor(&self) -> Cursor;
}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub shard: ShardId,
    pub position: Position,
    /// Events, in the order in which they were added to the batch.
    pub events: Vec<Bytes>,
    /// The whole batch, for [`model::batch::ops`].
    pub batch: Bytes,
}

/// A small value shared by all nodes, changed by compare-and-set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub version: Version,
    pub value: Bytes,
}

/// Version of a document. Increases with every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl FencingToken {
    /// Rejects a token unless it is of the newest owner.
    pub(crate) fn check(&self, epoch: Epoch, nonce: Option<u64>) -> Result<(), Error> {
        if self.epoch == epoch && nonce == Some(self.nonce) {
            return Ok(());
        }
        Err(Error::Fenced { shard: self.shard, stale: self.epoch, current: epoch })
    }

    /// Rejects a commit unless it follows the shard's last one.
    pub(crate) fn check_position(&self, found: Position) -> Result<(), Error> {
        if self.position == found {
            return Ok(());
        }
        Err(Error::Diverged { shard: self.shard, expected: self.position, found })
    }
}

impl Version {
    /// The document does not exist.
    pub const NONE: Self = Self(0);
}

/// Limit of a document's name, in bytes. Stores put a prefix in front of it.
pub const DOCUMENT_NAME_BYTES_MAX: usize = KEY_BYTES_MAX - 1;
/// Limit of a document's value, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 1 << 20;

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
