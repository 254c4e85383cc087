//! Failing disks: what could not be written is not promised, and what is unknown stops the journal.

use std::fs;

use journal::{Error, Journal};

use crate::support::{eventually, files, open, payload, read_all, small};

/// Appends until it fails; returns the error.
fn fill_until_failure(journal: &Journal) -> Error {
    for number in 0..100 {
        if let Err(error) = journal.append(&payload(number, 2000)) {
            return error;
        }
    }
    panic!("nothing failed");
}

#[test]
fn when_no_segment_can_be_made_nothing_is_written_and_the_journal_goes_on_later() {
    let directory = tempfile::tempdir().unwrap();
    let (path, moved) = (directory.path().join("journal"), directory.path().join("elsewhere"));
    let journal = Journal::open(&path, small()).unwrap();
    journal.append(b"before").unwrap();
    fs::rename(&path, &moved).unwrap();
    let error = fill_until_failure(&journal);
    assert!(matches!(error, Error::Io { .. }), "{error}");
    let durable = journal.durable();
    fs::rename(&moved, &path).unwrap();
    assert_eq!(journal.append(b"after").unwrap(), durable.next(), "no position was lost or used twice");
    drop(journal);
    assert_eq!(read_all(&open(&path)).unwrap().len() as u64, durable.0 + 1);
}

#[test]
fn a_failed_write_stops_the_journal_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    while files(directory.path(), ".seg").is_empty() {
        journal.append(&payload(1, 500)).unwrap();
        std::thread::yield_now();
    }
    // The prepared segment vanishes: putting it in place fails in the middle of things.
    fs::remove_file(&files(directory.path(), ".seg")[0]).unwrap();
    let mut first = fill_until_failure(&journal);
    // It may have been used before it vanished; then the next one does.
    while !matches!(first, Error::Io { .. }) {
        first = fill_until_failure(&journal);
    }
    let durable = journal.durable();
    for _ in 0..2 {
        let error = journal.append(b"more").unwrap_err();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        assert!(error.to_string().contains("restart"));
    }
    assert_eq!(journal.durable(), durable);
    assert_eq!(read_all(&journal).unwrap().len() as u64, durable.0, "what is durable can still be read");
    assert!(journal.close().is_err());
    eventually("everything acknowledged is recovered", || {
        read_all(&open(directory.path())).unwrap().len() as u64 == durable.0
    });
}
