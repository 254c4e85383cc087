//! Advances the engines' epochs while instances run, so that their time limits are checked.

use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::{Condvar, Mutex};
use wasm::TICK;
use wasmtime::Engine;

/// Number of running invocations, and the thread that ticks while there are any.
pub(crate) struct Ticker(Arc<Shared>);

struct Shared {
    running: Mutex<Running>,
    begun: Condvar,
    engines: Vec<Engine>,
}

#[derive(Default)]
struct Running {
    count: usize,
    /// Ticks since the last invocation began.
    idle_ticks: u32,
}

/// Ticks without an invocation before the thread sleeps: waking it for each of many short ones would cost more.
const IDLE_TICKS_MAX: u32 = 10;

impl Ticker {
    pub fn start(engines: Vec<Engine>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { running: Mutex::default(), begun: Condvar::new(), engines });
        let weak = Arc::downgrade(&shared);
        thread::Builder::new().name("module-ticker".into()).spawn(move || tick(&weak))?;
        Ok(Self(shared))
    }

    /// Counts an invocation until the guard is dropped.
    pub fn running(&self) -> RunningGuard {
        let mut running = self.0.running.lock();
        running.count += 1;
        if running.idle_ticks >= IDLE_TICKS_MAX {
            self.0.begun.notify_one();
        }
        running.idle_ticks = 0;
        RunningGuard(self.0.clone())
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        // The thread sees that it is the last and ends.
        self.0.begun.notify_one();
    }
}

pub(crate) struct RunningGuard(Arc<Shared>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.running.lock().count -= 1;
    }
}

fn tick(shared: &Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        let mut running = shared.running.lock();
        if running.count == 0 && running.idle_ticks >= IDLE_TICKS_MAX {
            // A timeout, so that the end of the host is noticed.
            shared.begun.wait_for(&mut running, TICK * 100);
            continue;
        }
        running.idle_ticks = if running.count == 0 { running.idle_ticks + 1 } else { 0 };
        drop(running);
        thread::sleep(TICK);
        shared.engines.iter().for_each(Engine::increment_epoch);
    }
}
