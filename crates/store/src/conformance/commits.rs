//! Checks of commits: atomicity, read-your-writes, durability.

use std::sync::atomic::{AtomicBool, Ordering};

use model::batch::{Batch, Keyspace};
use model::id::ShardId;

use super::{Fixture, SHARD, commit, get, new_owner, open, scan};
use crate::{Order, Range};

/// Two keys always change in one batch; no reader sees them differ.
pub fn a_batch_becomes_visible_atomically(fixture: &mut dyn Fixture) {
    let mut token = open(fixture, SHARD);
    let fixture: &dyn Fixture = fixture;
    let store = fixture.store();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0u32..300 {
                let mut batch = Batch::new();
                batch.put(Keyspace::Live, b"left", &round.to_le_bytes());
                batch.put(Keyspace::Live, b"right", &round.to_le_bytes());
                store.commit(&mut token, &batch).expect("the owner can commit");
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let found = store.scan(SHARD, Keyspace::Live, Range::all(), Order::Ascending, 10).expect("readable");
            assert!(found.is_empty() || found.len() == 2 && found[0].1 == found[1].1, "a partial batch is visible");
        }
    });
}

pub fn a_read_sees_all_earlier_commits(fixture: &mut dyn Fixture) {
    let mut token = open(fixture, SHARD);
    for round in 0u64..200 {
        commit(fixture, &mut token, |batch| {
            batch.put(Keyspace::Live, &round.to_be_bytes(), &round.to_le_bytes());
            batch.put(Keyspace::Meta, b"newest", &round.to_le_bytes());
        });
        assert_eq!(get(fixture, Keyspace::Meta, b"newest").as_deref(), Some(&round.to_le_bytes()[..]));
        let newest = scan(fixture, Range::all(), Order::Descending, 1);
        assert_eq!(&*newest[0].0, &round.to_be_bytes()[..]);
        if round % 50 == 49 {
            fixture.flush();
        }
    }
    assert_eq!(scan(fixture, Range::all(), Order::Ascending, usize::MAX).len(), 200);
}

pub fn later_writes_and_deletes_win(fixture: &mut dyn Fixture) {
    let mut token = open(fixture, SHARD);
    commit(fixture, &mut token, |batch| {
        batch.put(Keyspace::Live, b"twice", b"first");
        batch.put(Keyspace::Live, b"twice", b"second");
        batch.put(Keyspace::Live, b"gone", b"x");
        batch.delete(Keyspace::Live, b"gone");
        batch.delete(Keyspace::Live, b"back");
        batch.put(Keyspace::Live, b"back", b"again");
        batch.put(Keyspace::Live, b"empty", b"");
    });
    for flushed in [false, true] {
        if flushed {
            fixture.flush();
        }
        assert_eq!(get(fixture, Keyspace::Live, b"twice").as_deref(), Some(&b"second"[..]));
        assert_eq!(get(fixture, Keyspace::Live, b"gone"), None);
        assert_eq!(get(fixture, Keyspace::Live, b"back").as_deref(), Some(&b"again"[..]));
        assert_eq!(get(fixture, Keyspace::Live, b"empty").as_deref(), Some(&b""[..]), "empty is not absent");
        assert_eq!(get(fixture, Keyspace::Done, b"twice"), None, "keyspaces are separate");
    }
    // Deletes and puts alternate over a flushed record, so that each version replaces the previous one.
    for (round, value) in [None, Some(&b"new"[..]), None, Some(&b"newest"[..])].into_iter().enumerate() {
        commit(fixture, &mut token, |batch| match value {
            Some(value) => batch.put(Keyspace::Live, b"twice", value),
            None => batch.delete(Keyspace::Live, b"twice"),
        });
        assert_eq!(get(fixture, Keyspace::Live, b"twice").as_deref(), value, "round {round}");
        fixture.flush();
        assert_eq!(get(fixture, Keyspace::Live, b"twice").as_deref(), value, "round {round}, flushed");
    }
}

pub fn reopening_loses_nothing(fixture: &mut dyn Fixture) {
    for round in 0u8..4 {
        let mut token = open(fixture, SHARD);
        commit(fixture, &mut token, |batch| {
            batch.put(Keyspace::Live, &[round], &[round]);
            batch.put(Keyspace::Live, b"same", &[round]);
            if round > 0 {
                batch.delete(Keyspace::Live, &[round - 1]);
            }
        });
        if round % 2 == 1 {
            fixture.flush();
        }
        fixture.reopen();
        assert_eq!(get(fixture, Keyspace::Live, b"same").as_deref(), Some(&[round][..]));
        let found = scan(fixture, Range::all(), Order::Ascending, 10);
        assert_eq!(found.len(), 2, "round {round}");
    }
}

pub fn shards_are_isolated(fixture: &mut dyn Fixture) {
    let shards = [ShardId(0), ShardId(1), ShardId(255), ShardId(256), ShardId(u16::MAX)];
    for shard in shards {
        let mut token = open(fixture, shard);
        let mut batch = Batch::new();
        batch.put(Keyspace::Live, b"key", &shard.0.to_be_bytes());
        batch.put(Keyspace::Live, &[0xff; 32], &shard.0.to_be_bytes());
        batch.put(Keyspace::Live, b"", &shard.0.to_be_bytes());
        fixture.store().commit(&mut token, &batch).expect("the owner can commit");
    }
    for flushed in [false, true] {
        if flushed {
            fixture.flush();
        }
        for shard in shards {
            for order in [Order::Ascending, Order::Descending] {
                let found = fixture.store().scan(shard, Keyspace::Live, Range::all(), order, 10).expect("readable");
                assert_eq!(found.len(), 3);
                assert!(found.iter().all(|(_, value)| **value == shard.0.to_be_bytes()), "shard {shard}");
            }
        }
    }
    // A new owner of one shard does not affect the others.
    open(fixture, ShardId(1));
    let value = fixture.store().get(ShardId(256), Keyspace::Live, b"key").expect("readable");
    assert_eq!(value.as_deref(), Some(&256u16.to_be_bytes()[..]));
}

pub fn shards_commit_concurrently(fixture: &mut dyn Fixture) {
    const COMMITS: u32 = 100;
    let fixture: &dyn Fixture = fixture;
    let store = fixture.store();
    std::thread::scope(|scope| {
        for shard in (0..6).map(ShardId) {
            scope.spawn(move || {
                let mut token = store.take_over(shard, new_owner()).expect("a shard can be opened");
                for number in 0..COMMITS {
                    let mut batch = Batch::new();
                    batch.put(Keyspace::Live, &number.to_be_bytes(), &number.to_be_bytes());
                    batch.put(Keyspace::Meta, b"count", &number.to_be_bytes());
                    store.commit(&mut token, &batch).expect("the owner can commit");
                    let count = store.get(shard, Keyspace::Meta, b"count").expect("readable");
                    assert_eq!(count.as_deref(), Some(&number.to_be_bytes()[..]), "a shard reads its own writes");
                }
            });
        }
    });
    for shard in (0..6).map(ShardId) {
        let all = store.scan(shard, Keyspace::Live, Range::all(), Order::Ascending, usize::MAX).expect("readable");
        assert_eq!(all.len(), COMMITS as usize);
    }
}

pub fn an_empty_batch_is_a_commit(fixture: &mut dyn Fixture) {
    let mut token = open(fixture, SHARD);
    let before = token.position;
    let position = fixture.store().commit(&mut token, &Batch::new()).expect("the owner can commit");
    assert!(position > before && token.position == position);
    fixture.flush();
    fixture.reopen();
}
