//! Sessions of nodes: whether a node takes work, lets it end, or is given up.
//!
//! A session only moves forward. What an operator does after its end (`uncordon`), or a new start of an abandoned node,
//! begins the next session of the node.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::id::Incarnation;
use crate::time::Millis;

/// State of a node's session, in order. Numbers are on disk, texts in the API: never change one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum SessionState {
    /// The node has not been connected in this session.
    #[n(0)]
    Created,
    /// Takes work.
    #[n(1)]
    Ready,
    /// No new work; running work ends.
    #[n(2)]
    Draining,
    /// No new work; nothing is expected to end.
    #[n(3)]
    Paused,
    /// Given up: its attempts are ended at once.
    #[n(4)]
    Abandoned,
    /// Over. Whatever still runs is ended.
    #[n(5)]
    Sunset,
}

/// A session cannot move to this state. It stays as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a session that is {from} cannot become {to}: sessions only move forward")]
pub struct ForbiddenMove {
    pub from: SessionState,
    pub to: SessionState,
}

impl SessionState {
    pub const ALL: [Self; 6] =
        [Self::Created, Self::Ready, Self::Draining, Self::Paused, Self::Abandoned, Self::Sunset];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Paused => "paused",
            Self::Abandoned => "abandoned",
            Self::Sunset => "sunset",
        }
    }

    /// The state after a move. Only forward; `Abandoned` and `Sunset` from every earlier state.
    pub fn enter(self, to: Self) -> Result<Self, ForbiddenMove> {
        let is_allowed = match to {
            // Only the next session begins so.
            Self::Created => false,
            Self::Ready => self == Self::Created,
            Self::Draining => matches!(self, Self::Created | Self::Ready),
            Self::Paused => matches!(self, Self::Created | Self::Ready | Self::Draining),
            Self::Abandoned | Self::Sunset => self < to,
        };
        if is_allowed { Ok(to) } else { Err(ForbiddenMove { from: self, to }) }
    }

    pub fn takes_work(self) -> bool {
        match self {
            Self::Ready => true,
            Self::Created | Self::Draining | Self::Paused | Self::Abandoned | Self::Sunset => false,
        }
    }

    /// Whether the attempts on the node are to be ended at once. Such a node is not healthy.
    pub fn is_given_up(self) -> bool {
        match self {
            Self::Abandoned | Self::Sunset => true,
            Self::Created | Self::Ready | Self::Draining | Self::Paused => false,
        }
    }
}

impl fmt::Display for SessionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The text is not a state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a session is created, ready, draining, paused, abandoned or sunset")]
pub struct UnknownSessionState;

impl FromStr for SessionState {
    type Err = UnknownSessionState;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(UnknownSessionState)
    }
}

/// The current session of a node.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct NodeSession {
    /// Counts the sessions of the node, from 1.
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub state: SessionState,
    #[n(2)]
    pub since: Millis,
    /// Who moved it to its state. Absent: it got there by itself.
    #[n(3)]
    pub by: Option<String>,
    #[n(4)]
    pub reason: Option<String>,
    /// Newest start of the node at that time. 0: it was never connected.
    #[n(5)]
    pub incarnation: Incarnation,
}

#[cfg(test)]
mod tests {
    use super::SessionState::{Abandoned, Created, Draining, Paused, Ready, Sunset};
    use super::*;

    // FEATURES: C2
    #[test]
    fn sessions_move_forward_and_are_abandoned_or_over_from_every_earlier_state() {
        let allowed = [
            (Created, vec![Ready, Draining, Paused, Abandoned, Sunset]),
            (Ready, vec![Draining, Paused, Abandoned, Sunset]),
            (Draining, vec![Paused, Abandoned, Sunset]),
            (Paused, vec![Abandoned, Sunset]),
            (Abandoned, vec![Sunset]),
            (Sunset, vec![]),
        ];
        assert_eq!(allowed.each_ref().map(|(from, _)| *from), SessionState::ALL);
        for (from, targets) in allowed {
            for to in SessionState::ALL {
                let expected = if targets.contains(&to) { Ok(to) } else { Err(ForbiddenMove { from, to }) };
                assert_eq!(from.enter(to), expected, "{from} to {to}");
            }
        }
    }

    // FEATURES: C2
    #[test]
    fn only_a_ready_session_takes_work_and_only_the_last_two_are_given_up() {
        let takes_work = SessionState::ALL.map(SessionState::takes_work);
        assert_eq!(takes_work, [false, true, false, false, false, false]);
        let is_given_up = SessionState::ALL.map(SessionState::is_given_up);
        assert_eq!(is_given_up, [false, false, false, false, true, true]);
    }

    #[test]
    fn texts_name_all_states_and_nothing_else() {
        for state in SessionState::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert_eq!("Ready".parse::<SessionState>(), Err(UnknownSessionState));
    }
}
