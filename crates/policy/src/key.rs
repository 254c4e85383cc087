//! The key under which an answer is cached: everything that the rules read, in bytes that can be told apart.

use serde::Serialize;

use crate::limits;
use crate::reads::Extent;
use crate::walk::{Sink, WalkError, walk};

/// A hash of what was read. It is one that nobody can find a second text for, for jobs come from anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key([u8; 32]);

impl Key {
    /// Of those parts of a document that are read, together with a text that tells one use from another. Nothing if
    /// that is more than a key may have.
    pub fn of<T: Serialize>(salt: &[u8], document: &T, extent: Extent<'_>) -> Option<Self> {
        let mut bytes = Bytes { content: Vec::with_capacity(256) };
        bytes.content.extend_from_slice(salt);
        if !extent.is_nothing() {
            walk(document, extent, &mut bytes).ok()?;
        }
        if bytes.content.len() > limits::CACHE_KEY_BYTES_MAX {
            return None;
        }
        Some(Self(*blake3::hash(&bytes.content).as_bytes()))
    }

    /// Which of so many parts of the cache it belongs to.
    pub fn part(&self, parts: usize) -> usize {
        usize::from(self.0[0]) % parts
    }
}

/// Each value begins with what it is, each text with how long it is, so that no two values look the same.
struct Bytes {
    content: Vec<u8>,
}

impl Bytes {
    fn text(&mut self, kind: u8, text: &str) {
        self.content.push(kind);
        self.content.extend_from_slice(&(text.len() as u64).to_le_bytes());
        self.content.extend_from_slice(text.as_bytes());
    }
}

impl Sink for Bytes {
    fn null(&mut self) {
        self.content.push(b'n');
    }

    fn bool(&mut self, value: bool) {
        self.content.push(if value { b't' } else { b'f' });
    }

    fn unsigned(&mut self, value: u64) {
        self.content.push(b'u');
        self.content.extend_from_slice(&value.to_le_bytes());
    }

    fn signed(&mut self, value: i64) {
        self.content.push(b'i');
        self.content.extend_from_slice(&value.to_le_bytes());
    }

    fn float(&mut self, value: f64) {
        self.content.push(b'd');
        self.content.extend_from_slice(&value.to_le_bytes());
    }

    fn string(&mut self, value: &str) {
        self.text(b's', value);
    }

    fn json(&mut self, text: &str) -> Result<(), WalkError> {
        self.text(b'j', text);
        Ok(())
    }

    fn begin_array(&mut self) {
        self.content.push(b'[');
    }

    fn end_array(&mut self) {
        self.content.push(b']');
    }

    fn begin_object(&mut self) {
        self.content.push(b'{');
    }

    fn key(&mut self, key: &str) {
        self.text(b'k', key);
    }

    fn end_object(&mut self) {
        self.content.push(b'}');
    }
}
