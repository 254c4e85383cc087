//! JSON that is stored and forwarded without being interpreted, as the original bytes.

use bytes::Bytes;
use minicbor::bytes::ByteSlice;
use minicbor::{Decode, Decoder, Encode, Encoder};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Maximum nesting depth of the JSON of a request or response. Common parsers, such as `serde_json`, reject more.
pub const DEPTH_MAX: usize = 128;

/// Maximum nesting depth of one value. Responses wrap values in at most 4 levels.
pub const VALUE_DEPTH_MAX: usize = DEPTH_MAX - 4;

/// Nesting depth of a JSON text: 0 for a scalar, 1 for a flat object. The text need not be valid.
pub fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'\\' => drop(bytes.next()),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

/// A valid JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(Bytes);

impl Json {
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// Serialises a value of our own types.
    pub fn of<T: Serialize>(value: &T) -> Self {
        // Our own types have string keys and finite numbers.
        Self(Bytes::from(serde_json::to_vec(value).expect("our own types serialize to JSON")))
    }

    /// Parses one valid JSON value, nested at most [`VALUE_DEPTH_MAX`] levels.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if depth(text) > VALUE_DEPTH_MAX {
            return None;
        }
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
    fn depth_counts_brackets_outside_of_strings() {
        let cases: [(&str, usize); 6] =
            [("1", 0), ("{}", 1), (r#"[{"a":[]}]"#, 3), (r#""[[[""#, 0), (r#"["\"[["]"#, 1), (r#"[[],[[]]]"#, 3)];
        for (text, expected) in cases {
            assert_eq!(depth(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn values_nested_too_deeply_for_clients_are_rejected() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Json::parse(nested(VALUE_DEPTH_MAX).as_bytes()).is_some());
        assert!(Json::parse(nested(VALUE_DEPTH_MAX + 1).as_bytes()).is_none());
        assert!(serde_json::from_str::<serde_json::Value>(&nested(DEPTH_MAX - 1)).is_ok());
        assert!(serde_json::from_str::<serde_json::Value>(&nested(DEPTH_MAX + 1)).is_err());
    }

    #[test]
    fn a_value_retains_its_original_bytes() {
        let text = r#"{"a": 1.10, "b":[ ]}"#;
        let json: Json = serde_json::from_str(text).unwrap();
        assert_eq!(json.as_str(), text);
        assert_eq!(serde_json::to_string(&json).unwrap(), text);
        let stored = crate::codec::encode(&json);
        assert_eq!(crate::codec::decode::<Json>(&stored).unwrap(), json);
    }

    #[test]
    fn invalid_json_is_rejected() {
        assert_eq!(Json::parse(b"{"), None);
        assert_eq!(Json::parse(b"1 2"), None);
        assert!(Json::parse(b" [1] ").is_some());
    }
}
