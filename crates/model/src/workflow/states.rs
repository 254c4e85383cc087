//! States of workflows and tasks.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

macro_rules! states {
    ($(#[$head:meta])* $type:ident { $($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)* }) => {
        $(#[$head])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize, Deserialize)]
        #[cbor(index_only)]
        #[serde(rename_all = "snake_case")]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        pub enum $type {
            $($(#[$doc])* #[n($number)] $name,)*
        }

        impl $type {
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Number on disk; `ALL[code]` is the state.
            pub fn code(self) -> u8 {
                match self {
                    $(Self::$name => $number,)*
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = UnknownState;

            fn from_str(text: &str) -> Result<Self, UnknownState> {
                let known = || Self::ALL.map(Self::as_str).join(", ");
                Self::ALL
                    .into_iter()
                    .find(|state| state.as_str() == text)
                    .ok_or_else(|| UnknownState { given: text.to_owned(), known: known() })
            }
        }
    };
}

/// Error of parsing a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a state; the states are {known}")]
pub struct UnknownState {
    given: String,
    known: String,
}

states! {
    /// State of a workflow. Numbers and texts are on disk and in the API: never change one.
    WorkflowState {
        Running = 0, "running";
        /// Started tasks go on; no new tasks start.
        Paused = 1, "paused";
        /// Waits for its live tasks to stop. `after_stop` of the record determines what follows.
        Stopping = 2, "stopping";
        /// Compensates succeeded tasks one at a time, last first.
        RollingBack = 3, "rolling_back";
        Succeeded = 4, "succeeded";
        Failed = 5, "failed";
        Cancelled = 6, "cancelled";
    }
}

impl WorkflowState {
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::Cancelled => true,
            Self::Running | Self::Paused | Self::Stopping | Self::RollingBack => false,
        }
    }
}

states! {
    /// State of a task or item. Numbers and texts are on disk and in the API: never change one.
    TaskState {
        /// Not started.
        Waiting = 0, "waiting";
        /// The job, sub-workflow or items are running.
        Running = 1, "running";
        /// Waiting for the end of a delay.
        Sleeping = 2, "sleeping";
        /// Waiting for a signal.
        Listening = 3, "listening";
        /// Waiting for the result of another task with identical work.
        Merged = 4, "merged";
        Succeeded = 5, "succeeded";
        Failed = 6, "failed";
        /// The condition is false, a switch chose another case, or all dependencies were skipped.
        Skipped = 7, "skipped";
        /// The workflow was stopped or a dependency has failed.
        Cancelled = 8, "cancelled";
        /// Succeeded, but the policy withholds the result.
        Quarantined = 9, "quarantined";
    }
}

impl TaskState {
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::Skipped | Self::Cancelled | Self::Quarantined => true,
            Self::Waiting | Self::Running | Self::Sleeping | Self::Listening | Self::Merged => false,
        }
    }

    /// Started and not ended.
    pub fn is_live(self) -> bool {
        match self {
            Self::Running | Self::Sleeping | Self::Listening | Self::Merged => true,
            Self::Waiting | Self::Succeeded | Self::Failed | Self::Skipped | Self::Cancelled | Self::Quarantined => {
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_numbers_and_json_agree() {
        for (index, state) in WorkflowState::ALL.into_iter().enumerate() {
            assert_eq!(state.as_str().parse(), Ok(state));
            assert_eq!(usize::from(state.code()), index);
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
        }
        for (index, state) in TaskState::ALL.into_iter().enumerate() {
            assert_eq!(state.as_str().parse(), Ok(state));
            assert_eq!(usize::from(state.code()), index);
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
            assert!(!(state.is_live() && state.is_terminal()));
        }
        let unknown = "done".parse::<TaskState>().unwrap_err().to_string();
        assert!(unknown.contains("succeeded"), "{unknown}");
    }
}
