//! Cron expressions: computes the slots at which a schedule is due.
//!
//! An expression is parsed once, with its time zone; slots are then computed from the fields and the zone's rules. The
//! current time is an argument, never read from a clock.
//!
//! Daylight saving. Fixed hours (`30 2 * * *`) mean "once a day at this time": a skipped time is due at the first
//! instant after the gap, a repeated time is due at its first occurrence only. A wildcard hour (`*` or `*/n`) means
//! "repeatedly": each matching minute that elapses is due, including both occurrences of a repeated one, and skipped
//! minutes are not due.

mod calendar;
mod error;
mod fields;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
mod zone;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use model::time::Millis;

use calendar::Calendar;
pub use error::CronError;

/// Maximum length of an expression.
pub const EXPRESSION_BYTES_MAX: usize = 256;
/// Maximum length of a time zone's name; the longest existing one has 32 bytes.
pub const ZONE_BYTES_MAX: usize = 64;

/// Maximum number of offset transitions before the next slot. A slot is at most 41 years ahead, and no zone has ever
/// had more than eight transitions a year.
const CLOCK_CHANGES_MAX: usize = 41 * 8;

/// A parsed cron expression with its time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    expression: Box<str>,
    zone: Box<str>,
    calendar: Calendar,
    clock: TimeZone,
}

impl Cron {
    /// Parses five fields (minute, hour, day of month, month, day of week) or one of `@hourly`, `@daily`, `@weekly`,
    /// `@monthly` and `@yearly`. A field is a list of numbers, names (`MON`, `JAN`), ranges and steps; `?` is `*`. The
    /// zone is `UTC` or an IANA name, looked up on the host first and then in the bundled database.
    pub fn parse(expression: &str, zone: &str) -> Result<Self, CronError> {
        Self::parse_with(expression, zone, jiff::tz::db())
    }

    /// Like [`Cron::parse`], with a given time zone database. The bundled one is the same on every machine.
    pub fn parse_with(expression: &str, zone: &str, zones: &TimeZoneDatabase) -> Result<Self, CronError> {
        let expression = expression.trim();
        if expression.len() > EXPRESSION_BYTES_MAX {
            return Err(CronError::TooLong { bytes: expression.len() });
        }
        let calendar = Calendar::parse(expression)?;
        let clock = zone::find(zone.trim(), zones)?;
        let zone = clock.iana_name().unwrap_or("UTC").into();
        Ok(Self { expression: expression.into(), zone, calendar, clock })
    }

    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Name of the zone in the database's spelling.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// The first slot strictly after a time. Every parsed expression has one within 41 years, so the answer is `None`
    /// only at the end of the calendar, in the year 9999.
    pub fn next_after(&self, after: Millis) -> Option<Millis> {
        let after = Timestamp::from_millisecond(i64::try_from(after.0).ok()?).ok()?;
        let slot =
            if self.calendar.is_hourly_wildcard() { self.next_by_elapsed(after) } else { self.next_by_clock(after) }?;
        // Transitions are on whole seconds, so no slot has a fraction of a millisecond; `after` is not before 1970.
        u64::try_from(slot.as_millisecond()).ok().map(Millis)
    }

    /// The last slot in `(after, until]`. Costs about forty times as much as [`Cron::next_after`], regardless of the
    /// number of slots in between.
    pub fn latest(&self, after: Millis, until: Millis) -> Option<Millis> {
        let is_last = |time: u64| self.next_after(Millis(time)).is_none_or(|next| next > until);
        if is_last(after.0) {
            return None;
        }
        // Binary search: the last slot is the earliest time after which no slot is due.
        let (mut too_early, mut late_enough) = (after.0, until.0);
        while late_enough - too_early > 1 {
            let middle = too_early + (late_enough - too_early) / 2;
            if is_last(middle) {
                late_enough = middle;
            } else {
                too_early = middle;
            }
        }
        Some(Millis(late_enough))
    }

    /// All slots strictly after a time, in order.
    pub fn slots(&self, after: Millis) -> Slots<'_> {
        Slots { cron: self, after: Some(after) }
    }

    /// For fixed hours: each matching time of day once, independent of offset transitions.
    fn next_by_clock(&self, after: Timestamp) -> Option<Timestamp> {
        let mut from = self.clock.to_datetime(after);
        loop {
            let wall = self.calendar.first_from(from)?;
            let slot = self.instant_of(wall)?;
            if slot > after {
                return Some(slot);
            }
            // Repeated after a backward transition: it was due at its first occurrence.
            from = calendar::minute_after(wall)?;
        }
    }

    /// For a wildcard hour: the matching minutes that elapse, from one offset transition to the next.
    fn next_by_elapsed(&self, after: Timestamp) -> Option<Timestamp> {
        let mut from = Timestamp::from_millisecond(after.as_millisecond() + 1).ok()?;
        for _ in 0..=CLOCK_CHANGES_MAX {
            let offset = self.clock.to_offset(from);
            let wall = self.calendar.first_from(offset.to_datetime(from))?;
            let slot = offset.to_timestamp(wall).ok()?;
            match self.clock.following(from).next() {
                Some(change) if change.timestamp() <= slot => from = change.timestamp(),
                Some(_) | None => return Some(slot),
            }
        }
        None
    }

    /// First instant of a local time, or the end of the gap that skips it.
    fn instant_of(&self, wall: DateTime) -> Option<Timestamp> {
        match self.clock.to_ambiguous_timestamp(wall).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(wall).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(wall).ok(),
            AmbiguousOffset::Gap { after, .. } => {
                // By the new offset, a time in the gap is before the transition, with no other transition in between.
                let before_change = after.to_timestamp(wall).ok()?;
                let change = self.clock.following(before_change).find(|change| change.offset() == after)?;
                Some(change.timestamp())
            }
        }
    }
}

/// Infinite iterator over the slots of an expression.
#[derive(Debug)]
pub struct Slots<'a> {
    cron: &'a Cron,
    after: Option<Millis>,
}

impl Iterator for Slots<'_> {
    type Item = Millis;

    fn next(&mut self) -> Option<Millis> {
        self.after = self.cron.next_after(self.after?);
        self.after
    }
}

/// The slots in `(last, now]`, oldest first, at most `max`; and whether there are more.
pub fn due(cron: &Cron, last: Millis, now: Millis, max: usize) -> (Vec<Millis>, bool) {
    let mut missed = cron.slots(last).take_while(|slot| *slot <= now);
    let slots = missed.by_ref().take(max).collect();
    (slots, missed.next().is_some())
}
