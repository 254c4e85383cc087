//! Where a value stands in a definition. Put together on the stack, written out only for a message.

use std::fmt;

#[derive(Clone, Copy)]
pub(crate) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    /// A definition within the definition there.
    Definition(&'a Path<'a>, &'a str),
    /// A task of the definition there.
    Task(&'a Path<'a>, &'a str),
    Element(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    pub fn definition(&'a self, name: &'a str) -> Path<'a> {
        Path::Definition(self, name)
    }

    pub fn task(&'a self, name: &'a str) -> Path<'a> {
        Path::Task(self, name)
    }

    pub fn element(&'a self, at: usize) -> Path<'a> {
        Path::Element(self, at)
    }
}

impl Path<'_> {
    /// Within its task, or within its definition if it is in none.
    pub fn within(&self) -> String {
        let mut text = String::new();
        // A text can always be written to.
        let _ = self.write(&mut text, true);
        text
    }

    fn write(&self, out: &mut dyn fmt::Write, only_within: bool) -> fmt::Result {
        let join = |outer: &Path<'_>, out: &mut dyn fmt::Write| {
            outer.write(out, only_within)?;
            let is_start =
                matches!(outer, Path::Root) || only_within && matches!(outer, Path::Task(..) | Path::Definition(..));
            if is_start { Ok(()) } else { out.write_char('.') }
        };
        match self {
            Self::Root => Ok(()),
            Self::Task(..) | Self::Definition(..) if only_within => Ok(()),
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
                outer.write(out, only_within)?;
                write!(out, "[{at}]")
            }
        }
    }
}

/// A name of any length may stand where a short one was expected.
fn shortened(name: &str, out: &mut dyn fmt::Write) -> fmt::Result {
    const CHARACTERS_MAX: usize = 80;
    match name.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => write!(out, "{}…", &name[..end]),
        None => out.write_str(name),
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, false)
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> Self {
        path.to_string()
    }
}
