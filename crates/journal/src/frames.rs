//! Reads frames from a segment file in large chunks and verifies each one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use crate::format::{
    ALIGNMENT, ENTRY_PREFIX_BYTES, FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHeader, FrameKind, frame_crc,
};

/// A frame whose checksum matched.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub header: FrameHeader,
    /// Entries, each preceded by its length.
    pub payload: Bytes,
}

impl Frame {
    pub fn end(&self) -> u64 {
        self.header.offset + self.header.frame_bytes()
    }

    pub fn entries(&self) -> u64 {
        match self.header.kind {
            FrameKind::Entries => u64::from(self.header.count),
            FrameKind::Seal => 0,
        }
    }
}

/// The frame at an offset, or the reason why there is no valid one.
pub(crate) type FrameResult = Result<Frame, &'static str>;

/// Buffered reader of one file. Any offset may be read; reading forward is cheap.
#[derive(Debug, Default)]
pub(crate) struct FrameCursor {
    chunk: Bytes,
    chunk_at: u64,
    chunk_bytes: usize,
}

impl FrameCursor {
    pub fn new(chunk_bytes: usize) -> Self {
        Self { chunk: Bytes::new(), chunk_at: 0, chunk_bytes }
    }

    /// Reads the frame at `offset`. Bytes at `limit` and beyond are not read.
    pub fn frame(&mut self, file: &File, generation: u64, offset: u64, limit: u64) -> io::Result<FrameResult> {
        let Some(head) = self.window(file, offset, FRAME_HEADER_BYTES, limit)? else {
            return Ok(Err("the file ends within a frame header"));
        };
        let Some(header) = FrameHeader::decode(&head) else {
            return Ok(Err("no frame starts here"));
        };
        if header.offset != offset {
            return Ok(Err("the frame was written for a different offset"));
        }
        if offset.saturating_add(header.frame_bytes()) > limit {
            return Ok(Err("the frame is longer than the file"));
        }
        let Some(whole) = self.window(file, offset, header.frame_bytes() as usize, limit)? else {
            return Ok(Err("the file ends within a frame"));
        };
        if frame_crc(&whole, generation) != header.crc {
            return Ok(Err("the checksum of the frame does not match"));
        }
        let payload = whole.slice(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + header.payload_bytes as usize);
        if !entries_fill_payload(&payload, header.count) {
            return Ok(Err("the entries of the frame do not fill its payload"));
        }
        Ok(Ok(Frame { header, payload }))
    }

    /// Searches for a valid frame at or after `offset`, reading the rest of the file once.
    pub fn search(&mut self, file: &File, generation: u64, mut offset: u64, limit: u64) -> io::Result<Option<u64>> {
        while self.window(file, offset, FRAME_HEADER_BYTES, limit)?.is_some() {
            let start = (offset - self.chunk_at) as usize;
            let skipped =
                self.chunk[start..].chunks(ALIGNMENT as usize).position(|bytes| bytes.starts_with(&FRAME_MAGIC));
            let Some(skipped) = skipped else {
                offset = (self.chunk_at + self.chunk.len() as u64).next_multiple_of(ALIGNMENT);
                continue;
            };
            offset += skipped as u64 * ALIGNMENT;
            if self.frame(file, generation, offset, limit)?.is_ok() {
                return Ok(Some(offset));
            }
            offset += ALIGNMENT;
        }
        Ok(None)
    }

    /// Discards the buffer, so that the next call reads the file again.
    pub fn clear(&mut self) {
        self.chunk = Bytes::new();
    }

    /// Returns `len` bytes from `offset`, or `None` if `limit` or the end of the file comes first.
    fn window(&mut self, file: &File, offset: u64, len: usize, limit: u64) -> io::Result<Option<Bytes>> {
        if offset.saturating_add(len as u64) > limit {
            return Ok(None);
        }
        let chunk_end = self.chunk_at + self.chunk.len() as u64;
        if offset < self.chunk_at || offset + len as u64 > chunk_end {
            let wanted = (self.chunk_bytes.max(len) as u64).min(limit - offset) as usize;
            self.chunk = read_up_to(file, offset, wanted)?;
            self.chunk_at = offset;
            if self.chunk.len() < len {
                return Ok(None);
            }
        }
        let start = (offset - self.chunk_at) as usize;
        Ok(Some(self.chunk.slice(start..start + len)))
    }
}

fn read_up_to(file: &File, offset: u64, len: usize) -> io::Result<Bytes> {
    let mut buffer = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(Bytes::from(buffer))
}

/// Splits the first entry off a payload.
pub(crate) fn take_entry(payload: &mut Bytes) -> Option<Bytes> {
    let prefix: [u8; ENTRY_PREFIX_BYTES] = payload.get(..ENTRY_PREFIX_BYTES)?.try_into().ok()?;
    let end = ENTRY_PREFIX_BYTES.checked_add(u32::from_le_bytes(prefix) as usize)?;
    if end > payload.len() {
        return None;
    }
    Some(payload.split_to(end).slice(ENTRY_PREFIX_BYTES..))
}

fn entries_fill_payload(payload: &Bytes, count: u32) -> bool {
    let mut rest: &[u8] = payload;
    for _ in 0..count {
        let Some((prefix, tail)) = rest.split_first_chunk::<ENTRY_PREFIX_BYTES>() else {
            return false;
        };
        let Some(tail) = tail.get(u32::from_le_bytes(*prefix) as usize..) else {
            return false;
        };
        rest = tail;
    }
    rest.is_empty()
}
