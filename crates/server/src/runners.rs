//! The runners that this node can reach, by id.

use model::id::{Incarnation, RunnerId, ShardId};
use model::message::ToRunner;

/// Routes messages of shards to runners.
#[derive(Clone)]
pub(crate) struct Runners {
    /// The runner of this node.
    local: (RunnerId, runner::Handle),
}

impl Runners {
    pub fn new(id: RunnerId, local: runner::Handle) -> Self {
        Self { local: (id, local) }
    }

    /// Messages to an unreachable runner are lost: the shard sends them again.
    pub fn send(&self, runner: RunnerId, incarnation: Incarnation, shard: ShardId, messages: Vec<ToRunner>) {
        let (id, local) = &self.local;
        if *id == runner {
            local.send(shard, incarnation, messages);
        }
    }
}
