//! Cron expressions: when a schedule comes due.
//!
//! An expression is read once, with its time zone; after that every question is arithmetic on the fields and the
//! zone's rules. Time is handed in, never read.
//!
//! When clocks change, an expression keeps to what its author meant. Fixed hours (`30 2 * * *`) mean "once, at that
//! time of day": a time that the clocks leave out comes due at the first instant after the gap, a time that they show
//! twice comes due the first time only. Every hour (`*` or `*/n`) means "again and again": each matching minute that
//! really passes comes due, both times where clocks go back, and none for what they leave out.

mod calendar;
mod error;
mod fields;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod walks;
mod zone;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use model::time::Millis;

use calendar::Calendar;
pub use error::CronError;

/// The longest expression that is read.
pub const EXPRESSION_BYTES_MAX: usize = 256;
/// The longest name of a time zone; the longest that exists has 32.
pub const ZONE_BYTES_MAX: usize = 64;

/// How often clocks may change between a time and the next slot. A slot lies at most 41 years ahead, and no zone has
/// ever changed its clocks more than eight times a year.
const CLOCK_CHANGES_MAX: usize = 41 * 8;

/// A cron expression in its time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    expression: Box<str>,
    zone: Box<str>,
    calendar: Calendar,
    clock: TimeZone,
}

impl Cron {
    /// Reads five fields (minute, hour, day of month, month, day of week) or one of `@hourly`, `@daily`, `@weekly`,
    /// `@monthly` and `@yearly`. A field is a list of numbers, names (`MON`, `JAN`), ranges and steps; `?` is `*`. The
    /// zone is `UTC` or an IANA name, looked up on the host first and then among those in the binary.
    pub fn parse(expression: &str, zone: &str) -> Result<Self, CronError> {
        Self::parse_with(expression, zone, jiff::tz::db())
    }

    /// As [`Cron::parse`], with the zones of a given database: the one in the binary is the same on every machine.
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

    /// The name of the zone as the database spells it.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// The first slot strictly after a time. Every expression that [`Cron::parse`] takes has one within 41 years, so
    /// there is none only at the end of the calendar, in the year 9999.
    pub fn next_after(&self, after: Millis) -> Option<Millis> {
        let after = Timestamp::from_millisecond(i64::try_from(after.0).ok()?).ok()?;
        let slot = if self.calendar.is_every_hour() { self.next_by_elapsed(after) } else { self.next_by_clock(after) }?;
        // Clocks change on whole seconds, so no slot has a fraction of a millisecond; and `after` is not before 1970.
        u64::try_from(slot.as_millisecond()).ok().map(Millis)
    }

    /// The last slot in `(after, until]`. It takes some forty times as long as [`Cron::next_after`], however many
    /// slots there are in between.
    pub fn latest(&self, after: Millis, until: Millis) -> Option<Millis> {
        let is_last = |time: u64| self.next_after(Millis(time)).is_none_or(|next| next > until);
        if is_last(after.0) {
            return None;
        }
        // The last slot is the earliest time after which nothing more comes due.
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

    /// All slots strictly after a time, one after the other.
    pub fn slots(&self, after: Millis) -> Slots<'_> {
        Slots { cron: self, after: Some(after) }
    }

    /// For fixed hours: the times of day that match, each once, whatever clocks do.
    fn next_by_clock(&self, after: Timestamp) -> Option<Timestamp> {
        let mut from = self.clock.to_datetime(after);
        loop {
            let wall = self.calendar.first_from(from)?;
            let slot = self.instant_of(wall)?;
            if slot > after {
                return Some(slot);
            }
            // Clocks have gone back and show this time again: it has come due before.
            from = calendar::minute_after(wall)?;
        }
    }

    /// For every hour: the matching minutes that really pass, from one change of the clocks to the next.
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

    /// When clocks first show a time, or what comes right after it where they leave it out.
    fn instant_of(&self, wall: DateTime) -> Option<Timestamp> {
        match self.clock.to_ambiguous_timestamp(wall).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(wall).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(wall).ok(),
            AmbiguousOffset::Gap { after, .. } => {
                // By the new offset a time in the gap lies before the change, and nothing else changes in between.
                let before_change = after.to_timestamp(wall).ok()?;
                let change = self.clock.following(before_change).find(|change| change.offset() == after)?;
                Some(change.timestamp())
            }
        }
    }
}

/// The slots of an expression in order, without end.
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

/// The slots in `(last, now]`, oldest first, at most `max`; and whether there are more of them.
pub fn due(cron: &Cron, last: Millis, now: Millis, max: usize) -> (Vec<Millis>, bool) {
    let mut missed = cron.slots(last).take_while(|slot| *slot <= now);
    let slots = missed.by_ref().take(max).collect();
    (slots, missed.next().is_some())
}
