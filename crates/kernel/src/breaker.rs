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
//! Whoever wants to call asks [`Breaker::admit`] for a [`Ticket`], and hands it back with what came of the call. A
//! ticket is good for the period it was given in: an answer that comes after the breaker has changed its state says
//! nothing about the present, and is only counted.
//!
//! All shards of a process share one breaker. Failures that others have seen come in by [`Breaker::trip`]: a count
//! that several processes share belongs to whoever holds the breaker, who adds to it what [`Breaker::report`] hears
//! and trips the breaker when the count is reached. Without such a count, the breaker goes by what it hears itself.

use model::time::Millis;
use serde::Serialize;

use crate::limits;

/// When the breaker opens and closes. Of the counts, 0 means 1: a breaker that opens without a failure, or lets no probe
/// through, would never let anything through again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// So many failures in a row open it.
    pub failures_to_open: u32,
    /// So long it lets nothing through.
    pub open_for: Millis,
    /// Half-open, it lets so many through at a time.
    pub probes_max: u32,
    /// Half-open, so many successes close it.
    pub successes_to_close: u32,
    /// After so long a probe that nobody has reported is given up and its place is free again. It must be longer than
    /// a call may take.
    pub probe_patience: Millis,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            failures_to_open: limits::FAILURES_TO_OPEN,
            open_for: limits::OPEN_FOR,
            probes_max: limits::PROBES_MAX,
            successes_to_close: limits::SUCCESSES_TO_CLOSE,
            probe_patience: limits::PROBE_PATIENCE,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Everything passes.
    Closed,
    /// Nothing passes.
    Open,
    /// A few pass, to find out.
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

/// The right to make one call. It must come back by [`Breaker::report`]; one that is lost while half-open keeps its
/// place until [`Settings::probe_patience`] is over.
#[must_use = "a call that is not reported teaches the breaker nothing"]
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    period: u64,
    number: u64,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed,
    /// Its caller did not wait for the end, so that it says nothing about the service.
    Abandoned,
}

/// No call now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// [`State::Open`], or [`State::HalfOpen`] with every probe's place taken.
    pub state: State,
    /// From then on it is worth asking again. Half-open, a place may become free earlier.
    pub until: Millis,
}

/// How often the breaker has changed its state, for metrics.
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
    /// Counts the periods: tickets of an earlier one are void.
    period_number: u64,
    tickets: u64,
    transitions: Transitions,
    late_reports: u64,
}

impl Breaker {
    /// A closed one.
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
            tickets: 0,
            transitions: Transitions::default(),
            late_reports: 0,
        }
    }

    /// Asks for the right to make one call.
    pub fn admit(&mut self, now: Millis) -> Result<Ticket, Open> {
        self.advance(now);
        self.tickets += 1;
        let number = self.tickets;
        let (probes_max, patience) = (self.settings.probes_max as usize, self.settings.probe_patience);
        match &mut self.period {
            Period::Closed { .. } => {}
            Period::Open { until, .. } => return Err(Open { state: State::Open, until: *until }),
            Period::HalfOpen { probes, .. } => {
                probes.retain(|probe| now < probe.since + patience);
                if probes.len() >= probes_max {
                    let first = probes.iter().map(|probe| probe.since).min().unwrap_or(now);
                    return Err(Open { state: State::HalfOpen, until: first + patience });
                }
                probes.push(Probe { number, since: now });
            }
        }
        Ok(Ticket { period: self.period_number, number })
    }

    /// Takes a ticket back with what came of its call. Answers the new state if that has changed it.
    pub fn report(&mut self, now: Millis, ticket: Ticket, outcome: Outcome) -> Option<State> {
        self.advance(now);
        if ticket.period != self.period_number {
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
            // No tickets are given while it is open.
            Period::Open { .. } => self.late_reports += 1,
            Period::HalfOpen { probes, successes } => {
                let Some(place) = probes.iter().position(|probe| probe.number == ticket.number) else {
                    self.late_reports += 1;
                    return None;
                };
                if now >= probes.swap_remove(place).since + settings.probe_patience {
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

    /// Opens it because others have seen the failures. One that is open already stays so no longer for that.
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

    /// While open: since when, and until when.
    pub fn open_between(&self, now: Millis) -> Option<(Millis, Millis)> {
        match self.period {
            Period::Open { since, until } if now < until => Some((since, until)),
            Period::Open { .. } | Period::Closed { .. } | Period::HalfOpen { .. } => None,
        }
    }

    /// While closed: how many calls in a row have failed.
    pub fn failures(&self) -> u32 {
        match self.period {
            Period::Closed { failures } => failures,
            Period::Open { .. } | Period::HalfOpen { .. } => 0,
        }
    }

    pub fn transitions(&self) -> Transitions {
        self.transitions
    }

    /// Tickets that came back too late to count.
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
