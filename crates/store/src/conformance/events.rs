//! Checks of events: one list per commit, in commit order, until they expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::batch::{Batch, Keyspace};
use model::id::ShardId;

use super::{Fixture, NODE, SHARD, commit, open};
use crate::{Committed, Error, EventReader, Position};

fn read_to_end(reader: &mut dyn EventReader) -> Vec<Committed> {
    std::iter::from_fn(|| reader.next().expect("events can be read")).collect()
}

fn add_event(batch: &mut Batch, text: &str) {
    batch.event_with(|buffer| buffer.extend_from_slice(text.as_bytes()));
}

pub fn events_are_in_commit_order(fixture: &mut dyn Fixture) {
    let start = fixture.store().durable();
    let first = open(fixture, SHARD);
    let other = fixture.store().open_shard(ShardId(1), NODE).expect("a shard can be opened");
    let mut positions = Vec::new();
    for number in 0..6 {
        let mut batch = Batch::new();
        add_event(&mut batch, &format!("{number}a"));
        batch.put(Keyspace::Live, b"key", b"value");
        add_event(&mut batch, &format!("{number}b"));
        let (shard, epoch) = if number % 2 == 0 { (SHARD, first) } else { (ShardId(1), other) };
        positions.push(fixture.store().commit(shard, epoch, &batch).expect("the owner can commit"));
    }
    fixture.flush();
    let check = |fixture: &dyn Fixture| {
        let found = read_to_end(&mut *fixture.store().events(start).expect("the cursor is valid"));
        assert_eq!(found.len(), 6, "each commit exactly once");
        for (number, committed) in found.iter().enumerate() {
            assert_eq!(committed.position, positions[number]);
            assert_eq!(committed.shard, ShardId((number % 2) as u16));
            assert_eq!(committed.events, [format!("{number}a"), format!("{number}b")]);
        }
        let later = read_to_end(&mut *fixture.store().events(positions[3]).expect("the cursor is valid"));
        assert_eq!(later, found[4..], "a cursor is the position of the last commit read");
    };
    check(fixture);
    fixture.reopen();
    check(fixture);
}

pub fn an_event_reader_continues_after_the_end(fixture: &mut dyn Fixture) {
    let epoch = open(fixture, SHARD);
    let mut reader = fixture.store().events(fixture.store().durable()).expect("the cursor is valid");
    for round in 0..3 {
        assert_eq!(reader.next().expect("events can be read"), None);
        commit(fixture, epoch, |batch| add_event(batch, "event"));
        assert_eq!(read_to_end(&mut *reader).len(), 1, "round {round}");
    }
    commit(fixture, epoch, |batch| batch.put(Keyspace::Live, b"no-event", b""));
    assert_eq!(read_to_end(&mut *reader)[0].events.len(), 0, "a commit without events is returned, too");
}

pub fn an_expired_cursor_is_rejected(fixture: &mut dyn Fixture) {
    let epoch = open(fixture, SHARD);
    let cursor = fixture.store().durable();
    commit(fixture, epoch, |batch| add_event(batch, "expired"));
    fixture.expire_events();
    let Err(Error::CursorExpired { oldest }) = fixture.store().events(cursor).map(drop) else {
        panic!("an old cursor must be rejected instead of skipping events");
    };
    assert!(oldest > cursor.next());
    fixture.store().events(Position(oldest.0 - 1)).expect("the oldest retained event can be read");
    fixture.store().events(fixture.store().durable()).expect("the end is always a valid cursor");
}

/// A reader of an event can read the commit of that event.
pub fn a_read_after_an_event_sees_its_commit(fixture: &mut dyn Fixture) {
    const COMMITS: u64 = 200;
    let epoch = open(fixture, SHARD);
    let fixture: &dyn Fixture = fixture;
    let store = fixture.store();
    let mut reader = store.events(store.durable()).expect("the cursor is valid");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..COMMITS {
                let mut batch = Batch::new();
                batch.put(Keyspace::Meta, b"number", &number.to_be_bytes());
                batch.event_with(|buffer| buffer.extend_from_slice(&number.to_be_bytes()));
                store.commit(SHARD, epoch, &batch).expect("the owner can commit");
            }
        });
        let mut seen = 0;
        while seen < COMMITS {
            let Some(committed) = reader.next().expect("events can be read") else {
                std::thread::yield_now();
                continue;
            };
            seen += 1;
            let value = store.get(SHARD, Keyspace::Meta, b"number").expect("readable");
            assert!(value.is_some_and(|value| value >= committed.events[0]), "an event was readable before its commit");
        }
    });
}

pub fn commit_hooks_are_called(fixture: &mut dyn Fixture) {
    let epoch = open(fixture, SHARD);
    let notified = Arc::new(AtomicU64::new(0));
    let hook = Arc::clone(&notified);
    fixture.store().on_commit(Box::new(move |position| {
        hook.fetch_max(position.0, Ordering::SeqCst);
    }));
    let position = fixture.store().commit(SHARD, epoch, &Batch::new()).expect("the owner can commit");
    assert!(notified.load(Ordering::SeqCst) >= position.0);
}
