//! Records of several shards as one sequence, read in chunks.
//!
//! A [`Source`] reads a chunk of one shard; a [`MergeReader`] merges the shards by rank. All reads block.

use std::marker::PhantomData;

use ::api::Page;
use bytes::Bytes;
use model::batch::Keyspace;
use model::id::{JobId, QueueId, ScheduleId, ShardId, WorkflowId};
use store::{Key, Order, Range, Store};

use super::Core;
use super::parameters::Parameters;
use super::problem::Refused;

/// Records read at once.
pub(crate) const CHUNK: usize = 500;
/// Records read for one page. A page may be short because of it; its cursor continues there.
pub(crate) const READ_MAX: usize = 20_000;

/// Some records of a shard, in order.
pub(crate) struct Chunk<T> {
    pub items: Vec<T>,
    /// The shard has no more.
    pub is_last: bool,
}

/// Reads the records of single shards.
pub(crate) trait Source {
    type Item;
    /// Position of a record in its shard.
    type Position: Copy;

    fn read(&self, shard: ShardId, after: Option<Self::Position>) -> Result<Chunk<Self::Item>, Refused>;

    /// Records are merged by rank, lowest first.
    fn rank(&self, item: &Self::Item) -> u64;

    fn position(&self, item: &Self::Item) -> Self::Position;
}

/// The rank of a number in an order.
pub(crate) fn rank(order: Order, number: u64) -> u64 {
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
pub(crate) struct MergeReader<S: Source> {
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
    fn find_next(&mut self) -> Result<Option<usize>, Refused> {
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

    pub fn next(&mut self) -> Result<Option<(ShardId, S::Item)>, Refused> {
        let Some(index) = self.find_next()? else { return Ok(None) };
        let cursor = &mut self.shards[index];
        let Some(item) = cursor.ahead.next() else { return Ok(None) };
        cursor.position = Some(self.source.position(&item));
        self.last = cursor.position;
        Ok(Some((cursor.shard, item)))
    }

    /// Up to `limit` of the items that `pick` makes of the records, of which at most `read_max` are read, and whether
    /// there are more records.
    pub fn take<T>(
        &mut self,
        limit: usize,
        read_max: usize,
        mut pick: impl FnMut(ShardId, S::Item) -> Result<Option<T>, Refused>,
    ) -> Result<(Vec<T>, bool), Refused> {
        let mut items = Vec::new();
        for _ in 0..read_max {
            if items.len() == limit {
                break;
            }
            let Some((shard, item)) = self.next()? else { return Ok((items, false)) };
            items.extend(pick(shard, item)?);
        }
        Ok((items, self.find_next()?.is_some()))
    }

    /// Position of the last returned record.
    pub fn last(&self) -> Option<S::Position> {
        self.last
    }

    /// Position in each shard.
    pub fn positions(&self) -> impl Iterator<Item = Option<S::Position>> {
        self.shards.iter().map(|cursor| cursor.position)
    }
}

/// Combines chunks of several indexes of one shard. Beyond the last item of a full chunk the index may have others,
/// so these items wait for the next read. Of equal items the one of the last index stays.
pub(crate) fn combine<T>(chunks: Vec<Vec<T>>, chunk_max: usize, rank: impl Fn(&T) -> u64) -> Chunk<T> {
    let full = chunks.iter().filter(|chunk| chunk.len() == chunk_max);
    let end = full.filter_map(|chunk| chunk.last()).map(&rank).min();
    let mut items: Vec<T> = chunks.into_iter().rev().flatten().collect();
    items.retain(|item| end.is_none_or(|end| rank(item) <= end));
    // The sort is stable: items of later indexes stay first.
    items.sort_by_key(&rank);
    items.dedup_by_key(|item| rank(item));
    Chunk { items, is_last: end.is_none() }
}

/// An id that is the key of records.
pub(crate) trait RecordId: Copy + std::fmt::Display + std::str::FromStr {
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

/// Records of one or more keyspaces by id. A record that moves to a later keyspace meanwhile is not missed.
pub(crate) struct Records<'a, I> {
    store: &'a dyn Store,
    keyspaces: &'static [Keyspace],
    order: Order,
    chunk_max: usize,
    id: PhantomData<I>,
}

impl<'a, I: RecordId> Records<'a, I> {
    pub fn new(core: &'a Core, keyspaces: &'static [Keyspace], order: Order) -> Self {
        Self { store: core.store(), keyspaces, order, chunk_max: CHUNK, id: PhantomData }
    }

    /// Reads at most this many records of a keyspace at once.
    pub fn chunks_of(mut self, chunk_max: usize) -> Self {
        self.chunk_max = chunk_max;
        self
    }

    /// Reads all shards after an id, or from the beginning.
    pub fn merge(self, core: &Core, after: Option<I>) -> MergeReader<Self> {
        MergeReader::new(self, core.shards.all().map(|shard| (shard, after)))
    }
}

impl<I: RecordId> Source for Records<'_, I> {
    type Item = (I, Bytes);
    type Position = I;

    fn read(&self, shard: ShardId, after: Option<I>) -> Result<Chunk<(I, Bytes)>, Refused> {
        let range = match (after.map(I::store_key), self.order) {
            (None, _) => Range::all(),
            (Some(key), Order::Ascending) => Range::all().after(&key),
            (Some(key), Order::Descending) => Range::all().before(&key),
        };
        let mut chunks = Vec::new();
        for keyspace in self.keyspaces {
            let found = self.store.scan(shard, *keyspace, range, self.order, self.chunk_max)?;
            chunks.push(found.into_iter().filter_map(|(key, value)| Some((I::of_key(&key)?, value))).collect());
        }
        Ok(combine(chunks, self.chunk_max, |item| self.rank(item)))
    }

    fn rank(&self, (id, _): &(I, Bytes)) -> u64 {
        rank(self.order, id.number())
    }

    fn position(&self, (id, _): &(I, Bytes)) -> I {
        *id
    }
}

/// A page of records of all shards, oldest first. `cursor` and `parse` are the text form of its cursors.
pub(crate) fn page<I: RecordId, T>(
    core: &Core,
    records: Records<'_, I>,
    parameters: &Parameters,
    cursor: CursorForm,
    mut pick: impl FnMut(ShardId, I, &Bytes) -> Result<Option<T>, Refused>,
) -> Result<Page<T>, Refused> {
    let after = parameters.text("cursor").map(|text| cursor.parse(text)).transpose()?;
    let mut reader = records.merge(core, after);
    let (items, more) = reader.take(parameters.limit()?, READ_MAX, |shard, (id, value)| pick(shard, id, &value))?;
    Ok(Page { items, next_cursor: reader.last().filter(|_| more).map(|id| cursor.text(id)) })
}

/// Text form of cursors that are ids. Cursors are opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CursorForm {
    /// `c` and the id without its prefix.
    Short,
    /// The id itself.
    Id,
}

impl CursorForm {
    pub fn text<I: RecordId>(self, id: I) -> String {
        match self {
            Self::Short => format!("c{}", &id.to_string()[I::PREFIX.len()..]),
            Self::Id => id.to_string(),
        }
    }

    pub fn parse<I: RecordId>(self, text: &str) -> Result<I, Refused> {
        let id = match self {
            Self::Short => text.strip_prefix('c').and_then(|rest| format!("{}{rest}", I::PREFIX).parse().ok()),
            Self::Id => text.parse().ok(),
        };
        id.ok_or_else(|| Refused::cursor(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of each shard, ascending, read two at a time.
    struct Numbers(Vec<Vec<u64>>);

    impl Source for Numbers {
        type Item = u64;
        type Position = u64;

        fn read(&self, shard: ShardId, after: Option<u64>) -> Result<Chunk<u64>, Refused> {
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
        let even = |_, number: u64| Ok(number.is_multiple_of(2).then_some(number));
        let mut reader = reader(&[&[1, 4, 5], &[2, 6]]);
        assert_eq!(reader.take(1, 100, even).unwrap(), (vec![2], true));
        assert_eq!(reader.last(), Some(2));
        assert_eq!(reader.take(100, 2, even).unwrap(), (vec![4], true));
        assert_eq!(reader.take(1, 100, even).unwrap(), (vec![6], false), "the last page has no cursor");
    }

    #[test]
    fn items_beyond_a_full_chunk_wait_and_the_last_index_wins() {
        let rank = |item: &(u64, char)| item.0;
        let chunk = combine(vec![vec![(1, 'a'), (3, 'a')], vec![(3, 'b')], vec![(2, 'c'), (9, 'c')]], 3, rank);
        assert_eq!(chunk.items, [(1, 'a'), (2, 'c'), (3, 'b'), (9, 'c')]);
        assert!(chunk.is_last);
        let chunk = combine(vec![vec![(1, 'a'), (3, 'a')], vec![(2, 'b'), (9, 'b')]], 2, rank);
        assert_eq!(chunk.items, [(1, 'a'), (2, 'b'), (3, 'a')]);
        assert!(!chunk.is_last);
    }

    #[test]
    fn a_cursor_survives_its_text() {
        for form in [CursorForm::Short, CursorForm::Id] {
            assert_eq!(form.parse::<JobId>(&form.text(JobId(77))).unwrap(), JobId(77));
            assert!(form.parse::<JobId>("x").is_err());
        }
        assert!(CursorForm::Id.parse::<JobId>(&CursorForm::Id.text(QueueId(7))).is_err());
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_as_a_cursor_does_not_panic(text in ".{0,30}") {
            let _ = CursorForm::Short.parse::<WorkflowId>(&text);
        }
    }
}
