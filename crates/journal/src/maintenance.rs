//! What one background thread does so that appending does not have to: seal when idle, prepare the next
//! segment, take back old ones.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::commit::State;
use crate::journal::Shared;
use crate::segment::Segment;
use crate::spare::{Spare, Spares, prepare};
use crate::{Error, Position};

/// With nothing to do the thread looks at the age of kept segments this often.
const LOOK_AROUND_EVERY: Duration = Duration::from_secs(30);

/// The spares, and who is making one.
#[derive(Debug)]
pub(crate) struct SpareRoom {
    inner: Mutex<Room>,
    changed: Condvar,
}

#[derive(Debug)]
struct Room {
    spares: Spares,
    preparing: bool,
    wanted: bool,
}

impl SpareRoom {
    pub fn new(spares: Spares) -> Self {
        Self { inner: Mutex::new(Room { spares, preparing: false, wanted: false }), changed: Condvar::new() }
    }
}

impl Shared {
    pub fn ask_for_spare(&self) {
        let mut room = self.spare_room.inner.lock();
        if room.spares.is_empty() {
            room.wanted = true;
            self.chores.notify_one();
        }
    }

    /// A prepared file of at least this size: one that lies ready, the one in the making, or a new one.
    pub fn obtain_spare(&self, file_bytes_min: u64) -> Result<Spare, Error> {
        let mut room = self.spare_room.inner.lock();
        loop {
            if let Some(spare) = room.spares.take(file_bytes_min) {
                return Ok(spare);
            }
            if !room.preparing || file_bytes_min > self.options.segment_bytes {
                break;
            }
            self.spare_room.changed.wait(&mut room);
        }
        let path = room.spares.reserve_path();
        drop(room);
        prepare(&path, file_bytes_min)
    }

    pub fn run_chores(&self) {
        let mut state = self.state.lock();
        while !state.stopping {
            let due = state.last_write + self.options.seal_after;
            if !state.sealed && Instant::now() >= due {
                self.seal(&mut state);
            }
            let kept_until = MutexGuard::unlocked(&mut state, || {
                self.prepare_wanted_spare();
                self.recycle_released()
            });
            self.rest(&mut state, kept_until);
        }
    }

    fn rest(&self, state: &mut MutexGuard<'_, State>, kept_for: Option<Duration>) {
        if state.stopping {
            return;
        }
        // Between looking and waiting someone may have asked: they notify while this thread is not waiting yet.
        if self.spare_room.inner.lock().wanted && state.poisoned.is_none() {
            return;
        }
        let mut pause = kept_for.unwrap_or(LOOK_AROUND_EVERY).min(LOOK_AROUND_EVERY);
        if !state.sealed && state.poisoned.is_none() {
            let due = state.last_write + self.options.seal_after;
            pause = pause.min(due.saturating_duration_since(Instant::now()));
        }
        // Never spin: when a seal is due but someone is writing, look again a little later.
        self.chores.wait_for(state, pause.max(Duration::from_millis(1)));
    }

    fn prepare_wanted_spare(&self) {
        let path = {
            let mut room = self.spare_room.inner.lock();
            if !std::mem::take(&mut room.wanted) || !room.spares.is_empty() {
                return;
            }
            room.preparing = true;
            room.spares.reserve_path()
        };
        let prepared = prepare(&path, self.options.segment_bytes);
        let mut room = self.spare_room.inner.lock();
        room.preparing = false;
        match prepared {
            Ok(spare) => room.spares.add(spare),
            // The append that needs it will try again, and report.
            Err(error) => tracing::warn!(%error, "could not prepare the next journal segment"),
        }
        self.spare_room.changed.notify_all();
    }

    /// Takes back segments that neither recovery nor the retention for readers needs, oldest first.
    /// Says how long the next one still has.
    fn recycle_released(&self) -> Option<Duration> {
        let released = self.state.lock().released;
        loop {
            let oldest = {
                let mut segments = self.segments.write();
                let kept_for = self.keep_for_readers(segments.make_contiguous(), released)?;
                if kept_for > Duration::ZERO {
                    return Some(kept_for);
                }
                // From now on nobody begins to read it; who is reading it notices by its checksums.
                segments.pop_front()?
            };
            let recycled = self.spare_room.inner.lock().spares.recycle(&oldest, self.options.segment_bytes);
            if let Err(error) = recycled {
                tracing::warn!(%error, "could not take back a journal segment, will try again");
                // A later one must not go first: a gap in the log is damage.
                self.segments.write().push_front(oldest);
                return None;
            }
        }
    }

    /// How long the oldest segment is still kept, if it is released at all.
    fn keep_for_readers(&self, segments: &[Arc<Segment>], released: Position) -> Option<Duration> {
        let released_count = segments.windows(2).take_while(|pair| pair[1].header.first.0 <= released.0 + 1).count();
        let oldest = segments[..released_count].first()?;
        let bytes: u64 = segments[..released_count].iter().map(|segment| segment.end()).sum();
        if bytes > self.options.keep_bytes {
            return Some(Duration::ZERO);
        }
        Some(self.options.keep_for.saturating_sub(oldest.age(SystemTime::now())))
    }
}
