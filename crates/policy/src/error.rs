//! Why a set of rules is not taken. What goes wrong while rules are asked is not an error but a verdict.

use std::io;
use std::path::{Path, PathBuf};

use crate::limits;

/// A set of rules that cannot be loaded. Whatever was loaded before stays.
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
        "`{}` has more than {} entries: keep the rules in a directory of their own",
        directory.display(),
        limits::DIRECTORY_ENTRIES_MAX
    )]
    TooManyEntries { directory: PathBuf },

    #[error(
        "`{}` lies deeper than {} directories: is there a link that leads back? Bring the rules closer to the top",
        path.display(),
        limits::DIRECTORY_DEPTH_MAX
    )]
    TooDeep { path: PathBuf },

    #[error("`{file}` is larger than {} bytes: split it", limits::FILE_BYTES_MAX)]
    FileTooLarge { file: String },

    #[error("all files together are larger than {} bytes: remove what is not needed", limits::SET_BYTES_MAX)]
    SetTooLarge,

    #[error("`{file}` is not UTF-8 at byte {byte}: save it as UTF-8")]
    NotText { file: String, byte: usize },

    #[error("the name `{}` is not UTF-8: rename the file", path.display())]
    BadName { path: PathBuf },

    /// Something in a file is not as it must be.
    #[error("{file}:{line}:{column}: {message}")]
    At { file: String, line: usize, column: usize, message: String },

    /// Something in a file, or between files, without a place that could be named.
    #[error("{file}: {message}")]
    In { file: String, message: String },
}

impl LoadError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// From the parser's text, which names the place in a line `--> file:line:column` and ends with what is wrong.
    pub(crate) fn from_parser(file: &str, error: &anyhow::Error) -> Self {
        let text = error.to_string();
        let place = text.lines().find_map(|line| {
            let mut parts = line.strip_prefix("--> ")?.rsplitn(3, ':');
            let column = parts.next()?.parse().ok()?;
            Some((parts.next()?.parse().ok()?, column, parts.next()?.to_owned()))
        });
        let said = text.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or_else(|| text.trim());
        match place {
            Some((line, column, file)) => Self::At { file, line, column, message: said.to_owned() },
            None => Self::In { file: file.to_owned(), message: said.to_owned() },
        }
    }
}
