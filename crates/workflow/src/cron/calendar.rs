//! Which minutes of the calendar an expression means, without any thought of time zones.

use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Weekday};

use super::error::CronError;
use super::fields::{self, Set};

/// How far ahead a day is looked for. The rarest that can be asked for, a 29 February on a certain weekday, comes again
/// after 40 years at most.
const YEARS_AHEAD_MAX: usize = 41;

/// The fields of an expression as sets of bits: bit n stands for the value n.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Calendar {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// For each weekday on which a month may begin, Sunday first: its days that fall on a weekday of the expression.
    days_by_first_weekday: [u64; 7],
    rule: DayRule,
    every_hour: bool,
}

/// How the two fields for days go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DayRule {
    /// One of them begins with `*`: a day must match both.
    Both,
    /// Both are restricted: a day may match either.
    Either,
}

impl Calendar {
    pub(super) fn parse(expression: &str) -> Result<Self, CronError> {
        let [minutes, hours, days, months, weekdays] = fields::parse(expression)?;
        let rule = if days.is_wild || weekdays.is_wild { DayRule::Both } else { DayRule::Either };
        let calendar = Self {
            minutes: minutes.bits,
            hours: hours.bits,
            days: days.bits,
            months: months.bits,
            days_by_first_weekday: days_by_first_weekday(&weekdays),
            rule,
            every_hour: hours.is_wild,
        };
        if calendar.has_days() { Ok(calendar) } else { Err(CronError::Never { expression: expression.to_owned() }) }
    }

    /// Whether it goes by elapsed time rather than by times of day.
    pub(super) fn is_every_hour(&self) -> bool {
        self.every_hour
    }

    /// Whether any of its days exists: some months are too short for some.
    fn has_days(&self) -> bool {
        let exists = |month: u8| self.has_month(month) && self.days & days_up_to(longest(month)) != 0;
        match self.rule {
            DayRule::Either => true,
            DayRule::Both => (1..=12).any(exists),
        }
    }

    /// The first minute at or after a time that matches all fields.
    pub(super) fn first_from(&self, from: DateTime) -> Option<DateTime> {
        let minute = from.with().second(0).subsec_nanosecond(0).build().ok()?;
        let from = if minute == from { minute } else { minute_after(minute)? };
        let date = from.date();
        if self.has_day(date)
            && let Some((hour, minute)) = self.first_time_from(from.hour(), from.minute())
        {
            return Some(date.at(hour, minute, 0, 0));
        }
        let (hour, minute) = self.first_time_from(0, 0)?;
        Some(self.first_day_after(date)?.at(hour, minute, 0, 0))
    }

    fn has_month(&self, month: u8) -> bool {
        self.months >> month & 1 == 1
    }

    fn has_day(&self, date: Date) -> bool {
        let month = date.month().unsigned_abs();
        self.has_month(month) && self.days_of(date.first_of_month()) >> date.day().unsigned_abs() & 1 == 1
    }

    fn first_time_from(&self, hour: i8, minute: i8) -> Option<(i8, i8)> {
        if self.hours >> hour & 1 == 1
            && let Some(minute) = lowest_from(self.minutes, minute)
        {
            return Some((hour, minute));
        }
        Some((lowest_from(self.hours, hour + 1)?, lowest_from(self.minutes, 0)?))
    }

    fn first_day_after(&self, date: Date) -> Option<Date> {
        let mut days_left = !days_up_to(date.day().unsigned_abs());
        let (mut year, mut month) = (date.year(), date.month());
        for _ in 0..=YEARS_AHEAD_MAX * 12 {
            if self.has_month(month.unsigned_abs()) {
                let first = Date::new(year, month, 1).ok()?;
                let days = self.days_of(first) & days_left;
                if days != 0 {
                    return Date::new(year, month, lowest_from(days, 1)?).ok();
                }
            }
            days_left = u64::MAX;
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        }
        None
    }

    /// The days of a month that match, given its first.
    fn days_of(&self, first: Date) -> u64 {
        let by_weekday = self.days_by_first_weekday[usize::from(weekday_number(first.weekday()))];
        let days = match self.rule {
            DayRule::Both => self.days & by_weekday,
            DayRule::Either => self.days | by_weekday,
        };
        days & days_up_to(first.days_in_month().unsigned_abs())
    }
}

/// The next minute, if the calendar has one.
pub(super) fn minute_after(minute: DateTime) -> Option<DateTime> {
    minute.checked_add(1.minute()).ok()
}

fn days_by_first_weekday(weekdays: &Set) -> [u64; 7] {
    std::array::from_fn(|first| {
        let matching = (1..=31_usize).filter(|day| weekdays.bits >> ((first + day - 1) % 7) & 1 == 1);
        matching.fold(0, |days, day| days | 1 << day)
    })
}

/// The lowest member of a set that is not below a number.
fn lowest_from(set: u64, from: i8) -> Option<i8> {
    let left = set & (u64::MAX << from);
    i8::try_from(left.trailing_zeros()).ok().filter(|_| left != 0)
}

/// The days from the first to a given one.
fn days_up_to(day: u8) -> u64 {
    (1 << (day + 1)) - 2
}

/// How many days a month has at most.
fn longest(month: u8) -> u8 {
    match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn weekday_number(weekday: Weekday) -> u8 {
    weekday.to_sunday_zero_offset().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(expression: &str, from: &str, count: usize) -> Vec<String> {
        let calendar = Calendar::parse(expression).unwrap();
        let mut from: DateTime = from.parse().unwrap();
        let mut found = Vec::new();
        while found.len() < count {
            let slot = calendar.first_from(from).unwrap();
            found.push(slot.strftime("%Y-%m-%d %H:%M").to_string());
            from = minute_after(slot).unwrap();
        }
        found
    }

    #[test]
    fn a_slot_at_the_very_time_counts_and_a_second_later_does_not() {
        assert_eq!(slots("30 2 * * *", "2026-01-01T02:30:00", 1), ["2026-01-01 02:30"]);
        assert_eq!(slots("30 2 * * *", "2026-01-01T02:30:01", 1), ["2026-01-02 02:30"]);
        assert_eq!(slots("59 23 31 12 *", "2026-12-31T23:59:59.999", 1), ["2027-12-31 23:59"]);
    }

    #[test]
    fn months_that_are_too_short_are_passed_over() {
        assert_eq!(
            slots("0 0 31 * *", "2026-02-01T00:00", 3),
            ["2026-03-31 00:00", "2026-05-31 00:00", "2026-07-31 00:00"]
        );
        assert_eq!(slots("0 0 29 2 *", "2096-02-29T00:01", 1), ["2104-02-29 00:00"]);
    }

    #[test]
    fn restricted_days_of_both_kinds_match_either_and_a_star_matches_both() {
        let either = slots("0 0 13 * FRI", "2026-02-01T00:00", 5);
        assert_eq!(either[..2], ["2026-02-06 00:00", "2026-02-13 00:00"]);
        assert_eq!(slots("0 0 13 1 FRI", "2026-01-10T00:00", 1), ["2026-01-13 00:00"]);
        // As in the classic cron, a field that begins with `*` restricts what the other one says.
        assert_eq!(slots("0 0 */2 * MON", "2026-01-01T00:00", 2), ["2026-01-05 00:00", "2026-01-19 00:00"]);
    }

    #[test]
    fn the_rarest_day_is_found_within_the_years_looked_ahead() {
        // Without a leap day in 1900, 2100 and the like, a weekday may wait 40 years for its 29 February.
        let calendar = Calendar::parse("0 0 29 2 */7").unwrap();
        let mut from: DateTime = "1800-01-01T00:00".parse().unwrap();
        let (mut longest, mut last) = (0, 1800);
        while from.year() < 2200 {
            let slot = calendar.first_from(from).expect("there is always another");
            assert_eq!((slot.month(), slot.day(), slot.weekday()), (2, 29, Weekday::Sunday));
            longest = longest.max(slot.year() - last);
            (last, from) = (slot.year(), minute_after(slot).unwrap());
        }
        assert_eq!(longest, 40);
    }

    #[test]
    fn the_calendar_ends_without_a_panic() {
        let calendar = Calendar::parse("0 0 1 1 *").unwrap();
        assert_eq!(calendar.first_from("9999-06-01T00:00".parse().unwrap()), None);
        let calendar = Calendar::parse("* * * * *").unwrap();
        assert_eq!(calendar.first_from(DateTime::MAX), None);
    }

    /// Whether a day matches, by the letter of the fields.
    fn is_meant(expression: &str, date: Date) -> bool {
        let [_, _, days, months, weekdays] = fields::parse(expression).unwrap();
        let has = |set: &Set, value: i8| set.bits >> value & 1 == 1;
        let (day, weekday) = (has(&days, date.day()), has(&weekdays, date.weekday().to_sunday_zero_offset()));
        let either = !days.is_wild && !weekdays.is_wild;
        has(&months, date.month()) && if either { day || weekday } else { day && weekday }
    }

    proptest::proptest! {
        #[test]
        fn the_next_day_is_the_one_that_a_walk_from_day_to_day_finds(
            days in "\\*|\\*/[2-9]|[1-9]|2[5-9]|[1-9],3[01]|1-1[0-9]",
            months in "\\*|[1-9]|2|1[0-2]|2,[4-9]",
            weekdays in "\\*|\\*/[2-7]|[0-7]|[0-3]-[4-7]",
            year in 1970_i16..2100,
            day in 1_i16..=365,
        ) {
            let expression = format!("7 5 {days} {months} {weekdays}");
            if let Ok(calendar) = Calendar::parse(&expression) {
                let start = Date::new(year, 1, 1).unwrap().with().day_of_year(day).build().unwrap();
                let found = calendar.first_from(start.at(5, 8, 0, 0)).unwrap();
                let mut walked = start.tomorrow().unwrap();
                while !is_meant(&expression, walked) {
                    walked = walked.tomorrow().unwrap();
                }
                proptest::prop_assert_eq!(found, walked.at(5, 7, 0, 0), "{} from {}", expression, start);
            }
        }
    }
}
