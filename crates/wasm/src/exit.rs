//! Conversion of Wasmtime results to [`GuestExit`].

use std::fmt::Write as _;

use wasmtime::{Error, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::interrupt::Interrupt;
use crate::memory_limit::MemoryLimiter;
use crate::spec::GuestExit;
use crate::truncate::truncate;

/// `outcome` is the return value of the entry function, or the engine's error.
pub(crate) fn of(outcome: Result<Result<(), ()>, Error>, memory: &MemoryLimiter) -> GuestExit {
    match outcome {
        Ok(Ok(())) => GuestExit::Succeeded,
        Ok(Err(())) => GuestExit::ExitCode(1),
        Err(error) => of_error(&error, memory),
    }
}

fn of_error(error: &Error, memory: &MemoryLimiter) -> GuestExit {
    if let Some(I32Exit(code)) = error.downcast_ref() {
        // WASI 0.2 exit codes are one byte.
        return match u8::try_from(*code).unwrap_or(u8::MAX) {
            0 => GuestExit::Succeeded,
            code => GuestExit::ExitCode(code),
        };
    }
    match error.downcast_ref() {
        Some(Interrupt::Stopped) => return GuestExit::Stopped,
        Some(Interrupt::TimedOut) => return GuestExit::TimedOut,
        None => {}
    }
    let trap = error.downcast_ref::<Trap>();
    if trap == Some(&Trap::OutOfFuel) {
        return GuestExit::OutOfFuel;
    }
    if memory.was_refused() {
        return GuestExit::OutOfMemory(text(error));
    }
    // Without a trap and without a guest frame on the stack, the host failed.
    if trap.is_some() || error.downcast_ref::<WasmBacktrace>().is_some() {
        return GuestExit::Trapped(text(error));
    }
    GuestExit::HostFailed(text(error))
}

/// Error chain, then the backtrace, truncated.
fn text(error: &Error) -> String {
    let mut text = String::new();
    let causes: Vec<String> = error.chain().map(ToString::to_string).filter(|cause| !is_backtrace(cause)).collect();
    text.push_str(&causes.join(": "));
    for frame in error.downcast_ref::<WasmBacktrace>().into_iter().flat_map(WasmBacktrace::frames) {
        text.push_str("\n  at ");
        match frame.func_name() {
            Some(name) => text.push_str(name),
            None => drop(write!(text, "function {}", frame.func_index())),
        }
        if let Some(offset) = frame.module_offset() {
            let _ = write!(text, " ({offset:#x})");
        }
    }
    truncate(text)
}

/// The error chain contains the backtrace too; `text` appends it separately, one frame per line.
fn is_backtrace(cause: &str) -> bool {
    cause.starts_with("error while executing at wasm backtrace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_trap_is_a_host_failure() {
        let exit = of(Err(Error::msg("no address space")), &MemoryLimiter::new(0));
        assert_eq!(exit, GuestExit::HostFailed("no address space".into()));
    }

    #[test]
    fn exit_code_zero_is_a_success() {
        let exit = |code| of(Err(I32Exit(code).into()), &MemoryLimiter::new(0));
        assert_eq!(exit(0), GuestExit::Succeeded);
        assert_eq!(exit(255), GuestExit::ExitCode(255));
    }
}
