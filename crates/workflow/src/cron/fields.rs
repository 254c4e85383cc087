//! Parses the fields of an expression into bit sets.

use super::error::CronError;
use crate::diagnostic::closest;

/// Values of one field: bit n stands for the value n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) bits: u64,
    /// Whether the field starts with `*` or `?`, the criterion of Vixie cron.
    pub(super) is_wildcard: bool,
}

/// Rules of one field.
struct Field {
    name: &'static str,
    low: u8,
    /// Highest value, and highest accepted number: Sunday is both 0 and 7.
    last: u8,
    high: u8,
    names: &'static [&'static str],
    allowed: &'static str,
}

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FIELDS: [Field; 5] = [
    Field { name: "minute", low: 0, last: 59, high: 59, names: &[], allowed: "0-59, ranges, lists, steps and *" },
    Field { name: "hour", low: 0, last: 23, high: 23, names: &[], allowed: "0-23, ranges, lists, steps and *" },
    Field { name: "day-of-month", low: 1, last: 31, high: 31, names: &[], allowed: "1-31, ranges, lists, steps and *" },
    Field {
        name: "month",
        low: 1,
        last: 12,
        high: 12,
        names: &MONTHS,
        allowed: "1-12, JAN-DEC, ranges, lists, steps and *",
    },
    Field {
        name: "day-of-week",
        low: 0,
        last: 6,
        high: 7,
        names: &WEEKDAYS,
        allowed: "0-7 (0 and 7 are Sunday), SUN-SAT, ranges, lists, steps and *",
    },
];

/// Aliases of common expressions.
const ALIASES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// Returns minutes, hours, days of the month, months and weekdays, with Sunday as 0.
pub(super) fn parse(expression: &str) -> Result<[Set; 5], CronError> {
    let expanded = if expression.starts_with('@') { expand_alias(expression)? } else { expression };
    let parts: Vec<&str> = expanded.split_ascii_whitespace().collect();
    let Ok(parts) = <[&str; 5]>::try_from(parts.as_slice()) else {
        return Err(CronError::FieldCount { expression: expression.to_owned(), found: parts.len() });
    };
    let mut sets = [Set { bits: 0, is_wildcard: false }; 5];
    for ((set, field), part) in sets.iter_mut().zip(&FIELDS).zip(parts) {
        *set = field.parse(part)?;
    }
    Ok(sets)
}

fn expand_alias(name: &str) -> Result<&'static str, CronError> {
    let found = ALIASES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let unknown = || CronError::UnknownName {
        name: name.to_owned(),
        suggestion: closest(name, ALIASES.iter().map(|(known, _)| *known)).map(str::to_owned),
    };
    found.map(|(_, expression)| *expression).ok_or_else(unknown)
}

impl Field {
    fn parse(&self, text: &str) -> Result<Set, CronError> {
        let mut bits = 0;
        for part in text.split(',') {
            if part.is_empty() {
                return Err(self.refuse(text, "has an empty entry".to_owned()));
            }
            bits |= self.part(part)?;
        }
        if bits >> (self.last + 1) != 0 {
            // Only Sunday has a second number, 7.
            bits = (bits | 1) & ((1 << (self.last + 1)) - 1);
        }
        Ok(Set { bits, is_wildcard: text.starts_with(['*', '?']) })
    }

    /// Parses one entry of a list.
    fn part(&self, part: &str) -> Result<u64, CronError> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(self.step(part, step)?)),
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            Some((from, to)) => self.range(part, from, to)?,
            None if matches!(range, "*" | "?") => (self.low, self.last),
            None => {
                let value = self.value(part, range)?;
                // A step without a range end extends to the last value.
                (value, if step.is_some() { self.last.max(value) } else { value })
            }
        };
        Ok((from..=to).step_by(usize::from(step.unwrap_or(1))).fold(0, |bits, value| bits | 1 << value))
    }

    fn range(&self, part: &str, from: &str, to: &str) -> Result<(u8, u8), CronError> {
        let (from, mut to) = (self.value(part, from)?, self.value(part, to)?);
        // A range may end with Sunday as 7: FRI-SUN.
        if to == 0 && from > 0 && self.high > self.last {
            to = self.high;
        }
        if from > to {
            let (low, last) = (self.low, self.last);
            return Err(self.refuse(part, format!("runs backwards; write {from}-{last},{low}-{to}")));
        }
        Ok((from, to))
    }

    fn step(&self, part: &str, step: &str) -> Result<u8, CronError> {
        let most = self.last - self.low + 1;
        let refuse = || self.refuse(part, format!("has a step that is not a number from 1 to {most}"));
        self.digits(step).filter(|step| (1..=most).contains(step)).ok_or_else(refuse)
    }

    fn value(&self, part: &str, text: &str) -> Result<u8, CronError> {
        if let Some(index) = self.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(self.low + u8::try_from(index).expect("a field has at most twelve names"));
        }
        if text.is_empty() {
            return Err(self.refuse(part, "has a missing value".to_owned()));
        }
        let Some(value) = self.digits(text) else {
            return Err(self.refuse(part, "is invalid".to_owned()));
        };
        if !(self.low..=self.high).contains(&value) {
            return Err(self.refuse(part, "is out of range".to_owned()));
        }
        Ok(value)
    }

    /// An unsigned number. Saturates at `u8::MAX`, which is out of range for every field.
    fn digits(&self, text: &str) -> Option<u8> {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse().unwrap_or(u8::MAX))
    }

    fn refuse(&self, part: &str, problem: String) -> CronError {
        CronError::Field { field: self.name, part: part.to_owned(), problem, allowed: self.allowed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of one field, given by its index.
    fn values(index: usize, text: &str) -> Vec<u32> {
        let mut fields = ["*"; 5];
        fields[index] = text;
        let set = parse(&fields.join(" ")).unwrap()[index];
        (0..64).filter(|bit| set.bits >> bit & 1 == 1).collect()
    }

    fn refusal(expression: &str) -> String {
        parse(expression).unwrap_err().to_string()
    }

    #[test]
    fn numbers_names_lists_ranges_and_steps_are_parsed() {
        assert_eq!(values(0, "0"), [0]);
        assert_eq!(values(0, "5,59,10-12"), [5, 10, 11, 12, 59]);
        assert_eq!(values(0, "*/15"), [0, 15, 30, 45]);
        assert_eq!(values(0, "10-40/15"), [10, 25, 40]);
        assert_eq!(values(0, "50/4"), [50, 54, 58]);
        assert_eq!(values(1, "*/7"), [0, 7, 14, 21]);
        assert_eq!(values(1, "?").len(), 24);
        assert_eq!(values(2, "*/10"), [1, 11, 21, 31]);
        assert_eq!(values(3, "jan,Mar-MAY"), [1, 3, 4, 5]);
        assert_eq!(values(0, "*/60"), [0]);
    }

    #[test]
    fn sunday_is_0_and_7() {
        assert_eq!(values(4, "7"), [0]);
        assert_eq!(values(4, "SUN"), [0]);
        assert_eq!(values(4, "5-7"), [0, 5, 6]);
        assert_eq!(values(4, "FRI-SUN"), [0, 5, 6]);
        assert_eq!(values(4, "0-7"), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(values(4, "7/2"), [0]);
        assert_eq!(values(4, "*"), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_field_is_a_wildcard_when_it_starts_with_a_star() {
        let wild = |expression: &str| parse(expression).unwrap().map(|set| set.is_wildcard);
        assert_eq!(wild("* */2 ? *,3 1-7"), [true, true, true, true, false]);
        assert_eq!(wild("0-59 0-23 1-31 1,*/2 0"), [false; 5]);
    }

    #[test]
    fn aliases_equal_their_expressions() {
        for (name, expression) in ALIASES {
            assert_eq!(parse(name), parse(expression));
        }
        assert_eq!(parse("@Daily"), parse("0 0 * * *"));
    }

    #[test]
    fn errors_name_the_field_and_the_allowed_values() {
        let refusals = [
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "* * * FOO *",
            "*/0 * * * *",
            "*/90 * * * *",
            "5- * * * *",
            "1,,2 * * * *",
            "* 22-4 * * *",
            "* * * * FRI-TUE",
            "+5 * * * *",
            "99999999999 * * * *",
            "* * L * *",
            "*5 * * * *",
            "1/2/3 * * * *",
            "",
            "* * * *",
            "0 0 0 * * *",
            "@dayly",
            "@reboot",
            "@",
        ];
        insta::assert_snapshot!(refusals.map(refusal).join("\n"), @r"
        minute: `60` is out of range; allowed: 0-59, ranges, lists, steps and *
        hour: `24` is out of range; allowed: 0-23, ranges, lists, steps and *
        day-of-month: `0` is out of range; allowed: 1-31, ranges, lists, steps and *
        month: `13` is out of range; allowed: 1-12, JAN-DEC, ranges, lists, steps and *
        day-of-week: `8` is out of range; allowed: 0-7 (0 and 7 are Sunday), SUN-SAT, ranges, lists, steps and *
        month: `FOO` is invalid; allowed: 1-12, JAN-DEC, ranges, lists, steps and *
        minute: `*/0` has a step that is not a number from 1 to 60; allowed: 0-59, ranges, lists, steps and *
        minute: `*/90` has a step that is not a number from 1 to 60; allowed: 0-59, ranges, lists, steps and *
        minute: `5-` has a missing value; allowed: 0-59, ranges, lists, steps and *
        minute: `1,,2` has an empty entry; allowed: 0-59, ranges, lists, steps and *
        hour: `22-4` runs backwards; write 22-23,0-4; allowed: 0-23, ranges, lists, steps and *
        day-of-week: `FRI-TUE` runs backwards; write 5-6,0-2; allowed: 0-7 (0 and 7 are Sunday), SUN-SAT, ranges, lists, steps and *
        minute: `+5` is invalid; allowed: 0-59, ranges, lists, steps and *
        minute: `99999999999` is out of range; allowed: 0-59, ranges, lists, steps and *
        day-of-month: `L` is invalid; allowed: 1-31, ranges, lists, steps and *
        minute: `*5` is invalid; allowed: 0-59, ranges, lists, steps and *
        minute: `1/2/3` has a step that is not a number from 1 to 60; allowed: 0-59, ranges, lists, steps and *
        a cron expression has five fields (minute hour day-of-month month day-of-week), but `` has 0
        a cron expression has five fields (minute hour day-of-month month day-of-week), but `* * * *` has 4
        a cron expression has five fields (minute hour day-of-month month day-of-week), but `0 0 0 * * *` has 6; seconds are not supported, so remove the first field
        unknown name `@dayly`; write @hourly, @daily, @weekly, @monthly, @yearly or five fields. Did you mean `@daily`?
        unknown name `@reboot`; write @hourly, @daily, @weekly, @monthly, @yearly or five fields
        unknown name `@`; write @hourly, @daily, @weekly, @monthly, @yearly or five fields
        ");
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "[-*/,?@0-9A-Z ]{0,30}|.{0,30}") {
            let _ = parse(&text);
        }

        #[test]
        fn parsed_values_are_within_the_range_of_the_field(text in "[-*/,0-9]{1,6}", index in 0_usize..5) {
            let mut fields = ["*"; 5];
            fields[index] = &text;
            if let Ok(sets) = parse(&fields.join(" ")) {
                let Field { low, last, .. } = FIELDS[index];
                proptest::prop_assert!(sets[index].bits != 0);
                proptest::prop_assert!(sets[index].bits.trailing_zeros() >= u32::from(low));
                proptest::prop_assert!(63 - sets[index].bits.leading_zeros() <= u32::from(last));
            }
        }
    }
}
