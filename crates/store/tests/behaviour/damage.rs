//! Damage on disk is detected and never returned as data.

use std::fs;
use std::path::{Path, PathBuf};

use model::batch::{Batch, Keyspace};
use store::{Embedded, Error, Order, Range, Store};

use crate::support::{SHARD, copy_all, open, open_shard, put, small};

#[test]
fn tables_behind_their_checkpoint_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut token = open_shard(&store);
    put(&store, &mut token, b"first", b"1");
    store.close().unwrap();
    let older = tempfile::tempdir().unwrap();
    copy_all(&directory.path().join("tables"), older.path());

    let store = open(directory.path());
    let mut token = open_shard(&store);
    put(&store, &mut token, b"second", b"2");
    store.close().unwrap();

    fs::remove_dir_all(directory.path().join("tables")).unwrap();
    copy_all(older.path(), &directory.path().join("tables"));
    let error = Embedded::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, Error::TablesBehind { .. }), "{error}");
    assert!(error.to_string().contains("backup"));

    fs::remove_dir_all(directory.path().join("tables")).unwrap();
    assert!(
        matches!(Embedded::open(directory.path(), small()), Err(Error::TablesBehind { .. })),
        "missing tables are rejected, too"
    );
}

#[test]
fn a_journal_behind_the_tables_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut token = open_shard(&store);
    put(&store, &mut token, b"key", b"value");
    store.close().unwrap();
    fs::remove_dir_all(directory.path().join("journal")).unwrap();
    let error = Embedded::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, Error::JournalBehind { .. }), "{error}");
}

#[test]
fn damage_in_the_journal_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut token = open_shard(&store);
    put(&store, &mut token, b"key", b"value");
    drop(store);
    let log = files_below(&directory.path().join("journal")).into_iter().find(|path| is_log(path)).unwrap();
    let mut bytes = fs::read(&log).unwrap();
    bytes[512 + 60] ^= 1;
    fs::write(&log, bytes).unwrap();
    let error = Embedded::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, Error::Journal(journal::Error::Damaged { .. })), "{error}");
}

/// Flips bytes in a table file: a read returns the right value or an error, never another value, and the full
/// verification finds the damage.
#[test]
fn a_flipped_byte_in_a_table_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut token = open_shard(&store);
    let mut batch = Batch::new();
    for number in 0u32..50 {
        batch.put(Keyspace::Live, &number.to_be_bytes(), &[number as u8; 40]);
    }
    store.commit(&mut token, &batch).unwrap();
    store.close().unwrap();
    let table = table_with_records(directory.path());
    let intact = fs::read(&table).unwrap();
    let marked = intact.windows(40).position(|window| window == [7; 40]).unwrap();

    let mut detected = 0;
    for at in [marked, marked + 39] {
        let mut damaged = intact.clone();
        damaged[at] ^= 0x10;
        fs::write(&table, &damaged).unwrap();
        // Failing to open counts as detection.
        let Ok(store) = Embedded::open(directory.path(), small()) else {
            detected += 1;
            continue;
        };
        let read = store.get(SHARD, Keyspace::Live, &7u32.to_be_bytes());
        assert!(
            !matches!(&read, Ok(value) if value.as_deref() != Some(&[7; 40][..])),
            "a damaged value was returned: {read:?}"
        );
        assert!(read.is_err());
        assert!(store.scan(SHARD, Keyspace::Live, Range::all(), Order::Ascending, 100).is_err());
        let verification = store.verify().unwrap();
        assert!(verification.damaged > 0 && !verification.examples.is_empty());
        detected += 1;
    }
    assert_eq!(detected, 2);
    fs::write(&table, &intact).unwrap();
    let verification = open(directory.path()).verify().unwrap();
    assert_eq!((verification.records, verification.damaged), (51, 0));
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for item in fs::read_dir(directory).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The table file with the records of the test.
fn table_with_records(directory: &Path) -> PathBuf {
    let has_records = |path: &PathBuf| fs::read(path).unwrap().windows(40).any(|window| window == [7; 40]);
    files_below(&directory.join("tables")).into_iter().find(has_records).unwrap()
}
