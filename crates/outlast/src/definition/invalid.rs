//! Diagnostics of a definition file.

use std::fmt;

use serde::Serialize;
use workflow::{Diagnostic, Diagnostics};

use super::Located;
use crate::paint::sanitize;

/// An invalid definition with at least one diagnostic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct InvalidDefinition {
    pub file: String,
    pub diagnostics: Vec<FileDiagnostic>,
    /// Number of problems beyond `diagnostics`.
    pub more: usize,
}

/// One problem; also the JSON output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileDiagnostic {
    pub code: String,
    pub file: String,
    pub field: String,
    pub message: String,
    pub line: Option<u32>,
    pub column: Option<u32>,
    pub suggestion: Option<String>,
}

impl InvalidDefinition {
    /// Diagnostics of an unmodified file.
    pub fn new(file: &str, found: &Diagnostics) -> Self {
        let diagnostics = found.0.iter().map(|diagnostic| FileDiagnostic::new(file, diagnostic)).collect();
        Self { file: file.to_owned(), diagnostics, more: found.more() }
    }

    /// Diagnostics of a definition derived from `document`. Positions are looked up there, fields are relative to `at`.
    pub fn within(file: &str, found: &Diagnostics, document: &Located, at: &str) -> Self {
        let show = |diagnostic: &Diagnostic| {
            let shown = FileDiagnostic::new(file, diagnostic);
            let field = match (at, shown.field.as_str()) {
                ("", field) => field.to_owned(),
                (at, "") => at.to_owned(),
                (at, field) => format!("{at}.{field}"),
            };
            let position = document.position_of(&shown.field);
            FileDiagnostic {
                field,
                line: position.map(|(line, _)| line),
                column: position.map(|(_, column)| column),
                ..shown
            }
        };
        Self { file: file.to_owned(), diagnostics: found.0.iter().map(show).collect(), more: found.more() }
    }

    /// A single problem at a position.
    pub fn one(file: &str, code: &str, field: &str, message: String, position: Option<(u32, u32)>) -> Self {
        let shown = FileDiagnostic {
            code: code.to_owned(),
            file: file.to_owned(),
            field: field.to_owned(),
            message,
            line: position.map(|(line, _)| line),
            column: position.map(|(_, column)| column),
            suggestion: None,
        };
        Self { file: file.to_owned(), diagnostics: vec![shown], more: 0 }
    }

    /// A syntax error.
    pub fn syntax(file: &str, message: &str, position: Option<(u32, u32)>) -> Self {
        Self::one(file, "syntax", "", format!("invalid YAML: {message}"), position)
    }
}

impl FileDiagnostic {
    fn new(file: &str, diagnostic: &Diagnostic) -> Self {
        Self {
            code: diagnostic.code.to_owned(),
            file: file.to_owned(),
            field: diagnostic.field.clone(),
            message: diagnostic.message.clone(),
            line: diagnostic.line,
            column: diagnostic.column,
            suggestion: diagnostic.suggestion.clone(),
        }
    }
}

impl fmt::Display for InvalidDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.diagnostics.len() + self.more;
        write!(
            f,
            "{} has {}",
            self.file,
            if count == 1 { "a problem".to_owned() } else { format!("{count} problems") }
        )?;
        for shown in &self.diagnostics {
            write!(f, "\n{shown}")?;
        }
        match self.more {
            0 => Ok(()),
            1 => write!(f, "\nand one more problem"),
            more => write!(f, "\nand {more} more problems"),
        }
    }
}

/// `file:line:column: field: message`, which editors and terminals turn into a link, followed by the suggestion.
impl fmt::Display for FileDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, "{number}:")?;
        }
        if !self.field.is_empty() {
            write!(f, " {}:", sanitize(&self.field))?;
        }
        for (index, line) in self.message.lines().enumerate() {
            let separator = if index == 0 { " " } else { "\n  " };
            write!(f, "{separator}{}", sanitize(line))?;
        }
        if let Some(suggestion) = &self.suggestion {
            write!(f, "\n  help: {}", sanitize(suggestion))?;
        }
        Ok(())
    }
}
