//! Partial upload of a stored object, written and verified piece by piece.
//!
//! A runner node is not trusted: every byte counts against the announced size, the header is checked as soon as it is
//! complete, and the content is unpacked and hashed while it arrives. An upload that began in an earlier request is
//! verified at its end instead, from the file, so that many interruptions do not cost more than one extra pass.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use model::blob::BlobId;

use crate::Error;
use crate::format::{HEADER_BYTES, Header};
use crate::limits::CHUNK_BYTES;
use crate::scratch::{Scratch, TempFile};
use crate::unpack::{Step, Unpacker};

/// Pieces unpacked per blocking call; a dropped caller is noticed between calls.
const PIECES_PER_CALL: usize = 64;

/// Maximum stored size of a blob. The packer stores incompressible content with less overhead than this.
pub(super) fn stored_bytes_max(plain_bytes: u64) -> u64 {
    plain_bytes.saturating_add(plain_bytes / 128).saturating_add(4096)
}

/// File with the bytes received so far.
#[derive(Debug, Default)]
pub(super) struct Partial {
    file: Option<TempFile>,
    pub received: u64,
    /// The upload was published, rejected or expired. Its file is gone.
    pub ended: bool,
}

impl Partial {
    pub fn end(&mut self) -> Option<TempFile> {
        self.ended = true;
        self.file.take()
    }

    fn append(&mut self, piece: &[u8], scratch: &Arc<Scratch>) -> Result<(), Error> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(scratch.file()?),
        };
        // A failed write leaves bytes behind `received`; the next write replaces them.
        file.file.write_all_at(piece, self.received).map_err(Error::io("write", &file.path))?;
        self.received += piece.len() as u64;
        Ok(())
    }
}

/// Verification of one object from its first byte on.
pub(super) struct Verification {
    id: BlobId,
    stored_bytes: u64,
    plain_bytes_max: u64,
    /// Start of the object, until the header is complete.
    start: Vec<u8>,
    unpacker: Option<Unpacker>,
    input: Bytes,
    verified: bool,
    fed: u64,
}

/// Whether a call has done all it could.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fed {
    All,
    /// Call again without a piece.
    Part,
}

impl Verification {
    pub fn new(id: BlobId, stored_bytes: u64, plain_bytes_max: u64) -> Self {
        let start = Vec::with_capacity(HEADER_BYTES);
        let input = Bytes::new();
        Self { id, stored_bytes, plain_bytes_max, start, unpacker: None, input, verified: false, fed: 0 }
    }

    /// Unpacks and hashes the next piece. The previous piece must be consumed.
    pub fn feed(&mut self, mut piece: Bytes) -> Result<Fed, Error> {
        debug_assert!(self.input.is_empty());
        self.fed += piece.len() as u64;
        if self.unpacker.is_none() {
            let header_part = piece.split_to(piece.len().min(HEADER_BYTES - self.start.len()));
            self.start.extend_from_slice(&header_part);
            if self.start.len() < HEADER_BYTES {
                return Ok(Fed::All);
            }
            self.unpacker = Some(self.open()?);
        }
        self.input = piece;
        self.resume()
    }

    fn open(&self) -> Result<Unpacker, Error> {
        let header = self.rejecting(Header::decode(&self.start, self.stored_bytes, self.id))?;
        if self.stored_bytes > stored_bytes_max(header.plain_bytes) {
            return Err(self.rejected("its packed bytes are more than its content needs"));
        }
        Unpacker::new(self.id, header, self.plain_bytes_max)
    }

    /// Continues with the last piece.
    pub fn resume(&mut self) -> Result<Fed, Error> {
        let Some(unpacker) = &mut self.unpacker else { return Ok(Fed::All) };
        for _ in 0..PIECES_PER_CALL {
            let step = unpacker.step(&mut self.input);
            match step {
                Ok(Step::Piece(_)) => {}
                Ok(Step::NeedsInput) => return Ok(Fed::All),
                Ok(Step::Done) => {
                    self.verified = true;
                    return Ok(Fed::All);
                }
                Err(error) => return self.rejecting(Err(error)),
            }
        }
        Ok(Fed::Part)
    }

    /// Plain size of the verified content.
    pub fn finish(&self) -> Result<u64, Error> {
        match &self.unpacker {
            Some(unpacker) if self.verified && self.fed == self.stored_bytes => Ok(unpacker.header().plain_bytes),
            Some(_) | None => Err(self.rejected("it is truncated")),
        }
    }

    /// In the upload of a runner node, damage is a reason to reject it.
    fn rejecting<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| match error {
            Error::Damaged { why, .. } => self.rejected(&why),
            other => other,
        })
    }

    fn rejected(&self, why: &str) -> Error {
        Error::Rejected { what: self.id.to_string(), why: why.to_owned() }
    }
}

/// Write and verification of one request's bytes.
pub(super) struct Receiving<G> {
    /// Exclusive access to the partial upload. It moves into the blocking thread and back, so that no other request
    /// writes while the write of a dropped one is still running.
    pub partial: G,
    pub scratch: Arc<Scratch>,
    pub id: BlobId,
    pub stored_bytes: u64,
    pub verification: Option<Verification>,
}

impl<G: std::ops::DerefMut<Target = Partial>> Receiving<G> {
    /// Blocks. Writes and verifies a piece.
    pub fn accept(&mut self, piece: Bytes) -> Result<Fed, Error> {
        let received = self.partial.received + piece.len() as u64;
        if received > self.stored_bytes {
            let why = format!("it has more than the announced {} bytes", self.stored_bytes);
            return Err(Error::Rejected { what: self.id.to_string(), why });
        }
        self.partial.append(&piece, &self.scratch)?;
        match &mut self.verification {
            Some(verification) => verification.feed(piece),
            None => Ok(Fed::All),
        }
    }

    /// Continues with a piece of which only a part was verified.
    pub fn resume(&mut self) -> Result<Fed, Error> {
        self.verification.as_mut().map_or(Ok(Fed::All), Verification::resume)
    }

    /// Blocks. Reads a part of the file again for the verification of an upload that began in an earlier request.
    pub fn verify_file(&mut self, verification: &mut Verification) -> Result<Fed, Error> {
        if !verification.input.is_empty() {
            return verification.resume().map(|_| Fed::Part);
        }
        let left = self.partial.received - verification.fed;
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let Some(file) = self.partial.file.as_ref().filter(|_| bytes > 0) else { return Ok(Fed::All) };
        let mut chunk = vec![0; bytes];
        file.file.read_exact_at(&mut chunk, verification.fed).map_err(Error::io("read", &file.path))?;
        verification.feed(chunk.into())?;
        Ok(Fed::Part)
    }
}
