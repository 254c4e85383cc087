//! Slots on known days, most of them with a daylight saving transition.

use model::time::{Millis, Timestamp};

use super::*;

/// Uses the bundled zones, so that the results are the same on every machine.
pub(super) fn cron(expression: &str, zone: &str) -> Cron {
    Cron::parse_with(expression, zone, &TimeZoneDatabase::bundled()).unwrap()
}

pub(super) fn at(time: &str) -> Millis {
    let time: jiff::Timestamp = time.parse().unwrap();
    Millis(u64::try_from(time.as_millisecond()).unwrap())
}

/// The next slots after a time, in UTC without seconds.
fn next(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let cron = cron(expression, zone);
    let slots = cron.slots(at(after)).take(count).map(|slot| Timestamp(slot).to_string());
    slots.map(|slot| slot.strip_suffix(":00.000Z").unwrap().to_owned()).collect()
}

mod ordinary_days {
    use super::*;

    #[test]
    fn slots_are_strictly_after_the_time() {
        assert_eq!(next("0 0 * * *", "UTC", "2026-01-01T00:00:00Z", 1), ["2026-01-02T00:00"]);
        assert_eq!(next("0 0 * * *", "UTC", "2025-12-31T23:59:59.999Z", 1), ["2026-01-01T00:00"]);
        assert_eq!(next("* * * * *", "UTC", "2026-01-01T00:00:00Z", 1), ["2026-01-01T00:01"]);
        assert_eq!(next("* * * * *", "UTC", "2025-12-31T23:59:59.999Z", 1), ["2026-01-01T00:00"]);
    }

    #[test]
    fn slots_follow_the_local_time_of_the_zone() {
        assert_eq!(next("0 9 * * MON-FRI", "Asia/Kathmandu", "2026-01-02T12:00:00Z", 1), ["2026-01-05T03:15"]);
        assert_eq!(next("0 9 * * *", "America/New_York", "2026-07-01T00:00:00Z", 1), ["2026-07-01T13:00"]);
        assert_eq!(
            next("@hourly", "Asia/Kathmandu", "2026-01-01T00:00:00Z", 2),
            ["2026-01-01T00:15", "2026-01-01T01:15"]
        );
        assert_eq!(next("@weekly", "UTC", "2026-01-01T00:00:00Z", 1), ["2026-01-04T00:00"]);
        assert_eq!(next("@yearly", "UTC", "2026-01-01T00:00:00Z", 1), ["2027-01-01T00:00"]);
    }

    #[test]
    fn expression_and_zone_are_normalised() {
        let cron = cron("  */5 *  * * * ", "europe/berlin");
        assert_eq!((cron.expression(), cron.zone()), ("*/5 *  * * *", "Europe/Berlin"));
        assert_eq!(Cron::parse("@daily", "utc").unwrap().zone(), "UTC");
    }

    #[test]
    fn a_rare_day_is_found_and_an_impossible_one_is_refused() {
        assert_eq!(next("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 2), ["2028-02-29T00:00", "2032-02-29T00:00"]);
        assert_eq!(next("0 0 30 2 MON", "UTC", "2026-01-31T00:00:00Z", 1), ["2026-02-02T00:00"]);
        assert_eq!(next("0 * 29 2 *", "Europe/Berlin", "2096-03-01T00:00:00Z", 1), ["2104-02-28T23:00"]);
        for expression in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30-31 FEB */2"] {
            let error = Cron::parse(expression, "UTC").unwrap_err();
            assert_eq!(error.code(), "cron_never_due");
            assert!(error.to_string().contains("none of its months has any of its days"), "{error}");
        }
    }

    #[test]
    fn expressions_are_parsed_up_to_the_length_limit() {
        let padded = |bytes: usize| format!("0 {}0 * * *", " ".repeat(bytes - 9));
        assert!(Cron::parse(&padded(EXPRESSION_BYTES_MAX), "UTC").is_ok());
        assert_eq!(Cron::parse(&padded(EXPRESSION_BYTES_MAX + 1), "UTC"), Err(CronError::TooLong { bytes: 257 }));
    }

    #[test]
    fn there_are_no_slots_after_the_end_of_the_calendar() {
        assert_eq!(cron("* * * * *", "UTC").next_after(Millis(u64::MAX)), None);
        assert_eq!(cron("0 0 1 1 *", "UTC").next_after(at("9999-06-01T00:00:00Z")), None);
        assert_eq!(
            cron("0 5 * * *", "Europe/Berlin").latest(at("9999-12-01T00:00:00Z"), Millis(u64::MAX)),
            Some(at("9999-12-30T04:00:00Z"))
        );
    }
}

/// 2026: from 02:00 to 03:00 on 29 March at 01:00Z, from 03:00 back to 02:00 on 25 October at 01:00Z.
mod berlin {
    use super::*;

    const ZONE: &str = "Europe/Berlin";

    #[test]
    fn a_skipped_time_is_due_at_the_end_of_the_gap() {
        let expected = ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"];
        assert_eq!(next("30 2 * * *", ZONE, "2026-03-27T12:00:00Z", 3), expected);
        assert_eq!(next("0 2 * * *", ZONE, "2026-03-28T12:00:00Z", 2), ["2026-03-29T01:00", "2026-03-30T00:00"]);
        assert_eq!(next("59 2 28 3 *", ZONE, "2027-01-01T00:00:00Z", 1), ["2027-03-28T01:00"]);
    }

    #[test]
    fn several_skipped_times_are_due_once() {
        let expected = ["2026-03-29T00:40", "2026-03-29T01:00", "2026-03-29T01:20"];
        assert_eq!(next("*/20 1-3 * * *", ZONE, "2026-03-29T00:20:00Z", 3), expected);
        assert_eq!(next("* 2 * * *", ZONE, "2026-03-28T12:00:00Z", 2), ["2026-03-29T01:00", "2026-03-30T00:00"]);
    }

    #[test]
    fn a_repeated_time_is_due_at_its_first_occurrence() {
        let expected = ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"];
        assert_eq!(next("30 2 * * *", ZONE, "2026-10-23T12:00:00Z", 3), expected);
        let expected = ["2026-10-25T00:00", "2026-10-25T00:30", "2026-10-26T01:00"];
        assert_eq!(next("0,30 2 * * *", ZONE, "2026-10-24T12:00:00Z", 3), expected);
        // Starting within the second occurrence.
        assert_eq!(next("30 2 * * *", ZONE, "2026-10-25T01:10:00Z", 1), ["2026-10-26T01:30"]);
        assert_eq!(next("* 2 * * *", ZONE, "2026-10-25T01:10:00Z", 1), ["2026-10-26T01:00"]);
        assert_eq!(next("0 3 * * *", ZONE, "2026-10-25T01:10:00Z", 1), ["2026-10-25T02:00"]);
    }

    #[test]
    fn a_wildcard_hour_follows_elapsed_time() {
        let spring = ["2026-03-29T00:30", "2026-03-29T01:30", "2026-03-29T02:30"];
        assert_eq!(next("30 * * * *", ZONE, "2026-03-29T00:00:00Z", 3), spring);
        let autumn = ["2026-10-24T23:30", "2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"];
        assert_eq!(next("30 * * * *", ZONE, "2026-10-24T23:00:00Z", 4), autumn);
        let (minutely, start) = (cron("* * * * *", ZONE), at("2026-10-24T22:00:00Z"));
        let mut minutes = minutely.slots(start).take(25 * 60).zip(1..);
        assert!(minutes.all(|(slot, minute)| slot == start + Millis(minute * 60_000)));
    }

    #[test]
    fn hour_steps_omit_skipped_times_and_include_both_occurrences() {
        // 02:00 does not exist, so the next even hour is 04:00.
        let spring = ["2026-03-28T23:00", "2026-03-29T02:00"];
        assert_eq!(next("0 */2 * * *", ZONE, "2026-03-28T22:00:00Z", 2), spring);
        let autumn = ["2026-10-24T22:00", "2026-10-25T00:00", "2026-10-25T01:00", "2026-10-25T03:00"];
        assert_eq!(next("0 */2 * * *", ZONE, "2026-10-24T21:00:00Z", 4), autumn);
    }

    #[test]
    fn transitions_of_the_next_year_are_on_other_days() {
        assert_eq!(next("30 2 28 3 *", ZONE, "2027-03-01T00:00:00Z", 1), ["2027-03-28T01:00"]);
        assert_eq!(next("30 2 31 10 *", ZONE, "2027-10-01T00:00:00Z", 1), ["2027-10-31T00:30"]);
    }
}

mod other_zones {
    use super::*;

    #[test]
    fn new_york_has_its_own_transition_days() {
        let zone = "America/New_York";
        assert_eq!(next("30 2 8 3 *", zone, "2026-03-01T00:00:00Z", 1), ["2026-03-08T07:00"]);
        assert_eq!(next("30 1 1 11 *", zone, "2026-10-01T00:00:00Z", 1), ["2026-11-01T05:30"]);
        let both = ["2026-11-01T05:30", "2026-11-01T06:30", "2026-11-01T07:30"];
        assert_eq!(next("30 * * * *", zone, "2026-11-01T05:00:00Z", 3), both);
        assert_eq!(next("30 2 14 3 *", zone, "2027-03-01T00:00:00Z", 1), ["2027-03-14T07:00"]);
        assert_eq!(next("30 1 7 11 *", zone, "2027-11-01T00:00:00Z", 1), ["2027-11-07T05:30"]);
    }

    #[test]
    fn lord_howe_has_a_transition_of_half_an_hour() {
        let zone = "Australia/Lord_Howe";
        // From 02:00 to 02:30 on 4 October 2026; 01:30 is repeated on 5 April.
        assert_eq!(next("15 2 * * *", zone, "2026-10-03T00:00:00Z", 2), ["2026-10-03T15:30", "2026-10-04T15:15"]);
        assert_eq!(next("45 1 * * *", zone, "2026-04-04T00:00:00Z", 2), ["2026-04-04T14:45", "2026-04-05T15:15"]);
        let both = ["2026-04-04T14:45", "2026-04-04T15:15", "2026-04-04T16:15"];
        assert_eq!(next("45 * * * *", zone, "2026-04-04T14:00:00Z", 3), both);
        assert_eq!(next("15 * * * *", zone, "2026-10-03T15:00:00Z", 2), ["2026-10-03T16:15", "2026-10-03T17:15"]);
    }

    #[test]
    fn a_gap_at_midnight_is_due_on_its_day() {
        let zone = "America/Sao_Paulo";
        assert_eq!(next("0 0 * * *", zone, "2018-11-03T12:00:00Z", 2), ["2018-11-04T03:00", "2018-11-05T02:00"]);
        assert_eq!(next("30 0 4 11 *", zone, "2018-11-03T12:00:00Z", 1), ["2018-11-04T03:00"]);
        // 23:00 is repeated on 16 February 2019.
        assert_eq!(next("30 23 * * *", zone, "2019-02-16T12:00:00Z", 2), ["2019-02-17T01:30", "2019-02-18T02:30"]);
    }

    #[test]
    fn a_skipped_day_is_due_at_its_end() {
        // Samoa skipped 30 December 2011.
        let zone = "Pacific/Apia";
        let expected = ["2011-12-29T22:00", "2011-12-30T10:00", "2011-12-30T22:00"];
        assert_eq!(next("0 12 * * *", zone, "2011-12-29T12:00:00Z", 3), expected);
        assert_eq!(next("0 * 30 12 *", zone, "2011-12-29T12:00:00Z", 1), ["2012-12-29T10:00"]);
    }

    #[test]
    fn a_gap_may_end_within_a_minute() {
        // Liberia abolished an offset of 44 minutes and 30 seconds.
        let cron = cron("20 0 * * *", "Africa/Monrovia");
        assert_eq!(cron.next_after(at("1972-01-06T12:00:00Z")), Some(at("1972-01-07T00:44:30Z")));
    }
}

mod catching_up {
    use super::*;

    #[test]
    fn due_slots_are_after_the_last_and_up_to_now() {
        let hourly = cron("@hourly", "UTC");
        let (last, now) = (at("2026-01-01T00:00:00Z"), at("2026-01-01T03:00:00Z"));
        let slots = [1, 2, 3].map(|hour| at(&format!("2026-01-01T0{hour}:00:00Z")));
        assert_eq!(due(&hourly, last, now, 10), (slots.to_vec(), false));
        assert_eq!(due(&hourly, last, now, 3), (slots.to_vec(), false));
        assert_eq!(due(&hourly, last, now, 2), (slots[..2].to_vec(), true));
        assert_eq!(due(&hourly, last, now, 0), (Vec::new(), true));
        assert_eq!(due(&hourly, now, now, 10), (Vec::new(), false));
        assert_eq!(due(&hourly, now, last, 10), (Vec::new(), false));
    }

    #[test]
    fn the_latest_slot_is_found_among_many() {
        let minutely = cron("* * * * *", "Europe/Berlin");
        let (last, now) = (at("2000-01-01T00:00:00Z"), at("2026-01-01T03:00:00.001Z"));
        assert_eq!(minutely.latest(last, now), Some(at("2026-01-01T03:00:00Z")));
        assert_eq!(minutely.latest(at("2026-01-01T03:00:00Z"), now), None);
        assert_eq!(
            minutely.latest(at("2026-01-01T02:59:59Z"), at("2026-01-01T03:00:00Z")),
            Some(at("2026-01-01T03:00:00Z"))
        );
        assert_eq!(minutely.latest(now, last), None);
        assert_eq!(
            cron("30 2 * * *", "Europe/Berlin").latest(last, at("2026-03-29T12:00:00Z")),
            Some(at("2026-03-29T01:00:00Z"))
        );
    }
}
