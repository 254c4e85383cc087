//! What is wrong with a definition: where, why, and what to do about it.

mod similar;

use std::fmt;

use crate::limits;

pub(crate) use similar::closest;

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The kind of problem: a word that stays the same when messages change.
    pub code: &'static str,
    /// Where it is, as a path: `tasks.build.needs[1]`. Empty for the definition as a whole.
    pub field: String,
    pub message: String,
    /// From 1, where the text tells.
    pub line: Option<u32>,
    /// In characters, from 1.
    pub column: Option<u32>,
    /// What to write instead.
    pub suggestion: Option<String>,
}

/// The words for kinds of problems.
pub mod code {
    /// The text is no YAML or no JSON.
    pub const SYNTAX: &str = "syntax";
    pub const TOO_LARGE: &str = "too_large";
    pub const UNKNOWN_FIELD: &str = "unknown_field";
    pub const MISSING_FIELD: &str = "missing_field";
    pub const WRONG_TYPE: &str = "wrong_type";
    /// Of the right type, but not one of the values that are possible there.
    pub const INVALID_VALUE: &str = "invalid_value";
    pub const INVALID_NAME: &str = "invalid_name";
    pub const DUPLICATE_NAME: &str = "duplicate_name";
    /// Two fields that exclude each other.
    pub const CONFLICT: &str = "conflict";
    pub const INVALID_TEMPLATE: &str = "invalid_template";
    pub const UNKNOWN_TASK: &str = "unknown_task";
    pub const UNKNOWN_INPUT: &str = "unknown_input";
    pub const UNKNOWN_WORKFLOW: &str = "unknown_workflow";
    pub const UNKNOWN_EPOCH: &str = "unknown_epoch";
    pub const CYCLE: &str = "cycle";
    /// A task needs one of a later epoch.
    pub const EPOCH_ORDER: &str = "epoch_order";
    /// A definition that would start itself.
    pub const RECURSION: &str = "recursion";
    /// A version of the language that is not known here.
    pub const UNKNOWN_VERSION: &str = "unknown_version";
}

/// Everything that is wrong, in the order of the text. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics(
    /// At most [`limits::DIAGNOSTICS_MAX`].
    pub Vec<Diagnostic>,
    usize,
);

impl Diagnostics {
    /// How many there are beyond those that are told.
    pub fn more(&self) -> usize {
        self.1
    }

    /// As lines for a person; `file` stands before each place.
    pub fn display<'a>(&'a self, file: Option<&'a str>) -> impl fmt::Display + 'a {
        Displayed { diagnostics: self, file }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.display(None).fmt(f)
    }
}

impl std::error::Error for Diagnostics {}

struct Displayed<'a> {
    diagnostics: &'a Diagnostics,
    file: Option<&'a str>,
}

impl fmt::Display for Displayed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, diagnostic) in self.diagnostics.0.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            if let Some(file) = self.file {
                write!(f, "{file}:")?;
            }
            if let Some(line) = diagnostic.line {
                write!(f, "{line}:")?;
            }
            if let Some(column) = diagnostic.column {
                write!(f, "{column}:")?;
            }
            if self.file.is_some() || diagnostic.line.is_some() {
                write!(f, " ")?;
            }
            write!(f, "{diagnostic}")?;
        }
        match self.diagnostics.1 {
            0 => Ok(()),
            1 => write!(f, "\nand one more problem"),
            more => write!(f, "\nand {more} more problems"),
        }
    }
}

/// Without its place in the text.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "{}", self.message)?;
        if let Some(suggestion) = &self.suggestion {
            write!(f, "\n  help: {suggestion}")?;
        }
        Ok(())
    }
}

/// A place in the text of a definition. Line 0: not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Place {
    pub line: u32,
    pub column: u32,
}

/// Gathers problems while a definition is read.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    list: Vec<(Place, Diagnostic)>,
    more: usize,
}

impl Problems {
    pub fn add(&mut self, place: Place, code: &'static str, field: impl Into<String>, message: impl Into<String>) {
        self.put(place, code, field.into(), message.into(), None);
    }

    pub fn advise(
        &mut self,
        place: Place,
        code: &'static str,
        field: impl Into<String>,
        message: impl Into<String>,
        suggestion: Option<String>,
    ) {
        self.put(place, code, field.into(), message.into(), suggestion);
    }

    fn put(&mut self, place: Place, code: &'static str, field: String, message: String, suggestion: Option<String>) {
        // Kept generously and cut at the end, so that the first ones in the text are those that are told.
        if self.list.len() >= 50 * limits::DIAGNOSTICS_MAX {
            self.more += 1;
            return;
        }
        let known = place.line > 0;
        let (line, column) = (known.then_some(place.line), known.then_some(place.column));
        self.list.push((place, Diagnostic { code, field, message, line, column, suggestion }));
    }

    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }

    /// Whether so much is wrong already that it is not worth the time to look for what was meant.
    pub fn are_many(&self) -> bool {
        self.list.len() > 5 * limits::DIAGNOSTICS_MAX
    }

    /// All of them, if there are any.
    pub fn finish(self) -> Result<(), Diagnostics> {
        if self.list.is_empty() { Ok(()) } else { Err(self.into_diagnostics()) }
    }

    /// All of them, where it is known that there are some.
    pub fn into_diagnostics(mut self) -> Diagnostics {
        self.list.sort_by_key(|(place, _)| *place);
        let more = self.more + self.list.len().saturating_sub(limits::DIAGNOSTICS_MAX);
        self.list.truncate(limits::DIAGNOSTICS_MAX);
        Diagnostics(self.list.into_iter().map(|(_, diagnostic)| diagnostic).collect(), more)
    }
}
