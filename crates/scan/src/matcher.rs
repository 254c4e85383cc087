//! Finds the anchors of patterns in a text, and tries the patterns there.

use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use memchr::memmem;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use crate::checks::Candidate;
use crate::class::{Class, is_run_start};
use crate::collector::Collector;
use crate::pattern::{After, Anchor, Begin, Digits, Pattern};
use crate::{BACK_BYTES_MAX, MATCH_BYTES_MAX, WINDOW_BYTES};

/// Last line of a PEM block: its beginning, its end and its maximum length.
const FOOTER_BEGIN: &[u8] = b"-----END ";
const FOOTER_END: &[u8] = b"-----";
const FOOTER_BYTES_MAX: usize = 128;

/// Maximum number of capture groups of a pattern, including group 0.
const GROUPS_MAX: usize = 4;

/// A part of a text with the context that patterns need.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) bytes: &'a [u8],
    /// Offset of the bytes in the text.
    pub(crate) base: u64,
    /// The text ends with these bytes.
    pub(crate) last: bool,
}

#[derive(Debug)]
struct CompiledPattern {
    pattern: &'static Pattern,
    regex: Regex,
    groups: bool,
}

/// A pattern that is tried at an anchor word.
#[derive(Debug)]
struct AnchoredPattern {
    pattern: usize,
    any_case: bool,
}

#[derive(Debug)]
struct AnchorWord {
    text: &'static [u8],
    patterns: Vec<AnchoredPattern>,
}

#[derive(Debug)]
pub(crate) struct Matcher {
    patterns: Vec<CompiledPattern>,
    words: Vec<AnchorWord>,
    /// `None` if no pattern has anchor words.
    finder: Option<AhoCorasick>,
    word_bytes_max: usize,
    digits: Vec<(Digits, usize)>,
}

impl Matcher {
    pub(crate) fn new(patterns: impl Iterator<Item = &'static Pattern>) -> Self {
        let patterns: Vec<CompiledPattern> = patterns.map(compile).collect();
        let mut words: Vec<AnchorWord> = Vec::new();
        let mut digits = Vec::new();
        for (pattern, compiled) in patterns.iter().enumerate() {
            let any_case = match compiled.pattern.anchor {
                Anchor::Words(_) => false,
                Anchor::WordsInAnyCase(_) => true,
                Anchor::Digits(shape) => {
                    digits.push((shape, pattern));
                    continue;
                }
            };
            for text in compiled.pattern.anchor.words() {
                let known = words.iter_mut().find(|word| word.text == text.as_bytes());
                match known {
                    Some(word) => word.patterns.push(AnchoredPattern { pattern, any_case }),
                    None => words.push(AnchorWord {
                        text: text.as_bytes(),
                        patterns: vec![AnchoredPattern { pattern, any_case }],
                    }),
                }
            }
        }
        let finder = (!words.is_empty()).then(|| {
            AhoCorasick::builder()
                .kind(Some(AhoCorasickKind::DFA))
                .match_kind(MatchKind::Standard)
                .ascii_case_insensitive(true)
                .build(words.iter().map(|word| word.text))
                .expect("an automaton of about a hundred short words is within all limits")
        });
        let word_bytes_max = words.iter().map(|word| word.text.len()).max().unwrap_or(0);
        Self { patterns, words, finder, word_bytes_max, digits }
    }

    pub(crate) fn patterns(&self) -> impl Iterator<Item = &'static Pattern> {
        self.patterns.iter().map(|compiled| compiled.pattern)
    }

    pub(crate) fn len(&self) -> usize {
        self.patterns.len()
    }

    /// Scans a complete text, window by window like a stream.
    pub(crate) fn sweep_all(&self, bytes: &[u8], collector: &mut Collector) {
        let view = View { bytes, base: 0, last: true };
        let mut from = 0;
        while from < bytes.len() {
            let to = bytes.len().min(from + WINDOW_BYTES);
            self.sweep(view, from..to, collector);
            from = to;
        }
    }

    /// Tries all anchors in this range. Unless the text ends, more than [`MATCH_BYTES_MAX`] bytes must follow the
    /// range.
    pub(crate) fn sweep(&self, view: View<'_>, anchors: Range<usize>, collector: &mut Collector) {
        debug_assert!(view.last || anchors.end + MATCH_BYTES_MAX < view.bytes.len());
        self.resume(view, collector);
        self.sweep_words(view, anchors.clone(), collector);
        self.sweep_digits(view, anchors, collector);
    }

    /// Extends findings that reached the end of the previous bytes.
    pub(crate) fn resume(&self, view: View<'_>, collector: &mut Collector) {
        for (index, compiled) in self.patterns.iter().enumerate() {
            if let Some(offset) = collector.open_end(index) {
                let (end, open) = extend_match(view, compiled.pattern.after, (offset - view.base) as usize);
                collector.add(index, compiled.pattern, (offset, view.base + end as u64, open));
            }
        }
    }

    fn sweep_words(&self, view: View<'_>, anchors: Range<usize>, collector: &mut Collector) {
        let Some(finder) = &self.finder else { return };
        // A word that starts in the range may end after it.
        let end = view.bytes.len().min(anchors.end + self.word_bytes_max - 1);
        for found in finder.find_overlapping_iter(&view.bytes[anchors.start..end]) {
            let at = anchors.start + found.start();
            if at >= anchors.end {
                continue;
            }
            let word = &self.words[found.pattern().as_usize()];
            let exact = view.bytes[at..].starts_with(word.text);
            for anchored in &word.patterns {
                if exact || anchored.any_case {
                    self.try_pattern(view, anchored.pattern, at, collector);
                }
            }
        }
    }

    fn sweep_digits(&self, view: View<'_>, anchors: Range<usize>, collector: &mut Collector) {
        if self.digits.is_empty() {
            return;
        }
        let bytes = view.bytes;
        let mut at = anchors.start;
        if at > 0 && bytes[at - 1].is_ascii_digit() {
            at = Class::Digit.run_end(bytes, at);
        }
        while let Some(found) = bytes.get(at..anchors.end).and_then(|rest| rest.iter().position(u8::is_ascii_digit)) {
            at += found;
            let end = Class::Digit.run_end(bytes, at);
            if may_be_anchor(bytes, at..end) {
                for &(shape, pattern) in &self.digits {
                    if shape.matches(bytes, at..end) {
                        self.try_pattern(view, pattern, at, collector);
                    }
                }
            }
            at = end;
        }
    }

    fn try_pattern(&self, view: View<'_>, index: usize, anchor: usize, collector: &mut Collector) {
        if collector.covers(index, view.base + anchor as u64) {
            return;
        }
        let CompiledPattern { pattern, .. } = &self.patterns[index];
        if let Some((start, end, open)) = self.patterns[index].find(view, anchor) {
            collector.add(index, pattern, (view.base + start as u64, view.base + end as u64, open));
        }
    }
}

fn compile(pattern: &'static Pattern) -> CompiledPattern {
    let regex = Regex::builder()
        .syntax(syntax::Config::new().unicode(false).utf8(false))
        .build(pattern.regex)
        .expect("the built-in patterns are valid, and tests compile each of them");
    debug_assert!(regex.captures_len() <= GROUPS_MAX);
    CompiledPattern { pattern, groups: regex.captures_len() > 1, regex }
}

impl CompiledPattern {
    /// Matches the pattern at an anchor. Returns start, end, and whether the match continues after the available bytes.
    fn find(&self, view: View<'_>, anchor: usize) -> Option<(usize, usize, bool)> {
        let bytes = view.bytes;
        let start = self.pattern.begin.start(bytes, anchor)?;
        let end = bytes.len().min(anchor + MATCH_BYTES_MAX);
        let input = Input::new(bytes).range(start..end).anchored(Anchored::Yes);
        let (whole, value) = self.search(input)?;
        // The match must include the anchor.
        if whole.end <= anchor {
            return None;
        }
        let next_byte = bytes.get(whole.end).copied();
        if let After::No(class) = self.pattern.after
            && next_byte.is_some_and(|byte| class.contains(byte))
        {
            return None;
        }
        let truncated = whole.end == anchor + MATCH_BYTES_MAX;
        let candidate = Candidate { bytes, whole, value, truncated };
        let found = self.pattern.check.apply(&candidate)?;
        if found.end < candidate.whole.end {
            return Some((found.start, found.end, false));
        }
        let (end, open) = extend_match(view, self.pattern.after, found.end);
        Some((found.start, end, open))
    }

    fn search(&self, input: Input<'_>) -> Option<(Range<usize>, Range<usize>)> {
        if !self.groups {
            let whole = self.regex.search(&input)?.range();
            return Some((whole.clone(), whole));
        }
        // Two slots per group; group 0 is the whole match.
        let mut slots = [None; 2 * GROUPS_MAX];
        self.regex.search_slots(&input, &mut slots)?;
        let group = |group: usize| Some(slots[2 * group]?.get()..slots[2 * group + 1]?.get());
        let whole = group(0)?;
        let value = (1..GROUPS_MAX).find_map(group).unwrap_or(whole.clone());
        Some((whole, value))
    }
}

impl Begin {
    fn start(self, bytes: &[u8], anchor: usize) -> Option<usize> {
        match self {
            Self::Anywhere => Some(anchor),
            Self::Edge(class) => is_run_start(bytes, anchor, class).then_some(anchor),
            Self::Before(count) => anchor.checked_sub(count),
            Self::Run(class, bytes_max) => Some(class.run_start(bytes, anchor, bytes_max.min(BACK_BYTES_MAX))),
        }
    }
}

/// Cheap check whether a run of digits can be an anchor: most are part of a time or a count.
fn may_be_anchor(bytes: &[u8], run: Range<usize>) -> bool {
    let before = run.start.checked_sub(1).map(|at| bytes[at]);
    matches!(run.len(), 3 | 4 | 13..=19) || before.is_some_and(|byte| byte == b'+' || byte.is_ascii_uppercase())
}

impl Digits {
    /// Whether a run of digits and its neighbours have this shape. Cheaper than trying the pattern.
    fn matches(self, bytes: &[u8], run: Range<usize>) -> bool {
        let before = |count: usize| run.start.checked_sub(count).map(|at| bytes[at]);
        let after = |count: usize| bytes.get(run.end + count).copied();
        let digit_after = |count: usize| after(count).is_some_and(|byte| byte.is_ascii_digit());
        match self {
            Self::Card => {
                let grouped = run.len() == 4 && matches!(after(0), Some(b' ' | b'-')) && (1..=4).all(digit_after);
                grouped || (13..=19).contains(&run.len())
            }
            Self::Iban => {
                let letter = |count| before(count).is_some_and(|byte| byte.is_ascii_uppercase());
                run.len() >= 2 && letter(1) && letter(2)
            }
            Self::Phone => before(1) == Some(b'+') && bytes[run.start] != b'0',
            Self::SocialSecurity => run.len() == 3 && after(0) == Some(b'-') && digit_after(1),
        }
    }
}

/// Extends a match that ends at `from`. Returns its end, and whether it continues after the available bytes.
fn extend_match(view: View<'_>, after: After, from: usize) -> (usize, bool) {
    let bytes = view.bytes;
    match after {
        After::Anything | After::No(_) => (from, false),
        After::Run(class) => {
            let end = class.run_end(bytes, from);
            (end, end == bytes.len() && !view.last)
        }
        After::Footer => footer(view, from),
    }
}

fn footer(view: View<'_>, from: usize) -> (usize, bool) {
    let bytes = view.bytes;
    let Some(found) = memmem::find(&bytes[from..], FOOTER_BEGIN) else {
        if view.last {
            return (bytes.len(), false);
        }
        // The last bytes may be the start of the footer.
        return (bytes.len().saturating_sub(FOOTER_BEGIN.len() - 1).max(from), true);
    };
    let line = from + found;
    if !view.last && bytes.len() < line + FOOTER_BYTES_MAX {
        return (line, true);
    }
    let rest_start = line + FOOTER_BEGIN.len();
    let rest = &bytes[rest_start..bytes.len().min(line + FOOTER_BYTES_MAX)];
    let end = memmem::find(rest, FOOTER_END).map_or(rest.len(), |found| found + FOOTER_END.len());
    (rest_start + end, false)
}
