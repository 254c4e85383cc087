//! Errors of loading rules. An error of an evaluation is not an error but a denial.

use std::io;
use std::path::{Path, PathBuf};

use crate::limits;

/// Invalid set of rules. A set that was loaded before stays in force.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    #[error("`{}` contains no rules: put at least one `.rego` file there", directory.display())]
    Empty { directory: PathBuf },

    #[error("`{}` has more than {} files: merge some of them", directory.display(), limits::FILES_MAX)]
    TooManyFiles { directory: PathBuf },

    #[error(
        "`{}` has more than {} entries: move the rules into a directory of their own",
        directory.display(),
        limits::DIRECTORY_ENTRIES_MAX
    )]
    TooManyEntries { directory: PathBuf },

    #[error(
        "`{}` is nested deeper than {} directories: check for cyclic links, or move the rules up",
        path.display(),
        limits::DIRECTORY_DEPTH_MAX
    )]
    TooDeep { path: PathBuf },

    #[error("`{file}` is larger than {} bytes: split it", limits::FILE_BYTES_MAX)]
    FileTooLarge { file: String },

    #[error("all files together are larger than {} bytes: remove unused files", limits::SET_BYTES_MAX)]
    SetTooLarge,

    #[error("`{file}` is not UTF-8 at byte {byte}: save it as UTF-8")]
    NotText { file: String, byte: usize },

    #[error("the name `{}` is not UTF-8: rename the file", path.display())]
    BadName { path: PathBuf },

    /// Error at a position in a file.
    #[error("{file}:{line}:{column}: {message}")]
    At { file: String, line: usize, column: usize, message: String },

    /// Error in a file, or between files, without a position.
    #[error("{file}: {message}")]
    In { file: String, message: String },
}

impl LoadError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// From the text of a parser error: a line `--> file:line:column` and a line `error: message`.
    pub(crate) fn from_parser(file: &str, error: &anyhow::Error) -> Self {
        let text = error.to_string();
        let position = text.lines().find_map(|line| {
            let mut parts = line.strip_prefix("--> ")?.rsplitn(3, ':');
            let column = parts.next()?.parse().ok()?;
            Some((parts.next()?.parse().ok()?, column, parts.next()?.to_owned()))
        });
        let message = text.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or_else(|| text.trim());
        match position {
            Some((line, column, file)) => Self::At { file, line, column, message: message.to_owned() },
            None => Self::In { file: file.to_owned(), message: message.to_owned() },
        }
    }
}
