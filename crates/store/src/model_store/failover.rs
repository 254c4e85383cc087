//! Failover to a replica that lacks the newest writes.

use std::collections::VecDeque;

use bytes::Bytes;
use model::batch::Keyspace;
use model::id::ShardId;

use super::{ID, Inner, ModelStore, ShardHead};
use crate::key::FullKey;
use crate::leases::Leases;
use crate::{Document, Durability, Error, FencingToken, StoreId};

/// Most writes that a failover can lose.
const SUFFIX_MAX: usize = 1_000;

/// Whose newest writes a failover loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Commits and openings of one shard: the shards are spread over several replicated groups.
    Shard(ShardId),
    /// All writes: commits, openings, documents and leases.
    All,
}

/// How to take one write back.
#[derive(Debug)]
pub(super) enum Undo {
    Commit { shard: ShardId, head: ShardHead, rows: Vec<(Keyspace, FullKey, Option<Bytes>)> },
    Opened { shard: ShardId, head: ShardHead },
    Document { name: String, before: Option<Document> },
    Leases { before: Leases },
}

impl Undo {
    fn shard(&self) -> Option<ShardId> {
        match self {
            Self::Commit { shard, .. } | Self::Opened { shard, .. } => Some(*shard),
            Self::Document { .. } | Self::Leases { .. } => None,
        }
    }
}

/// The newest writes, oldest first.
#[derive(Debug, Default)]
pub(super) struct Suffix {
    writes: VecDeque<Undo>,
}

impl Suffix {
    fn push(&mut self, undo: Undo) {
        if self.writes.len() == SUFFIX_MAX {
            self.writes.pop_front();
        }
        self.writes.push_back(undo);
    }

    /// Removes the newest write that is lost.
    fn pop(&mut self, lost: Lost) -> Option<Undo> {
        match lost {
            Lost::All => self.writes.pop_back(),
            Lost::Shard(shard) => {
                let index = self.writes.iter().rposition(|undo| undo.shard() == Some(shard))?;
                self.writes.remove(index)
            }
        }
    }
}

impl ModelStore {
    /// The store fails over to a replica that lacks the newest `writes`. Returns the shards of the lost commits,
    /// the newest commit first.
    ///
    /// # Panics
    /// If the store is not lossy.
    pub fn lose_suffix(&self, lost: Lost, writes: usize) -> Vec<ShardId> {
        let mut inner = self.inner.lock();
        assert_eq!(inner.durability, Durability::MayLoseSuffix, "only a lossy store loses commits");
        inner.generation += 1;
        inner.commits += 1;
        // Versions of lost documents are not used again.
        inner.document_writes = inner.document_writes.max(inner.generation << 32);
        let mut commits = Vec::new();
        for _ in 0..writes {
            let Some(undo) = inner.suffix.pop(lost) else { break };
            commits.extend(inner.undo(undo));
        }
        commits
    }
}

impl Inner {
    pub(super) fn id(&self) -> StoreId {
        StoreId(ID.0 | (self.generation << 32))
    }

    /// Notes a write that the next failover may lose.
    pub(super) fn can_lose(&mut self, undo: Undo) {
        match self.durability {
            Durability::Durable => {}
            Durability::MayLoseSuffix => self.suffix.push(undo),
        }
    }

    /// An owner of an earlier generation may be in the shadow of a later one that was lost.
    pub(super) fn check_generation(&self, token: &FencingToken) -> Result<(), Error> {
        if token.epoch.generation() >= self.generation {
            return Ok(());
        }
        Err(Error::FailedOver { shard: token.shard, epoch: token.epoch })
    }

    /// Takes back one write. Returns the shard if it was a commit.
    fn undo(&mut self, undo: Undo) -> Option<ShardId> {
        match undo {
            Undo::Commit { shard, head, rows } => {
                let entry = self.log.iter().rposition(|committed| committed.shard == shard);
                entry.map(|index| self.log.remove(index));
                // A key may be written several times in a batch: the oldest value is restored last.
                for (keyspace, key, before) in rows.into_iter().rev() {
                    let table = self.tables.entry(keyspace).or_default();
                    match before {
                        Some(value) => drop(table.insert(key, value)),
                        None => drop(table.remove(&key)),
                    }
                }
                self.restore_head(shard, head);
                return Some(shard);
            }
            Undo::Opened { shard, head } => self.restore_head(shard, head),
            Undo::Document { name, before } => match before {
                Some(document) => drop(self.documents.insert(name, document)),
                None => drop(self.documents.remove(&name)),
            },
            Undo::Leases { before } => self.leases = before,
        }
        None
    }

    fn restore_head(&mut self, shard: ShardId, head: ShardHead) {
        self.shards.insert(shard, head);
    }
}
