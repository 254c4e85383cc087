//! Content-addressed ids: blobs and workers.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// Id of a blob: the BLAKE3 hash of its plain content. Text form: `blob:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize, Deserialize)]
#[cbor(transparent)]
#[serde(try_from = "String", into = "String")]
pub struct BlobId(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 32]);

impl BlobId {
    const PREFIX: &str = "blob:";

    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }

    /// The hexadecimal digits without prefix, as in file names.
    pub fn hex(self) -> String {
        hex(&self.0)
    }
}

/// All blob ids in a text, at any position. For values whose structure is unknown.
pub fn named_in(text: &[u8]) -> impl Iterator<Item = BlobId> + '_ {
    const DIGITS: usize = 64;
    let prefix = BlobId::PREFIX.as_bytes();
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            // The last character of the prefix is the rarest.
            let at = rest.iter().position(|byte| *byte == b':')?;
            let (before, after) = rest.split_at(at + 1);
            rest = after;
            let digits = after.get(..DIGITS).and_then(|digits| std::str::from_utf8(digits).ok());
            if before.ends_with(prefix)
                && let Some(id) = digits.and_then(unhex)
            {
                return Some(BlobId(id));
            }
        }
    })
}

/// Id of a worker: the first half of the hash of its manifest. Text form: `w_` and 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize, Deserialize)]
#[cbor(transparent)]
#[serde(try_from = "String", into = "String")]
pub struct WorkerId(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

impl WorkerId {
    const PREFIX: &str = "w_";

    /// Id of the worker with this manifest, in canonical encoding.
    pub fn of(manifest: &[u8]) -> Self {
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::hash(manifest).as_bytes()[..16]);
        Self(id)
    }
}

/// Error of parsing a blob or worker id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not of the form `{form}`")]
pub struct BadName {
    text: String,
    form: &'static str,
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    // No capital letters: an id has exactly one text form.
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn bad(text: &str, form: &'static str) -> BadName {
    BadName { text: text.chars().take(100).collect(), form }
}

macro_rules! named {
    ($name:ident, $form:literal) => {
        impl FromStr for $name {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, BadName> {
                text.strip_prefix(Self::PREFIX).and_then(unhex).map(Self).ok_or_else(|| bad(text, $form))
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;

            fn try_from(text: String) -> Result<Self, BadName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", Self::PREFIX, hex(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

named!(BlobId, "blob:<64 lower-case hexadecimal digits>");
named!(WorkerId, "w_<32 lower-case hexadecimal digits>");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_through_text_and_storage() {
        let blob = BlobId::of(b"hello");
        assert_eq!(blob.to_string().parse(), Ok(blob));
        let worker = WorkerId::of(b"hello");
        assert_eq!(worker.to_string().parse(), Ok(worker));
        assert_eq!(crate::codec::decode::<BlobId>(&crate::codec::encode(&blob)).unwrap(), blob);
    }

    #[test]
    fn only_the_canonical_text_form_is_accepted() {
        let text = BlobId::of(b"x").to_string();
        assert!(text.to_uppercase().parse::<BlobId>().is_err());
        assert!(text.replace("blob:", "").parse::<BlobId>().is_err());
        assert!(format!("{text}0").parse::<BlobId>().is_err());
        assert!("blob:".parse::<BlobId>().is_err());
    }

    #[test]
    fn blob_ids_are_found_at_any_position_in_a_text() {
        let (one, other) = (BlobId::of(b"1"), BlobId::of(b"2"));
        let text = format!(r#"{{"a":"{one}","b":["blob:","x{other}y",":{one}"],"c":"BLOB:{}"}}"#, one.hex());
        assert_eq!(named_in(text.as_bytes()).collect::<Vec<_>>(), [one, other, one]);
        let cut = &one.to_string()[..68];
        assert_eq!(named_in(cut.as_bytes()).count(), 0);
        assert_eq!(named_in(b"").count(), 0);
    }

    proptest::proptest! {
        #[test]
        fn searching_any_bytes_for_blob_ids_does_not_panic(bytes: Vec<u8>) {
            let _ = named_in(&bytes).count();
        }

        #[test]
        fn parsing_any_text_as_an_id_does_not_panic(text in ".{0,80}") {
            let _ = text.parse::<BlobId>();
            let _ = text.parse::<WorkerId>();
        }
    }
}
