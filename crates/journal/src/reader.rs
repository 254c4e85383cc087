//! Reads durable entries in order while the journal is written and old segments are recycled.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::format::{FrameKind, SEGMENT_HEADER_BYTES};
use crate::frames::{Frame, FrameCursor, take_entry};
use crate::journal::Shared;
use crate::segment::Segment;
use crate::{Error, Position};

const CHUNK_BYTES: usize = 256 << 10;

/// Reader of durable entries. Returns `None` at the durable end, and continues when there are more.
pub struct Reader {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    cursor: FrameCursor,
    offset: u64,
    /// Unread entries of the current frame; `at` is the position of the first one.
    rest: Bytes,
    at: Position,
    /// Entries before this one are skipped.
    from: Position,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("segment", &self.segment.path).field("next", &self.at).finish_non_exhaustive()
    }
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, from: Position) -> Result<Self, Error> {
        let from = from.max(Position(1));
        let segment = segment_of(&shared, from)?;
        let offset = segment.offset_before(from);
        Ok(Self {
            cursor: FrameCursor::new(CHUNK_BYTES),
            offset,
            rest: Bytes::new(),
            at: segment.header.first,
            from,
            segment,
            shared,
        })
    }

    /// Returns the next entry with its position, or `None` at the durable end.
    #[expect(clippy::should_implement_trait, reason = "not an iterator: after None there may be more")]
    pub fn next(&mut self) -> Result<Option<(Position, Bytes)>, Error> {
        loop {
            while let Some(entry) = take_entry(&mut self.rest) {
                let position = self.at;
                self.at = position.next();
                if position >= self.from {
                    self.from = self.at;
                    return Ok(Some((position, entry)));
                }
            }
            let Some(frame) = self.next_frame()? else {
                return Ok(None);
            };
            match frame.header.kind {
                FrameKind::Entries => {
                    self.at = frame.header.first;
                    self.rest = frame.payload;
                }
                FrameKind::Seal => {}
            }
        }
    }

    fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        let mut end = self.segment.end();
        if self.offset >= end {
            let successor = segment_of(&self.shared, self.from)?;
            if Arc::ptr_eq(&successor, &self.segment) {
                return Ok(None);
            }
            // A segment with a successor no longer grows: its end is read once more before moving on.
            end = self.segment.end();
            if self.offset >= end {
                self.offset = SEGMENT_HEADER_BYTES;
                self.segment = successor;
                self.cursor.clear();
                end = self.segment.end();
                if self.offset >= end {
                    return Ok(None);
                }
            }
        }
        self.frame_before(end).map(Some)
    }

    fn frame_before(&mut self, end: u64) -> Result<Frame, Error> {
        let segment = &self.segment;
        let found = self
            .cursor
            .frame(&segment.file, segment.header.generation, self.offset, end)
            .map_err(Error::io("read", &segment.path))?;
        match found {
            Ok(frame) => {
                self.offset = frame.end();
                Ok(frame)
            }
            Err(reason) => Err(self.unreadable_error(reason)),
        }
    }

    /// Expiry if the segment was recycled meanwhile, otherwise damage.
    fn unreadable_error(&self, reason: &'static str) -> Error {
        let segments = self.shared.segments.read();
        if segments.iter().any(|segment| Arc::ptr_eq(segment, &self.segment)) {
            return Error::Damaged { file: self.segment.path.clone(), offset: self.offset, reason };
        }
        drop(segments);
        Error::Expired { oldest: self.shared.oldest() }
    }
}

/// The segment that contains `position`, or will contain it.
fn segment_of(shared: &Shared, position: Position) -> Result<Arc<Segment>, Error> {
    let segments = shared.segments.read();
    let after = segments.partition_point(|segment| segment.header.first <= position);
    match after.checked_sub(1).and_then(|at| segments.get(at)) {
        Some(segment) => Ok(Arc::clone(segment)),
        None => Err(Error::Expired { oldest: segments.front().map_or(Position(1), |segment| segment.header.first) }),
    }
}
