//! Checks of events: one list per commit, in commit order, until they expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::batch::{Batch, Keyspace};
use model::id::ShardId;

use super::{Fixture, SHARD, commit, open};
use crate::{Committed, Cursor, Error, EventReader, StoreId};

fn read_to_end(reader: &mut dyn EventReader) -> Vec<Committed> {
    std::iter::from_fn(|| reader.next().expect("events can be read")).collect()
}

fn add_event(batch: &mut Batch, text: &str) {
    batch.event_with(|buffer| buffer.extend_from_slice(text.as_bytes()));
}

fn newest(fixture: &dyn Fixture) -> Cursor {
    fixture.store().newest_cursor().expect("readable")
}

pub fn events_are_in_commit_order(fixture: &mut dyn Fixture) {
    let start = newest(fixture);
    let mut tokens = [open(fixture, SHARD), open(fixture, ShardId(1))];
    let mut positions = Vec::new();
    for number in 0..6 {
        let mut batch = Batch::new();
        add_event(&mut batch, &format!("{number}a"));
        batch.put(Keyspace::Live, b"key", b"value");
        add_event(&mut batch, &format!("{number}b"));
        positions.push(fixture.store().commit(&mut tokens[number % 2], &batch).expect("the owner can commit"));
    }
    fixture.flush();
    let check = |fixture: &dyn Fixture| {
        let mut reader = fixture.store().events(&start).expect("the cursor is valid");
        let mut found = Vec::new();
        let mut cursors = Vec::new();
        while let Some(committed) = reader.next().expect("events can be read") {
            found.push(committed);
            cursors.push(reader.cursor());
        }
        assert_eq!(found.len(), 6, "each commit exactly once");
        for (shard, numbers) in [(SHARD, [0, 2, 4]), (ShardId(1), [1, 3, 5])] {
            let of_shard: Vec<_> = found.iter().filter(|committed| committed.shard == shard).collect();
            for (committed, number) in of_shard.into_iter().zip(numbers) {
                assert_eq!(committed.position, positions[number], "each shard's in commit order");
                assert_eq!(committed.events, [format!("{number}a"), format!("{number}b")]);
            }
        }
        for (index, cursor) in cursors.iter().enumerate() {
            let text = Cursor::parse(&cursor.to_string(), StoreId(0)).expect("a cursor survives its text");
            let later = read_to_end(&mut *fixture.store().events(&text).expect("the cursor is valid"));
            assert_eq!(later, found[index + 1..], "reading continues after the last commit read");
        }
    };
    check(fixture);
    fixture.reopen();
    check(fixture);
}

/// The feed of changes is exact: every write of every commit, and nothing else.
pub fn an_event_reader_returns_whole_batches(fixture: &mut dyn Fixture) {
    let start = newest(fixture);
    let mut tokens = [open(fixture, SHARD), open(fixture, ShardId(1))];
    let mut written: [Vec<Batch>; 2] = [Vec::new(), Vec::new()];
    for number in 0..6_u8 {
        let mut batch = Batch::new();
        for keyspace in Keyspace::ALL {
            batch.put(keyspace, &[number, keyspace as u8], &[number; 40]);
            batch.delete(keyspace, &[number.wrapping_sub(1), keyspace as u8]);
        }
        add_event(&mut batch, "event");
        batch.put(Keyspace::Live, &[number], b"");
        if number == 3 {
            batch.clear();
        }
        let index = usize::from(number % 2);
        fixture.store().commit(&mut tokens[index], &batch).expect("the owner can commit");
        written[index].push(batch);
    }
    let check = |fixture: &dyn Fixture| {
        let found = read_to_end(&mut *fixture.store().events(&start).expect("the cursor is valid"));
        for (shard, expected) in [SHARD, ShardId(1)].into_iter().zip(&written) {
            let found = found.iter().filter(|committed| committed.shard == shard);
            let found: Vec<&[u8]> = found.map(|committed| &*committed.batch).collect();
            let expected: Vec<&[u8]> = expected.iter().map(Batch::as_bytes).collect();
            assert_eq!(found, expected, "each batch as it was written");
        }
    };
    check(fixture);
    fixture.flush();
    fixture.reopen();
    check(fixture);
}

pub fn an_event_reader_continues_after_the_end(fixture: &mut dyn Fixture) {
    let mut token = open(fixture, SHARD);
    let mut reader = fixture.store().events(&newest(fixture)).expect("the cursor is valid");
    for round in 0..3 {
        assert_eq!(reader.next().expect("events can be read"), None);
        commit(fixture, &mut token, |batch| add_event(batch, "event"));
        assert_eq!(read_to_end(&mut *reader).len(), 1, "round {round}");
    }
    commit(fixture, &mut token, |batch| batch.put(Keyspace::Live, b"no-event", b""));
    assert_eq!(read_to_end(&mut *reader)[0].events.len(), 0, "a commit without events is returned, too");
}

pub fn an_expired_cursor_is_rejected(fixture: &mut dyn Fixture) {
    let mut token = open(fixture, SHARD);
    let cursor = newest(fixture);
    commit(fixture, &mut token, |batch| add_event(batch, "expired"));
    fixture.expire_events();
    let store = fixture.store();
    let Err(Error::CursorExpired) = store.events(&cursor).map(drop) else {
        panic!("an old cursor must be rejected instead of skipping events");
    };
    store.events(&store.oldest_cursor().expect("readable")).expect("the oldest retained event can be read");
    store.events(&newest(fixture)).expect("the end is always a valid cursor");
}

pub fn a_cursor_of_another_store_is_rejected(fixture: &mut dyn Fixture) {
    open(fixture, SHARD);
    let cursor = newest(fixture);
    let foreign = Cursor::new(StoreId(cursor.store().0 ^ 1), cursor.positions().to_vec());
    assert!(matches!(fixture.store().events(&foreign), Err(Error::ForeignCursor)));
    let ahead = cursor.positions().iter().map(|position| position.next()).collect();
    let ahead = Cursor::new(cursor.store(), ahead);
    assert!(matches!(fixture.store().events(&ahead), Err(Error::ForeignCursor)), "beyond the end");
}

/// A reader of an event can read the commit of that event.
pub fn a_read_after_an_event_sees_its_commit(fixture: &mut dyn Fixture) {
    const COMMITS: u64 = 200;
    let mut token = open(fixture, SHARD);
    let fixture: &dyn Fixture = fixture;
    let store = fixture.store();
    let mut reader = store.events(&newest(fixture)).expect("the cursor is valid");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..COMMITS {
                let mut batch = Batch::new();
                batch.put(Keyspace::Meta, b"number", &number.to_be_bytes());
                batch.event_with(|buffer| buffer.extend_from_slice(&number.to_be_bytes()));
                store.commit(&mut token, &batch).expect("the owner can commit");
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
    let mut token = open(fixture, SHARD);
    let is_notified = Arc::new(AtomicBool::new(false));
    let hook = Arc::clone(&is_notified);
    fixture.store().on_commit(Box::new(move || hook.store(true, Ordering::SeqCst)));
    fixture.store().commit(&mut token, &Batch::new()).expect("the owner can commit");
    assert!(is_notified.load(Ordering::SeqCst));
}
