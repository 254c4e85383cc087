//! Shared test support: small journals in temporary directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use journal::{Error, Journal, Options, Position};

/// Small segments, no idle seals, long retention.
pub fn small() -> Options {
    Options {
        segment_bytes: 16 << 10,
        first_segment_bytes: 16 << 10,
        keep_bytes: u64::MAX,
        keep_for: Duration::from_secs(3600),
        seal_after: Duration::from_secs(3600),
    }
}

/// Small segments without retention: released ones expire immediately.
pub fn small_without_retention() -> Options {
    Options { keep_bytes: 0, ..small() }
}

pub fn open(directory: &Path) -> Journal {
    Journal::open(directory, small()).unwrap()
}

/// All entries from the oldest, with their positions.
pub fn read_all(journal: &Journal) -> Result<Vec<(Position, Bytes)>, Error> {
    let mut reader = journal.reader(journal.oldest())?;
    let mut entries = Vec::new();
    while let Some(entry) = reader.next()? {
        entries.push(entry);
    }
    Ok(entries)
}

pub fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for item in fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        fs::copy(item.path(), to.join(item.file_name())).unwrap();
    }
}

/// The files whose names end in `suffix`, sorted.
pub fn files(directory: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(directory).unwrap().map(|item| item.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(suffix));
    paths.sort();
    paths
}

/// Waits until a condition holds, and fails the test after a deadline.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        std::thread::yield_now();
    }
}

/// A payload derived from its number, so that a torn or mixed one is detected.
pub fn payload(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + len, (number % 251) as u8);
    bytes
}

/// Checks a payload and returns its number.
pub fn assert_intact(entry: &[u8]) -> u64 {
    let number = u64::from_le_bytes(entry[..8].try_into().unwrap());
    assert!(entry[8..].iter().all(|byte| *byte == (number % 251) as u8), "torn or mixed entry");
    number
}
