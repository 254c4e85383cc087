//! What a pattern is made of.

use crate::checks::Check;
use crate::class::Class;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Whoever has it can do something: keys, tokens, passwords.
    Secret,
    /// It is about a person: addresses, numbers of cards and accounts.
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

/// One kind of thing to look for.
///
/// A pattern is tried only where its anchor stands, and sees only [`BACK_BYTES_MAX`](crate::BACK_BYTES_MAX) before and
/// [`MATCH_BYTES_MAX`](crate::MATCH_BYTES_MAX) after it. So what it says about a place depends on nothing far away, and
/// a text may come in pieces.
#[derive(Debug)]
pub struct Pattern {
    pub name: &'static str,
    pub kind: Kind,
    /// For people: what it is.
    pub about: &'static str,
    pub(crate) anchor: Anchor,
    /// Where the match begins, seen from the anchor.
    pub(crate) begin: Begin,
    /// Bytes, not characters: `\s`, `\d` and `\b` mean ASCII. The first group that took part is the finding, or all of
    /// it where there is no group.
    pub(crate) regex: &'static str,
    pub(crate) after: After,
    pub(crate) check: Check,
    /// In pieces, so that no line of this source looks like a secret to others who look for them.
    pub(crate) example: &'static [&'static str],
    pub(crate) counter_example: &'static [&'static str],
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    /// Any of these words, written exactly so.
    Words(&'static [&'static str]),
    /// Any of these words, in capitals or not.
    WordsInAnyCase(&'static [&'static str]),
    /// Where a run of digits begins, if it looks like this.
    Digits(Digits),
}

/// What a run of digits and its neighbours must look like for a pattern to be tried there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Digits {
    Card,
    Iban,
    Phone,
    SocialSecurity,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Begin {
    /// With the anchor, whatever stands before it.
    Anywhere,
    /// With the anchor, which must not be in the middle of a run of this class.
    Edge(Class),
    /// So many bytes before the anchor.
    Before(usize),
    /// With the run of this class that ends at the anchor, at most so many bytes long.
    Run(Class, usize),
}

/// What follows a match.
#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    /// Anything.
    Anything,
    /// No byte of this class: the match would be a part of something longer.
    No(Class),
    /// As many bytes of this class as there are: they belong to it, however long it gets.
    Run(Class),
    /// All up to the footer of a PEM block, or to the end.
    Footer,
}

impl Pattern {
    /// Something made up that is found.
    pub fn example(&self) -> String {
        self.example.concat()
    }

    /// Something similar that is not.
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
