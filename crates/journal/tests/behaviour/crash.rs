//! Crashes: a killed writer, and all states that an interrupted open, rotation or reuse can leave.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{assert_intact, copy_directory, eventually, files, open, payload, read_all, small};
use journal::{Journal, Options, Position};

const CHILD_DIRECTORY: &str = "JOURNAL_TEST_CHILD_DIRECTORY";
const KILLS: u64 = 120;

fn child_options() -> Options {
    Options { keep_bytes: 64 << 10, seal_after: Duration::from_millis(1), ..small() }
}

/// Not a test: the child process that gets killed.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Ok(directory) = std::env::var(CHILD_DIRECTORY) else {
        return;
    };
    let directory = Path::new(&directory);
    let journal = Journal::open(&directory.join("journal"), child_options()).unwrap();
    let acknowledged = OpenOptions::new().append(true).open(directory.join("acknowledged")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (journal, mut acknowledged) = (&journal, &acknowledged);
            scope.spawn(move || {
                for number in (thread..).step_by(2) {
                    let position = journal.append(&payload(number, (number % 700) as usize)).unwrap();
                    acknowledged.write_all(&position.0.to_le_bytes()).unwrap();
                    if number % 16 == 0 {
                        journal.release(Position(position.0.saturating_sub(40)));
                    }
                }
            });
        }
    });
}

/// The acknowledged positions. A killed writer may leave the last one incomplete.
fn acknowledged(file: &Path) -> BTreeSet<u64> {
    fs::read(file).unwrap().chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn a_killed_writer_loses_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("acknowledged");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..KILLS {
        fs::write(&log, []).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child_that_writes_until_it_is_killed"])
            .env(CHILD_DIRECTORY, directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let wanted = (random >> 33) % 60 * 8;
        eventually("acknowledgements of the child", || fs::metadata(&log).unwrap().len() >= wanted);
        child.kill().unwrap();
        child.wait().unwrap();

        let journal = Journal::open(&directory.path().join("journal"), child_options()).unwrap();
        let entries = read_all(&journal).unwrap();
        for (position, entry) in &entries {
            assert_intact(entry);
            assert!(*position >= journal.oldest());
        }
        let oldest = journal.oldest().0;
        assert!(entries.iter().zip(oldest..).all(|((position, _), expected)| position.0 == expected));
        let acknowledged = acknowledged(&log);
        if let Some(last) = acknowledged.last() {
            assert!(journal.durable().0 >= *last, "acknowledged {last}, found {}", journal.durable());
            assert!(oldest <= last - last.min(&40) + 1, "unreleased entries were recycled");
        }
    }
}

#[test]
fn leftovers_of_an_interrupted_segment_preparation_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    open(directory.path()).append(b"entry").unwrap();
    fs::write(directory.path().join("spare-00000007.tmp"), vec![1; 500]).unwrap();
    fs::write(directory.path().join("spare-00000008.seg"), vec![2; 500]).unwrap();
    fs::write(directory.path().join("spare-00000009.seg"), vec![3; 16 << 10]).unwrap();
    fs::write(directory.path().join("notes.txt"), b"unrelated").unwrap();
    let journal = open(directory.path());
    assert_eq!(read_all(&journal).unwrap().len(), 1);
    assert!(files(directory.path(), ".tmp").is_empty());
    assert!(
        files(directory.path(), ".seg").is_empty(),
        "one spare has the wrong size, the other became the new segment"
    );
    assert!(directory.path().join("notes.txt").exists());
    journal.append(b"next").unwrap();
    drop(journal);
    assert_eq!(read_all(&open(directory.path())).unwrap().len(), 2);
}

/// Copies the directory at each step that a crash could interrupt, and opens every copy.
#[test]
fn a_crash_at_any_step_of_opening_leaves_the_same_content() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    for number in 1..=20 {
        journal.append(&payload(number, 1500)).unwrap();
    }
    let crashed = tempfile::tempdir().unwrap();
    copy_directory(directory.path(), crashed.path());
    drop(journal);
    let expected: Vec<_> = (1..=20).map(|number| payload(number, 1500)).collect();
    let check = |directory: &Path| {
        let journal = open(directory);
        let found: Vec<_> = read_all(&journal).unwrap().into_iter().map(|(_, entry)| entry.to_vec()).collect();
        assert_eq!(found, expected);
    };

    // The new segment is part of the log and empty.
    let opened = tempfile::tempdir().unwrap();
    copy_directory(crashed.path(), opened.path());
    let journal = open(opened.path());
    let new_segment = files(opened.path(), ".log").pop().unwrap();
    let after_open = tempfile::tempdir().unwrap();
    copy_directory(opened.path(), after_open.path());
    drop(journal);
    check(after_open.path());

    // The new segment has its header, but is not renamed yet.
    let before_rename = tempfile::tempdir().unwrap();
    copy_directory(crashed.path(), before_rename.path());
    fs::copy(&new_segment, before_rename.path().join("spare-00000001.seg")).unwrap();
    check(before_rename.path());

    // The new segment is half prepared.
    let preparing = tempfile::tempdir().unwrap();
    copy_directory(crashed.path(), preparing.path());
    fs::write(preparing.path().join("spare-00000001.tmp"), vec![0; 5000]).unwrap();
    check(preparing.path());

    // The first frame in the new segment is torn.
    let torn = tempfile::tempdir().unwrap();
    copy_directory(after_open.path(), torn.path());
    let log = torn.path().join(new_segment.file_name().unwrap());
    let mut bytes = fs::read(&log).unwrap();
    bytes[512..516].copy_from_slice(b"OFRM");
    fs::write(&log, &bytes).unwrap();
    check(torn.path());
    // Opening the result again gives the same.
    check(torn.path());
}
