//! A piece of the text of a definition that does not copy it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

#[derive(Clone)]
pub(crate) struct Slice {
    /// Behind one pointer: there are many slices of one text.
    source: Arc<Bytes>,
    start: u32,
    end: u32,
}

impl Slice {
    /// The bounds come from the text itself, as it was written or read.
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
