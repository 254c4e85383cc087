//! Reading durable entries in order, while the journal is being written and old segments are taken back.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::format::{FrameKind, SEGMENT_HEADER_BYTES};
use crate::frames::{Frame, FrameCursor, take_entry};
use crate::journal::Shared;
use crate::segment::Segment;
use crate::{Error, Position};

const CHUNK_BYTES: usize = 256 << 10;

/// Reads on from a position. At the durable end it says `None` and can be asked again later.
pub struct Reader {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    cursor: FrameCursor,
    offset: u64,
    /// What is left of the current frame, and the position of the first entry in it.
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

    /// The next entry and its position; `None` when everything durable has been read.
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
            // A segment that has a successor does not grow any more: look once more, then move on.
            end = self.segment.end();
            if self.offset >= end {
                self.offset = SEGMENT_HEADER_BYTES;
                self.segment = successor;
                self.cursor.forget();
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
            Err(reason) => Err(self.why_unreadable(reason)),
        }
    }

    /// A segment that was taken back meanwhile holds something else now; any other one is damaged.
    fn why_unreadable(&self, reason: &'static str) -> Error {
        let segments = self.shared.segments.read();
        if segments.iter().any(|segment| Arc::ptr_eq(segment, &self.segment)) {
            return Error::Damaged { file: self.segment.path.clone(), offset: self.offset, reason };
        }
        drop(segments);
        Error::Expired { oldest: self.shared.oldest() }
    }
}

/// The segment that holds `position`, or will.
fn segment_of(shared: &Shared, position: Position) -> Result<Arc<Segment>, Error> {
    let segments = shared.segments.read();
    let after = segments.partition_point(|segment| segment.header.first <= position);
    match after.checked_sub(1).and_then(|at| segments.get(at)) {
        Some(segment) => Ok(Arc::clone(segment)),
        None => Err(Error::Expired { oldest: segments.front().map_or(Position(1), |segment| segment.header.first) }),
    }
}
