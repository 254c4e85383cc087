//! Job states.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// State of a job. Numbers and texts are on disk and in the API: never change one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize, Deserialize)]
        #[cbor(index_only)]
        #[serde(rename_all = "snake_case")]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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

            /// Number on disk.
            pub fn code(self) -> u8 {
                match self {
                    $(Self::$name => $number,)*
                }
            }
        }
    };
}

states! {
    /// Accepted; waiting for the policy's verdict.
    Pending = 0, "pending";
    /// Waiting for `not_before`.
    Blocked = 1, "blocked";
    /// Waiting for an approval.
    ApprovalRequired = 2, "approval_required";
    /// Allowed; waiting for a runner.
    Scheduled = 3, "scheduled";
    /// Sent to a runner that has not reported the start yet.
    Dispatched = 4, "dispatched";
    Running = 5, "running";
    /// Stop requested; the runner has not confirmed yet.
    Cancelling = 6, "cancelling";
    /// The attempt succeeded; the result is withheld until the content scan.
    Scanning = 7, "scanning";
    Succeeded = 8, "succeeded";
    Failed = 9, "failed";
    TimedOut = 10, "timed_out";
    Cancelled = 11, "cancelled";
    /// Denied by the policy or rejected by an approver.
    Denied = 12, "denied";
    /// The policy withholds the result.
    Quarantined = 13, "quarantined";
    /// Given up together with its node.
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

    /// Whether an attempt is, or may be, in flight.
    pub fn is_on_runner(self) -> bool {
        matches!(self, Self::Dispatched | Self::Running | Self::Cancelling)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Error of parsing a state.
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
