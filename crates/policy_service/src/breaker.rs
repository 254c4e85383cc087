//! The circuit breaker as a pure state machine: no clock, no lock, no task of its own.
//!
//! ```text
//!            failures_to_open in a row                    open_for has passed
//!  ┌────────┐ ──────────────────────► ┌──────┐ ──────────────────────► ┌───────────┐
//!  │ Closed │                         │ Open │                         │ Half-open │ at most probes_max at a time
//!  └────────┘                         └──────┘ ◄────────────────────── └───────────┘
//!      ▲                                              any failure            │
//!      └──────────────────────── successes_to_close ─────────────────────────┘
//! ```
//!
//! A caller takes a [`Permit`] from [`Breaker::admit`] and returns it with the outcome of the call. A permit is valid
//! for the period in which it was given: an outcome that arrives after a change of state says nothing about the present
//! and is only counted as late.
//!
//! All shards of a process share one breaker. [`Breaker::trip`] opens it because of failures seen elsewhere: a failure
//! count shared by several processes is kept outside of the breaker. Without one, only [`Breaker::report`] opens it.

use model::time::Millis;
use serde::Serialize;

use crate::limits;

/// Thresholds and times. A count of 0 means 1: a breaker that opens without a failure, or admits no probe, would never
/// close again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Consecutive failures that open it.
    pub failures_to_open: u32,
    /// Time that it stays open.
    pub open_for: Millis,
    /// Concurrent calls while half-open.
    pub probes_max: u32,
    /// Successes that close it while half-open.
    pub successes_to_close: u32,
    /// After this time an unreported probe is given up. Must be longer than a call may take.
    pub probe_timeout: Millis,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            failures_to_open: limits::FAILURES_TO_OPEN,
            open_for: limits::OPEN_FOR,
            probes_max: limits::PROBES_MAX,
            successes_to_close: limits::SUCCESSES_TO_CLOSE,
            probe_timeout: limits::PROBE_TIMEOUT,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// All calls are admitted.
    Closed,
    /// No call is admitted.
    Open,
    /// A few calls are admitted as probes.
    HalfOpen,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Permit for one call, to be returned by [`Breaker::report`]. One lost while half-open occupies a probe until
/// [`Settings::probe_timeout`] is over.
#[must_use = "an unreported call is not counted by the breaker"]
#[derive(Debug, PartialEq, Eq)]
pub struct Permit {
    period: u64,
    number: u64,
}

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
    /// The caller did not wait for the end; this says nothing about the service.
    Abandoned,
}

/// The call was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitOpen {
    /// [`State::Open`], or [`State::HalfOpen`] with all probes in flight.
    pub state: State,
    /// Earliest useful retry. While half-open, a probe may become free earlier.
    pub retry_at: Millis,
}

/// Counters of state changes, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Transitions {
    pub opened: u64,
    pub half_opened: u64,
    pub closed: u64,
}

#[derive(Debug)]
struct Probe {
    number: u64,
    since: Millis,
}

#[derive(Debug)]
enum Period {
    Closed { failures: u32 },
    Open { since: Millis, until: Millis },
    HalfOpen { probes: Vec<Probe>, successes: u32 },
}

#[derive(Debug)]
pub struct Breaker {
    settings: Settings,
    period: Period,
    /// Number of the current period. Permits of earlier periods are void.
    period_number: u64,
    last_permit: u64,
    transitions: Transitions,
    late_reports: u64,
}

impl Breaker {
    /// Creates a closed breaker.
    pub fn new(settings: Settings) -> Self {
        let settings = Settings {
            failures_to_open: settings.failures_to_open.max(1),
            probes_max: settings.probes_max.max(1),
            successes_to_close: settings.successes_to_close.max(1),
            ..settings
        };
        Self {
            settings,
            period: Period::Closed { failures: 0 },
            period_number: 0,
            last_permit: 0,
            transitions: Transitions::default(),
            late_reports: 0,
        }
    }

    /// Takes a permit for one call.
    pub fn admit(&mut self, now: Millis) -> Result<Permit, CircuitOpen> {
        self.advance(now);
        self.last_permit += 1;
        let number = self.last_permit;
        let (probes_max, timeout) = (self.settings.probes_max as usize, self.settings.probe_timeout);
        match &mut self.period {
            Period::Closed { .. } => {}
            Period::Open { until, .. } => return Err(CircuitOpen { state: State::Open, retry_at: *until }),
            Period::HalfOpen { probes, .. } => {
                probes.retain(|probe| now < probe.since + timeout);
                if probes.len() >= probes_max {
                    let first = probes.iter().map(|probe| probe.since).min().unwrap_or(now);
                    return Err(CircuitOpen { state: State::HalfOpen, retry_at: first + timeout });
                }
                probes.push(Probe { number, since: now });
            }
        }
        Ok(Permit { period: self.period_number, number })
    }

    /// Returns a permit with the outcome of its call. Returns the new state if it changed.
    pub fn report(&mut self, now: Millis, permit: Permit, outcome: Outcome) -> Option<State> {
        self.advance(now);
        if permit.period != self.period_number {
            self.late_reports += 1;
            return None;
        }
        let settings = self.settings;
        match &mut self.period {
            Period::Closed { failures } => match outcome {
                Outcome::Succeeded => *failures = 0,
                Outcome::Failed => {
                    *failures += 1;
                    if *failures >= settings.failures_to_open {
                        return Some(self.open(now));
                    }
                }
                Outcome::Abandoned => {}
            },
            // No permits are given while open.
            Period::Open { .. } => self.late_reports += 1,
            Period::HalfOpen { probes, successes } => {
                let Some(index) = probes.iter().position(|probe| probe.number == permit.number) else {
                    self.late_reports += 1;
                    return None;
                };
                if now >= probes.swap_remove(index).since + settings.probe_timeout {
                    self.late_reports += 1;
                    return None;
                }
                match outcome {
                    Outcome::Succeeded => {
                        *successes += 1;
                        if *successes >= settings.successes_to_close {
                            return Some(self.close());
                        }
                    }
                    Outcome::Failed => return Some(self.open(now)),
                    Outcome::Abandoned => {}
                }
            }
        }
        None
    }

    /// Opens the breaker because of failures seen elsewhere. If it is open already, `open_for` does not start again.
    pub fn trip(&mut self, now: Millis) {
        self.advance(now);
        match self.period {
            Period::Closed { .. } | Period::HalfOpen { .. } => {
                self.open(now);
            }
            Period::Open { .. } => {}
        }
    }

    pub fn state(&self, now: Millis) -> State {
        match self.period {
            Period::Closed { .. } => State::Closed,
            Period::Open { until, .. } if now >= until => State::HalfOpen,
            Period::Open { .. } => State::Open,
            Period::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// While open: start and end of that period.
    pub fn open_between(&self, now: Millis) -> Option<(Millis, Millis)> {
        match self.period {
            Period::Open { since, until } if now < until => Some((since, until)),
            Period::Open { .. } | Period::Closed { .. } | Period::HalfOpen { .. } => None,
        }
    }

    /// Consecutive failures. 0 unless closed.
    pub fn failures(&self) -> u32 {
        match self.period {
            Period::Closed { failures } => failures,
            Period::Open { .. } | Period::HalfOpen { .. } => 0,
        }
    }

    pub fn transitions(&self) -> Transitions {
        self.transitions
    }

    /// Permits returned too late to count.
    pub fn late_reports(&self) -> u64 {
        self.late_reports
    }

    fn advance(&mut self, now: Millis) {
        match self.period {
            Period::Open { until, .. } if now >= until => {
                self.period = Period::HalfOpen { probes: Vec::new(), successes: 0 };
                self.period_number += 1;
                self.transitions.half_opened += 1;
            }
            Period::Open { .. } | Period::Closed { .. } | Period::HalfOpen { .. } => {}
        }
    }

    fn open(&mut self, now: Millis) -> State {
        self.period = Period::Open { since: now, until: now + self.settings.open_for };
        self.period_number += 1;
        self.transitions.opened += 1;
        State::Open
    }

    fn close(&mut self) -> State {
        self.period = Period::Closed { failures: 0 };
        self.period_number += 1;
        self.transitions.closed += 1;
        State::Closed
    }
}

#[cfg(test)]
mod tests;
