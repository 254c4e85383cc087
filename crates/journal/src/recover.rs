//! Recovery at opening: reads every segment once, checks it against its successor, and finds the end of the log.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::format::{ALIGNMENT, FORMAT_VERSION, FrameKind, HeaderError, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::frames::{FrameCursor, take_entry};
use crate::journal::file_names;
use crate::segment::{Segment, parse_segment_name, segment_path};
use crate::{Error, Position};

const CHUNK_BYTES: usize = 1 << 20;

/// Result of the recovery at opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Position of the last recovered entry.
    pub last: Position,
    /// Position of the oldest readable entry, or the one after `last` if there is none.
    pub oldest: Position,
    /// The unfinished end of the log, if a crash left one. It was never acknowledged.
    pub torn_tail: Option<TornTail>,
}

/// Where the log was truncated: the start of an unfinished frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    pub file: PathBuf,
    pub offset: u64,
}

/// The recovered segments, and the header of the next one.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub segments: Vec<Arc<Segment>>,
    pub next: SegmentHeader,
    pub torn_tail: Option<TornTail>,
    /// Last frame of the last segment. It may be unsynced.
    last_frame: Option<Range<u64>>,
}

impl Recovered {
    /// Makes the last frame durable by writing it again and syncing it. It may be in the page cache only: the process
    /// was killed between write and sync, or a sync failed and left its pages marked as clean. Without this, later
    /// data that depends on it could survive a power failure that it does not.
    pub fn rewrite_last_frame(&self) -> Result<(), Error> {
        let (Some(segment), Some(range)) = (self.segments.last(), &self.last_frame) else { return Ok(()) };
        let mut frame = vec![0; (range.end - range.start) as usize];
        segment.file.read_exact_at(&mut frame, range.start).map_err(Error::io("read", &segment.path))?;
        segment.file.write_all_at(&frame, range.start).map_err(Error::io("write to", &segment.path))?;
        segment.file.sync_data().map_err(Error::io("sync", &segment.path))
    }
}

/// Reads the log without changing it.
pub(crate) fn recover(directory: &Path, names: &[String], generation: u64) -> Result<Recovered, Error> {
    let mut firsts: Vec<Position> = names.iter().filter_map(|name| parse_segment_name(name)).collect();
    firsts.sort_unstable();
    let mut opened = Vec::with_capacity(firsts.len());
    for first in firsts {
        opened.push(open_segment(directory, first)?);
    }
    check_chain(directory, &opened)?;

    let mut torn_tail = None;
    let mut last_frame = None;
    let mut next = SegmentHeader { generation, first: Position(1), previous_first: Position::NONE, previous_end: 0 };
    let mut segments = Vec::with_capacity(opened.len());
    let ends: Vec<_> = opened.iter().skip(1).map(|successor| successor.header.previous_end).collect();
    for (index, segment) in opened.into_iter().enumerate() {
        let scan = match ends.get(index) {
            Some(end) => scan_closed(&segment, *end)?,
            None => scan_last(&segment)?,
        };
        if next.previous_first != Position::NONE && segment.header.first != next.first {
            return Err(damaged(&segment.path, 0, "its entries do not continue those of the previous segment"));
        }
        torn_tail = scan.torn_tail;
        if scan.next == segment.header.first && ends.get(index).is_none() {
            // The next segment replaces an empty last one, under the same name.
            next = SegmentHeader { generation, ..segment.header };
            continue;
        }
        next = SegmentHeader {
            generation,
            first: scan.next,
            previous_first: segment.header.first,
            previous_end: scan.end,
        };
        last_frame = (scan.last_frame < scan.end).then_some(scan.last_frame..scan.end);
        segments.push(Arc::new(segment));
    }
    Ok(Recovered { segments, next, torn_tail, last_frame })
}

/// Passes all entries of the journal in `directory` to `visit`, oldest first, and changes nothing. For a journal that
/// cannot be opened, for example because its disk is full. Nobody may write to it meanwhile.
pub fn read_entries(directory: &Path, mut visit: impl FnMut(Position, Bytes)) -> Result<(), Error> {
    let recovered = recover(directory, &file_names(directory)?, 0)?;
    for segment in &recovered.segments {
        let mut cursor = FrameCursor::new(CHUNK_BYTES);
        let mut offset = SEGMENT_HEADER_BYTES;
        while offset < segment.end() {
            let frame = cursor
                .frame(&segment.file, segment.header.generation, offset, segment.end())
                .map_err(Error::io("read", &segment.path))?
                .map_err(|reason| damaged(&segment.path, offset, reason))?;
            offset = frame.end();
            let (mut position, mut rest) = (frame.header.first, frame.payload);
            while let Some(entry) = take_entry(&mut rest) {
                visit(position, entry);
                position = position.next();
            }
        }
    }
    Ok(())
}

fn open_segment(directory: &Path, first: Position) -> Result<Segment, Error> {
    let path = segment_path(directory, first);
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(Error::io("open", &path))?;
    let header = read_header(&path, &file)?;
    if header.first != first {
        return Err(damaged(&path, 0, "the first position in the header differs from the file name"));
    }
    let metadata = file.metadata().map_err(Error::io("read the size of", &path))?;
    let segment = Segment::new(path, file, header, metadata.len());
    segment.close(metadata.modified().unwrap_or_else(|_| SystemTime::now()));
    Ok(segment)
}

fn read_header(path: &Path, file: &File) -> Result<SegmentHeader, Error> {
    let mut block = [0; SEGMENT_HEADER_BYTES as usize];
    file.read_exact_at(&mut block, 0).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged(path, 0, "the file is shorter than a segment header"),
        _ => Error::io("read", path)(error),
    })?;
    SegmentHeader::decode(&block).map_err(|error| match error {
        HeaderError::Damaged(reason) => damaged(path, 0, reason),
        HeaderError::NewerFormat(found) => {
            Error::NewerFormat { file: path.to_path_buf(), found, supported: FORMAT_VERSION }
        }
    })
}

/// Detects missing segments: each header refers to the previous segment. Only the oldest may refer to a deleted one.
fn check_chain(directory: &Path, segments: &[Segment]) -> Result<(), Error> {
    for pair in segments.windows(2) {
        let expected = pair[1].header.previous_first;
        if expected != pair[0].header.first {
            return Err(Error::Missing { file: segment_path(directory, expected) });
        }
    }
    Ok(())
}

struct SegmentScan {
    next: Position,
    /// Start of the last frame; equal to `end` if there is none.
    last_frame: u64,
    end: u64,
    torn_tail: Option<TornTail>,
}

/// Checks a segment with a successor. It must be valid exactly up to the end that the successor records.
fn scan_closed(segment: &Segment, end: u64) -> Result<SegmentScan, Error> {
    let (scan, reason) = scan_frames(segment, end.min(segment.file_bytes))?;
    if scan.end != end {
        return Err(damaged(&segment.path, scan.end, reason));
    }
    Ok(scan)
}

/// Checks the last segment. It may end in an unfinished frame, unless a valid one follows.
fn scan_last(segment: &Segment) -> Result<SegmentScan, Error> {
    let (mut scan, reason) = scan_frames(segment, segment.file_bytes)?;
    let mut cursor = FrameCursor::new(CHUNK_BYTES);
    let generation = segment.header.generation;
    let later = cursor
        .search(&segment.file, generation, scan.end, segment.file_bytes)
        .map_err(Error::io("read", &segment.path))?;
    if later.is_some() {
        return Err(damaged(&segment.path, scan.end, reason));
    }
    if has_started_write(segment, scan.end)? {
        tracing::warn!(
            file = %segment.path.display(),
            offset = scan.end,
            "truncated an unfinished write at the end of the journal; no acknowledged entry is lost"
        );
        scan.torn_tail = Some(TornTail { file: segment.path.clone(), offset: scan.end });
    }
    Ok(scan)
}

/// Whether a write started at this offset. Every write ends in zeros, so even in a reused file unwritten bytes are
/// zero.
fn has_started_write(segment: &Segment, offset: u64) -> Result<bool, Error> {
    let mut start = [0; ALIGNMENT as usize];
    let wanted = segment.file_bytes.saturating_sub(offset).min(start.len() as u64) as usize;
    segment.file.read_exact_at(&mut start[..wanted], offset).map_err(Error::io("read", &segment.path))?;
    Ok(start.iter().any(|byte| *byte != 0))
}

/// Reads frames up to the first invalid one, and returns the reason why it is invalid.
fn scan_frames(segment: &Segment, limit: u64) -> Result<(SegmentScan, &'static str), Error> {
    let mut cursor = FrameCursor::new(CHUNK_BYTES);
    let begin = SEGMENT_HEADER_BYTES;
    let mut scan = SegmentScan { next: segment.header.first, last_frame: begin, end: begin, torn_tail: None };
    loop {
        let found = cursor
            .frame(&segment.file, segment.header.generation, scan.end, limit)
            .map_err(Error::io("read", &segment.path))?;
        let frame = match found {
            Ok(frame) => frame,
            Err(reason) => return Ok((scan, reason)),
        };
        if frame.header.first != scan.next {
            return Err(damaged(&segment.path, scan.end, "the frame does not continue the previous one"));
        }
        match frame.header.kind {
            FrameKind::Entries => scan.next = Position(scan.next.0 + frame.entries()),
            FrameKind::Seal => {}
        }
        segment.publish(frame.header.first, scan.end, frame.end());
        scan.last_frame = scan.end;
        scan.end = frame.end();
    }
}

fn damaged(file: &Path, offset: u64, reason: &'static str) -> Error {
    Error::Damaged { file: file.to_path_buf(), offset, reason }
}
