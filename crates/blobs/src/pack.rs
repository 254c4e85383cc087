//! Hashing and compression of plain content before it is published.
//!
//! Small content stays in memory, larger content goes to a scratch file. Memory use is bounded.

use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use model::blob::BlobId;
use zstd::stream::write::Encoder;

use crate::Error;
use crate::format::{HEADER_BYTES, Header};
use crate::limits::SPILL_BYTES;
use crate::scratch::{Scratch, TempFile};

/// zstd's default: about as fast as a disk, with most of the achievable compression.
const LEVEL: i32 = 3;

pub(crate) struct Packer {
    encoder: Encoder<'static, Spool>,
    scratch: Arc<Scratch>,
    hasher: blake3::Hasher,
    plain_bytes: u64,
    plain_bytes_max: u64,
}

/// Packed content, not yet published.
#[derive(Debug)]
pub(crate) struct Packed {
    pub id: BlobId,
    pub plain_bytes: u64,
    pub body: Body,
}

/// Bytes of an object to be published.
#[derive(Debug)]
pub(crate) enum Body {
    Memory(Vec<u8>),
    File(TempFile),
}

impl Packer {
    /// `plain_bytes` is the size of the content if known; it reduces the memory needed for small content.
    pub fn new(scratch: &Arc<Scratch>, plain_bytes_max: u64, plain_bytes: Option<u64>) -> Result<Self, Error> {
        let spool =
            Spool { scratch: Arc::clone(scratch), buffer: vec![0; HEADER_BYTES], file: None, packed: 0, crc: 0 };
        let encoder = Encoder::new(spool, LEVEL).and_then(|mut encoder| {
            encoder.set_pledged_src_size(plain_bytes)?;
            Ok(encoder)
        });
        Ok(Self {
            encoder: encoder.map_err(Error::io("compress into", scratch.path()))?,
            scratch: Arc::clone(scratch),
            hasher: blake3::Hasher::new(),
            plain_bytes: 0,
            plain_bytes_max,
        })
    }

    pub fn write(&mut self, content: &[u8]) -> Result<(), Error> {
        self.plain_bytes += content.len() as u64;
        if self.plain_bytes > self.plain_bytes_max {
            let (bytes, limit) = (self.plain_bytes, self.plain_bytes_max);
            return Err(Error::TooLarge { what: "a blob".to_owned(), bytes, limit });
        }
        self.hasher.update(content);
        self.encoder.write_all(content).map_err(Error::io("write to", self.scratch.path()))
    }

    pub fn finish(self) -> Result<Packed, Error> {
        let id = BlobId(*self.hasher.finalize().as_bytes());
        let directory = self.scratch.path();
        let spool = self.encoder.finish().map_err(Error::io("write to", directory))?;
        let body = spool.finish(self.plain_bytes).map_err(Error::io("write to", directory))?;
        Ok(Packed { id, plain_bytes: self.plain_bytes, body })
    }
}

/// Output of the encoder: a buffer that spills to a file.
struct Spool {
    scratch: Arc<Scratch>,
    /// Starts with space for the header, which is written last.
    buffer: Vec<u8>,
    file: Option<TempFile>,
    packed: u64,
    crc: u32,
}

impl Spool {
    fn spill(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.scratch.file().map_err(into_io)?),
        };
        file.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self, plain_bytes: u64) -> io::Result<Body> {
        let header = Header { plain_bytes, packed_bytes: self.packed, packed_crc: self.crc }.encode();
        if self.file.is_some() {
            self.spill()?;
        }
        match self.file {
            Some(file) => {
                file.file.write_all_at(&header, 0)?;
                Ok(Body::File(file))
            }
            None => {
                self.buffer[..HEADER_BYTES].copy_from_slice(&header);
                Ok(Body::Memory(self.buffer))
            }
        }
    }
}

impl Write for Spool {
    fn write(&mut self, packed: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(packed);
        self.packed += packed.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, packed);
        if self.buffer.len() >= SPILL_BYTES {
            self.spill()?;
        }
        Ok(packed.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The encoder supports only `io::Error`. The error kind preserves the distinction of a full disk.
fn into_io(error: Error) -> io::Error {
    match error {
        Error::Io { source, .. } => source,
        Error::Full { .. } => io::Error::from(io::ErrorKind::StorageFull),
        other => io::Error::other(other.to_string()),
    }
}
