//! Path of a value in a definition. Built on the stack, formatted only for messages.

use std::fmt;

#[derive(Clone, Copy)]
pub(crate) enum FieldPath<'a> {
    Root,
    Field(&'a FieldPath<'a>, &'a str),
    /// A nested definition.
    Definition(&'a FieldPath<'a>, &'a str),
    /// A task of the definition.
    Task(&'a FieldPath<'a>, &'a str),
    Element(&'a FieldPath<'a>, usize),
}

impl<'a> FieldPath<'a> {
    pub fn field(&'a self, name: &'a str) -> FieldPath<'a> {
        FieldPath::Field(self, name)
    }

    pub fn definition(&'a self, name: &'a str) -> FieldPath<'a> {
        FieldPath::Definition(self, name)
    }

    pub fn task(&'a self, name: &'a str) -> FieldPath<'a> {
        FieldPath::Task(self, name)
    }

    pub fn element(&'a self, at: usize) -> FieldPath<'a> {
        FieldPath::Element(self, at)
    }
}

impl FieldPath<'_> {
    /// Path relative to its task, or to its definition outside of tasks.
    pub fn within_task(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = self.write(&mut text, true);
        text
    }

    fn write(&self, out: &mut dyn fmt::Write, only_within_task: bool) -> fmt::Result {
        let join = |outer: &FieldPath<'_>, out: &mut dyn fmt::Write| {
            outer.write(out, only_within_task)?;
            let is_start = matches!(outer, FieldPath::Root)
                || only_within_task && matches!(outer, FieldPath::Task(..) | FieldPath::Definition(..));
            if is_start { Ok(()) } else { out.write_char('.') }
        };
        match self {
            Self::Root => Ok(()),
            Self::Task(..) | Self::Definition(..) if only_within_task => Ok(()),
            Self::Field(outer, name) => {
                join(outer, out)?;
                shortened(name, out)
            }
            Self::Definition(outer, name) => {
                join(outer, out)?;
                out.write_str("workflows.")?;
                shortened(name, out)
            }
            Self::Task(outer, name) => {
                join(outer, out)?;
                out.write_str("tasks.")?;
                shortened(name, out)
            }
            Self::Element(outer, at) => {
                outer.write(out, only_within_task)?;
                write!(out, "[{at}]")
            }
        }
    }
}

/// Truncated, because invalid names can have any length.
fn shortened(name: &str, out: &mut dyn fmt::Write) -> fmt::Result {
    const CHARACTERS_MAX: usize = 80;
    match name.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => write!(out, "{}…", &name[..end]),
        None => out.write_str(name),
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, false)
    }
}

impl From<FieldPath<'_>> for String {
    fn from(path: FieldPath<'_>) -> Self {
        path.to_string()
    }
}
