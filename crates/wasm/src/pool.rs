//! Thread pool for guests.
//!
//! Each guest has a dedicated thread while it runs, so it may compute or block. With short runs there are as many
//! threads as processors; more would only compete. When no run has left the queue for a tick, the ticker adds threads,
//! up to one per slot. Idle threads end after a while; without guests only the sleeping ticker remains.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::STACK_BYTES_MAX;
use crate::engine::GuestEngines;
use crate::error::SubmitError;
use crate::program::Program;
use crate::run;
use crate::spec::{GuestExit, RunOutcome, RunSpec};
use crate::stop::Stop;
use crate::ticker;

/// Time without work after which a thread ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Stack for host functions, in addition to the guest's.
const HOST_STACK_BYTES: usize = 1536 << 10;

/// One run of a program, with the callback for its outcome.
pub struct Run {
    program: Arc<Program>,
    spec: RunSpec,
    pub(crate) stop: Stop,
    on_end: OnEnd,
}

type OnEnd = Box<dyn FnOnce(RunOutcome) + Send>;

impl Run {
    /// `on_end` is called once, on the guest's thread. It must return quickly.
    pub fn new(
        program: Arc<Program>,
        spec: RunSpec,
        stop: Stop,
        on_end: impl FnOnce(RunOutcome) + Send + 'static,
    ) -> Self {
        Self { program, spec, stop, on_end: Box::new(on_end) }
    }

    /// Reports a run that was stopped before it began.
    pub(crate) fn finish_unstarted(self) {
        report(self.on_end, run::unstarted(GuestExit::Stopped));
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("program", &self.program).field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// Calls the callback. A panic in it does not end the thread.
fn report(on_end: OnEnd, outcome: RunOutcome) {
    if catch_unwind(AssertUnwindSafe(|| on_end(outcome))).is_err() {
        tracing::error!("the callback for the outcome of a WebAssembly run panicked; the outcome is lost");
    }
}

/// Owner's handle; dropping it shuts the pool down.
pub(crate) struct Pool(Arc<Shared>);

/// State shared with the threads.
pub(crate) struct Shared {
    pub engines: Arc<GuestEngines>,
    runtime: tokio::runtime::Handle,
    slots: usize,
    processors: usize,
    queue_max: usize,
    memory_bytes_max: u64,
    state: Mutex<State>,
    work_available: Condvar,
    tick_needed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    pub queue: VecDeque<Run>,
    pub threads: usize,
    pub idle: usize,
    pub running: usize,
    /// Total of runs taken from the queue. The queue is stuck if it does not change.
    pub taken: u64,
    ticker: TickerState,
    pub closing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum TickerState {
    #[default]
    NotStarted,
    Asleep,
    Awake,
}

/// Limits of a pool.
pub(crate) struct PoolConfig {
    pub slots: u32,
    pub queue_max: usize,
    pub memory_bytes_max: u64,
}

impl Pool {
    pub fn new(engines: Arc<GuestEngines>, runtime: tokio::runtime::Handle, config: PoolConfig) -> Self {
        let slots = config.slots.max(1) as usize;
        let processors = thread::available_parallelism().map_or(1, usize::from).min(slots);
        Self(Arc::new(Shared {
            engines,
            runtime,
            slots,
            processors,
            queue_max: config.queue_max,
            memory_bytes_max: config.memory_bytes_max,
            state: Mutex::default(),
            work_available: Condvar::new(),
            tick_needed: Condvar::new(),
        }))
    }

    /// Queues all runs or none.
    pub fn submit(&self, runs: Vec<Run>) -> Result<(), SubmitError> {
        let shared = &self.0;
        let count = runs.len();
        let mut state = shared.state.lock();
        let queued = state.queue.len();
        if queued + count > shared.queue_max {
            return Err(SubmitError::Full { queued, queued_max: shared.queue_max });
        }
        shared.start_ticker(&mut state).map_err(SubmitError::no_thread)?;
        state.queue.extend(runs);
        let wanted = state.queue.len().min(shared.processors);
        if let Err(error) = shared.start_threads(&mut state, wanted)
            && state.threads == 0
        {
            state.queue.truncate(queued);
            return Err(SubmitError::no_thread(error));
        }
        let woken = state.idle.min(count);
        drop(state);
        for _ in 0..woken {
            shared.work_available.notify_one();
        }
        Ok(())
    }
}

impl Drop for Pool {
    /// Queued runs end as stopped, running ones continue.
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.state.lock();
            state.closing = true;
            std::mem::take(&mut state.queue)
        };
        self.0.work_available.notify_all();
        self.0.tick_needed.notify_all();
        waiting.into_iter().for_each(Run::finish_unstarted);
    }
}

impl SubmitError {
    fn no_thread(error: io::Error) -> Self {
        Self::NoThread(Arc::new(error))
    }
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Starts threads up to `wanted`, at most one per slot.
    pub fn start_threads(self: &Arc<Self>, state: &mut State, wanted: usize) -> io::Result<()> {
        while state.threads < wanted.min(self.slots) {
            let shared = self.clone();
            let thread = thread::Builder::new().name("wasm".into()).stack_size(STACK_BYTES_MAX + HOST_STACK_BYTES);
            thread.spawn(move || work(&shared))?;
            state.threads += 1;
        }
        Ok(())
    }

    fn start_ticker(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        if state.ticker == TickerState::NotStarted {
            let shared = self.clone();
            thread::Builder::new().name("wasm-tick".into()).spawn(move || ticker::tick(&shared))?;
            state.ticker = TickerState::Awake;
        }
        Ok(())
    }

    /// Blocks the ticker until a run begins or the pool shuts down.
    pub fn sleep_until_run(&self, state: &mut MutexGuard<'_, State>) {
        state.ticker = TickerState::Asleep;
        while state.ticker == TickerState::Asleep && !state.closing {
            self.tick_needed.wait(state);
        }
    }

    /// The next run; `None` if the thread must end.
    fn next(&self, has_finished: bool) -> Option<Run> {
        let mut state = self.state.lock();
        state.running -= usize::from(has_finished);
        loop {
            if let Some(run) = state.queue.pop_front() {
                state.running += 1;
                state.taken += 1;
                if state.ticker == TickerState::Asleep {
                    state.ticker = TickerState::Awake;
                    self.tick_needed.notify_one();
                }
                return Some(run);
            }
            let timed_out = !state.closing && {
                state.idle += 1;
                let waited = self.work_available.wait_for(&mut state, IDLE_TIMEOUT);
                state.idle -= 1;
                waited.timed_out() && state.queue.is_empty()
            };
            if timed_out || state.closing {
                state.threads -= 1;
                return None;
            }
        }
    }
}

fn work(shared: &Shared) {
    let _runtime = shared.runtime.enter();
    let mut has_finished = false;
    while let Some(Run { program, spec, stop, on_end }) = shared.next(has_finished) {
        let outcome = run::run(&program, spec, stop, shared.memory_bytes_max);
        report(on_end, outcome);
        has_finished = true;
    }
}
