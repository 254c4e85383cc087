//! Who a node is, and how it detects failures.

use std::net::SocketAddr;

use model::id::{Incarnation, NodeId};

use crate::identity::Role;
use crate::profile::{Profile, ProfileError};

/// Who a node is and how it detects failures.
#[derive(Debug, Clone)]
pub struct Options {
    /// Not 0.
    pub node: NodeId,
    /// Counts the starts of the node. Greater than at any earlier start.
    pub incarnation: Incarnation,
    /// Where the other nodes reach this one.
    pub address: SocketAddr,
    pub role: Role,
    pub profile: Profile,
    /// Seed of the random choices: whom to probe, whom to tell.
    pub seed: u64,
}

/// Options that cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("the node id is 0; start the node with a data directory that has its id")]
    NoNodeId,
    #[error("other nodes cannot reach {0}; advertise an address with an IP and a port")]
    Unreachable(SocketAddr),
    #[error(transparent)]
    Profile(#[from] ProfileError),
}
