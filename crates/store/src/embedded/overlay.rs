//! The overlay: committed entries that are not in the tables yet, sorted by key.
//!
//! It has two layers. The *active* layer receives new commits; the *frozen* layer is being written to the tables.
//! Values are slices of their journal entries, without a copy.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use model::batch::{Keyspace, Op, ops};
use model::id::ShardId;

use super::entry::JournalEntry;
use super::table_id::{TABLES, TableId};
use crate::key::FullKey;
use crate::{Order, Position};

/// A value, or `None` for a deleted key.
pub(crate) type ValueOrTombstone = Option<Bytes>;

#[derive(Debug, Default)]
pub(crate) struct Layer {
    maps: [BTreeMap<FullKey, ValueOrTombstone>; TABLES],
    /// Size of the applied entries, in bytes.
    pub bytes: u64,
    /// Position of the last applied entry.
    pub last: Position,
}

impl Layer {
    pub fn map(&self, table: TableId) -> &BTreeMap<FullKey, ValueOrTombstone> {
        &self.maps[table.index()]
    }

    pub fn get(&self, table: TableId, key: &FullKey) -> Option<&ValueOrTombstone> {
        self.map(table).get(key)
    }

    /// Applies an entry. Later writes of a key win.
    pub fn apply(&mut self, position: Position, entry: &JournalEntry) -> Result<(), String> {
        match entry {
            JournalEntry::Commit { shard, batch } => {
                self.apply_batch(*shard, batch)?;
                self.bytes += batch.len() as u64;
            }
            JournalEntry::OpenShard { shard, epoch, owner } => {
                let value = super::system::encode_owner(*epoch, *owner);
                let key = FullKey::of(*shard, super::system::OWNER_KEY);
                self.bytes += value.len() as u64;
                self.maps[TableId::SYSTEM.index()].insert(key, Some(value));
            }
            JournalEntry::Document { name, value } => {
                let value = value.as_deref().map(|value| super::system::encode_document(position, value));
                self.bytes += value.as_ref().map_or(0, Bytes::len) as u64;
                self.maps[TableId::SYSTEM.index()].insert(super::system::document_key(name), value);
            }
            JournalEntry::Checkpoint { .. } => {}
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

    fn insert(&mut self, shard: ShardId, keyspace: Keyspace, key: &[u8], value: ValueOrTombstone) {
        self.maps[TableId::of(keyspace).index()].insert(FullKey::of(shard, key), value);
    }
}

/// Both layers. A read checks the active layer, then the frozen one, then the tables.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub active: Layer,
    pub frozen: Option<Arc<Layer>>,
}

impl Layers {
    pub fn get(&self, table: TableId, key: &FullKey) -> Option<ValueOrTombstone> {
        let in_active = self.active.get(table, key);
        in_active.or_else(|| self.frozen.as_ref()?.get(table, key)).cloned()
    }

    /// Freezes the active layer. There must be no frozen layer.
    pub fn freeze(&mut self) -> Arc<Layer> {
        debug_assert!(self.frozen.is_none(), "the previous frozen layer must be written to the tables first");
        let frozen = Arc::new(std::mem::take(&mut self.active));
        self.frozen = Some(Arc::clone(&frozen));
        frozen
    }
}

pub(crate) type FullRange = (Bound<FullKey>, Bound<FullKey>);

/// Iterator over a range of a frozen layer. Keeps the layer alive.
pub(crate) struct LayerRange {
    layer: Arc<Layer>,
    table: TableId,
    rest: FullRange,
    order: Order,
    /// Prefetched entries, so that the map is searched once per page and not once per entry. In reverse order.
    page: Vec<(FullKey, ValueOrTombstone)>,
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
        let range = self.layer.map(self.table).range(self.rest).map(|(key, value)| (*key, value.clone()));
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
    type Item = (FullKey, ValueOrTombstone);

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.is_empty() {
            self.fill_page();
        }
        self.page.pop()
    }
}

/// Whether a range is empty. `BTreeMap::range` panics for a range that ends before it starts, and for one that excludes
/// both of two equal bounds.
fn is_empty(range: &FullRange) -> bool {
    match (&range.0, &range.1) {
        (Bound::Excluded(start), Bound::Excluded(end)) => start >= end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start > end,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}
