//! Group commit: callers that arrive while a frame is being synced share the next one.
//!
//! There is no writer thread. The first caller that finds nobody writing becomes the leader, writes what has
//! gathered, and wakes the others; a single caller never waits for another thread.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use parking_lot::MutexGuard;

use crate::format::{
    ALIGNMENT, ENTRY_PREFIX_BYTES, FRAME_HEADER_BYTES, FrameKind, PAGE_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader,
    finish_frame,
};
use crate::journal::Shared;
use crate::segment::{Segment, new_generation, put_in_place};
use crate::{ENTRY_BYTES_MAX, Error, GROUP_BYTES_MAX, Position};

/// Room that every segment keeps for its last seal.
const SEAL_BYTES: u64 = FRAME_HEADER_BYTES as u64;

/// Once this much of a segment is used, the next one is prepared. An idle journal prepares nothing.
const SPARE_AFTER_BYTES: u64 = 512 << 10;

/// What appending and sealing agree on. Everything here is in memory only.
#[derive(Debug)]
pub(crate) struct State {
    queue: VecDeque<Forming>,
    /// Someone is writing; only they touch the writer.
    pub writing: bool,
    pub next: Position,
    /// A seal follows the last frame, or there is none.
    pub sealed: bool,
    pub last_write: Instant,
    pub poisoned: Option<String>,
    /// Recovery needs nothing up to here.
    pub released: Position,
    pub stopping: bool,
}

impl State {
    pub fn new(next: Position) -> Self {
        Self {
            queue: VecDeque::new(),
            writing: false,
            next,
            sealed: true,
            last_write: Instant::now(),
            poisoned: None,
            released: Position::NONE,
            stopping: false,
        }
    }

    pub fn is_idle(&self) -> bool {
        !self.writing && self.queue.is_empty()
    }

    fn enqueue(&mut self, parts: &[&[u8]], len: usize) -> Ticket {
        let has_room = |forming: &Forming| forming.bytes.len() + len <= GROUP_BYTES_MAX;
        if !self.queue.back().is_some_and(has_room) {
            self.queue.push_back(Forming::with_room_for(len));
        }
        let forming = self.queue.back_mut().expect("a frame was just put there");
        forming.add(parts, len)
    }
}

/// A frame that still takes entries.
#[derive(Debug)]
struct Forming {
    bytes: Vec<u8>,
    count: u32,
    outcome: Arc<OnceLock<Result<Written, Error>>>,
}

#[derive(Debug, Clone)]
struct Written {
    first: Position,
    frame: Bytes,
}

/// A caller's place in a frame.
struct Ticket {
    index: u32,
    place: Range<usize>,
    outcome: Arc<OnceLock<Result<Written, Error>>>,
}

impl Forming {
    fn with_room_for(len: usize) -> Self {
        let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES + ENTRY_PREFIX_BYTES + len + 2 * PAGE_BYTES as usize);
        bytes.resize(FRAME_HEADER_BYTES, 0);
        Self { bytes, count: 0, outcome: Arc::new(OnceLock::new()) }
    }

    fn add(&mut self, parts: &[&[u8]], len: usize) -> Ticket {
        let prefix = u32::try_from(len).expect("an entry's length was checked against its limit");
        self.bytes.extend_from_slice(&prefix.to_le_bytes());
        let start = self.bytes.len();
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        let ticket = Ticket { index: self.count, place: start..self.bytes.len(), outcome: Arc::clone(&self.outcome) };
        self.count += 1;
        ticket
    }
}

impl Ticket {
    fn claim(&self) -> Option<Result<(Position, Bytes), Error>> {
        let written = match self.outcome.get()? {
            Ok(written) => written,
            Err(error) => return Some(Err(error.clone())),
        };
        let position = Position(written.first.0 + u64::from(self.index));
        // A slice keeps the whole frame in memory; for a small part of it that is a bad bargain.
        let entry = if self.place.len() * 2 < written.frame.len() {
            Bytes::copy_from_slice(&written.frame[self.place.clone()])
        } else {
            written.frame.slice(self.place.clone())
        };
        Some(Ok((position, entry)))
    }
}

/// Why a frame was not written.
enum Failure {
    /// Nothing on disk changed.
    Harmless(Error),
    /// What is on disk is unknown.
    Fatal(Error),
}

/// The end of the log. Used only by who has set [`State::writing`].
#[derive(Debug)]
pub(crate) struct Writer {
    pub segment: Arc<Segment>,
    pub offset: u64,
    asked_for_spare: bool,
}

impl Writer {
    pub fn new(segment: Arc<Segment>) -> Self {
        Self { segment, offset: SEGMENT_HEADER_BYTES, asked_for_spare: false }
    }

    fn fits(&self, frame_bytes: u64) -> bool {
        self.offset + frame_bytes + SEAL_BYTES <= self.segment.file_bytes
    }

    /// One frame, one write, one sync.
    fn write(
        &mut self,
        durable: &AtomicU64,
        kind: FrameKind,
        mut frame: Vec<u8>,
        count: u32,
        first: Position,
    ) -> Result<Bytes, Error> {
        let segment = &self.segment;
        finish_frame(&mut frame, kind, count, first, self.offset, segment.header.generation);
        let end = self.offset + frame.len() as u64;
        // Zeros follow the frame up to the end of a page, so that nothing of an earlier use of the file follows it.
        let padded_end = (end + ALIGNMENT).next_multiple_of(PAGE_BYTES).min(segment.file_bytes);
        frame.resize((padded_end - self.offset) as usize, 0);
        segment.file.write_all_at(&frame, self.offset).map_err(Error::io("write to", &segment.path))?;
        segment.file.sync_data().map_err(Error::io("sync", &segment.path))?;
        // In this order: a reader must never see an entry that is not yet said to be durable.
        durable.store(first.0 + u64::from(count) - 1, Ordering::Release);
        segment.publish(first, self.offset, end);
        self.offset = end;
        Ok(Bytes::from(frame))
    }
}

impl Shared {
    pub fn append(&self, parts: &[&[u8]]) -> Result<(Position, Bytes), Error> {
        let len = parts.iter().map(|part| part.len()).sum();
        if len > ENTRY_BYTES_MAX {
            return Err(Error::TooLarge { bytes: len });
        }
        let mut state = self.state.lock();
        if let Some(reason) = &state.poisoned {
            return Err(Error::Poisoned { reason: reason.clone() });
        }
        let ticket = state.enqueue(parts, len);
        loop {
            if let Some(outcome) = ticket.claim() {
                return outcome;
            }
            if state.writing {
                self.frame_done.wait(&mut state);
            } else {
                self.lead(&mut state);
            }
        }
    }

    /// Writes the oldest waiting frame and tells everyone how it went.
    fn lead(&self, state: &mut MutexGuard<'_, State>) {
        let Some(forming) = state.queue.pop_front() else { return };
        let Forming { bytes, count, outcome } = forming;
        let first = state.next;
        state.writing = true;
        let result = MutexGuard::unlocked(state, || self.write_entries(bytes, count, first));
        state.writing = false;
        let decided = match result {
            Ok(frame) => {
                state.next = Position(first.0 + u64::from(count));
                state.last_write = Instant::now();
                if std::mem::replace(&mut state.sealed, false) {
                    self.chores.notify_one();
                }
                Ok(Written { first, frame })
            }
            Err(Failure::Harmless(error)) => Err(error),
            Err(Failure::Fatal(error)) => {
                self.poison(state, &error);
                Err(error)
            }
        };
        let succeeded = decided.is_ok();
        outcome.set(decided).expect("only the leader of a frame decides about it, once");
        self.frame_done.notify_all();
        if succeeded {
            self.durable_changed.notify_all();
            MutexGuard::unlocked(state, || self.tell_hooks(self.durable()));
        }
    }

    fn write_entries(&self, bytes: Vec<u8>, count: u32, first: Position) -> Result<Bytes, Failure> {
        let mut writer = self.writer.lock();
        let frame_bytes = crate::format::aligned(bytes.len() as u64);
        if !writer.fits(frame_bytes) {
            self.rotate(&mut writer, frame_bytes, first)?;
        }
        let frame = writer.write(&self.durable, FrameKind::Entries, bytes, count, first).map_err(Failure::Fatal)?;
        let used_enough = writer.offset >= SPARE_AFTER_BYTES.min(writer.segment.file_bytes / 2);
        if used_enough && !std::mem::replace(&mut writer.asked_for_spare, true) {
            self.ask_for_spare();
        }
        Ok(frame)
    }

    /// Goes on in a new segment. The old one is sealed, and the new one states where the old one ends.
    fn rotate(&self, writer: &mut Writer, frame_bytes: u64, first: Position) -> Result<(), Failure> {
        let needed = (PAGE_BYTES + frame_bytes + SEAL_BYTES).next_multiple_of(PAGE_BYTES);
        let spare = self.obtain_spare(needed.max(self.options.segment_bytes)).map_err(Failure::Harmless)?;
        self.write_seal(writer, first).map_err(Failure::Fatal)?;
        writer.segment.close(SystemTime::now());
        let header = SegmentHeader {
            generation: new_generation(),
            first,
            previous_first: writer.segment.header.first,
            previous_end: writer.offset,
        };
        let segment = put_in_place(&self.directory, &spare.path, spare.file, spare.file_bytes, header);
        let segment = Arc::new(segment.map_err(Failure::Fatal)?);
        self.segments.write().push_back(Arc::clone(&segment));
        *writer = Writer::new(segment);
        self.chores.notify_one();
        Ok(())
    }

    fn write_seal(&self, writer: &mut Writer, next: Position) -> Result<(), Error> {
        writer.write(&self.durable, FrameKind::Seal, vec![0; FRAME_HEADER_BYTES], 0, next).map(drop)
    }

    /// Seals the last frame if nobody is writing and it is not sealed yet.
    pub fn seal(&self, state: &mut MutexGuard<'_, State>) {
        if state.sealed || !state.is_idle() || state.poisoned.is_some() {
            return;
        }
        let next = state.next;
        state.writing = true;
        let result = MutexGuard::unlocked(state, || {
            let mut writer = self.writer.lock();
            // Seals alone never fill a segment: one without room is left as it is, the next frame rotates.
            if !writer.fits(SEAL_BYTES) {
                return Ok(());
            }
            self.write_seal(&mut writer, next)
        });
        state.writing = false;
        match result {
            Ok(()) => state.sealed = true,
            Err(error) => self.poison(state, &error),
        }
        self.frame_done.notify_all();
    }

    fn poison(&self, state: &mut MutexGuard<'_, State>, error: &Error) {
        tracing::error!(%error, "the journal stops: a write failed, so nothing more can be promised");
        let reason = error.to_string();
        for waiting in state.queue.drain(..) {
            let refused = Err(Error::Poisoned { reason: reason.clone() });
            waiting.outcome.set(refused).expect("a waiting frame has not been decided about");
        }
        state.poisoned = Some(reason);
        self.durable_changed.notify_all();
    }
}
