//! Records of several shards as one sequence, read in chunks.
//!
//! A [`Source`] reads a chunk of one shard; a [`MergeReader`] merges the shards by rank. All reads block.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use bytes::Bytes;
use model::batch::Keyspace;
use model::id::{JobId, QueueId, ScheduleId, ShardId, Shards, WorkflowId};
use store::{Key, Order, Range, Store};

use super::moves::written_since;
use crate::Error;

/// Records read at once.
pub const CHUNK: usize = 500;
/// Records read for one page. A page may be short because of it; its cursor continues there.
pub const READ_MAX: usize = 20_000;

/// Some records of a shard, in order.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk<T> {
    pub items: Vec<T>,
    /// The shard has no more.
    pub is_last: bool,
}

/// Reads the records of single shards.
pub trait Source {
    type Item;
    /// Position of a record in its shard.
    type Position: Copy;

    fn read(&self, shard: ShardId, after: Option<Self::Position>) -> Result<Chunk<Self::Item>, Error>;

    /// Records are merged by rank, lowest first.
    fn rank(&self, item: &Self::Item) -> u64;

    fn position(&self, item: &Self::Item) -> Self::Position;
}

/// The rank of a number in an order.
pub fn rank(order: Order, number: u64) -> u64 {
    match order {
        Order::Ascending => number,
        Order::Descending => !number,
    }
}

/// Read position in one shard.
struct ShardCursor<S: Source> {
    shard: ShardId,
    /// The last returned record.
    position: Option<S::Position>,
    ahead: std::iter::Peekable<std::vec::IntoIter<S::Item>>,
    exhausted: bool,
}

/// Merges the records of several shards.
pub struct MergeReader<S: Source> {
    source: S,
    shards: Vec<ShardCursor<S>>,
    last: Option<S::Position>,
}

impl<S: Source> MergeReader<S> {
    /// Starts in each shard after a position, or at the beginning.
    pub fn new(source: S, shards: impl IntoIterator<Item = (ShardId, Option<S::Position>)>) -> Self {
        let start = |(shard, position)| {
            let ahead = Vec::new().into_iter().peekable();
            ShardCursor { shard, position, ahead, exhausted: false }
        };
        Self { source, shards: shards.into_iter().map(start).collect(), last: None }
    }

    /// Index of the shard with the next record; the first of several with the same rank.
    fn find_next(&mut self) -> Result<Option<usize>, Error> {
        let mut next: Option<(u64, usize)> = None;
        for (index, cursor) in self.shards.iter_mut().enumerate() {
            if cursor.ahead.peek().is_none() && !cursor.exhausted {
                let chunk = self.source.read(cursor.shard, cursor.position)?;
                cursor.exhausted = chunk.is_last || chunk.items.is_empty();
                cursor.ahead = chunk.items.into_iter().peekable();
            }
            let Some(item) = cursor.ahead.peek() else { continue };
            let rank = self.source.rank(item);
            if next.is_none_or(|(lowest, _)| rank < lowest) {
                next = Some((rank, index));
            }
        }
        Ok(next.map(|(_, index)| index))
    }

    #[expect(clippy::should_implement_trait, reason = "not an iterator: a read may fail")]
    pub fn next(&mut self) -> Result<Option<(ShardId, S::Item)>, Error> {
        let Some(index) = self.find_next()? else { return Ok(None) };
        let cursor = &mut self.shards[index];
        let Some(item) = cursor.ahead.next() else { return Ok(None) };
        cursor.position = Some(self.source.position(&item));
        self.last = cursor.position;
        Ok(Some((cursor.shard, item)))
    }

    /// Up to `limit` of the items that `pick` makes of the records, of which at most `read_max` are read. Also returns
    /// the position of the last record read, if there are more.
    pub fn take<T, E: From<Error>>(
        &mut self,
        limit: usize,
        read_max: usize,
        mut pick: impl FnMut(ShardId, S::Item) -> Result<Option<T>, E>,
    ) -> Result<(Vec<T>, Option<S::Position>), E> {
        let mut items = Vec::new();
        for _ in 0..read_max {
            if items.len() == limit {
                break;
            }
            let Some((shard, item)) = self.next()? else { return Ok((items, None)) };
            items.extend(pick(shard, item)?);
        }
        let has_more = self.find_next()?.is_some();
        Ok((items, self.last.filter(|_| has_more)))
    }

    /// Position in each shard.
    pub fn positions(&self) -> impl Iterator<Item = Option<S::Position>> {
        self.shards.iter().map(|cursor| cursor.position)
    }
}

/// Combines chunks of several indexes of one shard. Beyond the last item of a chunk its index may have others, so these
/// items wait for the next read. Of equal items the one of the last chunk stays.
pub(super) fn combine<T>(chunks: Vec<Chunk<T>>, rank: impl Fn(&T) -> u64) -> Chunk<T> {
    let continued = chunks.iter().filter(|chunk| !chunk.is_last);
    let end = continued.filter_map(|chunk| chunk.items.last()).map(&rank).min();
    let mut items: Vec<T> = chunks.into_iter().rev().flat_map(|chunk| chunk.items).collect();
    items.retain(|item| end.is_none_or(|end| rank(item) <= end));
    // The sort is stable: items of later chunks stay first.
    items.sort_by_key(&rank);
    items.dedup_by_key(|item| rank(item));
    Chunk { items, is_last: end.is_none() }
}

/// An id that is the key of records.
pub trait RecordId: Copy + std::fmt::Display + std::str::FromStr {
    const PREFIX: &str;

    fn number(self) -> u64;
    fn store_key(self) -> Key;
    fn of_key(key: &[u8]) -> Option<Self>;
}

macro_rules! record_ids {
    ($($id:ident),*) => {$(
        impl RecordId for $id {
            const PREFIX: &str = $id::PREFIX;

            fn number(self) -> u64 {
                self.0
            }

            fn store_key(self) -> Key {
                Key::new(&self.key())
            }

            fn of_key(key: &[u8]) -> Option<Self> {
                Self::from_key(key)
            }
        }
    )*};
}

record_ids!(JobId, QueueId, ScheduleId, WorkflowId);

/// Records of one or more keyspaces by id. A record that moves between the keyspaces meanwhile is not missed.
pub struct Records<'a, I> {
    store: &'a dyn Store,
    keyspaces: &'static [Keyspace],
    order: Order,
    chunk_max: usize,
    id: PhantomData<I>,
}

impl<'a, I: RecordId> Records<'a, I> {
    pub fn new(store: &'a dyn Store, keyspaces: &'static [Keyspace], order: Order) -> Self {
        Self { store, keyspaces, order, chunk_max: CHUNK, id: PhantomData }
    }

    /// Reads at most this many records of a keyspace at once.
    pub fn chunks_of(mut self, chunk_max: usize) -> Self {
        self.chunk_max = chunk_max;
        self
    }

    /// Reads all shards after an id, or from the beginning.
    pub fn merge(self, shards: Shards, after: Option<I>) -> MergeReader<Self> {
        MergeReader::new(self, shards.all().map(|shard| (shard, after)))
    }

    fn scan(&self, shard: ShardId, keyspace: Keyspace, after: Option<I>) -> Result<Chunk<(I, Bytes)>, Error> {
        let range = match (after.map(I::store_key), self.order) {
            (None, _) => Range::all(),
            (Some(key), Order::Ascending) => Range::all().after(&key),
            (Some(key), Order::Descending) => Range::all().before(&key),
        };
        let found = self.store.scan(shard, keyspace, range, self.order, self.chunk_max)?;
        let is_last = found.len() < self.chunk_max;
        let items = found.into_iter().filter_map(|(key, value)| Some((I::of_key(&key)?, value))).collect();
        Ok(Chunk { items, is_last })
    }
}

impl<I: RecordId> Source for Records<'_, I> {
    type Item = (I, Bytes);
    type Position = I;

    fn read(&self, shard: ShardId, after: Option<I>) -> Result<Chunk<(I, Bytes)>, Error> {
        if let [keyspace] = self.keyspaces {
            return self.scan(shard, *keyspace, after);
        }
        let since = self.store.newest_cursor()?;
        let chunks: Result<Vec<_>, Error> =
            self.keyspaces.iter().map(|keyspace| self.scan(shard, *keyspace, after)).collect();
        let mut chunks = chunks?;
        let written = written_since(self.store, shard, self.keyspaces, &since)?;
        let written = written.into_iter().filter_map(|(key, value)| Some((I::of_key(&key)?, value)));
        chunks.push(later(written, after, self.order));
        Ok(combine(chunks, |item| self.rank(item)))
    }

    fn rank(&self, (id, _): &(I, Bytes)) -> u64 {
        rank(self.order, id.number())
    }

    fn position(&self, (id, _): &(I, Bytes)) -> I {
        *id
    }
}

/// The written records after a position, the newest of each, as a chunk.
pub(super) fn later<I: RecordId, T>(
    written: impl Iterator<Item = (I, T)>,
    after: Option<I>,
    order: Order,
) -> Chunk<(I, T)> {
    let rank = |id: I| rank(order, id.number());
    let newest: BTreeMap<u64, (I, T)> = written
        .filter(|(id, _)| after.is_none_or(|after| rank(*id) > rank(after)))
        .map(|(id, value)| (rank(id), (id, value)))
        .collect();
    Chunk { items: newest.into_values().collect(), is_last: true }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Writer;
    use super::*;

    /// Numbers of each shard, ascending, read two at a time.
    struct Numbers(Vec<Vec<u64>>);

    impl Source for Numbers {
        type Item = u64;
        type Position = u64;

        fn read(&self, shard: ShardId, after: Option<u64>) -> Result<Chunk<u64>, Error> {
            let all = &self.0[usize::from(shard.0)];
            let items: Vec<u64> =
                all.iter().copied().filter(|number| after.is_none_or(|after| *number > after)).take(2).collect();
            let is_last = items.len() < 2;
            Ok(Chunk { items, is_last })
        }

        fn rank(&self, item: &u64) -> u64 {
            *item
        }

        fn position(&self, item: &u64) -> u64 {
            *item
        }
    }

    fn reader(shards: &[&[u64]]) -> MergeReader<Numbers> {
        let source = Numbers(shards.iter().map(|shard| shard.to_vec()).collect());
        MergeReader::new(source, (0..shards.len()).map(|shard| (ShardId(shard as u16), None)))
    }

    #[test]
    fn shards_are_merged_by_rank_across_chunks() {
        let mut reader = reader(&[&[1, 4, 5, 9], &[2, 3], &[]]);
        let mut seen = Vec::new();
        while let Some((_, number)) = reader.next().unwrap() {
            seen.push(number);
        }
        assert_eq!(seen, [1, 2, 3, 4, 5, 9]);
        assert_eq!(reader.positions().collect::<Vec<_>>(), [Some(9), Some(3), None]);
    }

    #[test]
    fn a_page_ends_at_its_limit_at_the_read_limit_and_at_the_end() {
        let mut reader = reader(&[&[1, 4, 5], &[2, 6]]);
        let mut take = |limit, read_max| {
            let even = |_, number: u64| Ok::<_, Error>(number.is_multiple_of(2).then_some(number));
            reader.take(limit, read_max, even).unwrap()
        };
        assert_eq!(take(1, 100), (vec![2], Some(2)));
        assert_eq!(take(100, 2), (vec![4], Some(5)));
        assert_eq!(take(1, 100), (vec![6], None), "nothing follows the last page");
    }

    #[test]
    fn items_beyond_an_unfinished_chunk_wait_and_the_last_chunk_wins() {
        let rank = |item: &(u64, char)| item.0;
        let chunk = |items: &[(u64, char)], is_last| Chunk { items: items.to_vec(), is_last };
        let [first, second] = [chunk(&[(1, 'a'), (3, 'a')], true), chunk(&[(3, 'b')], true)];
        let combined = combine(vec![first, second, chunk(&[(2, 'c'), (9, 'c')], true)], rank);
        assert_eq!(combined, chunk(&[(1, 'a'), (2, 'c'), (3, 'b'), (9, 'c')], true));
        let combined = combine(vec![chunk(&[(1, 'a'), (3, 'a')], false), chunk(&[(2, 'b'), (9, 'b')], true)], rank);
        assert_eq!(combined, chunk(&[(1, 'a'), (2, 'b'), (3, 'a')], false));
    }

    #[test]
    fn a_record_that_moves_between_keyspaces_is_read_once() {
        const KEYSPACES: [Keyspace; 2] = [Keyspace::Workflows, Keyspace::WorkflowsDone];
        let (mut writer, store) = Writer::new();
        for id in [1, 3] {
            writer.commit(|batch| batch.put(KEYSPACES[0], &WorkflowId(id).key(), b"stays"));
        }
        let mut moves = [KEYSPACES, [KEYSPACES[1], KEYSPACES[0]]].into_iter().cycle();
        store.before_each_read(move || {
            let [to, from] = moves.next().unwrap();
            writer.commit(|batch| {
                batch.delete(from, &WorkflowId(2).key());
                batch.put(to, &WorkflowId(2).key(), b"moved");
            });
        });
        for order in [Order::Ascending, Order::Descending] {
            for chunk_max in [1, 2, 3, 10] {
                let records = Records::<WorkflowId>::new(&*store, &KEYSPACES, order).chunks_of(chunk_max);
                let take = |_, (id, _): (WorkflowId, Bytes)| Ok::<_, Error>(Some(id.0));
                let (mut ids, next) = records.merge(Shards::new(1).unwrap(), None).take(10, 100, take).unwrap();
                ids.sort_unstable();
                assert_eq!((ids, next), (vec![1, 2, 3], None));
                store.get(ShardId(0), Keyspace::Meta, b"").unwrap();
            }
        }
    }
}
