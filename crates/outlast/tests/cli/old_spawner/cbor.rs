//! As much CBOR as protocol version 2 needs.

#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Number(u64),
    Bytes(Vec<u8>),
    Text(String),
    List(Vec<Item>),
    Other,
}

impl Item {
    pub fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            other => panic!("a number is expected: {other:?}"),
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("a text is expected: {other:?}"),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            other => panic!("bytes are expected: {other:?}"),
        }
    }

    pub fn list(&self) -> &[Item] {
        match self {
            Self::List(items) => items,
            other => panic!("a list is expected: {other:?}"),
        }
    }

    /// Reads an item and removes it from the input.
    pub fn read(input: &mut &[u8]) -> Self {
        let first = take(input, 1)[0];
        let small = first & 0x1f;
        let number = match small {
            0..24 => u64::from(small),
            24..28 => take(input, 1 << (small - 24)).iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
            _ => panic!("a definite length is expected: {first:#x}"),
        };
        match first >> 5 {
            0 => Self::Number(number),
            2 => Self::Bytes(take(input, number as usize).to_vec()),
            3 => Self::Text(String::from_utf8(take(input, number as usize).to_vec()).unwrap()),
            4 => Self::List((0..number).map(|_| Self::read(input)).collect()),
            7 => Self::Other,
            _ => panic!("{first:#x} is not expected"),
        }
    }
}

fn take<'a>(input: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(length);
    *input = rest;
    taken
}

/// A number or a head, in its longest form.
pub fn head(kind: u8, number: u64) -> Vec<u8> {
    let mut bytes = vec![kind << 5 | 27];
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes
}
