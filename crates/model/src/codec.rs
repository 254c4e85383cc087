//! How records become bytes: CBOR with numbered fields, so that a reader of version n understands
//! what n−1 wrote and skips what n+1 added.

use minicbor::{Decode, Encode};

/// Bytes that are not what they should be. Nothing was changed by trying to read them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the record ends too early")]
    Truncated,
    #[error("unknown {what} {value}; the data may come from a newer version of outlast")]
    Unknown { what: &'static str, value: u64 },
    #[error("the record cannot be read: {0}")]
    Malformed(String),
}

/// Appends the encoding of `value` to `buffer`.
pub fn encode_into<T: Encode<()>>(value: &T, buffer: &mut Vec<u8>) {
    // Writing to a Vec cannot fail, and no encoder of ours refuses a value.
    minicbor::encode(value, buffer).expect("encoding into memory cannot fail");
}

pub fn encode<T: Encode<()>>(value: &T) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(128);
    encode_into(value, &mut buffer);
    buffer
}

pub fn decode<'b, T: Decode<'b, ()>>(bytes: &'b [u8]) -> Result<T, DecodeError> {
    minicbor::decode(bytes).map_err(|error| DecodeError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::key::KeyEntry;
    use crate::message::RunnerCursor;
    use crate::queue::Queue;

    proptest::proptest! {
        #[test]
        fn any_bytes_as_a_record_end_without_a_panic(bytes: Vec<u8>) {
            let _ = decode::<Change>(&bytes);
            let _ = decode::<KeyEntry>(&bytes);
            let _ = decode::<Queue>(&bytes);
            let _ = decode::<RunnerCursor>(&bytes);
        }
    }
}
