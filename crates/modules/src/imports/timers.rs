//! `timers`: changes go into the invocation's effects.

use crate::bindings::outlast::module::timers::{Host, TimerError};
use crate::effects::TimerChange;
use crate::guest::Guest;
use crate::limits::{NAME_BYTES_MAX, TIMER_PAYLOAD_BYTES_MAX, TIMERS_MAX};

impl Host for Guest {
    fn set(&mut self, name: String, delay_ms: u64, payload: Vec<u8>) -> wasmtime::Result<Result<(), TimerError>> {
        if payload.len() > TIMER_PAYLOAD_BYTES_MAX {
            return Ok(Err(TimerError::TooLarge(TIMER_PAYLOAD_BYTES_MAX as u64)));
        }
        self.change(name, TimerChange::Set { delay_ms, payload: payload.into() })
    }

    fn cancel(&mut self, name: String) -> wasmtime::Result<()> {
        // A timer whose name is invalid does not exist.
        self.change(name, TimerChange::Cancel).map(drop)
    }
}

impl Guest {
    fn change(&mut self, name: String, change: TimerChange) -> wasmtime::Result<Result<(), TimerError>> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Ok(Err(TimerError::InvalidName));
        }
        let timers = &self.effects()?.timers;
        if timers.len() >= TIMERS_MAX && !timers.contains_key(&name) {
            return Ok(Err(TimerError::TooLarge(TIMERS_MAX as u64)));
        }
        let payload_bytes = match &change {
            TimerChange::Set { payload, .. } => payload.len(),
            TimerChange::Cancel => 0,
        };
        self.charge(name.len() + payload_bytes)?;
        self.effects()?.timers.insert(name, change);
        Ok(Ok(()))
    }
}
