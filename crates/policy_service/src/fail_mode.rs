//! Fail mode: what happens to jobs while the policy is unavailable.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Environment variable; overrides the configuration file.
pub const FAIL_MODE_VARIABLE: &str = "OUTLAST_POLICY_FAIL_MODE";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailMode {
    /// Jobs wait until the policy is available again.
    #[default]
    Closed,
    /// Jobs are allowed, with a warning.
    Open,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a fail mode. Write `closed` (jobs wait for the policy) or `open` (jobs are allowed without it)")]
pub struct InvalidFailMode(String);

impl FailMode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
        }
    }

    /// The environment overrides the file; the default is [`FailMode::Closed`]. An empty variable counts as unset. An
    /// invalid one is an error: guessing could allow everything.
    pub fn resolve(environment: Option<&str>, file: Option<Self>) -> Result<Self, InvalidFailMode> {
        match environment {
            Some(text) if !text.is_empty() => text.parse(),
            Some(_) | None => Ok(file.unwrap_or_default()),
        }
    }
}

impl FromStr for FailMode {
    type Err = InvalidFailMode;

    fn from_str(text: &str) -> Result<Self, InvalidFailMode> {
        match text {
            "closed" => Ok(Self::Closed),
            "open" => Ok(Self::Open),
            other => Err(InvalidFailMode(other.chars().take(64).collect())),
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
    fn the_environment_overrides_the_file_and_closed_is_the_default() {
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
    fn an_unknown_mode_is_rejected_and_named() {
        for text in ["OPEN", " open", "yes", "fail-open"] {
            let error = FailMode::resolve(Some(text), Some(FailMode::Closed)).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn text_and_json_forms_round_trip() {
        for mode in [FailMode::Closed, FailMode::Open] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{mode}\""));
        }
    }
}
