//! Everything that is wrong with the definition in a file.

use std::fmt;

use serde::Serialize;
use workflow::{Diagnostic, Diagnostics};

use super::Located;
use crate::paint::tame;

/// A definition that cannot be used, and why. Never without a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    pub file: String,
    pub diagnostics: Vec<Shown>,
    /// How many problems there are beyond those that are told.
    pub more: usize,
}

/// One problem, as programs get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    pub code: String,
    pub file: String,
    pub field: String,
    pub message: String,
    pub line: Option<u32>,
    pub column: Option<u32>,
    pub suggestion: Option<String>,
}

impl Invalid {
    /// What the compiler found in a text as it stands in the file.
    pub fn new(file: &str, found: &Diagnostics) -> Self {
        let diagnostics = found.0.iter().map(|diagnostic| Shown::new(file, diagnostic)).collect();
        Self { file: file.to_owned(), diagnostics, more: found.more() }
    }

    /// What the compiler found in a definition that was made of `document`: the places are looked up there, below `at`.
    pub fn within(file: &str, found: &Diagnostics, document: &Located, at: &str) -> Self {
        let show = |diagnostic: &Diagnostic| {
            let shown = Shown::new(file, diagnostic);
            let field = match (at, shown.field.as_str()) {
                ("", field) => field.to_owned(),
                (at, "") => at.to_owned(),
                (at, field) => format!("{at}.{field}"),
            };
            let place = document.place_of(&shown.field);
            Shown { field, line: place.map(|(line, _)| line), column: place.map(|(_, column)| column), ..shown }
        };
        Self { file: file.to_owned(), diagnostics: found.0.iter().map(show).collect(), more: found.more() }
    }

    /// A single problem at a place.
    pub fn one(file: &str, code: &str, field: &str, message: String, place: Option<(u32, u32)>) -> Self {
        let shown = Shown {
            code: code.to_owned(),
            file: file.to_owned(),
            field: field.to_owned(),
            message,
            line: place.map(|(line, _)| line),
            column: place.map(|(_, column)| column),
            suggestion: None,
        };
        Self { file: file.to_owned(), diagnostics: vec![shown], more: 0 }
    }

    /// A text that cannot be read at all.
    pub fn syntax(file: &str, message: &str, place: Option<(u32, u32)>) -> Self {
        Self::one(file, "syntax", "", format!("this is not YAML: {message}"), place)
    }
}

impl Shown {
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

impl fmt::Display for Invalid {
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

/// `file:line:column: field: message`, as editors and terminals make it a link, and below it what helps.
impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, "{number}:")?;
        }
        if !self.field.is_empty() {
            write!(f, " {}:", tame(&self.field))?;
        }
        for (at, line) in self.message.lines().enumerate() {
            let before = if at == 0 { " " } else { "\n  " };
            write!(f, "{before}{}", tame(line))?;
        }
        if let Some(suggestion) = &self.suggestion {
            write!(f, "\n  help: {}", tame(suggestion))?;
        }
        Ok(())
    }
}
