//! Diagnostics of a definition, with position, message and suggestion.

mod similar;

use std::fmt;

use crate::limits;

pub(crate) use similar::closest;

/// One problem of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable code of the problem, see [`code`].
    pub code: &'static str,
    /// Path of the field, such as `tasks.build.needs[1]`. Empty for the definition as a whole.
    pub field: String,
    pub message: String,
    /// From 1, if known.
    pub line: Option<u32>,
    /// In characters, from 1.
    pub column: Option<u32>,
    /// Suggested correction.
    pub suggestion: Option<String>,
}

/// Codes of diagnostics.
pub mod code {
    /// The text is not valid YAML or JSON.
    pub const SYNTAX: &str = "syntax";
    pub const TOO_LARGE: &str = "too_large";
    pub const UNKNOWN_FIELD: &str = "unknown_field";
    pub const MISSING_FIELD: &str = "missing_field";
    pub const WRONG_TYPE: &str = "wrong_type";
    /// The type is right, but the value is not allowed.
    pub const INVALID_VALUE: &str = "invalid_value";
    pub const INVALID_NAME: &str = "invalid_name";
    pub const DUPLICATE_NAME: &str = "duplicate_name";
    /// Two fields exclude each other.
    pub const CONFLICT: &str = "conflict";
    pub const INVALID_TEMPLATE: &str = "invalid_template";
    pub const UNKNOWN_TASK: &str = "unknown_task";
    pub const UNKNOWN_INPUT: &str = "unknown_input";
    pub const UNKNOWN_WORKFLOW: &str = "unknown_workflow";
    pub const UNKNOWN_EPOCH: &str = "unknown_epoch";
    pub const CYCLE: &str = "cycle";
    /// A task needs a task of a later epoch.
    pub const EPOCH_ORDER: &str = "epoch_order";
    /// A definition would start itself.
    pub const RECURSION: &str = "recursion";
    /// Unknown version of the language.
    pub const UNKNOWN_VERSION: &str = "unknown_version";
}

/// All problems of a definition, in the order of the text. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics(
    /// At most [`limits::DIAGNOSTICS_MAX`].
    pub Vec<Diagnostic>,
    usize,
);

impl Diagnostics {
    /// Number of problems beyond the listed ones.
    pub fn more(&self) -> usize {
        self.1
    }

    /// One or more lines for each problem; `file` precedes each position.
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

/// Without its position.
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

/// Line and column in the text of a definition, from 1. Line 0 means unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Position {
    pub line: u32,
    pub column: u32,
}

/// Collects problems during compilation.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    list: Vec<(Position, Diagnostic)>,
    more: usize,
}

impl Problems {
    pub fn add(
        &mut self,
        position: Position,
        code: &'static str,
        field: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.push_diagnostic(position, code, field.into(), message.into(), None);
    }

    pub fn add_with_suggestion(
        &mut self,
        position: Position,
        code: &'static str,
        field: impl Into<String>,
        message: impl Into<String>,
        suggestion: Option<String>,
    ) {
        self.push_diagnostic(position, code, field.into(), message.into(), suggestion);
    }

    fn push_diagnostic(
        &mut self,
        position: Position,
        code: &'static str,
        field: String,
        message: String,
        suggestion: Option<String>,
    ) {
        // Many more than are listed, because only sorting at the end shows which come first in the text.
        if self.list.len() >= 50 * limits::DIAGNOSTICS_MAX {
            self.more += 1;
            return;
        }
        let known = position.line > 0;
        let (line, column) = (known.then_some(position.line), known.then_some(position.column));
        self.list.push((position, Diagnostic { code, field, message, line, column, suggestion }));
    }

    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }

    /// Whether there are so many problems that suggestions for more are not worth their cost.
    pub fn skip_suggestions(&self) -> bool {
        self.list.len() > 5 * limits::DIAGNOSTICS_MAX
    }

    /// Fails if there are any problems.
    pub fn finish(self) -> Result<(), Diagnostics> {
        if self.list.is_empty() { Ok(()) } else { Err(self.into_diagnostics()) }
    }

    /// For a caller that has added at least one problem.
    pub fn into_diagnostics(mut self) -> Diagnostics {
        self.list.sort_by_key(|(position, _)| *position);
        let more = self.more + self.list.len().saturating_sub(limits::DIAGNOSTICS_MAX);
        self.list.truncate(limits::DIAGNOSTICS_MAX);
        Diagnostics(self.list.into_iter().map(|(_, diagnostic)| diagnostic).collect(), more)
    }
}
