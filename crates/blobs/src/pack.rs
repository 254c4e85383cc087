//! Plain content on its way in: hashed, counted, compressed, and kept aside until it is complete.
//!
//! Small content stays in memory; larger content goes to a scratch file, so that memory is bounded whatever comes.

use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use model::blob::BlobId;
use zstd::stream::write::Encoder;

use crate::Error;
use crate::format::{HEADER_BYTES, Header};
use crate::limits::SPILL_BYTES;
use crate::scratch::{Scratch, TempFile};

/// zstd's own default: about as fast as a disk, and most of what can be gained.
const LEVEL: i32 = 3;

pub(crate) struct Packer {
    encoder: Encoder<'static, Spool>,
    scratch: Arc<Scratch>,
    hasher: blake3::Hasher,
    plain_bytes: u64,
    plain_bytes_max: u64,
}

/// Complete content that is not in its place yet.
#[derive(Debug)]
pub(crate) struct Packed {
    pub id: BlobId,
    pub plain_bytes: u64,
    pub body: Body,
}

/// What will be the bytes of an object.
#[derive(Debug)]
pub(crate) enum Body {
    Memory(Vec<u8>),
    File(TempFile),
}

impl Packer {
    /// `plain_bytes` may be given if they are known: small content then takes little memory.
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
        let place = self.scratch.path();
        let spool = self.encoder.finish().map_err(Error::io("write to", place))?;
        let body = spool.finish(self.plain_bytes).map_err(Error::io("write to", place))?;
        Ok(Packed { id, plain_bytes: self.plain_bytes, body })
    }
}

/// Where the encoder writes to.
struct Spool {
    scratch: Arc<Scratch>,
    /// Begins with room for the header, which is known last.
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

/// The encoder speaks `io::Error` only; the kind tells a full disk from the rest.
fn into_io(error: Error) -> io::Error {
    match error {
        Error::Io { source, .. } => source,
        Error::Full { .. } => io::Error::from(io::ErrorKind::StorageFull),
        other => io::Error::other(other.to_string()),
    }
}
