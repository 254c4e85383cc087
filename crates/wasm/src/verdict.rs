//! What an error of the engine says about the job.

use std::fmt::Write as _;

use wasmtime::{Error, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::memory::Memory;
use crate::task::Verdict;
use crate::text::cut;
use crate::waiting::Interrupt;

/// What the entry function returned, or what kept it from returning.
pub(crate) fn of(outcome: Result<Result<(), ()>, Error>, memory: &Memory) -> Verdict {
    match outcome {
        Ok(Ok(())) => Verdict::Succeeded,
        Ok(Err(())) => Verdict::ExitCode(1),
        Err(error) => of_error(&error, memory),
    }
}

fn of_error(error: &Error, memory: &Memory) -> Verdict {
    if let Some(I32Exit(code)) = error.downcast_ref() {
        // WASI 0.2 has codes of one byte.
        return match u8::try_from(*code).unwrap_or(u8::MAX) {
            0 => Verdict::Succeeded,
            code => Verdict::ExitCode(code),
        };
    }
    match error.downcast_ref() {
        Some(Interrupt::Stopped) => return Verdict::Stopped,
        Some(Interrupt::TimedOut) => return Verdict::TimedOut,
        None => {}
    }
    let trap = error.downcast_ref::<Trap>();
    if trap == Some(&Trap::OutOfFuel) {
        return Verdict::OutOfFuel;
    }
    if memory.was_refused() {
        return Verdict::OutOfMemory(text(error));
    }
    // Without a trap, and without a guest on the stack, it was the host that could not go on.
    if trap.is_some() || error.downcast_ref::<WasmBacktrace>().is_some() {
        return Verdict::Trapped(text(error));
    }
    Verdict::HostFailed(text(error))
}

/// What happened, then where, in as much room as there is.
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
    cut(text)
}

/// The backtrace is a link of the chain too. It comes last here, one frame a line.
fn is_backtrace(cause: &str) -> bool {
    cause.starts_with("error while executing at wasm backtrace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_fault_of_the_guest_is_the_hosts() {
        let verdict = of(Err(Error::msg("no address space")), &Memory::new(0));
        assert_eq!(verdict, Verdict::HostFailed("no address space".into()));
    }

    #[test]
    fn an_exit_without_an_error_is_a_success() {
        let exit = |code| of(Err(I32Exit(code).into()), &Memory::new(0));
        assert_eq!(exit(0), Verdict::Succeeded);
        assert_eq!(exit(255), Verdict::ExitCode(255));
    }
}
