//! Runner nodes that are connected: their links, and what they have reported.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fabric::watch::{LinkId, LinkRefusal, ProcessId};
use futures_util::StreamExt;
use hashbrown::HashMap;
use model::codec;
use model::envelope::{AttemptUsage, NodeReport, ToNode};
use model::id::{Incarnation, NodeId, RunnerId, ShardId};
use model::message::{AttemptRef, Load, ShardMessage, ToRunner};
use model::time::Millis;
use parking_lot::{Mutex, RwLock};
use transport::{CloseReason, Peer, PeerRequests, Sender};

use super::NodeWatch;
use crate::runner_node::SAMPLE;

/// Messages of one shard are sent together up to about this size.
const ENVELOPE_BYTES: usize = 256 * 1024;
/// Size of a message without the job's spec.
const MESSAGE_BYTES: usize = 256;

/// Time for a node to sample the usage of its processes.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(2);

/// A connected runner node.
pub(crate) struct PeerNode {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub address: SocketAddr,
    pub version: String,
    pub connected_at: Millis,
    link: LinkId,
    sender: Sender,
    requests: PeerRequests,
    usage: Mutex<HashMap<AttemptRef, AttemptUsage>>,
}

impl PeerNode {
    pub fn link(&self) -> LinkId {
        self.link
    }

    /// Sends requests to the node.
    pub fn requests(&self) -> &PeerRequests {
        &self.requests
    }

    pub fn set_usage(&self, usage: Vec<AttemptUsage>) {
        *self.usage.lock() = usage.into_iter().map(|usage| (usage.attempt_ref, usage)).collect();
    }

    pub fn usage_of(&self, attempt_ref: AttemptRef) -> Option<AttemptUsage> {
        self.usage.lock().get(&attempt_ref).copied()
    }

    /// Has the node sample the usage of its processes, and waits for the samples, up to a timeout.
    pub async fn refresh_usage(&self) {
        // Without an answer the last samples are shown.
        if let Ok(mut answer) = self.requests.call(SAMPLE, Bytes::new(), SAMPLE_TIMEOUT).await {
            while answer.next().await.is_some() {}
        }
    }

    /// Closes the link, after everything queued was sent.
    pub fn close(&self) {
        self.sender.close();
    }

    /// Sends an envelope. It is lost if the node does not keep up: what matters is sent again.
    pub fn send(&self, envelope: &ToNode) -> bool {
        self.sender.try_send(Bytes::from(codec::encode(envelope))).is_ok()
    }
}

/// The connected runner nodes. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Peers(Arc<Inner>);

#[derive(Default)]
struct Inner {
    connected: RwLock<HashMap<NodeId, Arc<PeerNode>>>,
    /// Newest reports, also of nodes that are not connected.
    reports: RwLock<BTreeMap<NodeId, NodeReport>>,
    /// Newest load of connected nodes and of the own one.
    loads: RwLock<HashMap<NodeId, Load>>,
}

impl Peers {
    /// Adds a node that has connected, if the watch admits it. The link that it replaces is closed.
    pub fn admit(&self, peer: &Peer, watch: &NodeWatch, now: Millis) -> Result<Arc<PeerNode>, LinkRefusal> {
        let (node, hello) = (peer.identity.node, &peer.hello);
        // Held so that this list and the watch have the same link of a node.
        let mut connected = self.0.connected.write();
        let link = watch.link_up(node, hello.incarnation, ProcessId(hello.process.0))?;
        let entry = Arc::new(PeerNode {
            node,
            incarnation: hello.incarnation,
            address: peer.address,
            version: hello.software_version.clone(),
            connected_at: now,
            link,
            sender: peer.sender.clone(),
            requests: peer.requests.clone(),
            usage: Mutex::default(),
        });
        if let Some(replaced) = connected.insert(node, entry.clone()) {
            replaced.close();
        }
        Ok(entry)
    }

    /// Removes a node whose link has ended, unless a newer link has replaced it.
    pub fn remove(&self, peer: &PeerNode, watch: &NodeWatch, reason: &CloseReason) {
        let mut connected = self.0.connected.write();
        if watch.link_down(peer.node, peer.link, reason) {
            connected.remove(&peer.node);
            self.0.loads.write().remove(&peer.node);
        }
    }

    pub fn get(&self, node: NodeId) -> Option<Arc<PeerNode>> {
        self.0.connected.read().get(&node).cloned()
    }

    /// Messages of a shard to a runner. Those that cannot be sent are lost: the shard sends them again.
    pub fn send(&self, runner: RunnerId, incarnation: Incarnation, shard: ShardId, messages: Vec<ToRunner>) {
        let peer = self.get(NodeId(runner.0));
        let Some(peer) = peer.filter(|peer| peer.incarnation == incarnation) else { return };
        for messages in split(messages) {
            if !peer.send(&ToNode::Messages { shard, messages }) {
                return;
            }
        }
    }

    pub fn set_report(&self, node: NodeId, report: NodeReport) {
        self.0.reports.write().insert(node, report);
    }

    pub fn set_load(&self, node: NodeId, load: Load) {
        self.0.loads.write().insert(node, load);
    }

    /// Absent until the node has reported it.
    pub fn load(&self, node: NodeId) -> Option<Load> {
        self.0.loads.read().get(&node).copied()
    }

    pub fn report(&self, node: NodeId) -> Option<NodeReport> {
        self.0.reports.read().get(&node).cloned()
    }

    pub fn reports(&self) -> BTreeMap<NodeId, NodeReport> {
        self.0.reports.read().clone()
    }

    /// Closes the link of a node that was removed, and forgets it.
    pub fn forget(&self, node: NodeId, watch: &NodeWatch) {
        self.0.reports.write().remove(&node);
        self.0.loads.write().remove(&node);
        let mut connected = self.0.connected.write();
        if let Some(peer) = connected.remove(&node) {
            peer.close();
        }
        watch.forget(node);
    }
}

/// Groups messages, in order, into envelopes of a limited size. A larger message has an envelope of its own.
fn split(messages: Vec<ToRunner>) -> Vec<Vec<ToRunner>> {
    let (mut envelopes, mut bytes) = (Vec::new(), usize::MAX);
    for message in messages {
        let size = match message.message() {
            Some(ShardMessage::Run { spec, .. }) => MESSAGE_BYTES + spec.len(),
            Some(ShardMessage::Stop { .. } | ShardMessage::Inventory { .. }) | None => MESSAGE_BYTES,
        };
        if bytes.saturating_add(size) > ENVELOPE_BYTES {
            envelopes.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        if let Some(envelope) = envelopes.last_mut() {
            envelope.push(message);
        }
    }
    envelopes
}

#[cfg(test)]
mod tests {
    use model::id::{Attempt, Epoch, JobId};
    use model::message::Session;

    use super::*;

    fn run(sequence: u64, spec_bytes: usize) -> ToRunner {
        let attempt_ref = AttemptRef { job: JobId(sequence), attempt: Attempt(1) };
        let message = ShardMessage::Run {
            attempt_ref,
            valid_for: Millis(1),
            spec: Bytes::from(vec![0; spec_bytes]),
            constraints: None,
            lease: None,
        };
        ToRunner::Message { session: Session { epoch: Epoch(1), number: 1 }, sequence, heard: Millis(0), message }
    }

    #[test]
    fn messages_are_grouped_in_order_by_size() {
        let sizes = [10, 8 << 20, 10, 100_000, 100_000, 100_000];
        let messages: Vec<_> = sizes.iter().zip(1..).map(|(bytes, sequence)| run(sequence, *bytes)).collect();
        let envelopes = split(messages.clone());
        assert_eq!(envelopes.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 3, 1]);
        assert_eq!(envelopes.concat(), messages);
        for messages in envelopes {
            let bytes = codec::encode(&ToNode::Messages { shard: ShardId(0), messages }).len();
            assert!(bytes <= transport::limits::ENVELOPE_BYTES_MAX);
        }
    }
}
