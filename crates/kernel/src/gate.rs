//! A breaker with its lock, its counts and the last thing that went wrong.

use std::sync::atomic::{AtomicU64, Ordering};

use model::time::{Millis, Timestamp};
use parking_lot::Mutex;

use crate::breaker::{Breaker, Open, Outcome, Settings, State, Ticket};
use crate::clock::Clock;
use crate::status::{GateStatus, LastError};

#[derive(Debug)]
pub(crate) struct Gate {
    /// What goes through it, for the log.
    pub(crate) name: &'static str,
    breaker: Mutex<Breaker>,
    last_error: Mutex<Option<LastError>>,
    pub(crate) counts: Counts,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) calls: Count,
    pub(crate) failures: Count,
    pub(crate) timeouts: Count,
    pub(crate) denied_nonsense: Count,
    pub(crate) denied_refused: Count,
    pub(crate) denied_too_large: Count,
    pub(crate) open_rejections: Count,
    pub(crate) busy_rejections: Count,
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gate {
    pub(crate) fn new(name: &'static str, settings: Settings) -> Self {
        Self {
            name,
            breaker: Mutex::new(Breaker::new(settings)),
            last_error: Mutex::new(None),
            counts: Counts::default(),
        }
    }

    /// Whether it is open, without asking for a ticket: then there is no point in waiting in line for one.
    pub(crate) fn is_open(&self, now: Millis) -> Option<Open> {
        let (_, until) = self.breaker.lock().open_between(now)?;
        Some(Open { state: State::Open, until })
    }

    pub(crate) fn enter<'a>(&'a self, clock: &'a dyn Clock) -> Result<Pass<'a>, Open> {
        let ticket = self.breaker.lock().admit(clock.now())?;
        Ok(Pass { gate: self, clock, ticket: Some(ticket) })
    }

    pub(crate) fn note_error(&self, now: Millis, message: &str) {
        let message = model::reason::cut(message.to_owned());
        *self.last_error.lock() = Some(LastError { at: Timestamp(now), message });
    }

    pub(crate) fn status(&self, now: Millis) -> GateStatus {
        let breaker = self.breaker.lock();
        let open = breaker.open_between(now);
        GateStatus {
            state: breaker.state(now),
            failures_in_a_row: breaker.failures(),
            opened_at: open.map(|(since, _)| Timestamp(since)),
            open_until: open.map(|(_, until)| Timestamp(until)),
            calls: self.counts.calls.get(),
            failures: self.counts.failures.get(),
            timeouts: self.counts.timeouts.get(),
            denied_nonsense: self.counts.denied_nonsense.get(),
            denied_refused: self.counts.denied_refused.get(),
            denied_too_large: self.counts.denied_too_large.get(),
            open_rejections: self.counts.open_rejections.get(),
            busy_rejections: self.counts.busy_rejections.get(),
            late_reports: breaker.late_reports(),
            transitions: breaker.transitions(),
            last_error: self.last_error.lock().clone(),
        }
    }
}

/// The right to make one call. Dropped without a word, because its caller does not wait any more, it is abandoned.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    clock: &'a dyn Clock,
    ticket: Option<Ticket>,
}

impl Pass<'_> {
    /// Answers the breaker's new state if this has changed it.
    pub(crate) fn report(mut self, outcome: Outcome) -> Option<State> {
        self.hand_back(outcome)
    }

    fn hand_back(&mut self, outcome: Outcome) -> Option<State> {
        let ticket = self.ticket.take()?;
        self.gate.breaker.lock().report(self.clock.now(), ticket, outcome)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.hand_back(Outcome::Abandoned);
    }
}
