//! What others see of the membership: members and their changes.

use std::net::SocketAddr;

use model::id::{Incarnation, NodeId};
use model::time::Millis;

use crate::identity::Role;

/// What this node knows about a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    Alive,
    /// This node's direct probe is unanswered. Helpers are probing.
    ProbeFailed,
    /// Nobody gets an answer. The member can refute the suspicion.
    Suspected,
    /// The suspicion was not refuted, or someone who knows better said so.
    Dead,
    /// The member announced its departure.
    Left,
}

impl State {
    /// Whether the member counts as running: it is neither dead nor gone.
    pub fn is_running(self) -> bool {
        match self {
            Self::Alive | Self::ProbeFailed | Self::Suspected => true,
            Self::Dead | Self::Left => false,
        }
    }

    /// Whether this node has contact: nobody has a reason to suspect the member.
    pub fn is_visible(self) -> bool {
        match self {
            Self::Alive | Self::ProbeFailed => true,
            Self::Suspected | Self::Dead | Self::Left => false,
        }
    }
}

/// Who said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// This node's own probes.
    Probe,
    /// A packet of this member, which may be the one it is about.
    Gossip(NodeId),
    /// This node's transport: the connections to the member's machine were reset.
    Transport,
    Operator,
}

/// A member as this node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberView {
    pub node: NodeId,
    /// Counts the starts of the node.
    pub incarnation: Incarnation,
    pub address: SocketAddr,
    pub role: Role,
    pub state: State,
    /// When the state changed, by this node's monotonic clock.
    pub changed_at: Millis,
    /// Who said so.
    pub source: Source,
}

/// A change of the membership. `member` is the member after the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The member is heard of for the first time.
    Joined { member: MemberView },
    /// The member was started again. Not a death: what ran on it may still run.
    Restarted { member: MemberView, previous: Incarnation, was: State },
    /// The member became [`State::ProbeFailed`], [`State::Suspected`], [`State::Dead`] or [`State::Left`], or a late answer
    /// to a probe made it [`State::Alive`].
    Changed { member: MemberView, was: State },
    /// The member refuted a suspicion.
    Refuted { member: MemberView },
    /// The member was declared dead although its process runs. It is back.
    Returned { member: MemberView },
    /// The member was removed from the list.
    Forgotten { member: MemberView },
    /// Others suspect this node. It refuted the suspicion.
    SelfSuspected { at: Millis },
    /// Others declared this node dead. It returns under a new identity.
    SelfDeclaredDead { at: Millis },
    /// This node was stopped for about `duration`. What it knew about others has aged.
    SelfPaused { at: Millis, duration: Millis },
    /// A newer process has this node's id, or another one has had it before. This node is silent from now on.
    Superseded { at: Millis, by: Incarnation, address: SocketAddr },
    /// A second process uses the id of a member and was refused.
    DuplicateRefused { member: MemberView, address: SocketAddr },
    /// Events were lost because nobody took them. The list of members is up to date.
    Dropped { count: u64 },
}
