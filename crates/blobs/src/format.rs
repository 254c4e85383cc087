//! The bytes of a stored blob: a header, then the content as one zstd frame.
//!
//! The header states both sizes, so that nothing has to be believed while unpacking, and a checksum of the packed
//! bytes: the content's hash alone would not notice a flipped bit that the decompressor ignores. The hash itself is
//! not in the header; it is the blob's name.

use crate::Error;

/// Changes with the format.
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

    /// `stored_bytes` is the size of the whole object: what is cut off or added at its end is found here.
    pub fn decode(bytes: &[u8], stored_bytes: u64, what: impl ToString) -> Result<Self, Error> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(Error::damaged(what, "it ends within its header"));
        };
        if bytes[..8] != MAGIC {
            return Err(Error::damaged(what, "its header is not one that this version knows"));
        }
        if crc32c::crc32c(&bytes[..28]).to_le_bytes() != bytes[28..] {
            return Err(Error::damaged(what, "its header does not match its checksum"));
        }
        let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let packed_crc = u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
        let header = Self { plain_bytes: number(8), packed_bytes: number(16), packed_crc };
        if header.packed_bytes.checked_add(HEADER_BYTES as u64) != Some(stored_bytes) {
            return Err(Error::damaged(what, format!("it has {stored_bytes} bytes, its header states another size")));
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back() {
        let header = Header { plain_bytes: u64::MAX, packed_bytes: 7, packed_crc: 0xDEAD_BEEF };
        assert_eq!(Header::decode(&header.encode(), 39, "it").unwrap(), header);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_as_a_header_end_without_a_panic(bytes: Vec<u8>, stored: u64) {
            let _ = Header::decode(&bytes, stored, "it");
        }
    }
}
