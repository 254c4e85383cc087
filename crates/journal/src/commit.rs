//! Group commit: callers that arrive while a frame is being synced share the next frame.
//!
//! There is no writer thread. The first caller that finds no write in progress becomes the leader, writes the queued
//! entries, and wakes the others. A single caller never waits for another thread.

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
use crate::segment::{Segment, install_segment, new_generation};
use crate::{ENTRY_BYTES_MAX, Error, GROUP_BYTES_MAX, Position};

/// Bytes that every segment reserves for its last seal.
const SEAL_BYTES: u64 = FRAME_HEADER_BYTES as u64;

/// The next segment is prepared once this many bytes of the current one are used. An idle journal prepares nothing.
const SPARE_AFTER_BYTES: u64 = 512 << 10;

/// In-memory state shared by appending and sealing.
#[derive(Debug)]
pub(crate) struct State {
    queue: VecDeque<PendingFrame>,
    /// A write is in progress. Only the thread that set this flag uses the writer.
    pub writing: bool,
    /// Position of the next entry.
    pub next: Position,
    /// The last frame is sealed, or there is no frame.
    pub sealed: bool,
    pub last_write: Instant,
    pub poisoned: Option<String>,
    /// Recovery needs no entry up to this position.
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
        let has_room = |pending: &PendingFrame| pending.bytes.len() + len <= GROUP_BYTES_MAX;
        if !self.queue.back().is_some_and(has_room) {
            self.queue.push_back(PendingFrame::with_room_for(len));
        }
        let pending = self.queue.back_mut().expect("a frame was just queued");
        pending.add(parts, len)
    }
}

/// A queued frame that accepts further entries.
#[derive(Debug)]
struct PendingFrame {
    bytes: Vec<u8>,
    count: u32,
    outcome: Arc<OnceLock<Result<WrittenFrame, Error>>>,
}

#[derive(Debug, Clone)]
struct WrittenFrame {
    first: Position,
    frame: Bytes,
}

/// A caller's entry in a frame.
struct Ticket {
    index: u32,
    range: Range<usize>,
    outcome: Arc<OnceLock<Result<WrittenFrame, Error>>>,
}

impl PendingFrame {
    fn with_room_for(len: usize) -> Self {
        let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES + ENTRY_PREFIX_BYTES + len + 2 * PAGE_BYTES as usize);
        bytes.resize(FRAME_HEADER_BYTES, 0);
        Self { bytes, count: 0, outcome: Arc::new(OnceLock::new()) }
    }

    fn add(&mut self, parts: &[&[u8]], len: usize) -> Ticket {
        let prefix = u32::try_from(len).expect("the entry length was checked against ENTRY_BYTES_MAX");
        self.bytes.extend_from_slice(&prefix.to_le_bytes());
        let start = self.bytes.len();
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        let ticket = Ticket { index: self.count, range: start..self.bytes.len(), outcome: Arc::clone(&self.outcome) };
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
        // A slice keeps the whole frame in memory, so a small entry is copied instead.
        let entry = if self.range.len() * 2 < written.frame.len() {
            Bytes::copy_from_slice(&written.frame[self.range.clone()])
        } else {
            written.frame.slice(self.range.clone())
        };
        Some(Ok((position, entry)))
    }
}

/// The reason why a frame was not written.
enum Failure {
    /// Nothing on disk changed.
    Harmless(Error),
    /// The state on disk is unknown.
    Fatal(Error),
}

/// The end of the log. Used only by the thread that has set [`State::writing`].
#[derive(Debug)]
pub(crate) struct Writer {
    pub segment: Arc<Segment>,
    pub offset: u64,
    spare_requested: bool,
}

impl Writer {
    pub fn new(segment: Arc<Segment>) -> Self {
        Self { segment, offset: SEGMENT_HEADER_BYTES, spare_requested: false }
    }

    fn fits(&self, frame_bytes: u64) -> bool {
        self.offset + frame_bytes + SEAL_BYTES <= self.segment.file_bytes
    }

    /// Writes one frame with one write and one sync.
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
        // Zeros fill the rest of the page, so that no bytes of an earlier use of the file follow the frame.
        let padded_end = (end + ALIGNMENT).next_multiple_of(PAGE_BYTES).min(segment.file_bytes);
        frame.resize((padded_end - self.offset) as usize, 0);
        segment.file.write_all_at(&frame, self.offset).map_err(Error::io("write to", &segment.path))?;
        segment.file.sync_data().map_err(Error::io("sync", &segment.path))?;
        // The order matters: a reader must never see an entry beyond the durable position.
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

    /// Writes the oldest queued frame and wakes its callers with the outcome.
    fn lead(&self, state: &mut MutexGuard<'_, State>) {
        let Some(pending) = state.queue.pop_front() else { return };
        let PendingFrame { bytes, count, outcome } = pending;
        let first = state.next;
        state.writing = true;
        let result = MutexGuard::unlocked(state, || self.write_entries(bytes, count, first));
        state.writing = false;
        let result_for_callers = match result {
            Ok(frame) => {
                state.next = Position(first.0 + u64::from(count));
                state.last_write = Instant::now();
                if std::mem::replace(&mut state.sealed, false) {
                    self.maintenance_wake.notify_one();
                }
                Ok(WrittenFrame { first, frame })
            }
            Err(Failure::Harmless(error)) => Err(error),
            Err(Failure::Fatal(error)) => {
                self.poison(state, &error);
                Err(error)
            }
        };
        let succeeded = result_for_callers.is_ok();
        outcome.set(result_for_callers).expect("only the leader of a frame sets its outcome, once");
        self.frame_done.notify_all();
        if succeeded {
            self.durable_changed.notify_all();
            MutexGuard::unlocked(state, || self.call_hooks(self.durable()));
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
        if used_enough && !std::mem::replace(&mut writer.spare_requested, true) {
            self.request_spare();
        }
        Ok(frame)
    }

    /// Continues in a new segment. It records the end of the current one, or replaces it if it is empty.
    fn rotate(&self, writer: &mut Writer, frame_bytes: u64, first: Position) -> Result<(), Failure> {
        let needed = (PAGE_BYTES + frame_bytes + SEAL_BYTES).next_multiple_of(PAGE_BYTES);
        let spare = self.obtain_spare(needed.max(self.options.segment_bytes)).map_err(Failure::Harmless)?;
        let current = Arc::clone(&writer.segment);
        // Too small for its first frame. The new segment gets its name, so it also gets its place in the chain.
        let is_empty = current.header.first == first;
        let (previous_first, previous_end) = if is_empty {
            (current.header.previous_first, current.header.previous_end)
        } else {
            self.write_seal(writer, first).map_err(Failure::Fatal)?;
            current.close(SystemTime::now());
            (current.header.first, writer.offset)
        };
        let header = SegmentHeader { generation: new_generation(), first, previous_first, previous_end };
        let segment = install_segment(&self.directory, &spare.path, spare.file, spare.file_bytes, header);
        let segment = Arc::new(segment.map_err(Failure::Fatal)?);
        let mut segments = self.segments.write();
        if is_empty {
            segments.pop_back();
        }
        segments.push_back(Arc::clone(&segment));
        drop(segments);
        *writer = Writer::new(segment);
        self.maintenance_wake.notify_one();
        Ok(())
    }

    fn write_seal(&self, writer: &mut Writer, next: Position) -> Result<(), Error> {
        writer.write(&self.durable, FrameKind::Seal, vec![0; FRAME_HEADER_BYTES], 0, next).map(drop)
    }

    /// Seals the last frame unless it is sealed already or a write is in progress.
    pub fn seal(&self, state: &mut MutexGuard<'_, State>) {
        if state.sealed || !state.is_idle() || state.poisoned.is_some() {
            return;
        }
        let next = state.next;
        state.writing = true;
        let result = MutexGuard::unlocked(state, || {
            let mut writer = self.writer.lock();
            // Without room for a seal the segment stays unsealed; the next frame rotates it.
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
        tracing::error!(%error, "a journal write failed, no further entries are accepted until a restart");
        let reason = error.to_string();
        for pending in state.queue.drain(..) {
            let refused = Err(Error::Poisoned { reason: reason.clone() });
            pending.outcome.set(refused).expect("a queued frame has no outcome yet");
        }
        state.poisoned = Some(reason);
        self.durable_changed.notify_all();
    }
}
