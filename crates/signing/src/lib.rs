//! Signatures of audit checkpoints: Ed25519.
//!
//! A server signs with the key in its data directory ([`Key`]). Anyone can [`verify`] a signature with the public key.

mod error;
mod key;
mod key_file;

pub use error::Error;
pub use key::{Key, verify};
