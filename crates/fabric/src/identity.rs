//! Who a node is in packets.

use std::net::SocketAddr;

use model::id::{Incarnation, NodeId};

/// What a node may do in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Eligible to own shards and to lead. Counts for majorities.
    Control,
    /// Runs attempts only.
    Runner,
}

/// One life of a node. Of two lives of the same node the greater one is valid: the fields are in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Identity {
    pub node: NodeId,
    pub incarnation: Incarnation,
    /// Counts how often this process was declared dead and returned.
    pub rejoins: u32,
    /// The last life of a process that leaves gracefully: the announcement of the departure.
    pub leaving: bool,
    pub address: SocketAddr,
    pub role: Role,
}

impl Identity {
    /// Stands for the node at an address as long as its id is unknown.
    pub const UNKNOWN: NodeId = NodeId(0);

    pub fn unknown(address: SocketAddr) -> Self {
        Self {
            node: Self::UNKNOWN,
            incarnation: Incarnation(0),
            rejoins: 0,
            leaving: false,
            address,
            role: Role::Runner,
        }
    }

    pub fn leaving(self) -> Self {
        Self { leaving: true, ..self }
    }

    /// Others can tell this node from others and reach it.
    pub fn is_valid(&self) -> bool {
        self.node != Self::UNKNOWN && self.address.port() != 0 && !self.address.ip().is_unspecified()
    }
}

impl foca::Identity for Identity {
    type Addr = NodeId;

    /// A process that is declared dead returns in a new life. One that leaves does not.
    fn renew(&self) -> Option<Self> {
        (!self.leaving).then(|| Self { rejoins: self.rejoins.saturating_add(1), ..*self })
    }

    fn addr(&self) -> NodeId {
        self.node
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self > adversary
    }
}
