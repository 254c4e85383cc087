//! Maintenance thread: seals when idle, prepares the next segment, recycles released ones.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::commit::State;
use crate::journal::Shared;
use crate::segment::Segment;
use crate::spare::{Spare, Spares, prepare};
use crate::{Error, Position};

/// Longest interval between two checks of the age of retained segments.
const RETENTION_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Spare segments with the state of their preparation.
#[derive(Debug)]
pub(crate) struct SparePool {
    inner: Mutex<PoolState>,
    changed: Condvar,
}

#[derive(Debug)]
struct PoolState {
    spares: Spares,
    preparing: bool,
    wanted: bool,
}

impl SparePool {
    pub fn new(spares: Spares) -> Self {
        Self { inner: Mutex::new(PoolState { spares, preparing: false, wanted: false }), changed: Condvar::new() }
    }
}

impl Shared {
    pub fn request_spare(&self) {
        let mut pool = self.spare_pool.inner.lock();
        if pool.spares.is_empty() {
            pool.wanted = true;
            self.maintenance_wake.notify_one();
        }
    }

    /// Returns a file of at least this size: a spare, the one in preparation, or a new one.
    pub fn obtain_spare(&self, file_bytes_min: u64) -> Result<Spare, Error> {
        let mut pool = self.spare_pool.inner.lock();
        loop {
            if let Some(spare) = pool.spares.take(file_bytes_min) {
                return Ok(spare);
            }
            if !pool.preparing || file_bytes_min > self.options.segment_bytes {
                break;
            }
            self.spare_pool.changed.wait(&mut pool);
        }
        let path = pool.spares.reserve_path();
        drop(pool);
        prepare(&path, file_bytes_min)
    }

    pub fn run_maintenance(&self) {
        let mut state = self.state.lock();
        while !state.stopping {
            let seal_due = state.last_write + self.options.seal_after;
            if !state.sealed && Instant::now() >= seal_due {
                self.seal(&mut state);
            }
            let next_expiry = MutexGuard::unlocked(&mut state, || {
                self.prepare_wanted_spare();
                self.recycle_released()
            });
            self.wait_for_work(&mut state, next_expiry);
        }
    }

    fn wait_for_work(&self, state: &mut MutexGuard<'_, State>, next_expiry: Option<Duration>) {
        if state.stopping {
            return;
        }
        // A request may have come after the last check, when its notification found no waiting thread.
        if self.spare_pool.inner.lock().wanted && state.poisoned.is_none() {
            return;
        }
        let mut pause = next_expiry.unwrap_or(RETENTION_CHECK_INTERVAL).min(RETENTION_CHECK_INTERVAL);
        if !state.sealed && state.poisoned.is_none() {
            let seal_due = state.last_write + self.options.seal_after;
            pause = pause.min(seal_due.saturating_duration_since(Instant::now()));
        }
        // The minimum prevents spinning while a seal is due and a write is in progress.
        self.maintenance_wake.wait_for(state, pause.max(Duration::from_millis(1)));
    }

    fn prepare_wanted_spare(&self) {
        let path = {
            let mut pool = self.spare_pool.inner.lock();
            if !std::mem::take(&mut pool.wanted) || !pool.spares.is_empty() {
                return;
            }
            pool.preparing = true;
            pool.spares.reserve_path()
        };
        let prepared = prepare(&path, self.options.segment_bytes);
        let mut pool = self.spare_pool.inner.lock();
        pool.preparing = false;
        match prepared {
            Ok(spare) => pool.spares.add(spare),
            // Not fatal: the append that needs the segment tries again and reports the error.
            Err(error) => {
                tracing::warn!(%error, "cannot prepare the next journal segment, will try again")
            }
        }
        self.spare_pool.changed.notify_all();
    }

    /// Recycles segments that neither recovery nor the retention needs, oldest first. Returns the time until the next
    /// one expires.
    fn recycle_released(&self) -> Option<Duration> {
        let released = self.state.lock().released;
        loop {
            let oldest = {
                let mut segments = self.segments.write();
                let remaining = self.remaining_retention(segments.make_contiguous(), released)?;
                if remaining > Duration::ZERO {
                    return Some(remaining);
                }
                // New readers no longer find it. Readers in the middle of it notice by its checksums.
                segments.pop_front()?
            };
            let recycled = self.spare_pool.inner.lock().spares.recycle(&oldest, self.options.segment_bytes);
            if let Err(error) = recycled {
                tracing::warn!(%error, "cannot recycle a journal segment, will try again");
                // Later segments must not go first: a gap in the log counts as damage.
                self.segments.write().push_front(oldest);
                return None;
            }
        }
    }

    /// Time until the oldest segment expires, or `None` if it is not released.
    fn remaining_retention(&self, segments: &[Arc<Segment>], released: Position) -> Option<Duration> {
        let released_count = segments.windows(2).take_while(|pair| pair[1].header.first.0 <= released.0 + 1).count();
        let oldest = segments[..released_count].first()?;
        let bytes: u64 = segments[..released_count].iter().map(|segment| segment.end()).sum();
        if bytes > self.options.keep_bytes {
            return Some(Duration::ZERO);
        }
        Some(self.options.keep_for.saturating_sub(oldest.age(SystemTime::now())))
    }
}
