//! Ticker thread: triggers the stop and deadline checks of running guests, and adds threads if the queue is stuck. It
//! sleeps while nothing runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use crate::TICK;
use crate::pool::{Run, Shared, State};

/// Ticks without a guest before the ticker sleeps. Waking it for each of many short runs would cost more than the
/// ticks.
const QUIET_TICKS_MAX: u32 = 10;

/// Interval of removing stopped runs from a moving queue; they might be far from its front.
const TICKS_BETWEEN_SWEEPS: u64 = 10;

pub(crate) fn tick(shared: &Arc<Shared>) {
    let (mut ticks, mut quiet_ticks) = (0_u64, 0);
    let mut taken_before = 0;
    loop {
        let stopped = {
            let mut state = shared.lock();
            if state.running > 0 || !state.queue.is_empty() {
                quiet_ticks = 0;
            } else if state.closing {
                return;
            } else if quiet_ticks < QUIET_TICKS_MAX {
                quiet_ticks += 1;
            } else {
                shared.sleep_until_run(&mut state);
                quiet_ticks = 0;
            }
            let is_stuck = !state.queue.is_empty() && state.idle == 0 && state.taken == taken_before;
            taken_before = state.taken;
            if is_stuck {
                add_threads(shared, &mut state);
            }
            let sweeps = is_stuck || ticks.is_multiple_of(TICKS_BETWEEN_SWEEPS);
            if sweeps { take_stopped(&mut state) } else { VecDeque::new() }
        };
        stopped.into_iter().for_each(Run::finish_unstarted);
        thread::sleep(TICK);
        shared.engines.tick();
        ticks += 1;
    }
}

/// Adds a thread per queued run, at most doubling the number, when all threads are busy with long runs.
fn add_threads(shared: &Arc<Shared>, state: &mut State) {
    let wanted = state.threads + state.queue.len().min(state.threads.max(1));
    if let Err(error) = shared.start_threads(state, wanted) {
        tracing::warn!(%error, "cannot start another WebAssembly thread; queued runs wait longer");
    }
}

/// Removes stopped runs from the queue.
fn take_stopped(state: &mut State) -> VecDeque<Run> {
    if !state.queue.iter().any(|run| run.stop.is_stopped()) {
        return VecDeque::new();
    }
    let (stopped, waiting) = std::mem::take(&mut state.queue).into_iter().partition(|run| run.stop.is_stopped());
    state.queue = waiting;
    stopped
}
