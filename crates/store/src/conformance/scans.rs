//! Checks of scans: order, bounds and limits, over flushed and recent data.

use model::batch::Keyspace;
use std::ops::Bound;

use super::{Fixture, SHARD, commit, keys, open, scan};
use crate::{Key, Order, Range};

pub fn scans_respect_order_bounds_and_limit(fixture: &mut dyn Fixture) {
    let mut token = open(fixture, SHARD);
    commit(fixture, &mut token, |batch| {
        for key in ["d", "a", "c", "ca", "b", "e"] {
            batch.put(Keyspace::Live, key.as_bytes(), key.as_bytes());
        }
    });
    let included = |key: &str| Bound::Included(Key::new(key.as_bytes()));
    let excluded = |key: &str| Bound::Excluded(Key::new(key.as_bytes()));
    for flushed in [false, true] {
        if flushed {
            fixture.flush();
        }
        let up = |range, limit| keys(&scan(fixture, range, Order::Ascending, limit));
        let down = |range, limit| keys(&scan(fixture, range, Order::Descending, limit));
        assert_eq!(up(Range::all(), 10), "a b c ca d e");
        assert_eq!(down(Range::all(), 10), "e d ca c b a");
        assert_eq!(up(Range::all(), 2), "a b");
        assert_eq!(down(Range::all(), 2), "e d");
        assert_eq!(up(Range::all(), 0), "");
        assert_eq!(up(Range::prefix(b"c"), 10), "c ca");
        assert_eq!(down(Range::prefix(b"c"), 1), "ca");
        assert_eq!(up(Range { start: included("b"), end: included("d") }, 10), "b c ca d");
        assert_eq!(up(Range { start: excluded("b"), end: excluded("d") }, 10), "c ca");
        assert_eq!(down(Range { start: Bound::Unbounded, end: excluded("c") }, 10), "b a");
        assert_eq!(up(Range { start: excluded("d"), end: Bound::Unbounded }, 10), "e");
        assert_eq!(up(Range { start: included("x"), end: included("b") }, 10), "", "an inverted range is empty");
        assert_eq!(up(Range { start: excluded("b"), end: excluded("b") }, 10), "");
        assert_eq!(up(Range { start: included("b"), end: excluded("b") }, 10), "");
        assert_eq!(up(Range { start: included("b"), end: included("b") }, 10), "b");
    }
}

/// The versions of every key are spread over flushed and recent data; the newest wins.
pub fn scans_merge_flushed_and_recent_data(fixture: &mut dyn Fixture) {
    let mut token = open(fixture, SHARD);
    let mut expected = std::collections::BTreeMap::new();
    for round in 0u32..6 {
        commit(fixture, &mut token, |batch| {
            for key in 0u32..600 {
                // Pseudo-random but deterministic choice of keys and operations.
                let chance = key.wrapping_mul(2_654_435_761).wrapping_add(round.wrapping_mul(40_503)) >> 16;
                if chance % 3 == 0 {
                    batch.put(Keyspace::Live, &key.to_be_bytes(), &round.to_le_bytes());
                    expected.insert(key, round);
                } else if chance % 3 == 1 {
                    batch.delete(Keyspace::Live, &key.to_be_bytes());
                    expected.remove(&key);
                }
            }
        });
        if round % 2 == 0 {
            fixture.flush();
        }
        for limit in [1, 7, 300, usize::MAX] {
            let pairs = |order| -> Vec<(u32, u32)> {
                let found = scan(fixture, Range::all(), order, limit);
                let number = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).expect("four bytes were written");
                found
                    .iter()
                    .map(|(key, value)| (u32::from_be_bytes(number(key)), u32::from_le_bytes(number(value))))
                    .collect()
            };
            let wanted = expected.iter().map(|(key, value)| (*key, *value));
            assert_eq!(pairs(Order::Ascending), wanted.clone().take(limit).collect::<Vec<_>>());
            assert_eq!(pairs(Order::Descending), wanted.rev().take(limit).collect::<Vec<_>>());
        }
    }
}

pub fn pagination_returns_every_key_once(fixture: &mut dyn Fixture) {
    let mut token = open(fixture, SHARD);
    for part in 0..3u16 {
        commit(fixture, &mut token, |batch| {
            for number in (part..300).step_by(3) {
                batch.put(Keyspace::Live, &number.to_be_bytes(), &[]);
            }
        });
        if part < 2 {
            fixture.flush();
        }
    }
    let mut seen = Vec::new();
    let mut range = Range::all();
    loop {
        let page = scan(fixture, range, Order::Ascending, 7);
        let Some((last, _)) = page.last() else { break };
        range = range.after(last);
        seen.extend(page.into_iter().map(|(key, _)| key));
    }
    assert_eq!(seen.len(), 300);
    assert!(seen.is_sorted());
    let mut range = Range::all();
    let mut backwards = Vec::new();
    loop {
        let page = scan(fixture, range, Order::Descending, 64);
        let Some((last, _)) = page.last() else { break };
        range = range.before(last);
        backwards.extend(page.into_iter().map(|(key, _)| key));
    }
    backwards.reverse();
    assert_eq!(seen, backwards);
}

pub fn many_keys_are_read_in_their_order(fixture: &mut dyn Fixture) {
    let mut token = open(fixture, SHARD);
    commit(fixture, &mut token, |batch| {
        batch.put(Keyspace::Live, b"a", b"1");
        batch.put(Keyspace::Live, b"c", b"3");
    });
    fixture.flush();
    commit(fixture, &mut token, |batch| batch.put(Keyspace::Live, b"b", b"2"));
    let keys = [b"c", b"x", b"a", b"b", b"c"].map(|key| Key::new(key));
    let found = fixture.store().get_many(SHARD, Keyspace::Live, &keys).expect("keys can be read");
    let found: Vec<Option<&[u8]>> = found.iter().map(Option::as_deref).collect();
    assert_eq!(found, [Some(&b"3"[..]), None, Some(b"1"), Some(b"2"), Some(b"3")]);
}
