//! Join tokens.
//!
//! A token is a text that an operator copies to a new node: `outlast1-` and base64url of a version, the fingerprint of
//! the cluster's authority, the token's id, its secret and a checksum. The checksum tells a mistyped token from a wrong
//! one, and the fingerprint lets the joiner recognise the cluster before it sends the secret.
//!
//! The cluster stores a [`TokenRecord`], which holds only a hash of the secret.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use minicbor::{Decode, Encode};
use model::time::{Millis, Timestamp};
use ring::digest;
use subtle::ConstantTimeEq;

use crate::certificate::Fingerprint;
use crate::{Error, random};

const PREFIX: &str = "outlast1-";
const VERSION: u8 = 1;
const ID_AT: usize = 1 + 32;
const SECRET_AT: usize = ID_AT + 8;
const CHECKSUM_AT: usize = SECRET_AT + 32;
const BYTES: usize = CHECKSUM_AT + 4;

/// Id of a token: random, not secret. Text form: 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct TokenId(#[n(0)] pub u64);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The secret part of a token.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn hash(&self) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, &self.0).as_ref());
        hash
    }
}

/// Without the secret.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A join token. Its text form contains the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    authority: Fingerprint,
    id: TokenId,
    secret: Secret,
}

impl Token {
    /// A new token for the cluster with this authority.
    pub fn generate(authority: Fingerprint) -> Result<Self, Error> {
        let id = TokenId(u64::from_be_bytes(random::bytes()?));
        Ok(Self { authority, id, secret: Secret(random::bytes()?) })
    }

    pub fn authority(&self) -> Fingerprint {
        self.authority
    }

    pub fn id(&self) -> TokenId {
        self.id
    }

    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The record to be stored.
    pub fn record(&self, created_at: Millis, expires_at: Option<Millis>, uses: Uses, note: String) -> TokenRecord {
        let secret_hash = self.secret.hash();
        TokenRecord { id: self.id, secret_hash, created_at, expires_at, uses, used_count: 0, revoked: false, note }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.authority.0);
        bytes.extend_from_slice(&self.id.0.to_be_bytes());
        bytes.extend_from_slice(&self.secret.0);
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_be_bytes());
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseTokenError {
    #[error("this is not a join token: join tokens begin with `{PREFIX}`")]
    NotAToken,
    #[error("the join token is mistyped or incomplete: copy it again, as a whole")]
    Mistyped,
    #[error("the join token is of version {0}, which this version of Outlast does not know: upgrade this node")]
    NewerVersion(u8),
}

impl FromStr for Token {
    type Err = ParseTokenError;

    /// Ignores white space around the token.
    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(ParseTokenError::NotAToken)?;
        // Twice the length, for tokens of later versions.
        if encoded.len() > 4 * BYTES {
            return Err(ParseTokenError::Mistyped);
        }
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| ParseTokenError::Mistyped)?;
        let (content, checksum) = bytes.split_last_chunk::<4>().ok_or(ParseTokenError::Mistyped)?;
        if crc32c::crc32c(content).to_be_bytes() != *checksum {
            return Err(ParseTokenError::Mistyped);
        }
        match content.first() {
            Some(&VERSION) if content.len() == CHECKSUM_AT => {}
            Some(&VERSION) | None => return Err(ParseTokenError::Mistyped),
            Some(version) => return Err(ParseTokenError::NewerVersion(*version)),
        }
        let mut authority = [0; 32];
        authority.copy_from_slice(&content[1..ID_AT]);
        let mut id = [0; 8];
        id.copy_from_slice(&content[ID_AT..SECRET_AT]);
        let mut secret = [0; 32];
        secret.copy_from_slice(&content[SECRET_AT..]);
        let id = TokenId(u64::from_be_bytes(id));
        Ok(Self { authority: Fingerprint(authority), id, secret: Secret(secret) })
    }
}

/// How often a token can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Uses {
    #[n(0)]
    Single,
    #[n(1)]
    Reusable,
}

/// What the cluster knows of a token.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct TokenRecord {
    #[n(0)]
    pub id: TokenId,
    /// SHA-256 of the secret.
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub secret_hash: [u8; 32],
    #[n(2)]
    pub created_at: Millis,
    /// `None`: never.
    #[n(3)]
    pub expires_at: Option<Millis>,
    #[n(4)]
    pub uses: Uses,
    #[n(5)]
    pub used_count: u32,
    #[n(6)]
    pub revoked: bool,
    #[n(7)]
    pub note: String,
}

impl TokenRecord {
    /// Whether a node may join with this secret now. The state of a token is told only to those who know its secret.
    pub fn check(&self, secret: &Secret, now: Millis) -> Result<(), TokenRefusal> {
        if !bool::from(secret.hash().ct_eq(&self.secret_hash)) {
            return Err(TokenRefusal::Wrong);
        }
        if self.revoked {
            return Err(TokenRefusal::Revoked);
        }
        if let Some(expires_at) = self.expires_at.filter(|expires_at| *expires_at <= now) {
            return Err(TokenRefusal::Expired { at: Timestamp(expires_at) });
        }
        match self.uses {
            Uses::Single if self.used_count > 0 => Err(TokenRefusal::Used),
            Uses::Single | Uses::Reusable => Ok(()),
        }
    }
}

/// Like [`TokenRecord::check`], for a record that may not exist.
pub fn check(record: Option<&TokenRecord>, secret: &Secret, now: Millis) -> Result<(), TokenRefusal> {
    record.ok_or(TokenRefusal::Unknown)?.check(secret, now)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    #[error("the cluster does not know this join token: create a new one")]
    Unknown,
    #[error("the secret of the join token is wrong: create a new token")]
    Wrong,
    #[error("the join token expired at {at}: create a new one")]
    Expired { at: Timestamp },
    #[error("the join token was for a single node and is used: create a new one")]
    Used,
    #[error("the join token is revoked: create a new one")]
    Revoked,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Millis = Millis(1_000_000);

    fn token(byte: u8) -> Token {
        Token { authority: Fingerprint([byte; 32]), id: TokenId(5), secret: Secret([byte; 32]) }
    }

    #[test]
    fn a_record_decides_about_its_secret() {
        let token = token(1);
        let single = token.record(Millis(0), Some(Millis(NOW.0 + 1)), Uses::Single, "rack 4".to_owned());
        assert_eq!(single.check(token.secret(), NOW), Ok(()));
        assert_eq!(single.check(&Secret([2; 32]), NOW), Err(TokenRefusal::Wrong));
        let expired = Err(TokenRefusal::Expired { at: Timestamp(Millis(NOW.0 + 1)) });
        assert_eq!(single.check(token.secret(), Millis(NOW.0 + 1)), expired);
        let used = TokenRecord { used_count: 1, ..single.clone() };
        assert_eq!(used.check(token.secret(), NOW), Err(TokenRefusal::Used));
        let reusable = TokenRecord { uses: Uses::Reusable, expires_at: None, ..used.clone() };
        assert_eq!(reusable.check(token.secret(), Millis(u64::MAX)), Ok(()));
        let revoked = TokenRecord { revoked: true, ..reusable };
        assert_eq!(revoked.check(token.secret(), NOW), Err(TokenRefusal::Revoked));
        assert_eq!(revoked.check(&Secret([2; 32]), NOW), Err(TokenRefusal::Wrong));
        assert_eq!(check(None, token.secret(), NOW), Err(TokenRefusal::Unknown));
        let read: TokenRecord = minicbor::decode(&minicbor::to_vec(&used).unwrap()).unwrap();
        assert_eq!(read, used);
    }

    #[test]
    fn other_texts_are_not_tokens() {
        assert_eq!("secret".parse::<Token>(), Err(ParseTokenError::NotAToken));
        assert_eq!(PREFIX.parse::<Token>(), Err(ParseTokenError::Mistyped));
        let mut later = vec![2, 1, 1];
        later.extend_from_slice(&crc32c::crc32c(&later).to_be_bytes());
        let later = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(later));
        assert_eq!(later.parse::<Token>(), Err(ParseTokenError::NewerVersion(2)));
        assert!(!format!("{:?}", token(0xab)).contains("171, 171"), "the secret is not in logs");
    }

    proptest! {
        #[test]
        fn tokens_round_trip_through_their_text(authority: [u8; 32], id: u64, secret: [u8; 32]) {
            let token = Token { authority: Fingerprint(authority), id: TokenId(id), secret: Secret(secret) };
            prop_assert_eq!(format!(" {token}\n").parse::<Token>(), Ok(token.clone()));
        }

        #[test]
        fn a_mistyped_token_is_recognised(secret: [u8; 32], at in PREFIX.len()..PREFIX.len() + 102, letter in "[A-Za-z0-9_-]") {
            let mut token = token(7);
            token.secret = Secret(secret);
            let right = token.to_string();
            let mut typed = right.clone();
            typed.replace_range(at..=at, &letter);
            if typed != right {
                prop_assert_eq!(typed.parse::<Token>(), Err(ParseTokenError::Mistyped));
            }
            let mut shortened = right;
            shortened.remove(at);
            prop_assert_eq!(shortened.parse::<Token>(), Err(ParseTokenError::Mistyped));
        }

        #[test]
        fn any_text_is_rejected_or_round_trips(text in "(outlast1-)?[A-Za-z0-9_-]{0,120}") {
            if let Ok(token) = text.parse::<Token>() {
                prop_assert_eq!(token.to_string(), text);
            }
        }
    }
}
