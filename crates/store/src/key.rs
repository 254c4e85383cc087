//! Keys stored inline, without an allocation for each of the hundreds of thousands in memory.

use std::fmt;
use std::ops::{Bound, Deref};

use model::batch::KEY_BYTES_MAX;
use model::id::ShardId;

use crate::Range;

/// A key of a keyspace. Ordered like its bytes.
pub type Key = InlineBytes<KEY_BYTES_MAX>;

/// A key prefixed with its shard: in each table the keys of a shard are contiguous.
pub(crate) type FullKey = InlineBytes<FULL_KEY_BYTES_MAX>;

const SHARD_BYTES: usize = 2;
const FULL_KEY_BYTES_MAX: usize = KEY_BYTES_MAX + SHARD_BYTES;

/// Up to `N` bytes, stored inline.
#[derive(Clone, Copy)]
pub struct InlineBytes<const N: usize> {
    len: u8,
    bytes: [u8; N],
}

impl<const N: usize> InlineBytes<N> {
    /// # Panics
    /// If `bytes` is longer than `N`. Batches reject such keys, too.
    pub fn new(bytes: &[u8]) -> Self {
        Self::joined(&[], bytes)
    }

    fn joined(head: &[u8], tail: &[u8]) -> Self {
        let len = head.len() + tail.len();
        assert!(len <= N, "a key of {len} bytes exceeds the limit of {N}");
        let mut bytes = [0; N];
        bytes[..head.len()].copy_from_slice(head);
        bytes[head.len()..len].copy_from_slice(tail);
        Self { len: len as u8, bytes }
    }
}

impl<const N: usize> Deref for InlineBytes<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl<const N: usize> AsRef<[u8]> for InlineBytes<N> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> PartialEq for InlineBytes<N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<const N: usize> Eq for InlineBytes<N> {}

impl<const N: usize> PartialOrd for InlineBytes<N> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<const N: usize> Ord for InlineBytes<N> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Bytes beyond the length are zero, so comparing the whole arrays is correct except for keys that differ
        // only in trailing zeros. There the shorter one comes first.
        self.bytes.cmp(&other.bytes).then(self.len.cmp(&other.len))
    }
}

impl<const N: usize> std::hash::Hash for InlineBytes<N> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<const N: usize> fmt::Debug for InlineBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

impl FullKey {
    pub fn of(shard: ShardId, key: &[u8]) -> Self {
        Self::joined(&shard.0.to_be_bytes(), key)
    }

    /// The key without its shard.
    pub fn key(&self) -> Key {
        Key::new(&self[SHARD_BYTES..])
    }
}

/// The full keys of a shard's range.
pub(crate) fn full_range(shard: ShardId, range: &Range) -> (Bound<FullKey>, Bound<FullKey>) {
    let start = match &range.start {
        Bound::Unbounded => Bound::Included(FullKey::of(shard, &[])),
        Bound::Included(key) => Bound::Included(FullKey::of(shard, key)),
        Bound::Excluded(key) => Bound::Excluded(FullKey::of(shard, key)),
    };
    let end = match &range.end {
        Bound::Unbounded => shard.0.checked_add(1).map_or(Bound::Unbounded, |next| {
            // The empty key of the next shard follows every key of this one.
            Bound::Excluded(FullKey::of(ShardId(next), &[]))
        }),
        Bound::Included(key) => Bound::Included(FullKey::of(shard, key)),
        Bound::Excluded(key) => Bound::Excluded(FullKey::of(shard, key)),
    };
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn keys_are_ordered_like_their_bytes(
            left in proptest::collection::vec(0u8..3, 0..KEY_BYTES_MAX),
            right in proptest::collection::vec(0u8..3, 0..KEY_BYTES_MAX),
        ) {
            proptest::prop_assert_eq!(Key::new(&left).cmp(&Key::new(&right)), left.cmp(&right));
            proptest::prop_assert_eq!(Key::new(&left) == Key::new(&right), left == right);
        }
    }

    #[test]
    fn a_prefix_covers_exactly_its_keys() {
        let within = |prefix: &[u8], key: &[u8]| {
            let range = Range::prefix(prefix);
            use std::ops::RangeBounds;
            (range.start, range.end).contains(&Key::new(key))
        };
        assert!(within(b"ab", b"ab") && within(b"ab", b"ab\xff\xff") && !within(b"ab", b"ac") && !within(b"ab", b"aa"));
        assert!(within(b"a\xff", b"a\xff\xff") && !within(b"a\xff", b"b"));
        assert!(within(b"\xff", b"\xff\xff") && !within(b"\xff", b"\xfe"));
    }
}
