//! Text encodings.
//!
//! All patterns are ASCII, so UTF-16 needs no full conversion: each unit becomes one byte, either its ASCII value or a
//! byte that matches no pattern. Unit `n` becomes byte `n`, so the original offset of a finding can be computed.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// UTF-8 or arbitrary bytes.
    #[default]
    Bytes,
    Utf16LittleEndian,
    Utf16BigEndian,
}

/// Length of the UTF-16 byte order mark, in bytes.
pub(crate) const MARK_BYTES: usize = 2;

/// Replacement for every unit that is not ASCII.
const NON_ASCII: u8 = 0xff;

impl Encoding {
    /// Detects the encoding by the byte order mark.
    pub fn of(beginning: &[u8]) -> Self {
        match beginning {
            [0xff, 0xfe, ..] => Self::Utf16LittleEndian,
            [0xfe, 0xff, ..] => Self::Utf16BigEndian,
            _ => Self::Bytes,
        }
    }

    /// Length of the byte order mark, in bytes.
    pub(crate) fn mark_bytes(self) -> usize {
        match self {
            Self::Bytes => 0,
            Self::Utf16LittleEndian | Self::Utf16BigEndian => MARK_BYTES,
        }
    }

    /// Number of original bytes per scanned byte.
    pub(crate) fn unit_bytes(self) -> usize {
        match self {
            Self::Bytes => 1,
            Self::Utf16LittleEndian | Self::Utf16BigEndian => 2,
        }
    }

    /// Converts an offset in the scanned bytes to an offset in the original.
    pub(crate) fn original_offset(self, scanned: u64) -> u64 {
        self.mark_bytes() as u64 + scanned * self.unit_bytes() as u64
    }

    /// Converts a UTF-16 unit to the byte that is scanned.
    pub(crate) fn narrow(self, unit: [u8; 2]) -> u8 {
        let unit = match self {
            Self::Bytes | Self::Utf16LittleEndian => u16::from_le_bytes(unit),
            Self::Utf16BigEndian => u16::from_be_bytes(unit),
        };
        u8::try_from(unit).ok().filter(u8::is_ascii).unwrap_or(NON_ASCII)
    }

    /// The byte at this original offset of a text masked with asterisks.
    pub(crate) fn mask_byte(self, offset: u64) -> u8 {
        let first = offset.is_multiple_of(2);
        match self {
            Self::Bytes => b'*',
            Self::Utf16LittleEndian if first => b'*',
            Self::Utf16BigEndian if !first => b'*',
            Self::Utf16LittleEndian | Self::Utf16BigEndian => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_order_mark_determines_the_encoding() {
        assert_eq!(Encoding::of(b""), Encoding::Bytes);
        assert_eq!(Encoding::of(&[0xff]), Encoding::Bytes);
        assert_eq!(Encoding::of(&[0xef, 0xbb, 0xbf]), Encoding::Bytes);
        assert_eq!(Encoding::of(&[0xff, 0xfe, b'a', 0]), Encoding::Utf16LittleEndian);
        assert_eq!(Encoding::of(&[0xfe, 0xff, 0, b'a']), Encoding::Utf16BigEndian);
    }

    #[test]
    fn ascii_units_are_converted_to_their_byte() {
        assert_eq!(Encoding::Utf16LittleEndian.narrow([b'a', 0]), b'a');
        assert_eq!(Encoding::Utf16BigEndian.narrow([0, b'a']), b'a');
        assert_eq!(Encoding::Utf16BigEndian.narrow([b'a', 0]), NON_ASCII);
        assert_eq!(Encoding::Utf16LittleEndian.narrow([0xe4, 0]), NON_ASCII);
    }
}
