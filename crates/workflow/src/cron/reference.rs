//! Property tests: whole years, and a minute-by-minute reference implementation for arbitrary expressions.

use jiff::civil::Date;
use jiff::{SignedDuration, ToSpan};
use model::time::Millis;
use proptest::prelude::*;

use super::tests::cron;
use super::*;

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Africa/Casablanca",
];

const MINUTE: Millis = Millis(60_000);

fn timestamp(time: Millis) -> Timestamp {
    Timestamp::from_millisecond(i64::try_from(time.0).unwrap()).unwrap()
}

fn millis(time: Timestamp) -> Millis {
    Millis(u64::try_from(time.as_millisecond()).unwrap())
}

/// Asserts that a daily expression is due exactly once on each day of the given years.
fn expect_one_slot_a_day(expression: &str, zone: &str, years: std::ops::Range<i16>) {
    let cron = cron(expression, zone);
    let midnight = |year: i16| cron.instant_of(Date::new(year, 1, 1).unwrap().at(0, 0, 0, 0)).unwrap();
    // No zone has a transition at New Year, so years can be separated there.
    let first = millis(midnight(years.start));
    let mut day = Date::new(years.start, 1, 1).unwrap();
    for slot in cron.slots(Millis(first.0 - 1)).take_while(|slot| timestamp(*slot) < midnight(years.end)) {
        let wall = cron.clock.to_datetime(timestamp(slot));
        assert_eq!(wall.date(), day, "{expression} in {zone}: {wall}");
        let on_time = cron.calendar.first_from(wall) == Some(wall);
        let meant = cron.calendar.first_from(day.at(0, 0, 0, 0)).unwrap();
        let left_out = matches!(cron.clock.to_ambiguous_timestamp(meant).offset(), AmbiguousOffset::Gap { .. });
        assert!(on_time || left_out, "{expression} in {zone}: {wall} is not the time of day");
        day = day.tomorrow().unwrap();
    }
    assert_eq!(day, Date::new(years.end, 1, 1).unwrap(), "{expression} in {zone}");
}

#[test]
fn a_daily_expression_is_due_once_a_day_across_transitions() {
    for zone in ZONES {
        for expression in
            ["30 2 * * *", "0 0 * * *", "59 23 * * *", "30 1 * * *", "0 3 * * *", "15 2 * * *", "45 1 * * *"]
        {
            expect_one_slot_a_day(expression, zone, 2026..2029);
        }
    }
    // Brazil had its transitions at midnight until 2019.
    for expression in ["0 0 * * *", "30 0 * * *", "30 23 * * *", "30 2 * * *"] {
        expect_one_slot_a_day(expression, "America/Sao_Paulo", 2008..2021);
    }
}

/// Reference implementation: steps through time minute by minute, like a cron daemon that wakes up every minute.
struct ReferenceClock<'a> {
    cron: &'a Cron,
    slots: Vec<Millis>,
}

impl ReferenceClock<'_> {
    fn walk(cron: &Cron, from: Timestamp, until: Timestamp) -> Vec<Millis> {
        // Starts early enough to know which local times are repetitions.
        let warm = from - 30.hours();
        let mut clock = ReferenceClock { cron, slots: Vec::new() };
        let mut shown = clock.wall(warm);
        let mut now = warm + 1.minute();
        while now <= until {
            let wall = clock.wall(now);
            clock.tick(now, wall, &mut shown);
            now += SignedDuration::from_secs(60);
        }
        clock.slots.retain(|slot| timestamp(*slot) > from);
        clock.slots
    }

    fn wall(&self, time: Timestamp) -> DateTime {
        self.cron.clock.to_datetime(time)
    }

    fn matches(&self, wall: DateTime) -> bool {
        self.cron.calendar.first_from(wall) == Some(wall)
    }

    /// `shown` is the latest local time so far.
    fn tick(&mut self, now: Timestamp, wall: DateTime, shown: &mut DateTime) {
        let skipped = || {
            let mut minute = shown.checked_add(1.minute()).unwrap();
            let mut any = false;
            while minute < wall {
                any |= self.matches(minute);
                minute = minute.checked_add(1.minute()).unwrap();
            }
            any
        };
        let due = if self.cron.calendar.is_hourly_wildcard() {
            self.matches(wall)
        } else {
            wall > *shown && (self.matches(wall) || skipped())
        };
        if due {
            self.slots.push(millis(now));
        }
        *shown = (*shown).max(wall);
    }
}

fn field(low: u8, high: u8) -> impl Strategy<Value = String> {
    let number = (low..=high).prop_map(|value| value.to_string());
    let list = proptest::collection::vec(low..=high, 1..4)
        .prop_map(|values| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    let range = (low..=high, low..=high).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let step = (2..=(high - low).clamp(2, 20)).prop_map(|step| format!("*/{step}"));
    prop_oneof![2 => Just("*".to_owned()), 2 => number, 1 => list, 1 => range, 1 => step]
}

/// Expressions that are often due around daylight saving transitions.
fn expression() -> impl Strategy<Value = String> {
    let hour = prop_oneof![3 => field(0, 3), 1 => field(22, 23), 1 => field(0, 23)];
    let day = prop_oneof![4 => Just("*".to_owned()), 1 => field(1, 31)];
    let weekday = prop_oneof![4 => Just("*".to_owned()), 1 => field(0, 6)];
    (field(0, 59), hour, day, weekday)
        .prop_map(|(minute, hour, day, weekday)| format!("{minute} {hour} {day} * {weekday}"))
}

/// A time shortly before or after a transition if the year has one; else any time.
fn near_a_change(zone: &str, year: i16, which: usize, minutes: i64) -> Timestamp {
    let clock = cron("* * * * *", zone).clock;
    let start = Date::new(year, 1, 1).unwrap().at(0, 0, 0, 0).to_zoned(TimeZone::UTC).unwrap().timestamp();
    let change = clock.following(start).nth(which).map_or(start, |change| change.timestamp());
    // Rounded to the minute, because the reference clock cannot represent transitions within a minute.
    let minute = change.as_second().div_euclid(60) * 60;
    Timestamp::from_second(minute + minutes * 60).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn slots_equal_those_of_the_reference_clock(
        expression in expression(),
        zone in proptest::sample::select(&ZONES[..]),
        year in 1990_i16..2060,
        which in 0_usize..3,
        minutes in -2_000_i64..2_000,
    ) {
        let cron = cron(&expression, zone);
        let from = near_a_change(zone, year, which, minutes);
        let until = from + 60.hours();
        let slow = ReferenceClock::walk(&cron, from, until);
        let (fast, more) = due(&cron, millis(from), millis(until), 10_000);
        prop_assert!(!more);
        prop_assert_eq!(&fast, &slow, "{} in {} from {}", expression, zone, from);
        prop_assert_eq!(cron.latest(millis(from), millis(until)), slow.last().copied());
    }

    #[test]
    fn slots_are_ascending_and_none_is_missed(
        expression in expression(),
        zone in proptest::sample::select(&ZONES[..]),
        start in 0_u64..4_000_000_000_000,
        back in 1_u64..200_000,
    ) {
        let cron = cron(&expression, zone);
        let mut last = Millis(start);
        for slot in cron.slots(last).take(20) {
            prop_assert!(slot > last);
            // Any time between two slots has the second as its next slot.
            prop_assert_eq!(cron.next_after(Millis(slot.0.saturating_sub(back)).max(last)), Some(slot));
            prop_assert_eq!(cron.next_after(Millis(slot.0 - 1)), Some(slot));
            last = slot;
        }
    }

    #[test]
    fn every_expression_has_a_next_slot_and_none_panics(
        expression in r"((\*|[1-9]|[1-5]-[5-7]|\*/[1-7]|[1-9],\*) ){4}(\*|[0-7]|[0-3]-[4-7]|\*/[1-7])",
        zone in proptest::sample::select(&ZONES[..]),
        time in any::<u64>(),
    ) {
        let cron = cron(&expression, zone);
        for time in [time, time % 300_000_000_000_000] {
            let _ = cron.next_after(Millis(time));
        }
        prop_assert!(cron.next_after(Millis(time % 4_000_000_000_000)).is_some(), "{expression}");
    }
}

#[test]
fn a_minutely_expression_is_due_every_elapsed_minute_of_a_year() {
    for zone in ["Europe/Berlin", "Australia/Lord_Howe"] {
        let cron = cron("* * * * *", zone);
        let start = super::tests::at("2026-01-01T00:00:00Z");
        let mut expected = start;
        for slot in cron.slots(start).take(366 * 24 * 60) {
            expected = expected + MINUTE;
            assert_eq!(slot, expected, "{zone}");
        }
    }
}
