//! Redacts a single string or number.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::checks::names::SecretName;
use crate::checks::{is_placeholder, looks_random};
use crate::collector::Collector;
use crate::patterns::GENERIC_SECRET;
use crate::scanner::Scanner;
use crate::{BASE64_BYTES_MAX, BASE64_BYTES_MIN, FINDINGS_MAX, base64};

/// The rest of a redacted string may contain new findings. After this many rounds the whole string is replaced.
const ROUNDS_MAX: usize = 4;

/// Start of every redaction mark.
pub(super) const MARK_START: &str = "[redacted:";

/// Minimum length of a value that is redacted because of its name.
const PASSWORD_BYTES_MIN: usize = 4;

pub(super) struct Redactor<'a> {
    scanner: &'a Scanner,
    collector: Collector,
    /// Member names are checked: the pattern of generic secrets is selected.
    check_names: bool,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

/// A range of a string to be replaced, with the pattern for its redaction mark.
struct Span {
    start: usize,
    end: usize,
    /// Precedence of the pattern; the lowest wins.
    order: usize,
    name: &'static str,
}

impl<'a> Redactor<'a> {
    pub(super) fn new(scanner: &'a Scanner) -> Self {
        let check_names = scanner.patterns().any(|pattern| pattern.name == GENERIC_SECRET);
        let collector = Collector::new(scanner.matcher.len(), FINDINGS_MAX);
        Self { scanner, collector, check_names, counts: BTreeMap::new() }
    }

    /// Redacts a string value under a name of this class. `None` if it stays unchanged.
    pub(super) fn value(&mut self, text: &str, name_class: Option<SecretName>) -> Option<String> {
        if self.check_names && is_secret(text, name_class) {
            let name = self.pattern_of_whole(text).unwrap_or(GENERIC_SECRET);
            *self.counts.entry(name).or_default() += 1;
            return Some(mark(name));
        }
        let redacted = self.text(text).or_else(|| self.base64(text))?;
        // Marks change the look of the rest, so that it may count as a secret only now.
        if self.check_names && is_secret(&redacted, name_class) {
            *self.counts.entry(GENERIC_SECRET).or_default() += 1;
            return Some(mark(GENERIC_SECRET));
        }
        Some(redacted)
    }

    /// Replaces a number with a finding by one mark: a partial replacement such as `-[redacted:credit_card]` is neither a
    /// number nor recognised as redacted.
    pub(super) fn number(&mut self, digits: &str) -> Option<String> {
        self.replace_whole(digits)
    }

    /// Redacts the findings in a text, regardless of its name.
    fn text(&mut self, text: &str) -> Option<String> {
        let mut current = Cow::Borrowed(text);
        for _ in 0..ROUNDS_MAX {
            let spans = self.spans(&current);
            if spans.is_empty() {
                return match current {
                    Cow::Borrowed(_) => None,
                    Cow::Owned(redacted) => Some(redacted),
                };
            }
            self.count_collected();
            current = Cow::Owned(replace(&current, &spans));
        }
        match self.spans(&current).first() {
            Some(span) => Some(mark(span.name)),
            None => Some(current.into_owned()),
        }
    }

    /// The pattern that matches the whole text.
    fn pattern_of_whole(&mut self, text: &str) -> Option<&'static str> {
        let spans = self.spans(text);
        spans.iter().find(|span| span.start == 0 && span.end == text.len()).map(|span| span.name)
    }

    /// Replaces a string that is base64 of a text with findings.
    fn base64(&mut self, text: &str) -> Option<String> {
        if !(BASE64_BYTES_MIN..=BASE64_BYTES_MAX).contains(&text.len()) {
            return None;
        }
        let decoded = base64::decode(text.as_bytes())?;
        // Binary data is skipped: it contains too many accidental matches.
        let decoded = std::str::from_utf8(&decoded).ok()?;
        self.replace_whole(decoded)
    }

    /// One mark for the whole text, if it has findings. The pattern with the highest precedence gives the name.
    fn replace_whole(&mut self, text: &str) -> Option<String> {
        let name = self.spans(text).iter().min_by_key(|span| span.order)?.name;
        self.count_collected();
        Some(mark(name))
    }

    /// Scans a text and joins overlapping findings. The pattern with the highest precedence gives the name.
    fn spans(&mut self, text: &str) -> Vec<Span> {
        self.collector.clear();
        self.scanner.matcher.sweep_all(text.as_bytes(), &mut self.collector);
        let mut spans: Vec<Span> = Vec::with_capacity(self.collector.items().len());
        let mut items = self.collector.items().to_vec();
        items.sort_unstable();
        for item in items {
            let order = self.scanner.patterns().position(|pattern| pattern.name == item.pattern).unwrap_or(usize::MAX);
            // Findings are byte ranges, extended here to whole characters.
            let start = text.floor_char_boundary(item.start as usize);
            let end = text.ceil_char_boundary(item.end as usize);
            match spans.last_mut().filter(|last| start < last.end) {
                Some(last) => {
                    last.end = last.end.max(end);
                    if order < last.order {
                        (last.order, last.name) = (order, item.pattern);
                    }
                }
                None => spans.push(Span { start, end, order, name: item.pattern }),
            }
        }
        spans
    }

    /// Counts the findings of the last scan. Those beyond the limit are found again in the next round.
    fn count_collected(&mut self) {
        for item in self.collector.items() {
            *self.counts.entry(item.pattern).or_default() += 1;
        }
    }
}

/// Whether a value is a secret because of its name.
fn is_secret(text: &str, name_class: Option<SecretName>) -> bool {
    let value = text.as_bytes();
    match name_class {
        None => false,
        Some(SecretName::Certain) => value.len() >= PASSWORD_BYTES_MIN && !is_placeholder(value),
        // Only the first word counts: the value may be a sentence.
        Some(SecretName::Possible) => {
            let word = text.split_whitespace().next().unwrap_or_default().as_bytes();
            looks_random(word) && !is_placeholder(value)
        }
    }
}

fn mark(name: &str) -> String {
    format!("{MARK_START}{name}]")
}

fn replace(text: &str, spans: &[Span]) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut copied = 0;
    for span in spans {
        replaced.push_str(&text[copied..span.start]);
        replaced.push_str(&mark(span.name));
        copied = span.end;
    }
    replaced.push_str(&text[copied..]);
    replaced
}

/// Decodes the escapes of a JSON string without its quotes. An unpaired surrogate becomes U+FFFD.
pub(super) fn unescape(raw: &str) -> Cow<'_, str> {
    let Some(first) = memchr::memchr(b'\\', raw.as_bytes()) else { return Cow::Borrowed(raw) };
    let mut text = String::with_capacity(raw.len());
    text.push_str(&raw[..first]);
    let mut rest = &raw[first..];
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(escape) = rest.chars().next() else { break };
        rest = &rest[escape.len_utf8()..];
        match escape {
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'u' => rest = unescape_units(rest, &mut text),
            other => text.push(other),
        }
    }
    text.push_str(rest);
    Cow::Owned(text)
}

/// Decodes the UTF-16 unit after `\u`, or a surrogate pair. Returns the rest.
fn unescape_units<'a>(rest: &'a str, text: &mut String) -> &'a str {
    let unit = |digits: &str| digits.get(..4).and_then(|digits| u16::from_str_radix(digits, 16).ok());
    let Some(first) = unit(rest) else { return rest };
    let rest = &rest[4..];
    let second = rest.strip_prefix("\\u").and_then(unit);
    if let Some(second) = second
        && let Some(Ok(pair)) = char::decode_utf16([first, second]).next()
        && pair.len_utf16() == 2
    {
        text.push(pair);
        return &rest[6..];
    }
    text.push(char::from_u32(u32::from(first)).unwrap_or(char::REPLACEMENT_CHARACTER));
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded() {
        assert_eq!(unescape("plain"), "plain");
        assert_eq!(unescape(r#"a\n\t\"\\\/b"#), "a\n\t\"\\/b");
        assert_eq!(unescape(r"\u0041\u00e4\ud83d\ude00"), "Aä😀");
        assert_eq!(unescape(r"\ud83d-\ude00"), "\u{fffd}-\u{fffd}");
        assert_eq!(unescape(r"\ud83d\u0041"), "\u{fffd}A");
    }

    proptest::proptest! {
        #[test]
        fn unescape_agrees_with_the_json_parser(text in ".{0,40}") {
            let quoted = serde_json::to_string(&text).unwrap();
            proptest::prop_assert_eq!(unescape(&quoted[1..quoted.len() - 1]), text);
        }
    }
}
