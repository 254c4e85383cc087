//! What is committed but not in the tables yet, sorted and readable.
//!
//! Two layers: the *active* one takes new commits; the *frozen* one is being written to the tables. Values are
//! slices of the journal entry they came in, so nothing is copied.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use model::batch::{Keyspace, Op, ops};
use model::id::ShardId;

use super::entry::Entry;
use super::table_id::{TABLES, TableId};
use crate::key::FullKey;
use crate::{Order, Position};

/// A value, or the mark that the key is deleted.
pub(crate) type Slot = Option<Bytes>;

#[derive(Debug, Default)]
pub(crate) struct Layer {
    maps: [BTreeMap<FullKey, Slot>; TABLES],
    /// The size of the entries that went in, in bytes.
    pub bytes: u64,
    /// The last entry that went in.
    pub last: Position,
}

impl Layer {
    pub fn map(&self, table: TableId) -> &BTreeMap<FullKey, Slot> {
        &self.maps[table.index()]
    }

    pub fn get(&self, table: TableId, key: &FullKey) -> Option<&Slot> {
        self.map(table).get(key)
    }

    /// Adds an entry; later writes of a key win.
    pub fn apply(&mut self, position: Position, entry: &Entry) -> Result<(), String> {
        match entry {
            Entry::Commit { shard, batch } => {
                self.apply_batch(*shard, batch)?;
                self.bytes += batch.len() as u64;
            }
            Entry::OpenShard { shard, epoch, owner } => {
                let value = super::system::encode_owner(*epoch, *owner);
                let key = FullKey::of(*shard, super::system::OWNER_KEY);
                self.bytes += value.len() as u64;
                self.maps[TableId::SYSTEM.index()].insert(key, Some(value));
            }
            Entry::Checkpoint { .. } => {}
        }
        self.last = position;
        Ok(())
    }

    fn apply_batch(&mut self, shard: ShardId, batch: &Bytes) -> Result<(), String> {
        for op in ops(batch) {
            match op.map_err(|error| error.to_string())? {
                Op::Put { keyspace, key, value } => {
                    self.insert(shard, keyspace, key, Some(batch.slice_ref(value)));
                }
                Op::Delete { keyspace, key } => self.insert(shard, keyspace, key, None),
                Op::Event { .. } => {}
            }
        }
        Ok(())
    }

    fn insert(&mut self, shard: ShardId, keyspace: Keyspace, key: &[u8], slot: Slot) {
        self.maps[TableId::of(keyspace).index()].insert(FullKey::of(shard, key), slot);
    }
}

/// Both layers. A read looks into the active one first, then the frozen one, then the tables.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub active: Layer,
    pub frozen: Option<Arc<Layer>>,
}

impl Layers {
    pub fn get(&self, table: TableId, key: &FullKey) -> Option<Slot> {
        let in_active = self.active.get(table, key);
        in_active.or_else(|| self.frozen.as_ref()?.get(table, key)).cloned()
    }

    /// Makes the active layer the frozen one. There must be none.
    pub fn freeze(&mut self) -> Arc<Layer> {
        debug_assert!(self.frozen.is_none(), "the layer before must be in the tables first");
        let frozen = Arc::new(std::mem::take(&mut self.active));
        self.frozen = Some(Arc::clone(&frozen));
        frozen
    }
}

pub(crate) type FullRange = (Bound<FullKey>, Bound<FullKey>);

/// Walks a range of a frozen layer, which it keeps alive.
pub(crate) struct LayerRange {
    layer: Arc<Layer>,
    table: TableId,
    rest: FullRange,
    order: Order,
    /// Read ahead, so that the map is searched once per page and not once per entry. Backwards.
    page: Vec<(FullKey, Slot)>,
}

const PAGE_ENTRIES: usize = 256;

impl LayerRange {
    pub fn new(layer: Arc<Layer>, table: TableId, range: FullRange, order: Order) -> Self {
        Self { layer, table, rest: range, order, page: Vec::new() }
    }

    fn fill_page(&mut self) {
        if is_empty(&self.rest) {
            return;
        }
        let range = self.layer.map(self.table).range(self.rest).map(|(key, slot)| (*key, slot.clone()));
        match self.order {
            Order::Ascending => {
                self.page.extend(range.take(PAGE_ENTRIES));
                if let Some((last, _)) = self.page.last() {
                    self.rest.0 = Bound::Excluded(*last);
                }
            }
            Order::Descending => {
                self.page.extend(range.rev().take(PAGE_ENTRIES));
                if let Some((last, _)) = self.page.last() {
                    self.rest.1 = Bound::Excluded(*last);
                }
            }
        }
        self.page.reverse();
    }
}

impl Iterator for LayerRange {
    type Item = (FullKey, Slot);

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.is_empty() {
            self.fill_page();
        }
        self.page.pop()
    }
}

/// A map panics when it is asked for a range that ends before it starts, or between a key and itself.
fn is_empty(range: &FullRange) -> bool {
    match (&range.0, &range.1) {
        (Bound::Excluded(start), Bound::Excluded(end)) => start >= end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start > end,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}
