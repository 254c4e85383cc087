//! What happens to jobs while nobody can say whether they are allowed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The environment variable that wins over the configuration file.
pub const FAIL_MODE_VARIABLE: &str = "OUTLAST_POLICY_FAIL_MODE";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailMode {
    /// They wait until the policy can be asked again.
    #[default]
    Closed,
    /// They are allowed, with a warning.
    Open,
}

/// Neither of the two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no fail mode. Write `closed` (jobs wait for the policy) or `open` (jobs are allowed without it)")]
pub struct NoFailMode(String);

impl FailMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
        }
    }

    /// The environment wins over the file; without either, it is [`FailMode::Closed`]. An empty variable is none. One
    /// that cannot be understood is an error: to guess could mean to let everything through.
    pub fn resolve(environment: Option<&str>, file: Option<Self>) -> Result<Self, NoFailMode> {
        match environment {
            Some(text) if !text.is_empty() => text.parse(),
            Some(_) | None => Ok(file.unwrap_or_default()),
        }
    }
}

impl FromStr for FailMode {
    type Err = NoFailMode;

    fn from_str(text: &str) -> Result<Self, NoFailMode> {
        match text {
            "closed" => Ok(Self::Closed),
            "open" => Ok(Self::Open),
            other => Err(NoFailMode(other.chars().take(64).collect())),
        }
    }
}

impl fmt::Display for FailMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FEATURES: D9
    #[test]
    fn the_environment_wins_over_the_file_and_closed_is_the_default() {
        for (environment, file, expected) in [
            (None, None, FailMode::Closed),
            (Some(""), None, FailMode::Closed),
            (None, Some(FailMode::Open), FailMode::Open),
            (Some(""), Some(FailMode::Open), FailMode::Open),
            (Some("closed"), Some(FailMode::Open), FailMode::Closed),
            (Some("open"), Some(FailMode::Closed), FailMode::Open),
            (Some("open"), None, FailMode::Open),
        ] {
            assert_eq!(FailMode::resolve(environment, file), Ok(expected), "{environment:?} {file:?}");
        }
    }

    #[test]
    fn a_word_that_is_neither_is_refused_and_named() {
        for word in ["OPEN", " open", "yes", "fail-open"] {
            let error = FailMode::resolve(Some(word), Some(FailMode::Closed)).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn its_text_is_what_it_is_read_from() {
        for mode in [FailMode::Closed, FailMode::Open] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{mode}\""));
        }
    }
}
