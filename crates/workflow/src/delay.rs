//! Delay of a task: a duration or a point in time.

use model::limits::DURATION_MAX;
use model::time::Millis;
use serde_json::Value;

use crate::expression::{Budget, kind};
use crate::scope::{RenderError, Scope};
use crate::template::Template;

/// A duration, or a point in time.
#[derive(Debug)]
pub struct Delay(DelayKind);

#[derive(Debug)]
enum DelayKind {
    For(Millis),
    Until(Millis),
    /// Evaluates to a duration or a time; with `only_time`, to a time.
    Template {
        template: Template,
        only_time: bool,
    },
}

impl Delay {
    pub(crate) fn lasting(duration: Millis) -> Self {
        Self(DelayKind::For(duration))
    }

    pub(crate) fn until(time: Millis) -> Self {
        Self(DelayKind::Until(time))
    }

    pub(crate) fn from_template(template: Template, only_time: bool) -> Self {
        Self(DelayKind::Template { template, only_time })
    }

    /// Due time of a delay that starts now. A time in the past is due at once.
    pub fn due(&self, scope: &Scope<'_>, now: Millis) -> Result<Millis, RenderError> {
        let (template, only_time) = match &self.0 {
            DelayKind::For(duration) => return Ok(now + *duration),
            DelayKind::Until(time) => return Ok(*time),
            DelayKind::Template { template, only_time } => (template, *only_time),
        };
        let refused = |message: String| RenderError { field: template.field().to_string(), message };
        let value = template.cow(scope, &mut Budget::default())?;
        let Value::String(text) = &*value else {
            let message = format!("expected a string such as `90s` or `2026-01-31T12:00:00Z`, found {}", kind(&value));
            return Err(refused(message));
        };
        match parse_time(text) {
            Some(time) => Ok(time),
            None if only_time => Err(refused(format!("{} is not a time: {TIME_FORM}", shortened(text)))),
            None => parse_duration(text).map(|duration| now + duration).map_err(refused),
        }
    }
}

pub(crate) const TIME_FORM: &str = "write it like `2026-01-31T12:00:00Z`";
const DURATION_FORM: &str = "write it like `90s`, `1h30m` or `250ms` (d, h, m, s, ms)";

/// RFC 3339. Times before 1970 become 0.
pub(crate) fn parse_time(text: &str) -> Option<Millis> {
    let time: jiff::Timestamp = text.trim().parse().ok()?;
    Some(Millis(u64::try_from(time.as_millisecond()).unwrap_or(0)))
}

/// Parses `1h30m`: numbers with units, larger units first.
pub(crate) fn parse_duration(text: &str) -> Result<Millis, String> {
    const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let refused = || format!("{} is not a duration: {DURATION_FORM}", shortened(text));
    let mut rest = text.trim();
    let mut total: u64 = 0;
    let mut next_unit = 0;
    if rest.is_empty() {
        return Err(refused());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let (number, unit) = (&rest[..digits], &rest[digits..digits + letters]);
        let at = UNITS.iter().position(|(name, _)| *name == unit).filter(|at| *at >= next_unit).ok_or_else(refused)?;
        next_unit = at + 1;
        let number: u64 = number.parse().map_err(|_| refused())?;
        total = number.checked_mul(UNITS[at].1).and_then(|part| total.checked_add(part)).ok_or_else(too_long)?;
        rest = &rest[digits + letters..];
    }
    if Millis(total) > DURATION_MAX { Err(too_long()) } else { Ok(Millis(total)) }
}

fn too_long() -> String {
    format!("the duration is longer than a year: at most {}d", DURATION_MAX.0 / 86_400_000)
}

fn shortened(text: &str) -> String {
    let start: String = text.chars().take(60).collect();
    format!("`{start}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, millis) in
            [("0s", 0), ("250ms", 250), ("90s", 90_000), ("1h30m", 5_400_000), ("1d1h1m1s1ms", 90_061_001)]
        {
            assert_eq!(parse_duration(text), Ok(Millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "1m1h", "1s1s", "-1s", "1.5h", "1 h", "1w", "99999999999999999999s", "1h "] {
            assert_eq!(parse_duration(text).is_err(), text.trim() != "1h", "{text}");
        }
    }

    #[test]
    fn the_longest_duration_is_a_year() {
        assert_eq!(parse_duration("366d"), Ok(DURATION_MAX));
        assert!(parse_duration("366d1ms").unwrap_err().contains("366d"));
        assert!(parse_duration("18446744073709551615d").is_err());
    }

    #[test]
    fn times_are_parsed_in_any_zone() {
        assert_eq!(parse_time("1970-01-01T01:00:01+01:00"), Some(Millis(1_000)));
        assert_eq!(parse_time("1969-01-01T00:00:00Z"), Some(Millis(0)));
        assert_eq!(parse_time("tomorrow"), None);
    }
}
