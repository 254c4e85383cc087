//! Changes of nodes, for subscribers.

use engine::Input;
use model::change::NodeEvent;
use model::id::NodeId;

use crate::inbox::{Inbox, Message};

/// Writes changes of nodes into the stream of changes. Cheap to clone.
///
/// A change is announced after the record that it is about is durable. If this server ends in between, the announcement
/// is missing: the nodes themselves tell their state.
#[derive(Clone)]
pub(crate) struct NodeNews(Option<Inbox>);

impl NodeNews {
    /// The first shard writes the changes, so that they have an order.
    pub fn new(inboxes: &[Inbox]) -> Self {
        Self(inboxes.first().cloned())
    }

    pub fn announce(&self, node: NodeId, event: NodeEvent) {
        if let Some(inbox) = &self.0 {
            let _ = inbox.post(Message::Input(Box::new(Input::NodeChanged { node, event })));
        }
    }
}
