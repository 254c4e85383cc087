//! Definition of a pattern.

use crate::checks::Check;
use crate::class::Class;

/// Category of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Credentials: keys, tokens, passwords.
    Secret,
    /// Personal data: addresses, card and account numbers.
    Personal,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Personal => "personal",
        }
    }
}

/// A pattern of secrets or personal data.
///
/// A pattern is tried only at its anchor, and matches only [`BACK_BYTES_MAX`](crate::BACK_BYTES_MAX) bytes before and
/// [`MATCH_BYTES_MAX`](crate::MATCH_BYTES_MAX) bytes after it. This locality makes streaming possible.
#[derive(Debug)]
pub struct Pattern {
    pub name: &'static str,
    pub kind: Kind,
    /// Human-readable description.
    pub description: &'static str,
    pub(crate) anchor: Anchor,
    /// Start of the match relative to the anchor.
    pub(crate) begin: Begin,
    /// Matches bytes, not characters: `\s`, `\d` and `\b` are ASCII. The finding is the first group that participated,
    /// or the whole match.
    pub(crate) regex: &'static str,
    pub(crate) after: After,
    pub(crate) check: Check,
    /// In pieces, so that other secret scanners do not report this source file.
    pub(crate) example: &'static [&'static str],
    pub(crate) counter_example: &'static [&'static str],
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    /// Any of these words, case-sensitive.
    Words(&'static [&'static str]),
    /// Any of these words, case-insensitive.
    WordsInAnyCase(&'static [&'static str]),
    /// The start of a run of digits of this shape.
    Digits(Digits),
}

/// Shape of a run of digits and its neighbours.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Digits {
    Card,
    Iban,
    Phone,
    SocialSecurity,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Begin {
    /// At the anchor, after any byte.
    Anywhere,
    /// At the anchor, which must not be inside a run of this class.
    Edge(Class),
    /// This many bytes before the anchor.
    Before(usize),
    /// At the start of the run of this class that ends at the anchor, at most this many bytes before it.
    Run(Class, usize),
}

/// Condition on the bytes after a match, or their inclusion.
#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    /// No condition.
    Anything,
    /// No byte of this class: otherwise the match is a part of a longer value.
    No(Class),
    /// The following run of this class belongs to the finding, at any length.
    Run(Class),
    /// The finding extends to the footer of a PEM block, or to the end of the text.
    Footer,
}

impl Pattern {
    /// An invented text that matches.
    pub fn example(&self) -> String {
        self.example.concat()
    }

    /// A similar text that does not match.
    pub fn counter_example(&self) -> String {
        self.counter_example.concat()
    }
}

impl Anchor {
    pub(crate) fn words(&self) -> &'static [&'static str] {
        match self {
            Self::Words(words) | Self::WordsInAnyCase(words) => words,
            Self::Digits(_) => &[],
        }
    }
}
