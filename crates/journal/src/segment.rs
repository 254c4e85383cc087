//! Segment files: in-memory state, names and installation.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use crate::format::{PAGE_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::{Error, Position};

const LOG_SUFFIX: &str = ".log";

/// Distance between index entries. A reader that starts inside a segment skips at most about this many bytes.
const INDEX_EVERY_BYTES: u64 = 64 << 10;

/// A segment of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    pub path: PathBuf,
    pub file: File,
    pub header: SegmentHeader,
    pub file_bytes: u64,
    /// End of the durable frames. Grows while this is the active segment.
    end: AtomicU64,
    /// Sparse index of frames: first position and offset, ascending.
    index: Mutex<Vec<(Position, u64)>>,
    /// Time of the last write, set once a later segment exists.
    closed_at: Mutex<Option<SystemTime>>,
}

impl Segment {
    pub fn new(path: PathBuf, file: File, header: SegmentHeader, file_bytes: u64) -> Self {
        Self {
            path,
            file,
            header,
            file_bytes,
            end: AtomicU64::new(SEGMENT_HEADER_BYTES),
            index: Mutex::new(Vec::new()),
            closed_at: Mutex::new(None),
        }
    }

    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Makes a durable frame visible to readers.
    pub fn publish(&self, first: Position, offset: u64, end: u64) {
        {
            let mut index = self.index.lock();
            if index.last().is_none_or(|(_, last)| offset - last >= INDEX_EVERY_BYTES) {
                index.push((first, offset));
            }
        }
        self.end.store(end, Ordering::Release);
    }

    /// Offset of an indexed frame at or before `position`, to start reading from.
    pub fn offset_before(&self, position: Position) -> u64 {
        let index = self.index.lock();
        let after = index.partition_point(|(first, _)| *first <= position);
        after.checked_sub(1).map_or(SEGMENT_HEADER_BYTES, |at| index[at].1)
    }

    pub fn close(&self, at: SystemTime) {
        *self.closed_at.lock() = Some(at);
    }

    pub fn age(&self, now: SystemTime) -> Duration {
        self.closed_at.lock().and_then(|at| now.duration_since(at).ok()).unwrap_or_default()
    }
}

pub(crate) fn segment_path(directory: &Path, first: Position) -> PathBuf {
    directory.join(format!("{:020}{LOG_SUFFIX}", first.0))
}

/// Parses the first position from the file name of a segment.
pub(crate) fn parse_segment_name(name: &str) -> Option<Position> {
    let digits = name.strip_suffix(LOG_SUFFIX)?;
    let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().ok().map(Position)).flatten()
}

/// Unpredictable number. An entry can therefore not contain, by accident or design, a valid frame of its segment.
pub(crate) fn new_generation() -> u64 {
    static USES: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    RandomState::new().hash_one((now.as_nanos(), USES.fetch_add(1, Ordering::Relaxed), std::process::id()))
}

/// Writes the header to a spare file, then renames the file to a segment of the log. Every step is durable before the
/// next, so a crash leaves either no new segment or a complete, empty one.
pub(crate) fn install_segment(
    directory: &Path,
    spare: &Path,
    file: File,
    file_bytes: u64,
    header: SegmentHeader,
) -> Result<Segment, Error> {
    // The whole page is written, so that no bytes of an earlier use follow the header.
    let mut page = [0; PAGE_BYTES as usize];
    page[..SEGMENT_HEADER_BYTES as usize].copy_from_slice(&header.encode());
    file.write_all_at(&page, 0).map_err(Error::io("write the header of", spare))?;
    file.sync_all().map_err(Error::io("sync", spare))?;
    let path = segment_path(directory, header.first);
    std::fs::rename(spare, &path).map_err(Error::io("rename a spare segment to", &path))?;
    sync_directory(directory)?;
    Ok(Segment::new(path, file, header, file_bytes))
}

pub(crate) fn sync_directory(directory: &Path) -> Result<(), Error> {
    File::open(directory).and_then(|file| file.sync_all()).map_err(Error::io("sync the directory", directory))
}
