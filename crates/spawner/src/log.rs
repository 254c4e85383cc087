//! An attempt's output on disk: pieces with their stream and time, the beginning and the end of it kept.
//!
//! One file, appended to and never rewritten, so that a position in it stays true: readers resume by it. What lies
//! between the kept beginning and the kept end is given back to the file system as a hole.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::pipe::{SpliceFlags, splice};

use crate::sys;

/// Stream, three bytes of nothing, length, time, and how many bytes of the stream came before.
pub const HEADER_BYTES: usize = 24;
/// A piece is never longer, so that a reader needs little memory.
pub const PIECE_BYTES_MAX: usize = 256 * 1024;
/// Output comes in pieces of this size at most until a program turns out to write a lot.
const READ_BYTES: usize = 64 * 1024;
/// When nothing seems to wait, only the end is expected.
const SMALL_READ_BYTES: usize = 512;
/// Between two places where the kept end may begin.
const MARK_INTERVAL: u64 = 64 * 1024;
/// The size of the pipe of a program that writes a lot.
const LARGE_PIPE_BYTES: usize = 1024 * 1024;

/// Where a piece came from. A header's first byte is never zero: zeros are a hole.
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

/// What stands before a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub stream: Stream,
    pub len: u32,
    /// Milliseconds since 1970.
    pub at: u64,
    /// How many bytes of this stream came before this piece, kept or not.
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

    /// `None` when these bytes are no header.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let stream = Stream::ALL.into_iter().find(|stream| *stream as u8 == bytes[0])?;
        let len = u32::from_le_bytes(bytes[4..8].try_into().ok()?);
        let at = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
        let before = u64::from_le_bytes(bytes[16..24].try_into().ok()?);
        (bytes[1..4] == [0; 3] && len as usize <= PIECE_BYTES_MAX).then_some(Self { stream, len, at, before })
    }
}

/// Appends to a log file.
#[derive(Debug)]
pub struct Writer {
    file: OwnedFd,
    end: u64,
    head_bytes: u64,
    tail_bytes: u64,
    /// Where pieces begin, now and then, in what may become the hole.
    marks: VecDeque<u64>,
    /// Where the hole begins and ends.
    hole: Option<(u64, u64)>,
    seen: [u64; 2],
    /// Nothing more can be kept.
    full: bool,
    buffer: Vec<u8>,
}

/// What a look at a pipe came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pumped {
    Some,
    Nothing,
    End,
}

impl Writer {
    pub fn new(file: OwnedFd, head_bytes: u64, tail_bytes: u64) -> Self {
        Self {
            file,
            end: 0,
            head_bytes,
            tail_bytes,
            marks: VecDeque::new(),
            hole: None,
            seen: [0; 2],
            full: false,
            buffer: Vec::new(),
        }
    }

    /// Appends what waits in a pipe that does not block. An error is that of the file; the pipe has been read from.
    pub fn pump(&mut self, stream: Stream, pipe: BorrowedFd<'_>, now: u64) -> io::Result<Pumped> {
        if self.full {
            return Ok(discard(pipe));
        }
        let waiting = sys::waiting_in(pipe);
        if waiting > READ_BYTES {
            return self.splice(stream, pipe, waiting.min(PIECE_BYTES_MAX), now);
        }
        // No more memory than is needed: most attempts write little, and each one's init has its own.
        self.buffer.resize(HEADER_BYTES + waiting.clamp(SMALL_READ_BYTES, READ_BYTES), 0);
        let read = match rustix::io::read(pipe, &mut self.buffer[HEADER_BYTES..]) {
            Ok(0) => return Ok(Pumped::End),
            Ok(read) => read,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Pumped::Nothing),
            Err(error) => return Err(error.into()),
        };
        if read == READ_BYTES {
            // It writes faster than this reads: fewer, larger pieces from now on. Not being allowed to is no harm.
            let _ = rustix::pipe::fcntl_setpipe_size(pipe, LARGE_PIPE_BYTES);
        }
        self.append(stream, read, now)?;
        Ok(Pumped::Some)
    }

    /// Appends what a program in this process has written.
    pub fn write(&mut self, stream: Stream, bytes: &[u8], now: u64) -> io::Result<()> {
        for piece in bytes.chunks(PIECE_BYTES_MAX) {
            if self.full {
                break;
            }
            self.buffer.clear();
            self.buffer.resize(HEADER_BYTES, 0);
            self.buffer.extend_from_slice(piece);
            self.append(stream, piece.len(), now)?;
        }
        Ok(())
    }

    /// Appends what stands in the buffer after the room for a header.
    fn append(&mut self, stream: Stream, len: usize, now: u64) -> io::Result<()> {
        let header = self.header(stream, len, now);
        self.buffer[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        let bytes = &self.buffer[..HEADER_BYTES + len];
        let mut written = 0;
        while written < bytes.len() {
            match rustix::io::pwrite(&self.file, &bytes[written..], self.end + written as u64) {
                Ok(more) => written += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.cut_back(error)),
            }
        }
        self.advance(stream, len)
    }

    /// The same without a copy through this process.
    fn splice(&mut self, stream: Stream, pipe: BorrowedFd<'_>, len: usize, now: u64) -> io::Result<Pumped> {
        let header = self.header(stream, len, now).to_bytes();
        match rustix::io::pwrite(&self.file, &header, self.end) {
            Ok(HEADER_BYTES) => {}
            Ok(_) => return Err(self.cut_back(rustix::io::Errno::NOSPC)),
            Err(error) => return Err(self.cut_back(error)),
        }
        let mut offset = self.end + HEADER_BYTES as u64;
        let end = offset + len as u64;
        while offset < end {
            let left = (end - offset) as usize;
            match splice(pipe, None, &self.file, Some(&mut offset), left, SpliceFlags::empty()) {
                // So much was waiting in the pipe; but a program may read its own output back.
                Ok(0) | Err(rustix::io::Errno::AGAIN) => {
                    return self.shorten(stream, (offset - self.end) as usize - HEADER_BYTES, now);
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.cut_back(error)),
            }
        }
        self.advance(stream, len)?;
        Ok(Pumped::Some)
    }

    /// A piece became shorter than was announced.
    fn shorten(&mut self, stream: Stream, len: usize, now: u64) -> io::Result<Pumped> {
        if len == 0 {
            rustix::fs::ftruncate(&self.file, self.end)?;
            return Ok(Pumped::Nothing);
        }
        let header = self.header(stream, len, now).to_bytes();
        rustix::io::pwrite(&self.file, &header, self.end).map_err(|error| self.cut_back(error))?;
        self.advance(stream, len)?;
        Ok(Pumped::Some)
    }

    fn header(&self, stream: Stream, len: usize, now: u64) -> Header {
        Header { stream, len: len as u32, at: now, before: self.seen[stream.index()] }
    }

    /// A piece that is not whole must not stay.
    fn cut_back(&self, error: rustix::io::Errno) -> io::Error {
        let _ = rustix::fs::ftruncate(&self.file, self.end);
        error.into()
    }

    fn advance(&mut self, stream: Stream, len: usize) -> io::Result<()> {
        if self.end >= self.head_bytes && self.marks.back().is_none_or(|mark| self.end >= mark + MARK_INTERVAL) {
            self.marks.push_back(self.end);
        }
        self.seen[stream.index()] += len as u64;
        self.end += (HEADER_BYTES + len) as u64;
        self.forget_middle()
    }

    /// Gives back what lies between the beginning and the end that are kept, a good deal at a time.
    fn forget_middle(&mut self) -> io::Result<()> {
        let kept_from = match (self.hole, self.marks.front()) {
            (Some((_, end)), _) => end,
            (None, Some(first)) => *first,
            (None, None) => return Ok(()),
        };
        let slack = (self.tail_bytes / 4).max(4 * MARK_INTERVAL);
        if self.end - kept_from <= self.tail_bytes + slack {
            return Ok(());
        }
        let limit = self.end - self.tail_bytes;
        let mut until = kept_from;
        while let Some(mark) = self.marks.front().copied().filter(|mark| *mark <= limit) {
            until = mark;
            self.marks.pop_front();
        }
        if until > kept_from {
            let from = self.hole.map_or(kept_from, |(from, _)| from);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match fallocate(&self.file, flags, kept_from, until - kept_from) {
                // A file system that cannot give anything back keeps the beginning only.
                Err(rustix::io::Errno::OPNOTSUPP) => self.full = true,
                done => done?,
            }
            self.hole = Some((from, until));
            // The next hole begins where this one ends.
            self.marks.push_front(until);
        }
        Ok(())
    }
}

/// Reads and throws away what waits in a pipe.
pub fn discard(pipe: BorrowedFd<'_>) -> Pumped {
    let mut buffer = [0; 16 * 1024];
    match rustix::io::read(pipe, &mut buffer) {
        Ok(0) => Pumped::End,
        Ok(_) => Pumped::Some,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Pumped::Nothing,
        Err(_) => Pumped::End,
    }
}

impl AsFd for Writer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
