//! The threads that guests run on.
//!
//! A guest has a thread to itself for as long as it runs, so that it may compute or wait as it likes. There
//! are as many threads as processors while guests come and go quickly: more would only get in each other's
//! way. When those that run do not make room for those that wait, the ticker adds threads, up to one per slot.
//! A thread without work goes after a while; of a node that runs no guests only the ticker is left, asleep.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::STACK_BYTES_MAX;
use crate::engine::Machines;
use crate::error::Rejected;
use crate::program::Program;
use crate::run;
use crate::stop::Stop;
use crate::task::{Ended, Task, Verdict};
use crate::ticker;

/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// What the host's own functions need of a thread's stack, beyond the guest's part.
const HOST_STACK_BYTES: usize = 1536 << 10;

/// A program, what it is to do, and who is to be told.
pub struct Run {
    program: Arc<Program>,
    task: Task,
    pub(crate) stop: Stop,
    done: Done,
}

type Done = Box<dyn FnOnce(Ended) + Send>;

impl Run {
    /// `done` is called once, on the guest's thread: it must be quick.
    pub fn new(program: Arc<Program>, task: Task, stop: Stop, done: impl FnOnce(Ended) + Send + 'static) -> Self {
        Self { program, task, stop, done: Box::new(done) }
    }

    /// It was stopped before it began.
    pub(crate) fn end_unused(self) {
        end(self.done, run::unused(Verdict::Stopped));
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("program", &self.program).field("task", &self.task).finish_non_exhaustive()
    }
}

/// Whoever asked is told; a panic of theirs is not to be the end of this thread.
fn end(done: Done, ended: Ended) {
    if catch_unwind(AssertUnwindSafe(|| done(ended))).is_err() {
        tracing::error!("the end of a WebAssembly run was not heard: whoever was told of it panicked");
    }
}

/// The pool as its owner has it: without an owner it ends.
pub(crate) struct Pool(Arc<Shared>);

/// The pool as its threads see it.
pub(crate) struct Shared {
    pub machines: Arc<Machines>,
    runtime: tokio::runtime::Handle,
    slots: usize,
    processors: usize,
    queue_max: usize,
    memory_bytes_max: u64,
    state: Mutex<State>,
    work_came: Condvar,
    tick_needed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    pub queue: VecDeque<Run>,
    pub threads: usize,
    pub idle: usize,
    pub running: usize,
    /// How many runs have been taken from the queue, ever: if this stands still, nobody makes room.
    pub taken: u64,
    ticker: Ticker,
    pub closing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Ticker {
    #[default]
    Missing,
    Asleep,
    Awake,
}

/// How large a pool may get.
pub(crate) struct Size {
    pub slots: u32,
    pub queue_max: usize,
    pub memory_bytes_max: u64,
}

impl Pool {
    pub fn new(machines: Arc<Machines>, runtime: tokio::runtime::Handle, size: Size) -> Self {
        let slots = size.slots.max(1) as usize;
        let processors = thread::available_parallelism().map_or(1, usize::from).min(slots);
        Self(Arc::new(Shared {
            machines,
            runtime,
            slots,
            processors,
            queue_max: size.queue_max,
            memory_bytes_max: size.memory_bytes_max,
            state: Mutex::default(),
            work_came: Condvar::new(),
            tick_needed: Condvar::new(),
        }))
    }

    /// Takes all of them or none.
    pub fn submit(&self, runs: Vec<Run>) -> Result<(), Rejected> {
        let shared = &self.0;
        let count = runs.len();
        let mut state = shared.state.lock();
        let queued = state.queue.len();
        if queued + count > shared.queue_max {
            return Err(Rejected::Full { queued, queued_max: shared.queue_max });
        }
        shared.start_ticker(&mut state).map_err(Rejected::no_thread)?;
        state.queue.extend(runs);
        let wanted = state.queue.len().min(shared.processors);
        if let Err(error) = shared.start_threads(&mut state, wanted)
            && state.threads == 0
        {
            state.queue.truncate(queued);
            return Err(Rejected::no_thread(error));
        }
        let woken = state.idle.min(count);
        drop(state);
        for _ in 0..woken {
            shared.work_came.notify_one();
        }
        Ok(())
    }
}

impl Drop for Pool {
    /// What waits ends as stopped; what runs goes on to its end.
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.state.lock();
            state.closing = true;
            std::mem::take(&mut state.queue)
        };
        self.0.work_came.notify_all();
        self.0.tick_needed.notify_all();
        waiting.into_iter().for_each(Run::end_unused);
    }
}

impl Rejected {
    fn no_thread(error: io::Error) -> Self {
        Self::NoThread(Arc::new(error))
    }
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Starts threads until there are `wanted`, or as many as slots.
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
        if state.ticker == Ticker::Missing {
            let shared = self.clone();
            thread::Builder::new().name("wasm-tick".into()).spawn(move || ticker::tick(&shared))?;
            state.ticker = Ticker::Awake;
        }
        Ok(())
    }

    /// The ticker has nothing to do until a run begins.
    pub fn sleep_until_needed(&self, state: &mut MutexGuard<'_, State>) {
        state.ticker = Ticker::Asleep;
        while state.ticker == Ticker::Asleep && !state.closing {
            self.tick_needed.wait(state);
        }
    }

    /// The next run, or none when this thread is to end.
    fn next(&self, has_finished: bool) -> Option<Run> {
        let mut state = self.state.lock();
        state.running -= usize::from(has_finished);
        loop {
            if let Some(run) = state.queue.pop_front() {
                state.running += 1;
                state.taken += 1;
                if state.ticker == Ticker::Asleep {
                    state.ticker = Ticker::Awake;
                    self.tick_needed.notify_one();
                }
                return Some(run);
            }
            let gives_up = !state.closing && {
                state.idle += 1;
                let waited = self.work_came.wait_for(&mut state, IDLE);
                state.idle -= 1;
                waited.timed_out() && state.queue.is_empty()
            };
            if gives_up || state.closing {
                state.threads -= 1;
                return None;
            }
        }
    }
}

fn work(shared: &Shared) {
    let _runtime = shared.runtime.enter();
    let mut has_finished = false;
    while let Some(Run { program, task, stop, done }) = shared.next(has_finished) {
        let ended = run::run(&program, task, stop, shared.memory_bytes_max);
        end(done, ended);
        has_finished = true;
    }
}
