//! Cache keys: a hash of everything that the rules read of a job.

use serde::Serialize;

use crate::limits;
use crate::project::{ProjectError, Sink, project};
use crate::read_set::Extent;

/// A collision-resistant hash, because jobs may come from anyone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key([u8; 32]);

impl Key {
    /// Hashes the parts of a document within `extent`, with a salt that separates uses. None if they are larger than
    /// [`limits::CACHE_KEY_BYTES_MAX`].
    pub fn of<T: Serialize>(salt: &[u8], document: &T, extent: Extent<'_>) -> Option<Self> {
        let mut encoder = Encoder { content: Vec::with_capacity(256) };
        encoder.content.extend_from_slice(salt);
        if !extent.is_nothing() {
            project(document, extent, &mut encoder).ok()?;
        }
        if encoder.content.len() > limits::CACHE_KEY_BYTES_MAX {
            return None;
        }
        Some(Self(*blake3::hash(&encoder.content).as_bytes()))
    }

    /// Cache segment of the key.
    pub fn segment(&self, segments: usize) -> usize {
        usize::from(self.0[0]) % segments
    }
}

/// Unambiguous encoding: each value starts with its type, each text with its length.
struct Encoder {
    content: Vec<u8>,
}

impl Encoder {
    fn text(&mut self, kind: u8, text: &str) {
        self.content.push(kind);
        self.content.extend_from_slice(&(text.len() as u64).to_le_bytes());
        self.content.extend_from_slice(text.as_bytes());
    }
}

impl Sink for Encoder {
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

    fn json(&mut self, text: &str) -> Result<(), ProjectError> {
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
