//! Marks: the blobs that records refer to, kept from one collection to the next.
//!
//! The cache follows the commits of the store, which name every changed record, and a collection reads only the key
//! ranges that changed since the last one. Commits expire after a time, so the janitor lets the cache follow them
//! between collections, too.
//!
//! What a collection returns includes every reference at the position that the cache has then followed to. A record at
//! that position was either written since the last pass began, and its value was taken from its commit, or it is older,
//! and was there whenever its range was read. A record that moves between keyspaces is thus never missed.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};

use model::batch::{Keyspace, Op, ops};
use model::blob::BlobId;
use model::id::{ShardId, Shards};
use shard::reads::has_reached;
use store::{Committed, Cursor, Order, Store};

use super::ranges::{BlobPrefix, Ranges, ReadRecord, Start};
use super::records::{MARKED, blobs_of, changed_with};
use crate::error::Error;

/// References kept between collections, at most. One takes 8 bytes, and another 8 during a sweep.
const REFERENCES_MAX: usize = 8_000_000;
/// Records per page of a scan. The store is held for one page.
const PAGE_RECORDS: usize = 512;
/// Commits read at once. The store is held meanwhile.
const PAGE_COMMITS: usize = 256;
/// Pages of a scan between two looks at the commits, so that these do not expire during a long scan.
const PAGES_PER_FOLLOW: usize = 16;
/// Passes over the dirty ranges. Each pass is shorter than the one before, as it reads what changed during that one.
const PASSES: usize = 3;

/// Why marking ended early.
#[derive(Debug)]
pub(super) enum Interruption {
    /// The node has stopped.
    Stopped,
    /// Commits that the cache has not seen have expired, or are those of another store.
    Expired,
    Failed(Error),
}

impl From<store::Error> for Interruption {
    fn from(error: store::Error) -> Self {
        match matches!(error, store::Error::CursorExpired | store::Error::ForeignCursor) {
            true => Self::Expired,
            false => Self::Failed(error.into()),
        }
    }
}

impl From<Error> for Interruption {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

fn open(store: &Weak<dyn Store>) -> Result<Arc<dyn Store>, Interruption> {
    store.upgrade().ok_or(Interruption::Stopped)
}

/// The blobs in use, by prefix.
#[derive(Debug)]
pub(super) struct InUse {
    sorted: Vec<BlobPrefix>,
    others: HashSet<BlobPrefix>,
}

impl InUse {
    pub fn contains(&self, blob: &BlobId) -> bool {
        let prefix = BlobPrefix::of(blob);
        self.sorted.binary_search(&prefix).is_ok() || self.others.contains(&prefix)
    }
}

/// Marks the blobs in use, for one collection after the other.
pub(super) struct Marker {
    shards: Shards,
    references_max: usize,
    /// False after there were too many references.
    keeps_marks: bool,
    /// `None` before the first collection and after an error: the next collection reads every record.
    marks: Option<Marks>,
}

impl Marker {
    pub fn new(shards: Shards) -> Self {
        Self { shards, references_max: REFERENCES_MAX, keeps_marks: true, marks: None }
    }

    /// All blobs that a job, workflow or schedule on record refers to. `None` after the node has stopped.
    pub fn mark(&mut self, store: &Weak<dyn Store>) -> Result<Option<InUse>, Error> {
        // Taken out, so that an error or a panic discards them.
        let kept = self.marks.take();
        let had_marks = kept.is_some();
        let mut marked = self.mark_with(kept, store);
        if had_marks && matches!(marked, Err(Interruption::Expired)) {
            marked = self.mark_with(None, store);
        }
        match marked {
            Ok(in_use) => Ok(Some(in_use)),
            Err(Interruption::Stopped) => Ok(None),
            Err(Interruption::Expired) => Err(store::Error::CursorExpired.into()),
            Err(Interruption::Failed(error)) => Err(error),
        }
    }

    fn mark_with(&mut self, kept: Option<Marks>, store: &Weak<dyn Store>) -> Result<InUse, Interruption> {
        let mut marks = match kept {
            Some(marks) => marks,
            None => Marks::unread(self.shards, self.references_max, self.keeps_marks, &*open(store)?)?,
        };
        let in_use = marks.update(store)?;
        if marks.is_kept {
            self.marks = Some(marks);
        } else if self.keeps_marks {
            self.keeps_marks = false;
            let limit = self.references_max;
            tracing::warn!(limit, "too many references to blobs: every garbage collection now reads all records");
        }
        Ok(in_use)
    }

    /// Follows the commits of the store between collections. False after the node has stopped.
    pub fn follow(&mut self, store: &Weak<dyn Store>) -> bool {
        let Some(mut marks) = self.marks.take() else { return true };
        match marks.follow(store, Values::Skip) {
            Ok(()) => self.marks = Some(marks),
            Err(Interruption::Stopped) => return false,
            Err(Interruption::Expired) => {
                tracing::info!("commits have expired unread: the next garbage collection reads all records");
            }
            Err(Interruption::Failed(error)) => {
                tracing::warn!(%error, "cannot read commits: the next garbage collection reads all records");
            }
        }
        true
    }
}

/// What to do with the written values of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    Skip,
    /// The blobs they refer to are in use.
    Mark,
}

/// The marks of all records.
struct Marks {
    ranges: BTreeMap<(ShardId, Keyspace), Ranges>,
    /// All changes up to here are noted.
    cursor: Cursor,
    /// Number of references in `ranges`.
    references: usize,
    references_max: usize,
    /// False if there are too many references: those of all ranges are in `others`, and are not kept.
    is_kept: bool,
    /// References that belong to no range.
    others: HashSet<BlobPrefix>,
}

impl Marks {
    fn unread(shards: Shards, references_max: usize, is_kept: bool, store: &dyn Store) -> Result<Self, Interruption> {
        let all = shards.all().flat_map(|shard| MARKED.map(|keyspace| ((shard, keyspace), Ranges::unread())));
        Ok(Self {
            ranges: all.collect(),
            cursor: store.newest_cursor()?,
            references: 0,
            references_max,
            is_kept,
            others: HashSet::new(),
        })
    }

    /// Reads what has changed, and returns the blobs in use.
    fn update(&mut self, store: &Weak<dyn Store>) -> Result<InUse, Interruption> {
        for _ in 1..PASSES {
            self.follow(store, Values::Skip)?;
            self.read_dirty(store, Values::Skip)?;
        }
        self.follow(store, Values::Skip)?;
        self.read_dirty(store, Values::Mark)?;
        self.follow(store, Values::Mark)?;
        let mut sorted: Vec<BlobPrefix> = Vec::with_capacity(self.references);
        sorted.extend(self.ranges.values().flat_map(Ranges::blobs));
        sorted.sort_unstable();
        sorted.dedup();
        Ok(InUse { sorted, others: std::mem::take(&mut self.others) })
    }

    /// Notes the changes of all commits so far.
    fn follow(&mut self, store: &Weak<dyn Store>, values: Values) -> Result<(), Interruption> {
        // Later commits wait for the next call: there may always be more.
        let until = open(store)?.newest_cursor()?;
        if self.cursor == until {
            return Ok(());
        }
        loop {
            let store = open(store)?;
            let mut reader = store.events(&self.cursor)?;
            let mut is_at_end = false;
            for _ in 0..PAGE_COMMITS {
                let Some(committed) = reader.next()? else {
                    is_at_end = true;
                    break;
                };
                self.note(&*store, &committed, values)?;
            }
            self.cursor = reader.cursor();
            if is_at_end || has_reached(&self.cursor, &until) {
                return Ok(());
            }
        }
    }

    fn note(&mut self, store: &dyn Store, committed: &Committed, values: Values) -> Result<(), Interruption> {
        let shard = committed.shard;
        for op in ops(&committed.batch) {
            match op.map_err(|source| Error::record(shard, source))? {
                Op::Put { keyspace, key, value } => {
                    self.touch(shard, keyspace, key);
                    if values == Values::Mark {
                        let blobs = blobs_of(store, shard, keyspace, value)?;
                        self.others.extend(blobs.iter().map(BlobPrefix::of));
                        self.check_limit();
                    }
                }
                Op::Delete { keyspace, key } => self.touch(shard, keyspace, key),
                Op::Event { .. } => {}
            }
        }
        Ok(())
    }

    fn touch(&mut self, shard: ShardId, keyspace: Keyspace, key: &[u8]) {
        for changed in changed_with(keyspace) {
            if let Some(ranges) = self.ranges.get_mut(&(shard, *changed)) {
                ranges.touch(key);
            }
        }
    }

    /// Reads each dirty range once.
    fn read_dirty(&mut self, store: &Weak<dyn Store>, values: Values) -> Result<(), Interruption> {
        let keyspaces: Vec<_> = self.ranges.keys().copied().collect();
        let mut pages = 0;
        for (shard, keyspace) in keyspaces {
            let mut after = None;
            while let Some(start) = self.read_next_dirty(store, shard, keyspace, after.as_ref())? {
                after = Some(start);
                pages += 1;
                if pages % PAGES_PER_FOLLOW == 0 {
                    self.follow(store, values)?;
                }
            }
        }
        Ok(())
    }

    /// Reads a page of the next dirty range after the one that starts at `after`. Returns where it starts.
    fn read_next_dirty(
        &mut self,
        store: &Weak<dyn Store>,
        shard: ShardId,
        keyspace: Keyspace,
        after: Option<&Start>,
    ) -> Result<Option<Start>, Interruption> {
        let Some(ranges) = self.ranges.get_mut(&(shard, keyspace)) else { return Ok(None) };
        let Some((start, bounds)) = ranges.next_dirty(after) else { return Ok(None) };
        let store = open(store)?;
        let page = store.scan(shard, keyspace, bounds, Order::Ascending, PAGE_RECORDS)?;
        let mut records = Vec::with_capacity(page.len());
        for (key, value) in &page {
            let blobs = blobs_of(&*store, shard, keyspace, value)?;
            let mut blobs: Vec<_> = blobs.iter().map(BlobPrefix::of).collect();
            if !self.is_kept {
                self.others.extend(blobs.drain(..));
            }
            records.push(ReadRecord { key: *key, blobs });
        }
        self.references -= ranges.references();
        ranges.replace(start, &records, page.len() < PAGE_RECORDS);
        self.references += ranges.references();
        self.check_limit();
        Ok(Some(start))
    }

    /// With too many references, those of all ranges become one set, which is not kept.
    fn check_limit(&mut self) {
        if !self.is_kept || self.references + self.others.len() <= self.references_max {
            return;
        }
        self.is_kept = false;
        for ranges in self.ranges.values_mut() {
            self.others.extend(ranges.blobs());
            ranges.forget_blobs();
        }
        self.references = 0;
    }
}

#[cfg(test)]
mod tests;
