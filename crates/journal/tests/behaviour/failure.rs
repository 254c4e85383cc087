//! Disk failures: a failed write is never acknowledged, and an unknown outcome stops the journal.

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
    panic!("no append failed");
}

#[test]
fn a_failed_segment_creation_writes_nothing_and_later_appends_succeed() {
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
fn a_failed_write_stops_the_journal_until_it_is_reopened() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    while files(directory.path(), ".seg").is_empty() {
        journal.append(&payload(1, 500)).unwrap();
        std::thread::yield_now();
    }
    // The spare segment disappears, so that the rotation fails halfway.
    fs::remove_file(&files(directory.path(), ".seg")[0]).unwrap();
    let mut first = fill_until_failure(&journal);
    // The segment may have been in use before it was removed. Then a later rotation fails.
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
    assert_eq!(read_all(&journal).unwrap().len() as u64, durable.0, "durable entries are still readable");
    assert!(journal.close().is_err());
    eventually("all acknowledged entries are recovered", || {
        read_all(&open(directory.path())).unwrap().len() as u64 == durable.0
    });
}
