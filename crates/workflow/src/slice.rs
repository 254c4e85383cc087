//! Reference-counted slice of the text of a definition.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

#[derive(Clone)]
pub(crate) struct Slice {
    /// One pointer instead of a `Bytes`, because there are many slices of one text.
    source: Arc<Bytes>,
    start: u32,
    end: u32,
}

impl Slice {
    /// The bounds are spans of nodes, so they are valid for the text.
    pub fn new(source: &Arc<Bytes>, (start, end): (u32, u32)) -> Self {
        debug_assert!(start <= end && end as usize <= source.len());
        Self { source: Arc::clone(source), start, end }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.source[self.start as usize..self.end as usize]
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(self.as_bytes()))
    }
}
