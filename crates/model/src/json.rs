//! JSON that is carried, not understood: kept as the very bytes that came in.

use bytes::Bytes;
use minicbor::bytes::ByteSlice;
use minicbor::{Decode, Decoder, Encode, Encoder};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A valid JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(Bytes);

impl Json {
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// Takes a text that is known to be valid JSON because a serializer wrote it.
    pub fn of<T: Serialize>(value: &T) -> Self {
        // Our own types have string keys and finite numbers: nothing that JSON cannot say.
        Self(Bytes::from(serde_json::to_vec(value).expect("our own values can be said in JSON")))
    }

    /// Takes any text, if it is one valid JSON value.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let raw: &RawValue = serde_json::from_slice(text).ok()?;
        Some(Self(Bytes::copy_from_slice(raw.get().as_bytes())))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("null")
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::null()
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.as_str()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Ok(Self(Bytes::copy_from_slice(raw.get().as_bytes())))
    }
}

impl<C> Encode<C> for Json {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(&self.0)?;
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for Json {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        let bytes: &ByteSlice = d.bytes()?.into();
        Ok(Self(Bytes::copy_from_slice(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_bytes() {
        let text = r#"{"a": 1.10, "b":[ ]}"#;
        let json: Json = serde_json::from_str(text).unwrap();
        assert_eq!(json.as_str(), text);
        assert_eq!(serde_json::to_string(&json).unwrap(), text);
        let stored = crate::codec::encode(&json);
        assert_eq!(crate::codec::decode::<Json>(&stored).unwrap(), json);
    }

    #[test]
    fn what_is_no_json_is_refused() {
        assert_eq!(Json::parse(b"{"), None);
        assert_eq!(Json::parse(b"1 2"), None);
        assert!(Json::parse(b" [1] ").is_some());
    }
}
