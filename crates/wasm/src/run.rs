//! Execution of one run on the calling thread.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Store, UpdateDeadline};

use crate::guest::Guest;
use crate::program::{Metering, Program};
use crate::spec::{GuestExit, RunOutcome, RunSpec};
use crate::stop::Stop;
use crate::{CALL_BYTES_MAX, HANDLES_MAX, exit};

/// Runs a guest to its end. The thread must have entered a tokio runtime but not be one of its workers.
pub(crate) fn run(program: &Program, spec: RunSpec, stop: Stop, memory_bytes_max: u64) -> RunOutcome {
    let cpu_before = cpu_of_thread();
    // A panic here is a bug of the host; it must not end the thread.
    let outcome = catch_unwind(AssertUnwindSafe(|| execute(program, spec, stop, memory_bytes_max)));
    let outcome = outcome.unwrap_or_else(|panic| unstarted(GuestExit::HostFailed(panic_text(panic.as_ref()))));
    RunOutcome { cpu: cpu_of_thread().saturating_sub(cpu_before), ..outcome }
}

/// Outcome of a run that never began.
pub(crate) fn unstarted(exit: GuestExit) -> RunOutcome {
    RunOutcome { exit, cpu: Duration::ZERO, memory_peak_bytes: 0, fuel_used: None, output_truncated_bytes: 0 }
}

fn execute(program: &Program, spec: RunSpec, stop: Stop, memory_bytes_max: u64) -> RunOutcome {
    if stop.is_stopped() {
        return unstarted(GuestExit::Stopped);
    }
    let limits = spec.limits;
    if limits.fuel.is_some() && program.metering() == Metering::Off {
        return unstarted(GuestExit::HostFailed("the program was prepared without fuel metering".into()));
    }
    let guest = match Guest::new(spec, memory_bytes_max, stop) {
        Ok(guest) => guest,
        Err(why) => return unstarted(GuestExit::HostFailed(why)),
    };
    let mut store = Store::new(program.engine(), guest);
    store.limiter(|guest| &mut guest.memory);
    store.set_hostcall_fuel(CALL_BYTES_MAX.min(usize::try_from(limits.memory_bytes).unwrap_or(usize::MAX)));
    store.set_max_component_handles(HANDLES_MAX);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|store| {
        store.data().stop_conditions.check()?;
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
    RunOutcome {
        exit: exit::of(outcome, &guest.memory),
        cpu: Duration::ZERO,
        memory_peak_bytes: guest.memory.peak_bytes(),
        fuel_used: limits.fuel.zip(fuel_left).map(|(fuel, left)| fuel.saturating_sub(left)),
        output_truncated_bytes: guest.output.truncated_bytes(),
    }
}

/// CPU time of this thread.
fn cpu_of_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the host panicked: {}", text.unwrap_or("no message"))
}
