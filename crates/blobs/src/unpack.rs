//! Stored bytes on their way out: decompressed, counted, and checked against everything that is known about them.
//!
//! The piece that would complete the content is held back until all checks have passed. So who got as many bytes as
//! were announced got the right ones, and a damaged blob is never mistaken for a whole one.

use bytes::{Buf, Bytes};
use model::blob::BlobId;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::Error;
use crate::format::Header;
use crate::limits::PIECE_BYTES_MAX;

/// What the decompressor may remember, as a power of two: 8 MiB. Our own packing needs 2 MiB.
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
    /// Everything was handed out, and everything was right.
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

    /// Takes from `input` what it can. Asks for more only when `input` is used up.
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
            return Err(self.damaged("it unpacks to more than it states"));
        }
        if self.frame_ended {
            if !input.is_empty() {
                return Err(self.damaged("more bytes follow its end"));
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

    /// For when input is needed and there is none.
    pub fn cut_off(&self) -> Error {
        self.damaged("it ends too early")
    }

    fn decompress(&mut self, input: &mut Bytes) -> Result<Vec<u8>, Error> {
        // One byte more than is right is enough to know that it is wrong.
        let left = (self.header.plain_bytes - self.plain_bytes).saturating_add(1);
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX);
        let mut piece = Vec::with_capacity(room);
        while !self.frame_ended && piece.len() < room {
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
            if input.is_empty() && piece.len() < room {
                break;
            }
        }
        Ok(piece)
    }

    fn verify(&mut self) -> Result<(), Error> {
        if self.packed_bytes != self.header.packed_bytes {
            return Err(self.damaged("it ends too early"));
        }
        if self.crc != self.header.packed_crc {
            return Err(self.damaged("its bytes do not match their checksum"));
        }
        if self.plain_bytes != self.header.plain_bytes {
            return Err(self.damaged("it unpacks to less than it states"));
        }
        let found = BlobId(*self.hasher.finalize().as_bytes());
        if found != self.id {
            return Err(self.damaged(&format!("its content is {found}")));
        }
        self.verified = true;
        Ok(())
    }

    fn damaged(&self, why: &str) -> Error {
        Error::damaged(self.id, why)
    }
}
