//! One breaker with its lock, its counters and the last error.

use std::sync::atomic::{AtomicU64, Ordering};

use model::time::{Millis, Timestamp};
use parking_lot::Mutex;

use crate::breaker::{Breaker, CircuitOpen, Outcome, Permit, Settings, State};
use crate::clock::Clock;
use crate::status::{BreakerStatus, LastError};

#[derive(Debug)]
pub(crate) struct Circuit {
    /// What it checks, for the log.
    pub(crate) name: &'static str,
    breaker: Mutex<Breaker>,
    last_error: Mutex<Option<LastError>>,
    pub(crate) counters: Counters,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) calls: Counter,
    pub(crate) failures: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) denied_invalid: Counter,
    pub(crate) denied_refused: Counter,
    pub(crate) denied_too_large: Counter,
    pub(crate) open_rejections: Counter,
    pub(crate) busy_rejections: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Circuit {
    pub(crate) fn new(name: &'static str, settings: Settings) -> Self {
        Self {
            name,
            breaker: Mutex::new(Breaker::new(settings)),
            last_error: Mutex::new(None),
            counters: Counters::default(),
        }
    }

    /// Set while open. Checked before waiting for admission, without taking a permit.
    pub(crate) fn is_open(&self, now: Millis) -> Option<CircuitOpen> {
        let (_, until) = self.breaker.lock().open_between(now)?;
        Some(CircuitOpen { state: State::Open, retry_at: until })
    }

    pub(crate) fn admit<'a>(&'a self, clock: &'a dyn Clock) -> Result<CallPermit<'a>, CircuitOpen> {
        let permit = self.breaker.lock().admit(clock.now())?;
        Ok(CallPermit { circuit: self, clock, permit: Some(permit) })
    }

    pub(crate) fn record_error(&self, now: Millis, message: &str) {
        let message = model::reason::cut(message.to_owned());
        *self.last_error.lock() = Some(LastError { at: Timestamp(now), message });
    }

    pub(crate) fn status(&self, now: Millis) -> BreakerStatus {
        let breaker = self.breaker.lock();
        let open = breaker.open_between(now);
        BreakerStatus {
            state: breaker.state(now),
            failures_in_a_row: breaker.failures(),
            opened_at: open.map(|(since, _)| Timestamp(since)),
            open_until: open.map(|(_, until)| Timestamp(until)),
            calls: self.counters.calls.get(),
            failures: self.counters.failures.get(),
            timeouts: self.counters.timeouts.get(),
            denied_invalid: self.counters.denied_invalid.get(),
            denied_refused: self.counters.denied_refused.get(),
            denied_too_large: self.counters.denied_too_large.get(),
            open_rejections: self.counters.open_rejections.get(),
            busy_rejections: self.counters.busy_rejections.get(),
            late_reports: breaker.late_reports(),
            transitions: breaker.transitions(),
            last_error: self.last_error.lock().clone(),
        }
    }
}

/// Permit for one call. If it is dropped unreported, because its caller stopped waiting, the call counts as abandoned.
#[derive(Debug)]
pub(crate) struct CallPermit<'a> {
    circuit: &'a Circuit,
    clock: &'a dyn Clock,
    permit: Option<Permit>,
}

impl CallPermit<'_> {
    /// Returns the breaker's new state if it changed.
    pub(crate) fn report(mut self, outcome: Outcome) -> Option<State> {
        self.give_back(outcome)
    }

    fn give_back(&mut self, outcome: Outcome) -> Option<State> {
        let permit = self.permit.take()?;
        self.circuit.breaker.lock().report(self.clock.now(), permit, outcome)
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        self.give_back(Outcome::Abandoned);
    }
}
