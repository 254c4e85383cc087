//! What runner nodes can ask of this control node.

use std::sync::Arc;

use bytes::Bytes;
use engine::Input;
use fabric::watch::{LinkRefusal, ProcessId};
use model::change::NodeEvent;
use model::codec;
use model::envelope::{FromNode, NodeReport, ToNode, Welcome};
use model::id::{NodeId, RunnerId};
use model::limits;
use model::message::{RunnerFrame, RunnerMessage};
use tokio::sync::Semaphore;
use transport::tether::TetherEvent;
use transport::{Action, ByteStream, JoinRequest, NodeIdentity, Peer, Receiver, Refusal, RefusalKind, Role, Service};

use super::peers::PeerNode;
use super::record::NodeStart;
use super::{Shared, objects};
use crate::clock;
use crate::error::Error;
use crate::inbox::{Delivery, Message};

/// Frames of one node that wait for the shards. Beyond it the node's link is not read.
const WAITING_BYTES_MAX: u32 = 64 << 20;
/// Attempts whose usage a node reports at once.
const USAGES_MAX: usize = 10_000;
/// Longest text in a report.
const REPORT_TEXT_BYTES_MAX: usize = 1_024;
/// Entries of a list in a report.
const REPORT_ENTRIES_MAX: usize = 256;

/// The service of the transport. Cheap to clone.
#[derive(Clone)]
pub(super) struct ClusterService(pub Arc<Shared>);

#[transport::async_trait]
impl Service for ClusterService {
    async fn join(&self, request: JoinRequest) -> Result<Role, Refusal> {
        let text_is_valid = |text: &str| text.len() <= super::NAME_BYTES_MAX && !text.chars().any(char::is_control);
        if !text_is_valid(&request.name) {
            return Err(Refusal::new(
                RefusalKind::Invalid,
                "the name of the node is too long or has control characters",
            ));
        }
        let shared = self.0.clone();
        let (node, name, from) = (request.node, request.name.clone(), request.from);
        let is_new = !self.0.is_member(node);
        let admitted = tokio::task::spawn_blocking(move || {
            shared.change(|record| record.admit(&request, clock::now()).map_err(AdmitError::Refused))
        });
        match admitted.await {
            Ok(Ok(())) => {
                tracing::info!(%node, name, %from, "a node has joined");
                if is_new {
                    self.0.news.announce(node, NodeEvent::Joined);
                }
                Ok(Role::Runner)
            }
            Ok(Err(AdmitError::Refused(refusal))) => {
                tracing::warn!(%node, name, %from, %refusal, "a join request was refused");
                Err(refusal)
            }
            Ok(Err(AdmitError::Failed(error))) => Err(failed(&error.to_string())),
            Err(error) => Err(failed(&error.to_string())),
        }
    }

    fn authorize(&self, peer: &NodeIdentity, _action: Action) -> Result<(), Refusal> {
        match self.0.is_member(peer.node) {
            true => Ok(()),
            false => Err(Refusal::new(
                RefusalKind::NotAllowed,
                format!("{} was removed from the cluster: join again with a new data directory", peer.node),
            )),
        }
    }

    async fn connected(&self, peer: Peer) -> Result<(), Refusal> {
        let start = NodeStart { incarnation: peer.hello.incarnation, process: peer.hello.process.0 };
        let node = peer.identity.node;
        let refused = |refusal: LinkRefusal| Refusal::new(RefusalKind::NodeIdTaken, format!("{node}: {refusal}"));
        self.0.watch.check_running(node, ProcessId(start.process)).map_err(refused)?;
        self.begin(node, start).await?;
        self.begin_session(node, start).await?;
        let entry = self.0.peers.admit(&peer, &self.0.watch, clock::now()).map_err(refused)?;
        entry.send(&ToNode::Welcome(Welcome::new(self.0.shards)));
        tokio::spawn(receive(self.0.clone(), entry, peer.receiver));
        Ok(())
    }

    async fn get_object(&self, peer: NodeIdentity, kind: &str, id: Bytes, offset: u64) -> Result<ByteStream, Refusal> {
        objects::get(&self.0.blobs.serve_peer(peer.node), kind, &id, offset).await
    }

    async fn put_object(
        &self,
        peer: NodeIdentity,
        kind: &str,
        id: Bytes,
        content: ByteStream,
    ) -> Result<Bytes, Refusal> {
        objects::put(&self.0.blobs.serve_peer(peer.node), kind, &id, content).await
    }

    async fn call(&self, peer: NodeIdentity, method: &str, body: Bytes) -> Result<ByteStream, Refusal> {
        let unknown = || Refusal::new(RefusalKind::NotFound, format!("`{method}` is not a request to a control node"));
        objects::call(&self.0.blobs.serve_peer(peer.node), method, &body).await.unwrap_or_else(|| Err(unknown()))
    }

    fn tether(&self, event: TetherEvent) {
        for node in self.0.watch.tether(&event) {
            // If the node is dead, nobody reads this.
            if let Some(peer) = self.0.peers.get(node) {
                peer.send(&ToNode::OpenTether);
            }
        }
    }
}

impl ClusterService {
    /// Notes a start of a node, durably. Nothing is written for another link of the same process.
    async fn begin(&self, node: NodeId, start: NodeStart) -> Result<(), Refusal> {
        let known = self.0.members.read().get(&node).and_then(|node| node.newest);
        if known == Some(start) {
            return Ok(());
        }
        let shared = self.0.clone();
        let noted = tokio::task::spawn_blocking(move || {
            shared.change(|record| record.begin(node, start).map_err(AdmitError::Refused))
        });
        match noted.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(AdmitError::Refused(refusal))) => {
                tracing::warn!(%node, %refusal, "a node was refused");
                Err(refusal)
            }
            Ok(Err(AdmitError::Failed(error))) => Err(failed(&error.to_string())),
            Err(error) => Err(failed(&error.to_string())),
        }
    }
}

impl ClusterService {
    /// The session of a connected node is ready, or a new one begins.
    async fn begin_session(&self, node: NodeId, start: NodeStart) -> Result<(), Refusal> {
        let shared = self.0.clone();
        let begun = tokio::task::spawn_blocking(move || shared.control.started(node, start.incarnation));
        match begun.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failed(&error.to_string())),
            Err(error) => Err(failed(&error.to_string())),
        }
    }
}

fn failed(text: &str) -> Refusal {
    Refusal::new(RefusalKind::Failed, format!("the control node could not take the request: {text}"))
}

/// Why a node was not admitted.
enum AdmitError {
    Refused(Refusal),
    Failed(Error),
}

impl From<Error> for AdmitError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Receives what a node sends, until its link ends.
async fn receive(shared: Arc<Shared>, peer: Arc<PeerNode>, mut receiver: Receiver) {
    let room = Arc::new(Semaphore::new(WAITING_BYTES_MAX as usize));
    let reason = loop {
        let bytes = match receiver.recv().await {
            Ok(bytes) => bytes,
            Err(reason) => break reason,
        };
        shared.watch.heard(peer.node, peer.link());
        match codec::decode::<FromNode>(&bytes) {
            Ok(FromNode::Frame { shard, frame }) => match check_frame(frame, &peer) {
                Some(frame) => {
                    // Waits while the shards have too much of this node: then nothing more is read from it.
                    let cost = u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(WAITING_BYTES_MAX);
                    let Ok(permit) = room.clone().acquire_many_owned(cost).await else { continue };
                    if let Some(inbox) = shared.inboxes.get(usize::from(shard.0)) {
                        let _ = inbox.post(Message::Runner(Delivery::with_room(frame, permit)));
                    }
                }
                None => {
                    tracing::warn!(node = %peer.node, "a frame of this node was ignored: it is not about itself, or too large")
                }
            },
            Ok(other) => shared.take_news(&peer, other),
            // Of a later version, or damaged.
            Err(error) => tracing::warn!(node = %peer.node, %error, "an envelope of this node was ignored"),
        }
    };
    shared.peers.remove(&peer, &shared.watch, &reason);
}

/// A frame must be about its sender, and says nothing that only a control node may say.
fn check_frame(mut frame: RunnerFrame, peer: &PeerNode) -> Option<RunnerFrame> {
    let is_own = |runner, incarnation| runner == RunnerId(peer.node.0) && incarnation == peer.incarnation;
    if !is_own(frame.header.runner, frame.header.incarnation) {
        return None;
    }
    for message in &mut frame.messages {
        if !is_own(message.runner, message.incarnation) {
            return None;
        }
        match &mut message.message {
            RunnerMessage::Register { profile, .. } if !profile.is_within_limits() => return None,
            RunnerMessage::Ended { outcome, .. } => (outcome.policy, outcome.spilled) = (None, None),
            RunnerMessage::Register { .. } | RunnerMessage::Accepted { .. } | RunnerMessage::Started { .. } => {}
        }
    }
    Some(frame)
}

impl Shared {
    fn take_news(&self, peer: &PeerNode, news: FromNode) {
        let runner = RunnerId(peer.node.0);
        match news {
            FromNode::Frame { .. } => {}
            FromNode::Load { load } => {
                self.peers.set_load(peer.node, load);
                for inbox in &self.inboxes {
                    let input = Input::Load { runner, incarnation: peer.incarnation, load };
                    let _ = inbox.post(Message::Input(Box::new(input)));
                }
            }
            FromNode::Progress { attempt_ref, percent, message } => {
                let shard = self.shards.owner(attempt_ref.job.slot());
                let message = message.filter(|message| message.len() <= limits::MESSAGE_BYTES_MAX);
                let input = Input::Progressed { attempt_ref, percent: percent.min(100), message };
                if let Some(inbox) = self.inboxes.get(usize::from(shard.0)) {
                    let _ = inbox.post(Message::Input(Box::new(input)));
                }
            }
            FromNode::Report(report) => match is_reasonable(&report) {
                true => self.peers.set_report(peer.node, *report),
                false => tracing::warn!(node = %peer.node, "a report of this node was ignored: it is too large"),
            },
            FromNode::Usage(usage) if usage.len() <= USAGES_MAX => peer.set_usage(usage),
            FromNode::Usage(_) => {}
            FromNode::Leaving { keeps_processes } => {
                self.watch.leaving(peer.node, peer.link(), keeps_processes);
            }
        }
    }

    fn is_member(&self, node: NodeId) -> bool {
        self.members.read().contains_key(&node)
    }
}

/// Whether a report can be kept.
fn is_reasonable(report: &NodeReport) -> bool {
    let is_short = |text: &String| text.len() <= REPORT_TEXT_BYTES_MAX;
    let protections = report.protections.iter();
    report.profile.is_within_limits()
        && report.gpus.len() <= REPORT_ENTRIES_MAX
        && report.gpus.keys().all(is_short)
        && report.protections.len() <= REPORT_ENTRIES_MAX
        && protections.flat_map(|protection| [&protection.name, &protection.how]).all(is_short)
        && is_short(&report.name)
        && is_short(&report.version)
        && report.refuses_work.as_ref().is_none_or(is_short)
}
