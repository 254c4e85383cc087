//! The one thread that minds the time: it has running guests asked whether they have to end, and sees to
//! it that those that wait do not wait for ever. While nothing runs it sleeps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use crate::TICK;
use crate::pool::{Run, Shared, State};

/// How many ticks without a guest make it go to sleep: waking it for each of many short runs would cost
/// more than the ticks.
const QUIET_TICKS_MAX: u32 = 10;

/// How often it looks for stopped runs in a queue that moves: they might be a long way from the front.
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
                shared.sleep_until_needed(&mut state);
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
        stopped.into_iter().for_each(Run::end_unused);
        thread::sleep(TICK);
        shared.machines.tick();
        ticks += 1;
    }
}

/// All threads are busy with long runs: doubles them, if so many are needed.
fn add_threads(shared: &Arc<Shared>, state: &mut State) {
    let wanted = state.threads + state.queue.len().min(state.threads.max(1));
    if let Err(error) = shared.start_threads(state, wanted) {
        tracing::warn!(%error, "cannot start another thread for WebAssembly");
    }
}

/// Takes out of the queue what was stopped while it waited there.
fn take_stopped(state: &mut State) -> VecDeque<Run> {
    if !state.queue.iter().any(|run| run.stop.is_stopped()) {
        return VecDeque::new();
    }
    let (stopped, waiting) = std::mem::take(&mut state.queue).into_iter().partition(|run| run.stop.is_stopped());
    state.queue = waiting;
    stopped
}
