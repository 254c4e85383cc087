//! Storage format of a blob: a header, then the content as one zstd frame.
//!
//! The header contains both sizes, so that unpacking is bounded, and a checksum of the packed bytes: the content's hash
//! alone would not detect a flipped bit that the decompressor ignores. The hash is not in the header; it is the blob's
//! id.

use crate::Error;

/// Includes the format version.
const MAGIC: [u8; 8] = *b"outblob\x01";
pub(crate) const HEADER_BYTES: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub plain_bytes: u64,
    pub packed_bytes: u64,
    pub packed_crc: u32,
}

impl Header {
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.plain_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.packed_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.packed_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `stored_bytes` is the size of the whole object; the comparison detects truncated and extended objects.
    pub fn decode(bytes: &[u8], stored_bytes: u64, what: impl ToString) -> Result<Self, Error> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(Error::damaged(what, "it ends within its header"));
        };
        if bytes[..8] != MAGIC {
            return Err(Error::damaged(what, "its header has an unknown format"));
        }
        if crc32c::crc32c(&bytes[..28]).to_le_bytes() != bytes[28..] {
            return Err(Error::damaged(what, "its header does not match its checksum"));
        }
        let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let packed_crc = u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
        let header = Self { plain_bytes: number(8), packed_bytes: number(16), packed_crc };
        if header.packed_bytes.checked_add(HEADER_BYTES as u64) != Some(stored_bytes) {
            return Err(Error::damaged(what, format!("its {stored_bytes} bytes do not match the size in its header")));
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let header = Header { plain_bytes: u64::MAX, packed_bytes: 7, packed_crc: 0xDEAD_BEEF };
        assert_eq!(Header::decode(&header.encode(), 39, "it").unwrap(), header);
    }

    proptest::proptest! {
        #[test]
        fn no_header_bytes_cause_a_panic(bytes: Vec<u8>, stored: u64) {
            let _ = Header::decode(&bytes, stored, "it");
        }
    }
}
