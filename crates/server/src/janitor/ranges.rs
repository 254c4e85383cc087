//! Key ranges of one keyspace, each with the blobs that its records refer to.
//!
//! The ranges cover all keys without a gap. They are split and merged by number of records as they are read, so that no
//! property of the keys matters. A range is dirty if it was never read, or if a record in it has changed since.

use std::collections::BTreeMap;
use std::ops::Bound;

use model::blob::BlobId;
use store::{Key, Range};

/// Records of one range at most. A changed record costs reading its range.
pub(super) const RANGE_RECORDS_MAX: usize = 64;

/// The beginning of a blob id: enough to tell blobs apart. Of two blobs with the same beginning, one in use protects
/// the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlobPrefix(u64);

impl BlobPrefix {
    pub fn of(blob: &BlobId) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = blob.0;
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

/// A record that was read, and the blobs it refers to.
pub(super) struct ReadRecord {
    pub key: Key,
    pub blobs: Vec<BlobPrefix>,
}

/// The key before the first one of a range. `None`: the range begins with the first key. A range ends with the key
/// before the next range, which belongs to it.
pub(super) type Start = Option<Key>;

#[derive(Debug)]
pub(super) struct Ranges {
    by_start: BTreeMap<Start, KeyRange>,
    references: usize,
}

#[derive(Debug)]
struct KeyRange {
    /// Sorted, each once.
    blobs: Box<[BlobPrefix]>,
    /// When it was last read.
    records: usize,
    is_dirty: bool,
}

impl KeyRange {
    fn unread() -> Self {
        Self { blobs: Box::default(), records: 0, is_dirty: true }
    }

    fn of(records: &[ReadRecord]) -> Self {
        let blobs = sorted(records.iter().flat_map(|record| record.blobs.iter().copied()).collect());
        Self { blobs, records: records.len(), is_dirty: false }
    }
}

fn sorted(mut blobs: Vec<BlobPrefix>) -> Box<[BlobPrefix]> {
    blobs.sort_unstable();
    blobs.dedup();
    blobs.into_boxed_slice()
}

impl Ranges {
    /// One unread range of all keys.
    pub fn unread() -> Self {
        Self { by_start: BTreeMap::from([(None, KeyRange::unread())]), references: 0 }
    }

    /// Notes that the record of a key was written or deleted.
    pub fn touch(&mut self, key: &[u8]) {
        let before_key = (Bound::Unbounded, Bound::Excluded(Some(Key::new(key))));
        if let Some((_, range)) = self.by_start.range_mut(before_key).next_back() {
            range.is_dirty = true;
        }
    }

    /// The next adjacent dirty ranges as one, after the range that starts at `after`.
    pub fn next_dirty(&self, after: Option<&Start>) -> Option<(Start, Range)> {
        let later = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (start, _) = self.by_start.range((later, Bound::Unbounded)).find(|(_, range)| range.is_dirty)?;
        let bounds = Range {
            start: start.map_or(Bound::Unbounded, Bound::Excluded),
            end: self.end_of_dirty(start).map_or(Bound::Unbounded, Bound::Included),
        };
        Some((*start, bounds))
    }

    /// The last key of the adjacent dirty ranges from `start` on. `None`: there is no clean range after them.
    fn end_of_dirty(&self, start: &Start) -> Option<Key> {
        let mut later = self.by_start.range((Bound::Excluded(start), Bound::Unbounded));
        later.find(|(_, range)| !range.is_dirty).and_then(|(start, _)| *start)
    }

    /// Replaces the dirty ranges from `start` on by the records read from there, in the order of their keys. Without
    /// `is_complete` there may be more records after the last one; they remain dirty.
    pub fn replace(&mut self, start: Start, records: &[ReadRecord], is_complete: bool) {
        let end = match records.last() {
            Some(last) if !is_complete => Some(last.key),
            Some(_) | None => self.end_of_dirty(&start),
        };
        self.remove_between(start, end);
        if !is_complete {
            self.by_start.entry(end).or_insert_with(KeyRange::unread);
        }
        let mut chunk_start = start;
        for chunk in records.chunks(RANGE_RECORDS_MAX) {
            self.insert(chunk_start, KeyRange::of(chunk));
            chunk_start = chunk.last().map(|record| record.key);
        }
        if records.is_empty() {
            self.insert(start, KeyRange::of(&[]));
        }
        self.merge_if_small(start);
        if is_complete && end.is_some() {
            self.merge_if_small(end);
        }
    }

    fn insert(&mut self, start: Start, range: KeyRange) {
        self.references += range.blobs.len();
        self.by_start.insert(start, range);
    }

    /// Removes the ranges that start at `start` or later, and before `end`.
    fn remove_between(&mut self, start: Start, end: Option<Key>) {
        let upper = end.map_or(Bound::Unbounded, |end| Bound::Excluded(Some(end)));
        let starts: Vec<Start> =
            self.by_start.range((Bound::Included(start), upper)).map(|(start, _)| *start).collect();
        for start in starts {
            let removed = self.by_start.remove(&start);
            self.references -= removed.map_or(0, |range| range.blobs.len());
        }
    }

    /// Merges a range with the one before it if they are small, so that ranges do not outnumber records.
    fn merge_if_small(&mut self, start: Start) {
        let Some(range) = self.by_start.get(&start) else { return };
        let Some((before_start, before)) = self.by_start.range(..start).next_back() else { return };
        let is_small = range.records + before.records <= RANGE_RECORDS_MAX / 2;
        if !is_small && range.records > 0 && before.records > 0 {
            return;
        }
        let merged = KeyRange {
            blobs: sorted([&*before.blobs, &*range.blobs].concat()),
            records: before.records + range.records,
            is_dirty: before.is_dirty || range.is_dirty,
        };
        self.references -= before.blobs.len() + range.blobs.len();
        let before_start = *before_start;
        self.by_start.remove(&start);
        self.insert(before_start, merged);
    }

    /// Number of stored blob prefixes.
    pub fn references(&self) -> usize {
        self.references
    }

    pub fn blobs(&self) -> impl Iterator<Item = BlobPrefix> + '_ {
        self.by_start.values().flat_map(|range| range.blobs.iter().copied())
    }

    /// Forgets the blobs, not the ranges.
    pub fn forget_blobs(&mut self) {
        self.by_start.values_mut().for_each(|range| range.blobs = Box::default());
        self.references = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: usize = 100;

    type Records = BTreeMap<Vec<u8>, u64>;

    fn blobs_of(ranges: &Ranges) -> BTreeSet<u64> {
        assert_eq!(ranges.blobs().count(), ranges.references());
        ranges.blobs().map(|blob| blob.0).collect()
    }

    /// Reads all dirty ranges. Returns the number of records read.
    fn read_dirty(ranges: &mut Ranges, records: &Records) -> usize {
        let (mut after, mut read) = (None, 0);
        while let Some((start, bounds)) = ranges.next_dirty(after.as_ref()) {
            let within = records.iter().map(|(key, value)| (Key::new(key), *value));
            let within = within.filter(|(key, _)| std::ops::RangeBounds::contains(&(bounds.start, bounds.end), key));
            let page = within.take(PAGE).map(|(key, value)| ReadRecord { key, blobs: vec![BlobPrefix(value)] });
            let page: Vec<_> = page.collect();
            read += page.len();
            ranges.replace(start, &page, page.len() < PAGE);
            after = Some(start);
        }
        assert!(ranges.next_dirty(None).is_none());
        read
    }

    fn numbered(number: u64) -> Vec<u8> {
        number.to_be_bytes().to_vec()
    }

    #[test]
    fn one_changed_record_costs_one_range() {
        let mut records: Records = (0..10_000).map(|number| (numbered(number), number)).collect();
        let mut ranges = Ranges::unread();
        assert_eq!(read_dirty(&mut ranges, &records), 10_000);
        assert_eq!(read_dirty(&mut ranges, &records), 0);
        for changed in [0, 5_000, 9_999] {
            records.insert(numbered(changed), 77_777 + changed);
            ranges.touch(&numbered(changed));
            assert!((1..=2 * RANGE_RECORDS_MAX).contains(&read_dirty(&mut ranges, &records)));
        }
        assert_eq!(blobs_of(&ranges), records.values().copied().collect());
    }

    #[test]
    fn ranges_do_not_outnumber_records() {
        let mut records: Records = (0..10_000).map(|number| (numbered(number), number)).collect();
        let mut ranges = Ranges::unread();
        read_dirty(&mut ranges, &records);
        for number in (0..10_000).filter(|number| number % 100 != 0) {
            records.remove(&numbered(number));
            ranges.touch(&numbered(number));
        }
        read_dirty(&mut ranges, &records);
        assert!(ranges.by_start.len() <= 1 + 4 * records.len() / RANGE_RECORDS_MAX, "{}", ranges.by_start.len());
        records.clear();
        (0..10_000).for_each(|number| ranges.touch(&numbered(number)));
        read_dirty(&mut ranges, &records);
        assert_eq!((ranges.by_start.len(), ranges.references()), (1, 0));
    }

    #[test]
    fn keys_of_any_length_belong_to_a_range() {
        let keys = [vec![], vec![0], vec![0; 32], vec![255; 32], vec![255]];
        let mut records: Records = keys.iter().cloned().zip(1..).collect();
        let mut ranges = Ranges::unread();
        read_dirty(&mut ranges, &records);
        for key in &keys {
            records.remove(key);
            ranges.touch(key);
            read_dirty(&mut ranges, &records);
            assert_eq!(blobs_of(&ranges), records.values().copied().collect());
        }
    }

    proptest::proptest! {
        #[test]
        fn ranges_have_the_blobs_of_the_records(
            rounds in proptest::collection::vec(
                proptest::collection::vec((0_u64..2_000, proptest::option::of(0_u64..500)), 0..400),
                1..8,
            ),
        ) {
            let (mut ranges, mut records) = (Ranges::unread(), Records::new());
            for round in rounds {
                for (key, value) in round {
                    let key = numbered(key);
                    ranges.touch(&key);
                    match value {
                        Some(value) => records.insert(key, value),
                        None => records.remove(&key),
                    };
                }
                read_dirty(&mut ranges, &records);
                proptest::prop_assert_eq!(blobs_of(&ranges), records.values().copied().collect());
            }
        }
    }
}
