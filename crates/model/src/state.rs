//! The states of a job.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Where a job is in its life. Numbers and texts are on disk and in the API: never change one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize, Deserialize)]
        #[cbor(index_only)]
        #[serde(rename_all = "snake_case")]
        pub enum State {
            $($(#[$doc])* #[n($number)] $name,)*
        }

        impl State {
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The number on disk.
            pub fn code(self) -> u8 {
                match self {
                    $(Self::$name => $number,)*
                }
            }
        }
    };
}

states! {
    /// Accepted, waiting for the policy's verdict.
    Pending = 0, "pending";
    /// Waiting for its time or for other jobs.
    Blocked = 1, "blocked";
    /// The policy wants a person's word first.
    ApprovalRequired = 2, "approval_required";
    /// Allowed, waiting for a runner.
    Scheduled = 3, "scheduled";
    /// Given to a runner that has not yet said that it started.
    Dispatched = 4, "dispatched";
    Running = 5, "running";
    /// Asked to stop; its runner has not confirmed yet.
    Cancelling = 6, "cancelling";
    /// It succeeded, and its result is held until the policy has seen it.
    Scanning = 7, "scanning";
    Succeeded = 8, "succeeded";
    Failed = 9, "failed";
    TimedOut = 10, "timed_out";
    Cancelled = 11, "cancelled";
    /// Refused by the policy or by an approver.
    Denied = 12, "denied";
    /// Its result was taken out of circulation by the policy.
    Quarantined = 13, "quarantined";
    /// Given up together with the node it was on.
    Abandoned = 14, "abandoned";
}

impl State {
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Succeeded
            | Self::Failed
            | Self::TimedOut
            | Self::Cancelled
            | Self::Denied
            | Self::Quarantined
            | Self::Abandoned => true,
            Self::Pending
            | Self::Blocked
            | Self::ApprovalRequired
            | Self::Scheduled
            | Self::Dispatched
            | Self::Running
            | Self::Cancelling
            | Self::Scanning => false,
        }
    }

    /// Whether a runner has, or may still have, an attempt in hand.
    pub fn is_on_runner(self) -> bool {
        matches!(self, Self::Dispatched | Self::Running | Self::Cancelling)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that names no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a state of a job; the states are pending, blocked, approval_required, scheduled, dispatched, running, cancelling, scanning, succeeded, failed, timed_out, cancelled, denied, quarantined, abandoned"
)]
pub struct UnknownState(pub String);

impl FromStr for State {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| UnknownState(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_json_agree() {
        for state in State::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
        }
        assert!("done".parse::<State>().is_err());
    }
}
