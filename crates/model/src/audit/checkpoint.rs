//! Checkpoint: where a chain begins after its oldest entries were removed.
//!
//! A checkpoint is signed outside of the engine. Without the key nobody can remove entries and make the rest verify.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};

use super::{Head, InvalidHex, Link, parse_hex};
use crate::codec;
use crate::id::ShardId;
use crate::time::Millis;

/// First bytes of the text to sign, so that the signature counts for nothing else.
const DOMAIN: &[u8] = b"outlast audit checkpoint 1\0";

/// All entries up to `number`, whose chain ended with `link`, were removed at `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Checkpoint {
    #[n(0)]
    pub shard: ShardId,
    #[n(1)]
    pub number: u64,
    #[n(2)]
    pub link: Link,
    #[n(3)]
    pub at: Millis,
}

impl Checkpoint {
    /// The end of the removed part: the first entry on record follows it.
    pub fn head(&self) -> Head {
        Head { number: self.number, link: self.link }
    }

    /// The bytes that the signature covers.
    pub fn bytes_to_sign(&self) -> Vec<u8> {
        let mut bytes = DOMAIN.to_vec();
        codec::encode_into(self, &mut bytes);
        bytes
    }
}

/// An Ed25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct PublicKey(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 32]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for PublicKey {
    type Err = InvalidHex;

    fn from_str(text: &str) -> Result<Self, InvalidHex> {
        parse_hex(text).map(Self)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// An Ed25519 signature.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Signature(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 64]);

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Signature {
    type Err = InvalidHex;

    fn from_str(text: &str) -> Result<Self, InvalidHex> {
        parse_hex(text).map(Self)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({self})")
    }
}

/// A checkpoint with its signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SignedCheckpoint {
    #[n(0)]
    pub checkpoint: Checkpoint,
    #[n(1)]
    pub public_key: PublicKey,
    #[n(2)]
    pub signature: Signature,
}

/// Error of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("the checkpoint belongs to shard {0}")]
    OtherShard(ShardId),
    #[error("the checkpoint is signed with another key, {0}")]
    OtherKey(PublicKey),
    #[error("the signature of the checkpoint is invalid: the checkpoint was changed")]
    Signature,
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKPOINT: Checkpoint =
        Checkpoint { shard: ShardId(3), number: 300, link: Link([0xab; 32]), at: Millis(1_767_225_600_000) };

    /// Signatures on disk and in exported logs cover these bytes: they must not change.
    #[test]
    fn the_signed_bytes_are_a_prefix_and_the_encoded_checkpoint() {
        let bytes = CHECKPOINT.bytes_to_sign();
        let encoded = bytes.strip_prefix(b"outlast audit checkpoint 1\0").unwrap();
        let mut expected = vec![0x84, 3, 0x19, 0x01, 0x2c, 0x58, 32];
        expected.extend([0xab; 32]);
        expected.extend([0x1b, 0, 0, 0x01, 0x9b, 0x76, 0xda, 0xa8, 0]);
        assert_eq!(encoded, expected);
        assert_eq!(codec::decode::<Checkpoint>(encoded), Ok(CHECKPOINT));
    }

    #[test]
    fn a_change_of_any_field_changes_the_signed_bytes() {
        let changed = [
            Checkpoint { shard: ShardId(4), ..CHECKPOINT },
            Checkpoint { number: 301, ..CHECKPOINT },
            Checkpoint { link: Link([0xac; 32]), ..CHECKPOINT },
            Checkpoint { at: Millis(0), ..CHECKPOINT },
        ];
        for changed in changed {
            assert_ne!(changed.bytes_to_sign(), CHECKPOINT.bytes_to_sign(), "{changed:?}");
        }
    }

    #[test]
    fn keys_signatures_and_links_are_parsed() {
        let key = PublicKey([0xc4; 32]);
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(key.to_string().to_uppercase().parse(), Ok(key));
        let signature = Signature([0x5e; 64]);
        assert_eq!(signature.to_string().parse(), Ok(signature));
        assert_eq!(CHECKPOINT.link.to_string().parse(), Ok(CHECKPOINT.link));
        for text in ["", "c4", &"c4".repeat(33), &"+4".repeat(32), &"ä".repeat(32)] {
            assert_eq!(text.parse::<PublicKey>(), Err(InvalidHex { digits: 64 }), "{text}");
        }
    }

    #[test]
    fn a_signed_checkpoint_reads_back_and_skips_fields_of_later_versions() {
        let signed =
            SignedCheckpoint { checkpoint: CHECKPOINT, public_key: PublicKey([1; 32]), signature: Signature([2; 64]) };
        let bytes = codec::encode(&signed);
        assert_eq!(codec::decode::<SignedCheckpoint>(&bytes), Ok(signed));
        let mut later = bytes;
        assert_eq!(std::mem::replace(&mut later[0], 0x84), 0x83, "an array of three fields");
        later.push(7);
        assert_eq!(codec::decode::<SignedCheckpoint>(&later), Ok(signed));
    }

    proptest::proptest! {
        #[test]
        fn decoding_any_bytes_as_a_signed_checkpoint_does_not_panic(bytes: Vec<u8>) {
            let _ = codec::decode::<SignedCheckpoint>(&bytes);
        }
    }
}
