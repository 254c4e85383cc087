//! One run, from beginning to end, on the thread that calls.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Store, UpdateDeadline};

use crate::guest::Guest;
use crate::program::{Metering, Program};
use crate::stop::Stop;
use crate::task::{Ended, Task, Verdict};
use crate::{CALL_BYTES_MAX, HANDLES_MAX, verdict};

/// Runs a guest to its end. The thread must be inside a tokio runtime, and not one of that runtime's own.
pub(crate) fn run(program: &Program, task: Task, stop: Stop, memory_bytes_max: u64) -> Ended {
    let cpu_before = cpu_of_thread();
    // A panic in here is a bug of the host; it must not become the end of the thread.
    let ended = catch_unwind(AssertUnwindSafe(|| execute(program, task, stop, memory_bytes_max)));
    let ended = ended.unwrap_or_else(|panic| unused(Verdict::HostFailed(panic_text(panic.as_ref()))));
    Ended { cpu: cpu_of_thread().saturating_sub(cpu_before), ..ended }
}

/// The end of a run that never began.
pub(crate) fn unused(verdict: Verdict) -> Ended {
    Ended { verdict, cpu: Duration::ZERO, memory_peak_bytes: 0, fuel_used: None, output_cut_bytes: 0 }
}

fn execute(program: &Program, task: Task, stop: Stop, memory_bytes_max: u64) -> Ended {
    if stop.is_stopped() {
        return unused(Verdict::Stopped);
    }
    let limits = task.limits;
    if limits.fuel.is_some() && program.metering() == Metering::Off {
        return unused(Verdict::HostFailed("the program was not prepared to run with a budget of fuel".into()));
    }
    let guest = match Guest::new(task, memory_bytes_max, stop) {
        Ok(guest) => guest,
        Err(why) => return unused(Verdict::HostFailed(why)),
    };
    let mut store = Store::new(program.engine(), guest);
    store.limiter(|guest| &mut guest.memory);
    store.set_hostcall_fuel(CALL_BYTES_MAX.min(usize::try_from(limits.memory_bytes).unwrap_or(usize::MAX)));
    store.set_max_component_handles(HANDLES_MAX);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|store| {
        store.data().bounds.check()?;
        Ok(UpdateDeadline::Continue(1))
    });
    let outcome = match program.metering() {
        Metering::Off => Ok(()),
        Metering::Fuel => store.set_fuel(limits.fuel.unwrap_or(u64::MAX)),
    };
    let outcome = outcome.and_then(|()| program.command.instantiate(&mut store));
    let outcome = outcome.and_then(|command| command.wasi_cli_run().call_run(&mut store));
    let fuel_left = limits.fuel.and_then(|_| store.get_fuel().ok());
    let guest = store.data();
    Ended {
        verdict: verdict::of(outcome, &guest.memory),
        cpu: Duration::ZERO,
        memory_peak_bytes: guest.memory.peak_bytes(),
        fuel_used: limits.fuel.zip(fuel_left).map(|(fuel, left)| fuel.saturating_sub(left)),
        output_cut_bytes: guest.output.cut_bytes(),
    }
}

/// The processor time that this thread has used.
fn cpu_of_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the host panicked: {}", text.unwrap_or("for no reason it could tell"))
}
