//! Takes findings out of one string.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::checks::names::Says;
use crate::checks::{is_placeholder, looks_random};
use crate::collector::Collector;
use crate::patterns::GENERIC_SECRET;
use crate::scanner::Scanner;
use crate::{BASE64_BYTES_MAX, BASE64_BYTES_MIN, FINDINGS_MAX, base64};

/// What is left after findings were taken out may look like a new one. After so many rounds all of it goes.
const ROUNDS_MAX: usize = 4;

/// How everything begins that stands in place of a finding.
pub(super) const REDACTED: &str = "[redacted:";

/// Shorter values under a telling name are no passwords.
const PASSWORD_BYTES_MIN: usize = 4;

pub(super) struct Redactor<'a> {
    scanner: &'a Scanner,
    collector: Collector,
    /// Values are judged by their name as well.
    names_count: bool,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

/// A part of a string and the pattern that names it.
struct Span {
    start: usize,
    end: usize,
    order: usize,
    name: &'static str,
}

impl<'a> Redactor<'a> {
    pub(super) fn new(scanner: &'a Scanner) -> Self {
        let names_count = scanner.patterns().any(|pattern| pattern.name == GENERIC_SECRET);
        let collector = Collector::new(scanner.matcher.len(), FINDINGS_MAX);
        Self { scanner, collector, names_count, counts: BTreeMap::new() }
    }

    /// What to write instead of a string with this content, under a name that says so much; nothing where it may stay.
    pub(super) fn value(&mut self, text: &str, says: Option<Says>) -> Option<String> {
        if self.names_count && is_secret(text, says) {
            let name = self.whole_of(text).unwrap_or(GENERIC_SECRET);
            *self.counts.entry(name).or_default() += 1;
            return Some(redacted(name));
        }
        self.text(text).or_else(|| self.base64(text))
    }

    /// Without judging it by its name.
    pub(super) fn text(&mut self, text: &str) -> Option<String> {
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
            Some(span) => Some(redacted(span.name)),
            None => Some(current.into_owned()),
        }
    }

    /// The pattern of which all of this text is a finding.
    fn whole_of(&mut self, text: &str) -> Option<&'static str> {
        let spans = self.spans(text);
        spans.iter().find(|span| span.start == 0 && span.end == text.len()).map(|span| span.name)
    }

    /// A string that is base64 of a text with findings goes as a whole.
    fn base64(&mut self, text: &str) -> Option<String> {
        if !(BASE64_BYTES_MIN..=BASE64_BYTES_MAX).contains(&text.len()) {
            return None;
        }
        let decoded = base64::decode(text.as_bytes())?;
        // In what is no text, some bytes look like anything.
        let decoded = std::str::from_utf8(&decoded).ok()?;
        let name = self.spans(decoded).iter().min_by_key(|span| span.order)?.name;
        self.count_collected();
        Some(redacted(name))
    }

    /// Joined where they overlap; the first pattern of them gives the name.
    fn spans(&mut self, text: &str) -> Vec<Span> {
        self.collector.clear();
        self.scanner.matcher.sweep_all(text.as_bytes(), &mut self.collector);
        let mut spans: Vec<Span> = Vec::with_capacity(self.collector.items().len());
        let mut items = self.collector.items().to_vec();
        items.sort_unstable();
        for item in items {
            let order = self.scanner.patterns().position(|pattern| pattern.name == item.pattern).unwrap_or(usize::MAX);
            // A finding is of bytes; characters are taken out whole.
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

    /// Those that are replaced; what there was no room for is found again in the next round.
    fn count_collected(&mut self) {
        for item in self.collector.items() {
            *self.counts.entry(item.pattern).or_default() += 1;
        }
    }
}

/// Whether a value is a secret because of its name.
fn is_secret(text: &str, says: Option<Says>) -> bool {
    let value = text.as_bytes();
    match says {
        None => false,
        Some(Says::Certainly) => value.len() >= PASSWORD_BYTES_MIN && !is_placeholder(value),
        // A sentence under `token` is none, unless it begins with one.
        Some(Says::Perhaps) => {
            let word = text.split_whitespace().next().unwrap_or_default().as_bytes();
            looks_random(word) && !is_placeholder(value)
        }
    }
}

fn redacted(name: &str) -> String {
    format!("{REDACTED}{name}]")
}

fn replace(text: &str, spans: &[Span]) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut copied = 0;
    for span in spans {
        replaced.push_str(&text[copied..span.start]);
        replaced.push_str(&redacted(span.name));
        copied = span.end;
    }
    replaced.push_str(&text[copied..]);
    replaced
}

/// What a string means, given what stands between its quotes. Half of a pair of surrogates means nothing, and is read
/// as the character for that.
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

/// One unit of UTF-16 after `\u`, or two where they are a pair. Returns what follows.
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
    fn escapes_are_read_as_what_they_mean() {
        assert_eq!(unescape("plain"), "plain");
        assert_eq!(unescape(r#"a\n\t\"\\\/b"#), "a\n\t\"\\/b");
        assert_eq!(unescape(r"\u0041\u00e4\ud83d\ude00"), "Aä😀");
        assert_eq!(unescape(r"\ud83d-\ude00"), "\u{fffd}-\u{fffd}");
        assert_eq!(unescape(r"\ud83d\u0041"), "\u{fffd}A");
    }

    proptest::proptest! {
        #[test]
        fn a_string_means_what_the_json_parser_reads(text in ".{0,40}") {
            let quoted = serde_json::to_string(&text).unwrap();
            proptest::prop_assert_eq!(unescape(&quoted[1..quoted.len() - 1]), text);
        }
    }
}
