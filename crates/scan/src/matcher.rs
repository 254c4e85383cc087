//! The work itself: finds the places where a pattern could match, and tries it there.

use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use memchr::memmem;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use crate::checks::Candidate;
use crate::class::{Class, begins_here};
use crate::collector::Collector;
use crate::pattern::{After, Anchor, Begin, Digits, Pattern};
use crate::{BACK_BYTES_MAX, MATCH_BYTES_MAX, WINDOW_BYTES};

/// How a PEM block ends: the beginning of its last line, the end of that line, and how far apart they may be.
const FOOTER_BEGIN: &[u8] = b"-----END ";
const FOOTER_END: &[u8] = b"-----";
const FOOTER_BYTES_MAX: usize = 128;

/// How many groups a pattern may have, itself included.
const GROUPS_MAX: usize = 4;

/// A part of a text, with what stands around it as far as patterns look.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where in the text the bytes begin.
    pub(crate) base: u64,
    /// No more bytes follow.
    pub(crate) last: bool,
}

#[derive(Debug)]
struct Compiled {
    pattern: &'static Pattern,
    regex: Regex,
    groups: bool,
}

/// A pattern to be tried where a word stands.
#[derive(Debug)]
struct Use {
    pattern: usize,
    any_case: bool,
}

#[derive(Debug)]
struct Word {
    text: &'static [u8],
    uses: Vec<Use>,
}

#[derive(Debug)]
pub(crate) struct Matcher {
    patterns: Vec<Compiled>,
    words: Vec<Word>,
    /// Nothing where no pattern has words.
    finder: Option<AhoCorasick>,
    word_bytes_max: usize,
    digits: Vec<(Digits, usize)>,
}

impl Matcher {
    pub(crate) fn new(patterns: impl Iterator<Item = &'static Pattern>) -> Self {
        let patterns: Vec<Compiled> = patterns.map(compile).collect();
        let mut words: Vec<Word> = Vec::new();
        let mut digits = Vec::new();
        for (pattern, compiled) in patterns.iter().enumerate() {
            let any_case = match compiled.pattern.anchor {
                Anchor::Words(_) => false,
                Anchor::WordsInAnyCase(_) => true,
                Anchor::Digits(form) => {
                    digits.push((form, pattern));
                    continue;
                }
            };
            for text in compiled.pattern.anchor.words() {
                let known = words.iter_mut().find(|word| word.text == text.as_bytes());
                match known {
                    Some(word) => word.uses.push(Use { pattern, any_case }),
                    None => words.push(Word { text: text.as_bytes(), uses: vec![Use { pattern, any_case }] }),
                }
            }
        }
        let finder = (!words.is_empty()).then(|| {
            AhoCorasick::builder()
                .kind(Some(AhoCorasickKind::DFA))
                .match_kind(MatchKind::Standard)
                .ascii_case_insensitive(true)
                .build(words.iter().map(|word| word.text))
                .expect("a hundred short words make a small automaton, whatever they are")
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

    /// All of a text that is at hand, window by window, as a stream would.
    pub(crate) fn sweep_all(&self, bytes: &[u8], collector: &mut Collector) {
        let view = View { bytes, base: 0, last: true };
        let mut from = 0;
        while from < bytes.len() {
            let to = bytes.len().min(from + WINDOW_BYTES);
            self.sweep(view, from..to, collector);
            from = to;
        }
    }

    /// Finds all that is anchored in this range. Unless they are the last, there must be
    /// [`MATCH_BYTES_MAX`] bytes and one more after the range.
    pub(crate) fn sweep(&self, view: View<'_>, anchors: Range<usize>, collector: &mut Collector) {
        debug_assert!(view.last || anchors.end + MATCH_BYTES_MAX < view.bytes.len());
        self.resume(view, collector);
        self.sweep_words(view, anchors.clone(), collector);
        self.sweep_digits(view, anchors, collector);
    }

    /// Goes on with findings that the end of the bytes has cut off.
    pub(crate) fn resume(&self, view: View<'_>, collector: &mut Collector) {
        for (index, compiled) in self.patterns.iter().enumerate() {
            if let Some(place) = collector.open_at(index) {
                let (end, open) = reach(view, compiled.pattern.after, (place - view.base) as usize);
                collector.add(index, compiled.pattern, (place, view.base + end as u64, open));
            }
        }
    }

    fn sweep_words(&self, view: View<'_>, anchors: Range<usize>, collector: &mut Collector) {
        let Some(finder) = &self.finder else { return };
        // A word that begins in the range may end after it.
        let end = view.bytes.len().min(anchors.end + self.word_bytes_max - 1);
        for found in finder.find_overlapping_iter(&view.bytes[anchors.start..end]) {
            let at = anchors.start + found.start();
            if at >= anchors.end {
                continue;
            }
            let word = &self.words[found.pattern().as_usize()];
            let exact = view.bytes[at..].starts_with(word.text);
            for wanted in &word.uses {
                if exact || wanted.any_case {
                    self.attempt(view, wanted.pattern, at, collector);
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
            if is_telling(bytes, at..end) {
                for &(form, pattern) in &self.digits {
                    if form.fits(bytes, at..end) {
                        self.attempt(view, pattern, at, collector);
                    }
                }
            }
            at = end;
        }
    }

    fn attempt(&self, view: View<'_>, index: usize, anchor: usize, collector: &mut Collector) {
        if collector.covers(index, view.base + anchor as u64) {
            return;
        }
        let Compiled { pattern, .. } = &self.patterns[index];
        if let Some((start, end, open)) = self.patterns[index].find(view, anchor) {
            collector.add(index, pattern, (view.base + start as u64, view.base + end as u64, open));
        }
    }
}

fn compile(pattern: &'static Pattern) -> Compiled {
    let regex = Regex::builder()
        .syntax(syntax::Config::new().unicode(false).utf8(false))
        .build(pattern.regex)
        .expect("the patterns are compiled in, and a test builds each of them");
    debug_assert!(regex.captures_len() <= GROUPS_MAX);
    Compiled { pattern, groups: regex.captures_len() > 1, regex }
}

impl Compiled {
    /// Where the pattern matches at this anchor: start, end, and whether it goes on after the bytes at hand.
    fn find(&self, view: View<'_>, anchor: usize) -> Option<(usize, usize, bool)> {
        let bytes = view.bytes;
        let start = self.pattern.begin.start(bytes, anchor)?;
        let end = bytes.len().min(anchor + MATCH_BYTES_MAX);
        let input = Input::new(bytes).range(start..end).anchored(Anchored::Yes);
        let (whole, value) = self.search(input)?;
        // It must be the anchor that was matched, not something before it.
        if whole.end <= anchor {
            return None;
        }
        let followed = bytes.get(whole.end).copied();
        if let After::No(class) = self.pattern.after
            && followed.is_some_and(|byte| class.contains(byte))
        {
            return None;
        }
        let cut = whole.end == anchor + MATCH_BYTES_MAX;
        let candidate = Candidate { bytes, whole, value, cut };
        let found = self.pattern.check.passes(&candidate)?;
        if found.end < candidate.whole.end {
            return Some((found.start, found.end, false));
        }
        let (end, open) = reach(view, self.pattern.after, found.end);
        Some((found.start, end, open))
    }

    fn search(&self, input: Input<'_>) -> Option<(Range<usize>, Range<usize>)> {
        if !self.groups {
            let whole = self.regex.search(&input)?.range();
            return Some((whole.clone(), whole));
        }
        // Two places for each group, the first group being all of it.
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
            Self::Edge(class) => begins_here(bytes, anchor, class).then_some(anchor),
            Self::Before(count) => anchor.checked_sub(count),
            Self::Run(class, bytes_max) => Some(class.run_start(bytes, anchor, bytes_max.min(BACK_BYTES_MAX))),
        }
    }
}

/// Whether any form could fit: most digits are part of a time or a count.
fn is_telling(bytes: &[u8], run: Range<usize>) -> bool {
    let before = run.start.checked_sub(1).map(|at| bytes[at]);
    matches!(run.len(), 3 | 4 | 13..=19) || before.is_some_and(|byte| byte == b'+' || byte.is_ascii_uppercase())
}

impl Digits {
    /// Cheap to ask, and so asked before a pattern is tried.
    fn fits(self, bytes: &[u8], run: Range<usize>) -> bool {
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

/// Where what begins here and has matched up to `from` ends, and whether it goes on after the bytes at hand.
fn reach(view: View<'_>, after: After, from: usize) -> (usize, bool) {
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
        // The footer may have begun with the last bytes.
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
