//! Encoding of records: CBOR with numbered fields. Version n reads records of version n−1 and skips fields that n+1
//! added.

use minicbor::{Decode, Encode};

/// Error of decoding a record.
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
    // Writing to a Vec cannot fail, and our encoders accept all values.
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

/// Field of shared bytes.
pub(crate) mod shared_bytes {
    use bytes::Bytes;
    use minicbor::{Decoder, Encoder};

    pub fn encode<C, W: minicbor::encode::Write>(
        bytes: &Bytes,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(bytes)?;
        Ok(())
    }

    pub fn decode<'b, C>(d: &mut Decoder<'b>, _: &mut C) -> Result<Bytes, minicbor::decode::Error> {
        Ok(Bytes::copy_from_slice(d.bytes()?))
    }
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
        fn decoding_any_bytes_as_a_record_does_not_panic(bytes: Vec<u8>) {
            let _ = decode::<Change>(&bytes);
            let _ = decode::<KeyEntry>(&bytes);
            let _ = decode::<Queue>(&bytes);
            let _ = decode::<RunnerCursor>(&bytes);
        }
    }
}
