//! Binary format of a segment: one header block, then frames.
//!
//! All numbers are little-endian. Frames start at multiples of [`ALIGNMENT`]. A frame's checksum covers the
//! segment's generation and the frame's own offset. Bytes from an earlier use of the file, or copied from another
//! place, therefore never pass as a frame of this segment.

use crate::Position;

/// Writes end at page boundaries: a page that is overwritten completely need not be read first.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// The format this version writes, and the newest it reads.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The header occupies its own disk sector, so that writing the first frame does not touch it.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 512;
const SEGMENT_MAGIC: &[u8; 8] = b"OUTLJRNL";
const HEADER_CRC_AT: usize = SEGMENT_HEADER_BYTES as usize - 4;

pub(crate) const ALIGNMENT: u64 = 8;
pub(crate) const FRAME_HEADER_BYTES: usize = 40;
pub(crate) const FRAME_MAGIC: [u8; 4] = *b"OFRM";

/// Every entry in a frame is preceded by its length.
pub(crate) const ENTRY_PREFIX_BYTES: usize = 4;

/// Header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Random number, different for every use of a file.
    pub generation: u64,
    pub first: Position,
    /// First position of the previous segment, [`Position::NONE`] for the very first segment.
    pub previous_first: Position,
    /// End offset of the previous segment, which must be valid exactly up to there.
    pub previous_end: u64,
}

/// The reason why a header block is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Damaged(&'static str),
    NewerFormat(u32),
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut block = [0; SEGMENT_HEADER_BYTES as usize];
        block[0..8].copy_from_slice(SEGMENT_MAGIC);
        block[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        block[16..24].copy_from_slice(&self.generation.to_le_bytes());
        block[24..32].copy_from_slice(&self.first.0.to_le_bytes());
        block[32..40].copy_from_slice(&self.previous_first.0.to_le_bytes());
        block[40..48].copy_from_slice(&self.previous_end.to_le_bytes());
        let crc = crc32c::crc32c(&block[..HEADER_CRC_AT]);
        block[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// Magic, version and checksum have the same place in every format, including future ones.
    pub fn decode(block: &[u8; SEGMENT_HEADER_BYTES as usize]) -> Result<Self, HeaderError> {
        if &block[0..8] != SEGMENT_MAGIC {
            return Err(HeaderError::Damaged("the file does not start with a journal segment header"));
        }
        if crc32c::crc32c(&block[..HEADER_CRC_AT]) != u32_at(block, HEADER_CRC_AT) {
            return Err(HeaderError::Damaged("the checksum of the segment header does not match"));
        }
        let version = u32_at(block, 8);
        if version > FORMAT_VERSION {
            return Err(HeaderError::NewerFormat(version));
        }
        Ok(Self {
            generation: u64_at(block, 16),
            first: Position(u64_at(block, 24)),
            previous_first: Position(u64_at(block, 32)),
            previous_end: u64_at(block, 40),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Entries,
    /// Marks that everything before it was synced. Has no payload.
    Seal,
}

impl FrameKind {
    fn code(self) -> u32 {
        match self {
            Self::Entries => 1,
            Self::Seal => 2,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub kind: FrameKind,
    pub payload_bytes: u32,
    pub count: u32,
    /// Position of the first entry; in a seal, the position of the next entry.
    pub first: Position,
    /// Offset of this frame in the segment.
    pub offset: u64,
    pub crc: u32,
}

impl FrameHeader {
    /// Decodes the fields without checking the checksum.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < FRAME_HEADER_BYTES || bytes[0..4] != FRAME_MAGIC {
            return None;
        }
        let kind = match u32_at(bytes, 8) {
            1 => FrameKind::Entries,
            2 => FrameKind::Seal,
            _ => return None,
        };
        Some(Self {
            kind,
            crc: u32_at(bytes, 4),
            payload_bytes: u32_at(bytes, 12),
            count: u32_at(bytes, 16),
            first: Position(u64_at(bytes, 24)),
            offset: u64_at(bytes, 32),
        })
    }

    pub fn frame_bytes(&self) -> u64 {
        aligned(FRAME_HEADER_BYTES as u64 + u64::from(self.payload_bytes))
    }
}

/// Pads a frame whose payload begins at [`FRAME_HEADER_BYTES`], and fills in its header.
pub(crate) fn finish_frame(
    frame: &mut Vec<u8>,
    kind: FrameKind,
    count: u32,
    first: Position,
    offset: u64,
    generation: u64,
) {
    let payload =
        u32::try_from(frame.len() - FRAME_HEADER_BYTES).expect("the size of a frame is limited far below 4 GiB");
    frame.resize(aligned(frame.len() as u64) as usize, 0);
    frame[0..4].copy_from_slice(&FRAME_MAGIC);
    frame[8..12].copy_from_slice(&kind.code().to_le_bytes());
    frame[12..16].copy_from_slice(&payload.to_le_bytes());
    frame[16..20].copy_from_slice(&count.to_le_bytes());
    frame[20..24].copy_from_slice(&[0; 4]);
    frame[24..32].copy_from_slice(&first.0.to_le_bytes());
    frame[32..40].copy_from_slice(&offset.to_le_bytes());
    let crc = frame_crc(frame, generation);
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Checksum of a frame (header, payload, padding) of `generation`.
pub(crate) fn frame_crc(frame: &[u8], generation: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&generation.to_le_bytes()), &frame[8..])
}

pub(crate) fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_format_is_distinguished_from_a_damaged_header() {
        let header =
            SegmentHeader { generation: 7, first: Position(3), previous_first: Position(1), previous_end: 600 };
        let mut block = header.encode();
        assert_eq!(SegmentHeader::decode(&block), Ok(header));
        block[8] = 9;
        assert!(matches!(SegmentHeader::decode(&block), Err(HeaderError::Damaged(_))));
        let crc = crc32c::crc32c(&block[..HEADER_CRC_AT]);
        block[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&block), Err(HeaderError::NewerFormat(9)));
    }
}
