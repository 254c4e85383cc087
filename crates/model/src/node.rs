//! What operators have decided about nodes.

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};

use crate::id::NodeId;
use crate::time::Millis;

/// Decisions about all nodes: one document of the store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct NodeDecisions {
    /// Nodes that get no new work.
    #[n(0)]
    pub cordoned: BTreeMap<NodeId, Cordon>,
}

/// A node gets no new work.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Cordon {
    #[n(0)]
    pub at: Millis,
    #[n(1)]
    pub by: Option<String>,
    #[n(2)]
    pub reason: Option<String>,
    /// Present if its running work is to end as well.
    #[n(3)]
    pub drain: Option<Drain>,
    /// Present if the server cordoned the node because it failed distinct jobs: the first of these failures. Jobs are not
    /// charged for its failures since then.
    #[n(4)]
    pub failing_since: Option<Millis>,
}

/// The running work of a node is to end.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Drain {
    #[n(0)]
    pub at: Millis,
    /// Attempts that have not ended by then are taken back. Absent: they may take as long as they like.
    #[n(1)]
    pub deadline: Option<Millis>,
}

impl NodeDecisions {
    /// Keeps the node from new work. An earlier cordon or drain stays as it is.
    pub fn cordon(&mut self, node: NodeId, at: Millis, by: Option<String>, reason: Option<String>) {
        self.cordoned.entry(node).or_insert(Cordon { at, by, reason, drain: None, failing_since: None });
    }

    /// Cordons a node that fails distinct jobs. An earlier cordon or drain stays as it is, but for this.
    pub fn cordon_failing(&mut self, node: NodeId, at: Millis, failing_since: Millis, reason: String) {
        self.cordon(node, at, None, Some(reason));
        if let Some(cordon) = self.cordoned.get_mut(&node) {
            cordon.failing_since = cordon.failing_since.or(Some(failing_since));
        }
    }

    /// Cordons the node and lets its work end. A repeated drain sets a new deadline.
    pub fn drain(&mut self, node: NodeId, drain: Drain, by: Option<String>, reason: Option<String>) {
        self.cordon(node, drain.at, by, reason);
        if let Some(cordon) = self.cordoned.get_mut(&node) {
            let begun = cordon.drain.as_ref().map_or(drain.at, |drain| drain.at);
            cordon.drain = Some(Drain { at: begun, ..drain });
        }
    }

    /// Ends cordon and drain.
    pub fn uncordon(&mut self, node: NodeId) {
        self.cordoned.remove(&node);
    }

    /// Nodes whose attempts are to be taken back.
    pub fn overdue(&self, now: Millis) -> impl Iterator<Item = NodeId> {
        let is_overdue = move |cordon: &Cordon| {
            cordon.drain.as_ref().and_then(|drain| drain.deadline).is_some_and(|deadline| deadline <= now)
        };
        self.cordoned.iter().filter(move |(_, cordon)| is_overdue(cordon)).map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    const NODE: NodeId = NodeId(7);

    fn drain(at: u64, deadline: Option<u64>) -> Drain {
        Drain { at: Millis(at), deadline: deadline.map(Millis) }
    }

    #[test]
    fn a_drained_node_is_overdue_from_its_deadline_until_it_is_uncordoned() {
        let mut decisions = NodeDecisions::default();
        decisions.cordon(NODE, Millis(1), Some("ann".to_owned()), Some("disk".to_owned()));
        assert_eq!(decisions.overdue(Millis(u64::MAX)).count(), 0);
        decisions.drain(NODE, drain(2, Some(10)), Some("bob".to_owned()), None);
        assert_eq!((decisions.overdue(Millis(9)).count(), decisions.overdue(Millis(10)).count()), (0, 1));
        decisions.drain(NODE, drain(5, Some(20)), None, None);
        assert_eq!(decisions.overdue(Millis(19)).count(), 0);
        let cordon = &decisions.cordoned[&NODE];
        assert_eq!(
            (cordon.by.as_deref(), cordon.at, cordon.drain.clone()),
            (Some("ann"), Millis(1), Some(drain(2, Some(20))))
        );
        assert_eq!(codec::decode(&codec::encode(&decisions)), Ok(decisions.clone()));
        decisions.uncordon(NODE);
        assert_eq!(decisions, NodeDecisions::default());
    }
}
