//! Appended entries are read back in order, also with concurrent writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{eventually, files, open, payload, read_all, small};
use journal::{ENTRY_BYTES_MAX, Error, Journal, Options, Position};

#[test]
fn a_fresh_journal_is_empty() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    assert_eq!(journal.durable(), Position::NONE);
    assert_eq!(journal.oldest(), Position(1));
    assert_eq!(read_all(&journal).unwrap(), vec![]);
    assert_eq!(journal.recovery().torn_tail, None);
}

#[test]
fn entries_of_a_journal_that_cannot_be_opened_are_readable() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let journal = open(directory.path());
        for number in 0..20 {
            journal.append(&payload(round * 20 + number, 2000)).unwrap();
        }
    }
    // The journal cannot remove it. Opening fails, as it does on a full disk.
    std::fs::create_dir(directory.path().join("spare-00000009.tmp")).unwrap();
    assert!(Journal::open(directory.path(), small()).is_err());
    let mut entries = Vec::new();
    journal::read_entries(directory.path(), |position, entry| entries.push((position, entry))).unwrap();
    let written = (0..40).map(|number| (Position(number + 1), payload(number, 2000).into()));
    assert_eq!(entries, written.collect::<Vec<_>>());
}

#[test]
fn entries_survive_reopening_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..5u64 {
        let journal = open(directory.path());
        assert_eq!(journal.durable(), Position(round * 3));
        for number in 1..=3 {
            let position = journal.append(&payload(round * 3 + number, 10)).unwrap();
            assert_eq!(position, Position(round * 3 + number));
        }
        journal.close().unwrap();
    }
    let journal = open(directory.path());
    let entries = read_all(&journal).unwrap();
    assert_eq!(entries.len(), 15);
    for (position, entry) in entries {
        assert_eq!(entry, payload(position.0, 10));
    }
    assert_eq!(journal.recovery().torn_tail, None);
}

#[test]
fn reopening_without_writes_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    open(directory.path()).append(b"kept").unwrap();
    for _ in 0..4 {
        let journal = open(directory.path());
        assert_eq!(journal.durable(), Position(1));
        assert_eq!(read_all(&journal).unwrap().len(), 1);
    }
    assert_eq!(files(directory.path(), ".log").len(), 2, "empty segments do not accumulate");
}

#[test]
fn empty_entries_and_empty_parts_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    journal.append(b"").unwrap();
    journal.append_parts(&[b"a", b"", b"bc"]).unwrap();
    let (position, shared) = journal.append_shared(&[b"x", b"y"]).unwrap();
    assert_eq!((position, &shared[..]), (Position(3), &b"xy"[..]));
    let entries: Vec<_> = read_all(&journal).unwrap().into_iter().map(|(_, entry)| entry).collect();
    assert_eq!(entries, vec![&b""[..], b"abc", b"xy"]);
}

#[test]
fn many_threads_share_frames_and_lose_nothing() {
    const THREADS: u64 = 8;
    const EACH: u64 = 200;
    let directory = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 64 << 10, first_segment_bytes: 64 << 10, ..small() };
    let journal = Journal::open(directory.path(), options).unwrap();
    let notified = Arc::new(AtomicU64::new(0));
    let frames = Arc::new(AtomicU64::new(0));
    {
        let (notified, frames) = (Arc::clone(&notified), Arc::clone(&frames));
        journal.on_durable(Box::new(move |position| {
            notified.fetch_max(position.0, Ordering::Relaxed);
            frames.fetch_add(1, Ordering::Relaxed);
        }));
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let journal = &journal;
            scope.spawn(move || {
                let mut last = Position::NONE;
                for number in 0..EACH {
                    let wanted = payload(thread * EACH + number, 50);
                    let (position, shared) = journal.append_shared(&[&wanted]).unwrap();
                    assert_eq!(shared, wanted);
                    assert!(position > last && journal.durable() >= position);
                    last = position;
                }
            });
        }
    });
    let entries = read_all(&journal).unwrap();
    assert_eq!(entries.len() as u64, THREADS * EACH);
    let mut numbers: Vec<_> = entries.iter().map(|(_, entry)| crate::support::assert_intact(entry)).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..THREADS * EACH));
    assert!(entries.iter().zip(1..).all(|((position, _), expected)| position.0 == expected));
    assert_eq!(notified.load(Ordering::Relaxed), THREADS * EACH);
    assert!(frames.load(Ordering::Relaxed) < THREADS * EACH, "no frame was ever shared");
}

#[test]
fn a_waiting_reader_is_woken() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    assert_eq!(journal.wait_durable(Position::NONE, Duration::ZERO), Position::NONE);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| journal.wait_durable(Position::NONE, Duration::from_secs(20)));
        journal.append(b"now").unwrap();
        assert_eq!(waiting.join().unwrap(), Position(1));
    });
    let mut reader = journal.reader(Position(2)).unwrap();
    assert_eq!(reader.next().unwrap(), None);
    journal.append(b"later").unwrap();
    assert_eq!(reader.next().unwrap().unwrap().0, Position(2));
    assert_eq!(reader.next().unwrap(), None);
}

#[test]
fn an_entry_larger_than_a_segment_gets_a_larger_segment() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    journal.append(b"before").unwrap();
    journal.append(&payload(2, 300_000)).unwrap();
    journal.append(b"after").unwrap();
    journal.close().unwrap();
    let journal = open(directory.path());
    let entries = read_all(&journal).unwrap();
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[1].1, payload(2, 300_000));
}

#[test]
fn the_largest_entry_fits_and_one_byte_more_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    let largest = vec![7; ENTRY_BYTES_MAX];
    assert!(matches!(journal.append_parts(&[&largest, b"x"]), Err(Error::TooLarge { .. })));
    assert_eq!(journal.durable(), Position::NONE, "a rejected entry changes nothing");
    assert_eq!(journal.append(&largest).unwrap(), Position(1));
    assert_eq!(read_all(&journal).unwrap()[0].1.len(), ENTRY_BYTES_MAX);
}

#[test]
fn an_idle_writer_seals_the_last_frame() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { seal_after: Duration::from_millis(1), ..small() };
    let journal = Journal::open(directory.path(), options).unwrap();
    journal.append(b"sealed soon").unwrap();
    let log = &files(directory.path(), ".log")[0];
    // The frame of one short entry takes 56 bytes after the segment header. The seal follows it.
    let at = 512 + 56;
    eventually("a seal", || std::fs::read(log).unwrap()[at..at + 4] == *b"OFRM");
}

#[test]
fn a_second_journal_on_the_same_directory_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    let second = Journal::open(directory.path(), small());
    assert!(matches!(second, Err(Error::InUse { .. })));
    drop(first);
    open(directory.path());
}
