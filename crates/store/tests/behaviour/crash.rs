//! Killed processes: no acknowledged commit is lost, no partial batch is visible, replays are idempotent.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use model::batch::{Batch, Keyspace};
use model::id::ShardId;
use store::{Embedded, Key, Options, Order, Range, Store};

use crate::support::{OWNER, SHARD, copy_all, eventually, open, open_shard, put, small};

const CHILD_DIRECTORY: &str = "STORE_TEST_CHILD_DIRECTORY";
const KILLS: u64 = 150;
const SHARDS: u16 = 2;
const KEYS_PER_BATCH: u64 = 5;
/// Keys repeat after this many commits, so that there are many overwrites and deletes.
const KEY_CYCLE: u64 = 20;

/// Flushes constantly, so that kills hit every part of a flush.
fn flush_constantly() -> Options {
    Options { flush_bytes: 4 << 10, flush_after: Duration::from_millis(1), ..small() }
}

/// Commit `number` of a shard: puts its own keys, deletes those of the previous commit, and stores the number.
fn batch(number: u64) -> Batch {
    let mut batch = Batch::new();
    for key in 0..KEYS_PER_BATCH {
        batch.put(Keyspace::Live, &(number % KEY_CYCLE * 100 + key).to_be_bytes(), &number.to_le_bytes());
        batch.delete(Keyspace::Live, &(number.wrapping_sub(1) % KEY_CYCLE * 100 + key).to_be_bytes());
    }
    batch.put(Keyspace::Done, &number.to_be_bytes(), &[number as u8; 100]);
    batch.put(Keyspace::Meta, b"newest", &number.to_le_bytes());
    batch
}

/// Number of the newest commit of a shard, after checking that all visible batches are complete.
fn newest(store: &Embedded, shard: ShardId) -> u64 {
    let newest = store.get(shard, Keyspace::Meta, b"newest").unwrap();
    let newest = newest.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()));
    let live = store.scan(shard, Keyspace::Live, Range::all(), Order::Ascending, usize::MAX).unwrap();
    if newest > 0 {
        assert_eq!(live.len() as u64, KEYS_PER_BATCH, "a partial or deleted batch is visible");
        assert!(live.iter().all(|(_, value)| **value == newest.to_le_bytes()));
    }
    let done = store.scan(shard, Keyspace::Done, Range::all(), Order::Ascending, usize::MAX).unwrap();
    let expected: Vec<_> =
        (1..=newest).map(|number| (Key::new(&number.to_be_bytes()), Bytes::from(vec![number as u8; 100]))).collect();
    assert_eq!(done, expected);
    newest
}

/// Not a test: the child process that gets killed.
#[test]
fn child_that_commits_until_it_is_killed() {
    let Ok(directory) = std::env::var(CHILD_DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let store = Embedded::open(&directory.join("store"), flush_constantly()).unwrap();
    std::thread::scope(|scope| {
        for shard in (0..SHARDS).map(ShardId) {
            let store = &store;
            scope.spawn(move || {
                let mut acknowledged =
                    OpenOptions::new().append(true).open(directory.join(format!("acknowledged-{shard}"))).unwrap();
                let mut token = store.take_over(shard, OWNER).unwrap();
                for number in newest(store, shard) + 1.. {
                    store.commit(&mut token, &batch(number)).unwrap();
                    acknowledged.write_all(&number.to_le_bytes()).unwrap();
                }
            });
        }
    });
}

// FEATURES: B2
#[test]
fn a_killed_store_loses_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let log = |shard: ShardId| directory.path().join(format!("acknowledged-{shard}"));
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..KILLS {
        for shard in (0..SHARDS).map(ShardId) {
            fs::write(log(shard), []).unwrap();
        }
        let mut child = spawn_child(directory.path());
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let wanted = (random >> 33) % 12 * 8;
        eventually("commits of the child", || fs::metadata(log(SHARD)).unwrap().len() >= wanted);
        child.kill().unwrap();
        child.wait().unwrap();

        // After every other kill the next child does the recovery.
        if kill % 2 == 1 {
            let store = Embedded::open(&directory.path().join("store"), small()).unwrap();
            for shard in (0..SHARDS).map(ShardId) {
                let newest = newest(&store, shard);
                let acknowledged = fs::read(log(shard)).unwrap();
                if let Some(last) = acknowledged.chunks_exact(8).next_back() {
                    let last = u64::from_le_bytes(last.try_into().unwrap());
                    assert!(newest >= last, "acknowledged {last}, found {newest}");
                }
            }
        }
    }
}

/// Replays a long tail, part of which is in the tables already. Each start is killed a little later, during the replay
/// or the first flush.
#[test]
fn a_crash_during_replay_changes_nothing() {
    const COMMITS: u64 = 400;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = open(&path);
    for shard in (0..SHARDS).map(ShardId) {
        fs::write(directory.path().join(format!("acknowledged-{shard}")), []).unwrap();
        let mut token = store.take_over(shard, OWNER).unwrap();
        for number in 1..=COMMITS {
            store.commit(&mut token, &batch(number)).unwrap();
            if number == 30 {
                store.flush().unwrap();
            }
        }
    }
    drop(store);
    let files = count_files(&path);
    for more in 0..20 {
        let crashed = tempfile::tempdir().unwrap();
        copy_all(directory.path(), crashed.path());
        let copy = crashed.path().join("store");
        for _ in 0..2 {
            let mut child = spawn_child(crashed.path());
            eventually("recovery of the child", || {
                count_files(&copy) > files + more
                    || fs::metadata(crashed.path().join("acknowledged-0")).unwrap().len() > 0
            });
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let store = open(&copy);
        for shard in (0..SHARDS).map(ShardId) {
            assert!(newest(&store, shard) >= COMMITS);
        }
    }
}

/// A flush writes a layer keyspace by keyspace, and stores the position at the end. Here the records are written but
/// the position is not: fjall's own journal, which contains it, is replaced by the earlier one.
#[test]
fn a_crash_before_the_position_is_stored_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut token = open_shard(&store);
    for number in 1..=10 {
        store.commit(&mut token, &batch(number)).unwrap();
    }
    let before = tempfile::tempdir().unwrap();
    copy_all(directory.path(), before.path());
    store.flush().unwrap();
    drop(store);
    let mixed = tempfile::tempdir().unwrap();
    copy_all(&before.path().join("journal"), &mixed.path().join("journal"));
    copy_all(&directory.path().join("tables"), &mixed.path().join("tables"));
    let is_journal = |path: &Path| path.extension().is_some_and(|extension| extension == "jnl");
    for item in fs::read_dir(before.path().join("tables")).unwrap() {
        let path = item.unwrap().path();
        if is_journal(&path) {
            fs::copy(&path, mixed.path().join("tables").join(path.file_name().unwrap())).unwrap();
        }
    }
    // Without a journal the tables would be rejected if they contained a position.
    let without_position = tempfile::tempdir().unwrap();
    copy_all(&mixed.path().join("tables"), &without_position.path().join("tables"));
    assert_eq!(newest(&open(without_position.path()), SHARD), 10, "the layer must be in the tables");

    for _ in 0..2 {
        let store = open(mixed.path());
        assert_eq!(newest(&store, SHARD), 10);
        store.flush().unwrap();
        assert_eq!(newest(&store, SHARD), 10);
    }
}

/// Kills the first start at every stage, measured by the number of files.
#[test]
fn a_first_start_can_be_killed_at_any_time() {
    for files in 0..48 {
        let directory = tempfile::tempdir().unwrap();
        for shard in (0..SHARDS).map(ShardId) {
            fs::write(directory.path().join(format!("acknowledged-{shard}")), []).unwrap();
        }
        let mut child = spawn_child(directory.path());
        let store = directory.path().join("store");
        eventually("files of the child", || count_files(&store) >= files || child.try_wait().unwrap().is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        let store = Embedded::open(&store, small()).unwrap_or_else(|error| panic!("after {files} files: {error}"));
        for shard in (0..SHARDS).map(ShardId) {
            newest(&store, shard);
        }
        let mut token = open_shard(&store);
        put(&store, &mut token, b"key", b"value");
        store.flush().unwrap();
    }
}

fn count_files(directory: &Path) -> usize {
    let Ok(items) = fs::read_dir(directory) else { return 0 };
    items.flatten().map(|item| if item.path().is_dir() { 1 + count_files(&item.path()) } else { 1 }).sum()
}

fn spawn_child(directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_that_commits_until_it_is_killed"])
        .env(CHILD_DIRECTORY, directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn commits_wait_while_the_backlog_exceeds_its_limit() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { backlog_bytes_max: 64 << 10, flush_bytes: 16 << 10, ..small() };
    let store = Embedded::open(directory.path(), options).unwrap();
    let mut token = open_shard(&store);
    for number in 0u32..100 {
        put(&store, &mut token, &number.to_be_bytes(), &[1; 8000]);
    }
    let found = store.scan(SHARD, Keyspace::Live, Range::all(), Order::Ascending, usize::MAX).unwrap();
    assert_eq!(found.len(), 100);
}
