//! Glob patterns for files: `*`, `?` and `[…]` within a name, `**` across directories, `{a,b}` for alternatives.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::Error;
use crate::limits::{GLOB_BYTES_MAX, GLOBS_MAX};

/// Validated globs. A glob matches files, not directories: `directory/**` matches everything below a directory.
#[derive(Debug, Clone)]
pub struct Globs {
    set: GlobSet,
}

impl Globs {
    pub fn new(globs: &[String]) -> Result<Self, Error> {
        if globs.len() > GLOBS_MAX {
            return Err(Error::TooMany { what: "globs", limit: GLOBS_MAX });
        }
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            check(glob)?;
            let built = GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build();
            set.add(built.map_err(|error| bad(glob, error.kind().to_string()))?);
        }
        let all = globs.join(" ");
        Ok(Self { set: set.build().map_err(|error| bad(&all, error.kind().to_string()))? })
    }

    pub fn matches(&self, path: &str) -> bool {
        self.set.is_match(path)
    }
}

fn check(glob: &str) -> Result<(), Error> {
    let why = if glob.is_empty() {
        "it is empty"
    } else if glob.len() > GLOB_BYTES_MAX {
        "it is too long"
    } else if glob.starts_with('/') {
        "it is absolute; write it relative to the job's directory"
    } else if glob.ends_with('/') {
        "it names a directory; for everything in it, end it with `/**`"
    } else if glob.split('/').any(|part| matches!(part, "" | "." | "..")) {
        "it has an empty component, a `.` or a `..`"
    } else if glob.contains('\0') {
        "it contains a NUL byte"
    } else {
        return Ok(());
    };
    Err(bad(glob, why))
}

fn bad(glob: &str, why: impl Into<String>) -> Error {
    Error::BadGlob { glob: glob.chars().take(200).collect(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(globs: &[&str]) -> Result<Globs, Error> {
        Globs::new(&globs.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn globs_match_like_those_of_a_shell() {
        let matches = |glob: &str, path: &str| globs(&[glob]).unwrap().matches(path);
        assert!(matches("*.txt", "a.txt") && !matches("*.txt", "a/b.txt"));
        assert!(matches("**/*.txt", "a.txt") && matches("**/*.txt", "a/b/c.txt"));
        assert!(matches("out/**", "out/a/b") && !matches("out/**", "outer/a"));
        assert!(matches("a?c", "abc") && !matches("a?c", "a/c"));
        assert!(matches("[ab].bin", "b.bin") && !matches("[ab].bin", "c.bin"));
        assert!(matches("{x,y}.csv", "y.csv"));
        assert!(!globs(&[]).unwrap().matches("a"));
    }

    #[test]
    fn globs_outside_the_directory_are_refused() {
        for glob in ["", "/etc/*", "../*", "a/../b", "./a", "a//b", "a/", "[", "a\0"] {
            assert!(globs(&[glob]).is_err(), "{glob:?}");
        }
    }

    #[test]
    fn globs_are_accepted_up_to_the_limits() {
        assert!(globs(&vec!["*"; GLOBS_MAX]).is_ok());
        assert!(globs(&vec!["*"; GLOBS_MAX + 1]).is_err());
        assert!(globs(&[&"x".repeat(GLOB_BYTES_MAX)]).is_ok());
        assert!(globs(&[&"x".repeat(GLOB_BYTES_MAX + 1)]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_glob_text_causes_a_panic(text in ".{0,40}", path in ".{0,40}") {
            if let Ok(globs) = Globs::new(&[text]) {
                let _ = globs.matches(&path);
            }
        }
    }
}
