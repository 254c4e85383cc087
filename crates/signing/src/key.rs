//! The signing key, and verification with its public key.

use std::fmt;
use std::path::Path;

use model::audit::{Checkpoint, Invalid, PublicKey, Signature, SignedCheckpoint};
use model::id::ShardId;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::Error;
use crate::key_file;

/// The key of a server.
pub struct Key {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl Key {
    /// Reads the key file, or creates it with a new key.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let bytes = match key_file::read(path)? {
            Some(bytes) => bytes,
            None => {
                let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| Error::NoRandomness)?;
                key_file::create(path, document.as_ref())?;
                document.as_ref().to_vec()
            }
        };
        let malformed = || Error::Malformed { path: path.to_owned() };
        let pair = Ed25519KeyPair::from_pkcs8(&bytes).map_err(|_| malformed())?;
        let public = PublicKey(pair.public_key().as_ref().try_into().map_err(|_| malformed())?);
        Ok(Self { pair, public })
    }

    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Signs the successor of a checkpoint. The one before must be valid: otherwise the new signature would hide that
    /// entries were removed without the key.
    pub fn sign(
        &self,
        checkpoint: Checkpoint,
        previous: Option<&SignedCheckpoint>,
    ) -> Result<SignedCheckpoint, Invalid> {
        if let Some(previous) = previous {
            self.verify_own(previous, checkpoint.shard)?;
        }
        let mut signature = [0; 64];
        signature.copy_from_slice(self.pair.sign(&checkpoint.bytes_to_sign()).as_ref());
        Ok(SignedCheckpoint { checkpoint, public_key: self.public, signature: Signature(signature) })
    }

    /// Verifies that a checkpoint belongs to the shard and was signed with this key.
    pub fn verify_own(&self, signed: &SignedCheckpoint, shard: ShardId) -> Result<(), Invalid> {
        verify(signed, shard)?;
        if signed.public_key == self.public { Ok(()) } else { Err(Invalid::OtherKey(signed.public_key)) }
    }
}

/// Without the private key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("public", &self.public).finish_non_exhaustive()
    }
}

/// Verifies that a checkpoint belongs to the shard and matches its own public key. Whether that key is the right one is
/// for the caller to decide.
pub fn verify(signed: &SignedCheckpoint, shard: ShardId) -> Result<(), Invalid> {
    let key = UnparsedPublicKey::new(&ED25519, signed.public_key.0);
    key.verify(&signed.checkpoint.bytes_to_sign(), &signed.signature.0).map_err(|_| Invalid::Signature)?;
    if signed.checkpoint.shard == shard { Ok(()) } else { Err(Invalid::OtherShard(signed.checkpoint.shard)) }
}

#[cfg(test)]
mod tests {
    use model::audit::Link;
    use model::time::Millis;

    use super::*;

    const SHARD: ShardId = ShardId(1);
    const CHECKPOINT: Checkpoint = Checkpoint { shard: SHARD, number: 7, link: Link([3; 32]), at: Millis(9) };

    fn key() -> Key {
        let directory = tempfile::tempdir().unwrap();
        Key::open(&directory.path().join("key")).unwrap()
    }

    #[test]
    fn a_signature_is_valid_until_a_field_changes() {
        let signed = key().sign(CHECKPOINT, None).unwrap();
        assert_eq!(verify(&signed, SHARD), Ok(()));
        let changed = [
            Checkpoint { shard: ShardId(2), ..CHECKPOINT },
            Checkpoint { number: 8, ..CHECKPOINT },
            Checkpoint { link: Link([4; 32]), ..CHECKPOINT },
            Checkpoint { at: Millis(10), ..CHECKPOINT },
        ];
        for checkpoint in changed {
            let changed = SignedCheckpoint { checkpoint, ..signed };
            assert_eq!(verify(&changed, checkpoint.shard), Err(Invalid::Signature), "{checkpoint:?}");
        }
        for byte in 0..64 {
            let mut changed = signed;
            changed.signature.0[byte] ^= 1;
            assert_eq!(verify(&changed, SHARD), Err(Invalid::Signature), "byte {byte} of the signature");
            changed = signed;
            changed.public_key.0[byte / 2] ^= 1;
            assert_eq!(verify(&changed, SHARD), Err(Invalid::Signature), "byte {} of the key", byte / 2);
        }
    }

    #[test]
    fn a_checkpoint_of_another_shard_or_key_is_refused() {
        let (own, other) = (key(), key());
        let signed = other.sign(CHECKPOINT, None).unwrap();
        assert_eq!(verify(&signed, ShardId(0)), Err(Invalid::OtherShard(SHARD)));
        assert_eq!(other.verify_own(&signed, SHARD), Ok(()));
        assert_eq!(own.verify_own(&signed, SHARD), Err(Invalid::OtherKey(other.public())));
    }

    #[test]
    fn nothing_is_signed_after_an_invalid_checkpoint() {
        let key = key();
        let next = Checkpoint { number: 20, ..CHECKPOINT };
        let signed = key.sign(CHECKPOINT, None).unwrap();
        assert!(key.sign(next, Some(&signed)).is_ok());
        let forged = SignedCheckpoint { checkpoint: Checkpoint { number: 9, ..CHECKPOINT }, ..signed };
        assert_eq!(key.sign(next, Some(&forged)), Err(Invalid::Signature));
    }
}
