//! Rotation, retention and reuse of segments; old entries never reappear.

use std::time::Duration;

use crate::support::{assert_intact, eventually, files, open, payload, read_all, small, small_without_retention};
use journal::{Error, Journal, Options, Position, SPARES_MAX};

fn fill(journal: &Journal, entries: u64) {
    for _ in 0..entries {
        journal.append(&payload(journal.durable().0 + 1, 2000)).unwrap();
    }
}

#[test]
fn entries_continue_in_the_next_segment() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    fill(&journal, 50);
    assert!(files(directory.path(), ".log").len() > 3);
    drop(journal);
    let journal = open(directory.path());
    let entries = read_all(&journal).unwrap();
    assert_eq!(entries.len(), 50);
    for (position, entry) in entries {
        assert_eq!(assert_intact(&entry), position.0);
    }
}

/// An empty segment that is too small for the first frame is replaced by a larger one, under the same name.
#[test]
fn a_first_frame_larger_than_the_open_segment_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let journal = Journal::open(directory.path(), small_without_retention()).unwrap();
        assert_eq!(read_all(&journal).unwrap().len(), 2 * round);
        let mut reader = journal.reader(journal.durable().next()).unwrap();
        assert!(reader.next().unwrap().is_none());
        let large = payload(1, 2 * small().segment_bytes as usize);
        let position = journal.append(&large).unwrap();
        let (read, entry) = reader.next().unwrap().expect("a reader finds its way to the larger segment");
        assert_eq!((read, entry.as_ref()), (position, large.as_slice()));
        journal.append(b"after").unwrap();
        assert_eq!(read_all(&journal).unwrap().len(), 2 * round + 2);
    }
}

#[test]
fn a_reader_can_start_at_any_position() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    fill(&journal, 40);
    for from in 1..=41 {
        let mut reader = journal.reader(Position(from)).unwrap();
        let first = reader.next().unwrap().map(|(position, _)| position.0);
        assert_eq!(first, (from <= 40).then_some(from));
    }
}

#[test]
fn reused_segments_never_replay_their_old_entries() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..6 {
        let journal = Journal::open(directory.path(), small_without_retention()).unwrap();
        for (position, entry) in read_all(&journal).unwrap() {
            assert_eq!(assert_intact(&entry), position.0, "a stale entry reappeared in round {round}");
        }
        fill(&journal, 30);
        let durable = journal.durable();
        journal.release(durable);
        eventually("recycling of old segments", || files(directory.path(), ".log").len() == 1);
        assert!(files(directory.path(), ".seg").len() <= SPARES_MAX);
        assert!(matches!(journal.reader(Position(1)), Err(Error::Expired { oldest }) if oldest > Position(1)));
        // More entries, so that the next round reads a partly filled, reused segment.
        fill(&journal, 3);
        drop(journal);
    }
}

#[test]
fn unreleased_entries_stay_readable() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path(), small_without_retention()).unwrap();
    fill(&journal, 40);
    journal.release(Position(20));
    eventually("recycling of a segment", || journal.oldest() > Position(1));
    assert!(journal.oldest() <= Position(21));
    let mut reader = journal.reader(Position(21)).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().0, Position(21));
}

#[test]
fn released_segments_are_retained_within_bytes_and_time() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { keep_bytes: 40 << 10, ..small() };
    let journal = Journal::open(directory.path(), options.clone()).unwrap();
    fill(&journal, 60);
    journal.release(Position(60));
    eventually("expiry by bytes", || journal.oldest() > Position(30));
    assert!(journal.reader(Position(55)).is_ok());
    drop(journal);

    let options = Options { keep_for: Duration::ZERO, keep_bytes: u64::MAX, ..options };
    let journal = Journal::open(directory.path(), options).unwrap();
    journal.release(Position(60));
    eventually("expiry by time", || journal.oldest() == Position(61));
}

#[test]
fn reuse_of_a_segment_being_read_is_reported_as_expiry() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path(), small_without_retention()).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (journal, done) = (&journal, &done);
        scope.spawn(move || {
            for _ in 0..400 {
                fill(journal, 1);
                journal.release(journal.durable());
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut expiries = 0;
        let mut reader = journal.reader(journal.oldest()).unwrap();
        let mut expected = 0;
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            match reader.next() {
                Ok(Some((position, entry))) => {
                    assert_eq!(assert_intact(&entry), position.0);
                    assert!(expected == 0 || position.0 == expected, "a gap without an error");
                    expected = position.0 + 1;
                }
                Ok(None) => std::thread::yield_now(),
                Err(Error::Expired { .. }) => {
                    expiries += 1;
                    expected = 0;
                    // The oldest position may advance between the two calls.
                    if let Ok(again) = journal.reader(journal.oldest()) {
                        reader = again;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        println!("expired {expiries} times");
    });
}

#[test]
fn a_slow_reader_of_a_reused_segment_gets_an_expiry_error() {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::open(directory.path(), small_without_retention()).unwrap();
    fill(&journal, 6);
    let mut reader = journal.reader(Position(1)).unwrap();
    reader.next().unwrap().unwrap();
    for _ in 0..60 {
        fill(&journal, 1);
        journal.release(journal.durable());
    }
    eventually("expiry of the first entries", || journal.oldest() > Position(6));
    // Entries that were read ahead may still come, intact and in order. Then the reader reports expiry.
    let mut next = 2;
    loop {
        match reader.next() {
            Ok(Some((position, entry))) => {
                assert_eq!((position.0, assert_intact(&entry)), (next, next));
                next += 1;
            }
            Ok(None) => panic!("the reader must not reach the end"),
            Err(error) => {
                assert!(matches!(error, Error::Expired { .. }), "{error}");
                break;
            }
        }
    }
    assert!(next <= 8);
}
