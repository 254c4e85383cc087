//! A torn tail is truncated without loss of earlier entries; any other damage is an error.

use std::fs;
use std::path::Path;

use crate::support::{copy_directory, files, open, payload, read_all, small};
use journal::{Error, Journal, Position};

const HEADER_BYTES: usize = 512;

/// Copies a journal directory as a crash would leave it: without a seal. The open journal keeps it unsealed.
fn crashed_copy(journal: &Journal, from: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_directory(from, copy.path());
    let _ = journal;
    copy
}

fn last_log(directory: &Path) -> std::path::PathBuf {
    files(directory, ".log").pop().unwrap()
}

#[test]
fn a_tail_torn_at_any_byte_is_truncated_without_loss_of_earlier_entries() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    journal.append(b"first").unwrap();
    journal.append(b"second").unwrap();
    let before = fs::read(last_log(directory.path())).unwrap();
    journal.append(&payload(3, 100)).unwrap();
    let after = fs::read(last_log(directory.path())).unwrap();
    let start = before.iter().zip(&after).position(|(old, new)| old != new).unwrap();
    let end = after.len() - before.iter().rev().zip(after.iter().rev()).position(|(old, new)| old != new).unwrap();

    for torn_at in start..end {
        let copy = crashed_copy(&journal, directory.path());
        let mut torn = before.clone();
        torn[start..torn_at].copy_from_slice(&after[start..torn_at]);
        fs::write(last_log(copy.path()), &torn).unwrap();
        let reopened = open(copy.path());
        let entries = read_all(&reopened).unwrap();
        // The payload may end in zeros, which were there before: then the frame is complete earlier.
        let complete = torn == after;
        assert_eq!(entries.len(), if complete { 3 } else { 2 }, "torn at {torn_at}");
        assert_eq!(reopened.recovery().torn_tail.is_some(), torn_at > start && !complete, "torn at {torn_at}");

        // The truncation is final: writing continues, and reopening finds the same entries.
        assert_eq!(reopened.append(b"instead").unwrap(), Position(entries.len() as u64 + 1));
        drop(reopened);
        let again = open(copy.path());
        assert_eq!(read_all(&again).unwrap().len(), entries.len() + 1);
        assert_eq!(again.recovery().torn_tail, None);
    }
}

#[test]
fn a_tail_written_out_of_order_is_truncated() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    journal.append(b"first").unwrap();
    let before = fs::read(last_log(directory.path())).unwrap();
    journal.append(&payload(2, 9000)).unwrap();
    let mut torn = fs::read(last_log(directory.path())).unwrap();
    // The later pages reached the disk, the first one did not.
    torn[..4096].copy_from_slice(&before[..4096]);
    let copy = crashed_copy(&journal, directory.path());
    fs::write(last_log(copy.path()), &torn).unwrap();
    assert_eq!(read_all(&open(copy.path())).unwrap().len(), 1);
}

/// Flips each used byte of every file: no entry may disappear without an error.
#[test]
fn any_flipped_byte_of_a_sealed_journal_is_reported_or_harmless() {
    let directory = tempfile::tempdir().unwrap();
    for part in 0..3u64 {
        let journal = open(directory.path());
        for number in 1..=3 {
            journal.append(&payload(part * 3 + number, 20)).unwrap();
        }
        journal.close().unwrap();
    }
    let logs = files(directory.path(), ".log");
    let intact = read_all(&open(directory.path())).unwrap();
    assert_eq!(intact.len(), 9);
    for (index, log) in logs.iter().enumerate() {
        let is_last = index + 1 == logs.len();
        let bytes = fs::read(log).unwrap();
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        for at in (0..used).filter(|at| *at < 64 || *at >= HEADER_BYTES - 8) {
            let copy = tempfile::tempdir().unwrap();
            copy_directory(directory.path(), copy.path());
            // Opening added an empty segment, which is removed here: only then is the last log file the last segment.
            fs::remove_file(last_log(copy.path())).unwrap();
            let file = copy.path().join(log.file_name().unwrap());
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            fs::write(&file, &damaged).unwrap();
            match Journal::open(copy.path(), small()) {
                Err(Error::Damaged { file: named, offset, .. }) => {
                    assert_eq!(named, file);
                    assert!(offset as usize <= at, "byte {at} of {named:?} was reported at {offset}");
                }
                Err(error) => panic!("byte {at} of {file:?}: {error}"),
                Ok(journal) => {
                    assert_eq!(read_all(&journal).unwrap(), intact, "byte {at} of {file:?}");
                    assert!(is_last && at + 48 > used, "the damage at byte {at} of {file:?} was not detected");
                }
            }
        }
    }
}

#[test]
fn damage_to_an_unsealed_frame_is_detected_by_the_next_frame() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path());
    journal.append(b"first").unwrap();
    journal.append(b"second").unwrap();
    let copy = crashed_copy(&journal, directory.path());
    let log = last_log(copy.path());
    let mut bytes = fs::read(&log).unwrap();
    bytes[HEADER_BYTES + 50] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let error = Journal::open(copy.path(), small()).unwrap_err();
    assert!(matches!(&error, Error::Damaged { offset: 512, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("00000000000000000001.log") && text.contains("offset 512") && text.contains("backup"));
}

#[test]
fn a_missing_segment_is_reported_by_name() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        open(directory.path()).append(b"entry").unwrap();
    }
    let middle = &files(directory.path(), ".log")[1];
    fs::remove_file(middle).unwrap();
    let error = Journal::open(directory.path(), small()).unwrap_err();
    assert!(matches!(&error, Error::Missing { file } if file == middle), "{error}");
}

#[test]
fn a_shortened_closed_segment_is_reported_as_damaged() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        open(directory.path()).append(b"entry").unwrap();
    }
    let first = &files(directory.path(), ".log")[0];
    for len in [0, 100, 512, 520, 570] {
        let copy = tempfile::tempdir().unwrap();
        copy_directory(directory.path(), copy.path());
        let copied = copy.path().join(first.file_name().unwrap());
        fs::OpenOptions::new().write(true).open(&copied).unwrap().set_len(len).unwrap();
        assert!(matches!(Journal::open(copy.path(), small()), Err(Error::Damaged { .. })));
    }
}

#[test]
fn a_newer_format_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    open(directory.path()).append(b"entry").unwrap();
    let log = &files(directory.path(), ".log")[0];
    let mut bytes = fs::read(log).unwrap();
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..508]);
    bytes[508..512].copy_from_slice(&crc.to_le_bytes());
    fs::write(log, &bytes).unwrap();
    let error = Journal::open(directory.path(), small()).unwrap_err();
    assert!(matches!(error, Error::NewerFormat { found: 2, .. }), "{error}");
}

#[test]
fn a_renamed_segment_is_reported_as_damaged() {
    let directory = tempfile::tempdir().unwrap();
    open(directory.path()).append(b"entry").unwrap();
    let log = &files(directory.path(), ".log")[0];
    fs::rename(log, directory.path().join("00000000000000000007.log")).unwrap();
    assert!(matches!(Journal::open(directory.path(), small()), Err(Error::Damaged { offset: 0, .. })));
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(200))]

    #[test]
    fn arbitrary_bytes_as_a_segment_never_panic(bytes: Vec<u8>) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("00000000000000000001.log"), &bytes).unwrap();
        proptest::prop_assert!(Journal::open(directory.path(), small()).is_err());
    }

    /// A valid header followed by noise that resembles frames.
    #[test]
    fn arbitrary_bytes_after_a_header_never_panic_and_yield_no_entry(
        noise in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
        frames in 0usize..8,
    ) {
        let directory = tempfile::tempdir().unwrap();
        drop(open(directory.path()));
        let log = last_log(directory.path());
        let mut bytes = fs::read(&log).unwrap();
        for frame in 0..frames {
            let at = HEADER_BYTES + frame * 48;
            bytes[at..at + 4].copy_from_slice(b"OFRM");
            bytes[at + 8] = 1;
            bytes[at + 32..at + 40].copy_from_slice(&(at as u64).to_le_bytes());
        }
        for (index, byte) in noise.iter().enumerate() {
            bytes[HEADER_BYTES + index] ^= byte;
        }
        fs::write(&log, &bytes).unwrap();
        let journal = open(directory.path());
        proptest::prop_assert_eq!(read_all(&journal).unwrap().len(), 0);
    }
}
