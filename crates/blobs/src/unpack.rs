//! Decompression and verification of stored blobs.
//!
//! The piece that completes the content is held back until all checks have passed. A reader that received the announced
//! number of bytes has therefore received verified content.

use bytes::{Buf, Bytes};
use model::blob::BlobId;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::Error;
use crate::format::Header;
use crate::limits::PIECE_BYTES_MAX;

/// Decompression window limit as a power of two: 8 MiB. The packer uses 2 MiB.
const WINDOW_LOG_MAX: u32 = 23;

pub(crate) struct Unpacker {
    id: BlobId,
    header: Header,
    decoder: Decoder<'static>,
    hasher: blake3::Hasher,
    crc: u32,
    packed_bytes: u64,
    plain_bytes: u64,
    frame_ended: bool,
    verified: bool,
    held: Vec<u8>,
}

#[derive(Debug)]
pub(crate) enum Step {
    Piece(Vec<u8>),
    NeedsInput,
    /// All content was returned and verified.
    Done,
}

impl Unpacker {
    pub fn new(id: BlobId, header: Header, plain_bytes_max: u64) -> Result<Self, Error> {
        if header.plain_bytes > plain_bytes_max {
            return Err(Error::TooLarge { what: id.to_string(), bytes: header.plain_bytes, limit: plain_bytes_max });
        }
        let decoder = Decoder::new().and_then(|mut decoder| {
            decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
            Ok(decoder)
        });
        let decoder = decoder.map_err(|error| Error::damaged(id, error.to_string()))?;
        Ok(Self {
            id,
            header,
            decoder,
            hasher: blake3::Hasher::new(),
            crc: 0,
            packed_bytes: 0,
            plain_bytes: 0,
            frame_ended: false,
            verified: false,
            held: Vec::new(),
        })
    }

    pub fn header(&self) -> Header {
        self.header
    }

    /// Consumes `input`. Returns `NeedsInput` only when `input` is empty.
    pub fn step(&mut self, input: &mut Bytes) -> Result<Step, Error> {
        if self.verified {
            return Ok(Step::Done);
        }
        let mut piece = Vec::new();
        if !self.frame_ended {
            piece = self.decompress(input)?;
            self.hasher.update(&piece);
            self.plain_bytes += piece.len() as u64;
        }
        if self.plain_bytes > self.header.plain_bytes {
            return Err(self.damaged("it unpacks to more bytes than its header states"));
        }
        if self.frame_ended {
            if !input.is_empty() {
                return Err(self.damaged("extra bytes follow its end"));
            }
            self.verify()?;
            self.held.append(&mut piece);
            return Ok(if self.held.is_empty() { Step::Done } else { Step::Piece(std::mem::take(&mut self.held)) });
        }
        if self.plain_bytes == self.header.plain_bytes {
            self.held.append(&mut piece);
        }
        match piece.is_empty() {
            false => Ok(Step::Piece(piece)),
            true => Ok(Step::NeedsInput),
        }
    }

    /// Error for input that ends before the frame does.
    pub fn truncated(&self) -> Error {
        self.damaged("it is truncated")
    }

    fn decompress(&mut self, input: &mut Bytes) -> Result<Vec<u8>, Error> {
        // One excess byte suffices to detect content larger than stated.
        let left = (self.header.plain_bytes - self.plain_bytes).saturating_add(1);
        let capacity = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX);
        let mut piece = Vec::with_capacity(capacity);
        while !self.frame_ended && piece.len() < capacity {
            let mut from = InBuffer::around(input.as_ref());
            let filled = piece.len();
            let mut to = OutBuffer::around_pos(&mut piece, filled);
            let left = self.decoder.run(&mut from, &mut to);
            let left = left.map_err(|error| self.damaged(&format!("it cannot be unpacked ({error})")))?;
            let used = from.pos();
            self.crc = crc32c::crc32c_append(self.crc, &input[..used]);
            self.packed_bytes += used as u64;
            input.advance(used);
            self.frame_ended = left == 0;
            if input.is_empty() && piece.len() < capacity {
                break;
            }
        }
        Ok(piece)
    }

    fn verify(&mut self) -> Result<(), Error> {
        if self.packed_bytes != self.header.packed_bytes {
            return Err(self.damaged("it is truncated"));
        }
        if self.crc != self.header.packed_crc {
            return Err(self.damaged("its bytes do not match their checksum"));
        }
        if self.plain_bytes != self.header.plain_bytes {
            return Err(self.damaged("it unpacks to fewer bytes than its header states"));
        }
        let found = BlobId(*self.hasher.finalize().as_bytes());
        if found != self.id {
            return Err(self.damaged(&format!("its content hashes to {found}")));
        }
        self.verified = true;
        Ok(())
    }

    fn damaged(&self, why: &str) -> Error {
        Error::damaged(self.id, why)
    }
}
