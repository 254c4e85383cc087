//! The runners that this node can reach, by id.

use model::id::{Incarnation, RunnerId, ShardId};
use model::message::ToRunner;

use crate::cluster::Peers;

/// Routes messages of shards to runners.
#[derive(Clone)]
pub(crate) struct Runners {
    /// The runner of this node.
    local: (RunnerId, runner::Handle),
    /// Those of other nodes.
    peers: Peers,
}

impl Runners {
    pub fn new(id: RunnerId, local: runner::Handle, peers: Peers) -> Self {
        Self { local: (id, local), peers }
    }

    /// Messages to an unreachable runner are lost: the shard sends them again.
    pub fn send(&self, runner: RunnerId, incarnation: Incarnation, shard: ShardId, messages: Vec<ToRunner>) {
        let (id, local) = &self.local;
        match *id == runner {
            true => local.send(shard, incarnation, messages),
            false => self.peers.send(runner, incarnation, shard, messages),
        }
    }
}
