//! Calendar matching: finds the local minutes that match an expression. Time zones are handled elsewhere.

use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Weekday};

use super::error::CronError;
use super::fields::{self, Set};

/// Search horizon for a day. The rarest possible day, a 29 February on a given weekday, recurs within 40 years.
const YEARS_AHEAD_MAX: usize = 41;

/// Fields of an expression as bit sets: bit n stands for the value n.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Calendar {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// Indexed by the weekday of the first of a month, Sunday first: the days on a matching weekday.
    days_by_first_weekday: [u64; 7],
    rule: DayRule,
    hourly_wildcard: bool,
}

/// Combination of day-of-month and day-of-week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DayRule {
    /// One of them starts with `*`: a day must match both.
    Both,
    /// Both are restricted: a day must match at least one.
    Either,
}

impl Calendar {
    pub(super) fn parse(expression: &str) -> Result<Self, CronError> {
        let [minutes, hours, days, months, weekdays] = fields::parse(expression)?;
        let rule = if days.is_wildcard || weekdays.is_wildcard { DayRule::Both } else { DayRule::Either };
        let calendar = Self {
            minutes: minutes.bits,
            hours: hours.bits,
            days: days.bits,
            months: months.bits,
            days_by_first_weekday: days_by_first_weekday(&weekdays),
            rule,
            hourly_wildcard: hours.is_wildcard,
        };
        if calendar.has_days() { Ok(calendar) } else { Err(CronError::Never { expression: expression.to_owned() }) }
    }

    /// Whether slots follow elapsed time instead of the time of day.
    pub(super) fn is_hourly_wildcard(&self) -> bool {
        self.hourly_wildcard
    }

    /// Whether any matching day exists: some months are too short.
    fn has_days(&self) -> bool {
        let exists = |month: u8| self.has_month(month) && self.days & days_up_to(longest(month)) != 0;
        match self.rule {
            DayRule::Either => true,
            DayRule::Both => (1..=12).any(exists),
        }
    }

    /// First matching minute at or after a time.
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

    /// Matching days of the month that starts on `first`.
    fn days_of(&self, first: Date) -> u64 {
        let by_weekday = self.days_by_first_weekday[usize::from(weekday_number(first.weekday()))];
        let days = match self.rule {
            DayRule::Both => self.days & by_weekday,
            DayRule::Either => self.days | by_weekday,
        };
        days & days_up_to(first.days_in_month().unsigned_abs())
    }
}

/// The next minute; `None` at the end of the calendar.
pub(super) fn minute_after(minute: DateTime) -> Option<DateTime> {
    minute.checked_add(1.minute()).ok()
}

fn days_by_first_weekday(weekdays: &Set) -> [u64; 7] {
    std::array::from_fn(|first| {
        let matching = (1..=31_usize).filter(|day| weekdays.bits >> ((first + day - 1) % 7) & 1 == 1);
        matching.fold(0, |days, day| days | 1 << day)
    })
}

/// Lowest member of a set that is at least `from`.
fn lowest_from(set: u64, from: i8) -> Option<i8> {
    let left = set & (u64::MAX << from);
    i8::try_from(left.trailing_zeros()).ok().filter(|_| left != 0)
}

/// Bit set of the days from the first to `day`.
fn days_up_to(day: u8) -> u64 {
    (1 << (day + 1)) - 2
}

/// Maximum number of days of a month.
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
    fn the_search_includes_its_start_minute_only_from_second_zero() {
        assert_eq!(slots("30 2 * * *", "2026-01-01T02:30:00", 1), ["2026-01-01 02:30"]);
        assert_eq!(slots("30 2 * * *", "2026-01-01T02:30:01", 1), ["2026-01-02 02:30"]);
        assert_eq!(slots("59 23 31 12 *", "2026-12-31T23:59:59.999", 1), ["2027-12-31 23:59"]);
    }

    #[test]
    fn months_without_the_day_are_skipped() {
        assert_eq!(
            slots("0 0 31 * *", "2026-02-01T00:00", 3),
            ["2026-03-31 00:00", "2026-05-31 00:00", "2026-07-31 00:00"]
        );
        assert_eq!(slots("0 0 29 2 *", "2096-02-29T00:01", 1), ["2104-02-29 00:00"]);
    }

    #[test]
    fn two_restricted_day_fields_match_either_and_a_star_matches_both() {
        let either = slots("0 0 13 * FRI", "2026-02-01T00:00", 5);
        assert_eq!(either[..2], ["2026-02-06 00:00", "2026-02-13 00:00"]);
        assert_eq!(slots("0 0 13 1 FRI", "2026-01-10T00:00", 1), ["2026-01-13 00:00"]);
        // As in Vixie cron: if one field starts with `*`, a day must match both.
        assert_eq!(slots("0 0 */2 * MON", "2026-01-01T00:00", 2), ["2026-01-05 00:00", "2026-01-19 00:00"]);
    }

    #[test]
    fn the_rarest_day_is_found_within_the_search_horizon() {
        // 1900 and 2100 have no leap day, so a given weekday may recur on 29 February only after 40 years.
        let calendar = Calendar::parse("0 0 29 2 */7").unwrap();
        let mut from: DateTime = "1800-01-01T00:00".parse().unwrap();
        let (mut longest, mut last) = (0, 1800);
        while from.year() < 2200 {
            let slot = calendar.first_from(from).expect("the expression always has a next slot");
            assert_eq!((slot.month(), slot.day(), slot.weekday()), (2, 29, Weekday::Sunday));
            longest = longest.max(slot.year() - last);
            (last, from) = (slot.year(), minute_after(slot).unwrap());
        }
        assert_eq!(longest, 40);
    }

    #[test]
    fn the_end_of_the_calendar_does_not_panic() {
        let calendar = Calendar::parse("0 0 1 1 *").unwrap();
        assert_eq!(calendar.first_from("9999-06-01T00:00".parse().unwrap()), None);
        let calendar = Calendar::parse("* * * * *").unwrap();
        assert_eq!(calendar.first_from(DateTime::MAX), None);
    }

    /// Whether a day matches the fields; reference implementation.
    fn matches_fields(expression: &str, date: Date) -> bool {
        let [_, _, days, months, weekdays] = fields::parse(expression).unwrap();
        let has = |set: &Set, value: i8| set.bits >> value & 1 == 1;
        let (day, weekday) = (has(&days, date.day()), has(&weekdays, date.weekday().to_sunday_zero_offset()));
        let either = !days.is_wildcard && !weekdays.is_wildcard;
        has(&months, date.month()) && if either { day || weekday } else { day && weekday }
    }

    proptest::proptest! {
        #[test]
        fn the_next_day_equals_that_of_a_linear_search(
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
                while !matches_fields(&expression, walked) {
                    walked = walked.tomorrow().unwrap();
                }
                proptest::prop_assert_eq!(found, walked.at(5, 7, 0, 0), "{} from {}", expression, start);
            }
        }
    }
}
