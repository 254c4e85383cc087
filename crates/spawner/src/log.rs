//! Log file of an attempt: chunks of output with stream and time. Beginning and end of the output are stored.
//!
//! One file, appended to and never rewritten, so that positions stay valid: readers resume by position. The part
//! between the stored beginning and the stored end is returned to the file system as a hole.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::pipe::{SpliceFlags, splice};

use crate::sys;

/// Stream, three zero bytes, length, time, and bytes of the stream before this chunk.
pub const HEADER_BYTES: usize = 24;
/// Limits the memory of a reader.
pub const CHUNK_BYTES_MAX: usize = 256 * 1024;
/// Chunk size of programs that do not write a lot.
const READ_BYTES: usize = 64 * 1024;
/// Buffer size when no bytes are available: usually only EOF follows.
const SMALL_READ_BYTES: usize = 512;
/// Distance between recorded chunk starts, at which the stored end may begin.
const CHUNK_START_INTERVAL: u64 = 64 * 1024;
/// Pipe size of a program that writes a lot.
const LARGE_PIPE_BYTES: usize = 1024 * 1024;

/// Source of a chunk. The first byte of a header is never zero: zeros are a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout = 1,
    Stderr = 2,
}

impl Stream {
    pub const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    pub fn index(self) -> usize {
        self as usize - 1
    }
}

/// Header of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub stream: Stream,
    pub len: u32,
    /// Milliseconds since 1970.
    pub at: u64,
    /// Bytes of this stream before this chunk, stored or not.
    pub before: u64,
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.stream as u8;
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.at.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.before.to_le_bytes());
        bytes
    }

    /// `None` if these bytes are not a header.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let stream = Stream::ALL.into_iter().find(|stream| *stream as u8 == bytes[0])?;
        let len = u32::from_le_bytes(bytes[4..8].try_into().ok()?);
        let at = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
        let before = u64::from_le_bytes(bytes[16..24].try_into().ok()?);
        (bytes[1..4] == [0; 3] && len as usize <= CHUNK_BYTES_MAX).then_some(Self { stream, len, at, before })
    }
}

/// Appends to a log file.
#[derive(Debug)]
pub struct Writer {
    file: OwnedFd,
    end: u64,
    head_bytes: u64,
    tail_bytes: u64,
    /// Sampled chunk starts in the part that may become a hole.
    chunk_starts: VecDeque<u64>,
    /// Start and end of the hole.
    hole: Option<(u64, u64)>,
    stream_bytes: [u64; 2],
    /// Nothing more is stored: the file system cannot punch holes.
    full: bool,
    buffer: Vec<u8>,
}

/// Result of reading a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipeRead {
    Data,
    Empty,
    Eof,
}

impl Writer {
    pub fn new(file: OwnedFd, head_bytes: u64, tail_bytes: u64) -> Self {
        Self {
            file,
            end: 0,
            head_bytes,
            tail_bytes,
            chunk_starts: VecDeque::new(),
            hole: None,
            stream_bytes: [0; 2],
            full: false,
            buffer: Vec::new(),
        }
    }

    /// Appends the bytes available in a non-blocking pipe. On an error of the log file they are lost.
    pub fn append_from(&mut self, stream: Stream, pipe: BorrowedFd<'_>, now: u64) -> io::Result<PipeRead> {
        if self.full {
            return Ok(discard(pipe));
        }
        let available = sys::readable_bytes(pipe);
        if available > READ_BYTES {
            return self.splice(stream, pipe, available.min(CHUNK_BYTES_MAX), now);
        }
        // Little memory: most attempts write little, and each init has its own buffer.
        self.buffer.resize(HEADER_BYTES + available.clamp(SMALL_READ_BYTES, READ_BYTES), 0);
        let read = match rustix::io::read(pipe, &mut self.buffer[HEADER_BYTES..]) {
            Ok(0) => return Ok(PipeRead::Eof),
            Ok(read) => read,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(PipeRead::Empty),
            Err(error) => return Err(error.into()),
        };
        if read == READ_BYTES {
            // The program writes faster than this reads: use larger chunks. A failure is harmless.
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, LARGE_PIPE_BYTES);
        }
        self.append(stream, read, now)?;
        Ok(PipeRead::Data)
    }

    /// Appends output of a program inside this process.
    pub fn write(&mut self, stream: Stream, bytes: &[u8], now: u64) -> io::Result<()> {
        for chunk in bytes.chunks(CHUNK_BYTES_MAX) {
            if self.full {
                break;
            }
            self.buffer.clear();
            self.buffer.resize(HEADER_BYTES, 0);
            self.buffer.extend_from_slice(chunk);
            self.append(stream, chunk.len(), now)?;
        }
        Ok(())
    }

    /// Appends the content of the buffer, whose first bytes are reserved for the header.
    fn append(&mut self, stream: Stream, len: usize, now: u64) -> io::Result<()> {
        let header = self.header(stream, len, now);
        self.buffer[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        let bytes = &self.buffer[..HEADER_BYTES + len];
        let mut written = 0;
        while written < bytes.len() {
            match rustix::io::pwrite(&self.file, &bytes[written..], self.end + written as u64) {
                Ok(more) => written += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.truncate_after(error)),
            }
        }
        self.advance(stream, len)
    }

    /// As `append`, without copying through this process.
    fn splice(&mut self, stream: Stream, pipe: BorrowedFd<'_>, len: usize, now: u64) -> io::Result<PipeRead> {
        let header = self.header(stream, len, now).to_bytes();
        match rustix::io::pwrite(&self.file, &header, self.end) {
            Ok(HEADER_BYTES) => {}
            Ok(_) => return Err(self.truncate_after(rustix::io::Errno::NOSPC)),
            Err(error) => return Err(self.truncate_after(error)),
        }
        let mut offset = self.end + HEADER_BYTES as u64;
        let end = offset + len as u64;
        while offset < end {
            let left = (end - offset) as usize;
            match splice(pipe, None, &self.file, Some(&mut offset), left, SpliceFlags::empty()) {
                // Fewer bytes than were available: the program has read its own output back.
                Ok(0) | Err(rustix::io::Errno::AGAIN) => {
                    return self.shorten(stream, (offset - self.end) as usize - HEADER_BYTES, now);
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.truncate_after(error)),
            }
        }
        self.advance(stream, len)?;
        Ok(PipeRead::Data)
    }

    /// Rewrites the header of a chunk that became shorter than announced.
    fn shorten(&mut self, stream: Stream, len: usize, now: u64) -> io::Result<PipeRead> {
        if len == 0 {
            rustix::fs::ftruncate(&self.file, self.end)?;
            return Ok(PipeRead::Empty);
        }
        let header = self.header(stream, len, now).to_bytes();
        rustix::io::pwrite(&self.file, &header, self.end).map_err(|error| self.truncate_after(error))?;
        self.advance(stream, len)?;
        Ok(PipeRead::Data)
    }

    fn header(&self, stream: Stream, len: usize, now: u64) -> Header {
        Header { stream, len: len as u32, at: now, before: self.stream_bytes[stream.index()] }
    }

    /// Removes an incomplete chunk.
    fn truncate_after(&self, error: rustix::io::Errno) -> io::Error {
        let _ = rustix::fs::ftruncate(&self.file, self.end);
        error.into()
    }

    fn advance(&mut self, stream: Stream, len: usize) -> io::Result<()> {
        if self.end >= self.head_bytes
            && self.chunk_starts.back().is_none_or(|start| self.end >= start + CHUNK_START_INTERVAL)
        {
            self.chunk_starts.push_back(self.end);
        }
        self.stream_bytes[stream.index()] += len as u64;
        self.end += (HEADER_BYTES + len) as u64;
        self.punch_hole()
    }

    /// Returns the part between stored beginning and end to the file system, in large steps.
    fn punch_hole(&mut self) -> io::Result<()> {
        let tail_start = match (self.hole, self.chunk_starts.front()) {
            (Some((_, end)), _) => end,
            (None, Some(first)) => *first,
            (None, None) => return Ok(()),
        };
        let slack = (self.tail_bytes / 4).max(4 * CHUNK_START_INTERVAL);
        if self.end - tail_start <= self.tail_bytes + slack {
            return Ok(());
        }
        let limit = self.end - self.tail_bytes;
        let mut until = tail_start;
        while let Some(start) = self.chunk_starts.front().copied().filter(|start| *start <= limit) {
            until = start;
            self.chunk_starts.pop_front();
        }
        if until > tail_start {
            let from = self.hole.map_or(tail_start, |(from, _)| from);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match fallocate(&self.file, flags, tail_start, until - tail_start) {
                // Without hole punching, only the beginning is stored.
                Err(rustix::io::Errno::OPNOTSUPP) => self.full = true,
                done => done?,
            }
            self.hole = Some((from, until));
            // The next hole continues this one.
            self.chunk_starts.push_front(until);
        }
        Ok(())
    }
}

/// Reads and discards the bytes available in a pipe.
pub fn discard(pipe: BorrowedFd<'_>) -> PipeRead {
    let mut buffer = [0; 16 * 1024];
    match rustix::io::read(pipe, &mut buffer) {
        Ok(0) => PipeRead::Eof,
        Ok(_) => PipeRead::Data,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => PipeRead::Empty,
        Err(_) => PipeRead::Eof,
    }
}

impl AsFd for Writer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
