//! Parsing and formatting of durations.

use std::time::Duration;

/// Parses `250ms`, `10s`, `5m`, `1h30m`, `2d`. A clap value parser.
pub fn parse(text: &str) -> Result<Duration, String> {
    let malformed = || format!("invalid duration `{text}`; expected a form such as 250ms, 10s, 5m or 1h30m");
    let mut rest = text;
    let mut millis: u64 = 0;
    let mut previous_unit = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        let unit_end =
            rest[digits..].find(|character: char| character.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        let (number, unit) = (&rest[..digits], &rest[digits..unit_end]);
        let unit_millis: u64 = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "" if !number.is_empty() => {
                return Err(format!("duration `{text}` has no unit; write {text}s or {text}ms"));
            }
            _ => return Err(malformed()),
        };
        if unit_millis >= previous_unit {
            return Err(malformed());
        }
        previous_unit = unit_millis;
        let too_long = || format!("`{text}` is too long");
        let number: u64 =
            if number.is_empty() { return Err(malformed()) } else { number.parse().map_err(|_| too_long())? };
        millis = number.checked_mul(unit_millis).and_then(|more| millis.checked_add(more)).ok_or_else(too_long)?;
        rest = &rest[unit_end..];
    }
    if text.is_empty() { Err(malformed()) } else { Ok(Duration::from_millis(millis)) }
}

/// Formats with at most two units.
pub fn show(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let seconds = millis / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes, seconds) {
        (0, 0, 0, 0) => format!("{millis}ms"),
        (0, 0, 0, 1..10) => format!("{}.{}s", seconds, millis % 1000 / 100),
        (0, 0, 0, _) => format!("{seconds}s"),
        (0, 0, _, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _, _) => format!("{hours}h{:02}m", minutes % 60),
        (_, _, _, _) => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1s5ms", 1005),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_rejected_with_a_hint() {
        for text in [
            "",
            "s",
            "5x",
            "-5s",
            "1.5s",
            "5s5m",
            "5m5m",
            "5 s",
            "1h30",
            "٣s",
            "999999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("10").unwrap_err(), "duration `10` has no unit; write 10s or 10ms");
    }

    #[test]
    fn durations_are_formatted_with_at_most_two_units() {
        let shown = |millis| show(Duration::from_millis(millis));
        let texts = [0, 999, 1500, 9_999, 10_000, 61_000, 3_600_000, 90_000_000].map(shown);
        assert_eq!(texts, ["0ms", "999ms", "1.5s", "9.9s", "10s", "1m01s", "1h00m", "1d01h"]);
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "([0-9]{0,3}(ms|s|m|h|d|é)?){0,4}.?") {
            let _ = parse(&text);
        }
    }
}
