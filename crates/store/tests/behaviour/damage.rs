//! Damage to what is on disk is noticed, never read as if it were data.

use std::fs;
use std::path::{Path, PathBuf};

use model::batch::{Batch, Keyspace};
use store::{Embedded, Error, Order, Range, Store};

use crate::support::{SHARD, copy_all, open, own, put, small};

#[test]
fn tables_that_lost_a_checkpoint_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let epoch = own(&store);
    put(&store, epoch, b"first", b"1");
    store.close().unwrap();
    let older = tempfile::tempdir().unwrap();
    copy_all(&directory.path().join("tables"), older.path());

    let store = open(directory.path());
    let epoch = own(&store);
    put(&store, epoch, b"second", b"2");
    store.close().unwrap();

    fs::remove_dir_all(directory.path().join("tables")).unwrap();
    copy_all(older.path(), &directory.path().join("tables"));
    let error = Embedded::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, Error::TablesBehind { .. }), "{error}");
    assert!(error.to_string().contains("backup"));

    fs::remove_dir_all(directory.path().join("tables")).unwrap();
    assert!(matches!(Embedded::open(directory.path(), small()), Err(Error::TablesBehind { .. })), "nor are none");
}

#[test]
fn a_journal_that_lost_what_the_tables_have_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let epoch = own(&store);
    put(&store, epoch, b"key", b"value");
    store.close().unwrap();
    fs::remove_dir_all(directory.path().join("journal")).unwrap();
    let error = Embedded::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, Error::JournalBehind { .. }), "{error}");
}

#[test]
fn damage_in_the_journal_is_passed_on_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let epoch = own(&store);
    put(&store, epoch, b"key", b"value");
    drop(store);
    let log = files_below(&directory.path().join("journal")).into_iter().find(|path| is_log(path)).unwrap();
    let mut bytes = fs::read(&log).unwrap();
    bytes[512 + 60] ^= 1;
    fs::write(&log, bytes).unwrap();
    let error = Embedded::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, Error::Journal(journal::Error::Damaged { .. })), "{error}");
}

/// Flips bytes all over the table files: a read gives the right value or an error, never another value, and
/// the full check finds it.
#[test]
fn a_flipped_byte_in_a_table_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let epoch = own(&store);
    let mut batch = Batch::new();
    for number in 0u32..50 {
        batch.put(Keyspace::Live, &number.to_be_bytes(), &[number as u8; 40]);
    }
    store.commit(SHARD, epoch, &batch).unwrap();
    store.close().unwrap();
    let table = largest_table(directory.path());
    let intact = fs::read(&table).unwrap();
    let marked = intact.windows(40).position(|window| window == [7; 40]).unwrap();

    let mut found = 0;
    for at in [marked, marked + 39] {
        let mut damaged = intact.clone();
        damaged[at] ^= 0x10;
        fs::write(&table, &damaged).unwrap();
        // Refusing to open is as loud as it gets.
        let Ok(store) = Embedded::open(directory.path(), small()) else {
            found += 1;
            continue;
        };
        let read = store.get(SHARD, Keyspace::Live, &7u32.to_be_bytes());
        assert!(!matches!(&read, Ok(value) if value.as_deref() != Some(&[7; 40][..])), "garbage was read: {read:?}");
        assert!(read.is_err());
        assert!(store.scan(SHARD, Keyspace::Live, Range::all(), Order::Ascending, 100).is_err());
        let verification = store.verify().unwrap();
        assert!(verification.damaged > 0 && !verification.examples.is_empty());
        found += 1;
    }
    assert_eq!(found, 2);
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

/// The table file that holds the records of the test.
fn largest_table(directory: &Path) -> PathBuf {
    let holds_records = |path: &PathBuf| fs::read(path).unwrap().windows(40).any(|window| window == [7; 40]);
    files_below(&directory.join("tables")).into_iter().find(holds_records).unwrap()
}
