//! How text is written in bytes.
//!
//! All patterns are of ASCII. So UTF-16 needs no real conversion: each of its units becomes one byte, itself where it
//! is ASCII and a byte that is in no word otherwise. The unit at place `n` then is the byte at place `n`, and a finding's
//! place is known without a map.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// UTF-8, or any bytes.
    #[default]
    Bytes,
    Utf16LittleEndian,
    Utf16BigEndian,
}

/// A byte order mark of UTF-16.
pub(crate) const MARK_BYTES: usize = 2;

/// Stands for every unit that is no ASCII.
const OTHER: u8 = 0xff;

impl Encoding {
    /// By the mark at the beginning.
    pub fn of(beginning: &[u8]) -> Self {
        match beginning {
            [0xff, 0xfe, ..] => Self::Utf16LittleEndian,
            [0xfe, 0xff, ..] => Self::Utf16BigEndian,
            _ => Self::Bytes,
        }
    }

    /// How many bytes stand before the text.
    pub(crate) fn mark_bytes(self) -> usize {
        match self {
            Self::Bytes => 0,
            Self::Utf16LittleEndian | Self::Utf16BigEndian => MARK_BYTES,
        }
    }

    /// How many bytes make one of those that are scanned.
    pub(crate) fn unit_bytes(self) -> usize {
        match self {
            Self::Bytes => 1,
            Self::Utf16LittleEndian | Self::Utf16BigEndian => 2,
        }
    }

    /// Where a place in what was scanned is in the original.
    pub(crate) fn place(self, scanned: u64) -> u64 {
        self.mark_bytes() as u64 + scanned * self.unit_bytes() as u64
    }

    pub(crate) fn narrow(self, unit: [u8; 2]) -> u8 {
        let unit = match self {
            Self::Bytes | Self::Utf16LittleEndian => u16::from_le_bytes(unit),
            Self::Utf16BigEndian => u16::from_be_bytes(unit),
        };
        u8::try_from(unit).ok().filter(u8::is_ascii).unwrap_or(OTHER)
    }

    /// What a byte at this place is replaced by, so that a star is read.
    pub(crate) fn star(self, place: u64) -> u8 {
        let first = place.is_multiple_of(2);
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
    fn the_mark_at_the_beginning_tells_the_encoding() {
        assert_eq!(Encoding::of(b""), Encoding::Bytes);
        assert_eq!(Encoding::of(&[0xff]), Encoding::Bytes);
        assert_eq!(Encoding::of(&[0xef, 0xbb, 0xbf]), Encoding::Bytes);
        assert_eq!(Encoding::of(&[0xff, 0xfe, b'a', 0]), Encoding::Utf16LittleEndian);
        assert_eq!(Encoding::of(&[0xfe, 0xff, 0, b'a']), Encoding::Utf16BigEndian);
    }

    #[test]
    fn a_unit_is_itself_where_it_is_ascii() {
        assert_eq!(Encoding::Utf16LittleEndian.narrow([b'a', 0]), b'a');
        assert_eq!(Encoding::Utf16BigEndian.narrow([0, b'a']), b'a');
        assert_eq!(Encoding::Utf16BigEndian.narrow([b'a', 0]), OTHER);
        assert_eq!(Encoding::Utf16LittleEndian.narrow([0xe4, 0]), OTHER);
    }
}
