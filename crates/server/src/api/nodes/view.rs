//! Nodes in the form of the API.

use std::sync::Arc;

use ::api::{CapacityView, CordonView, LoadView, NodeEventView, NodeView, ProtectionView, SessionView};
use fabric::watch::TimelineEntry;
use model::envelope::{NodeReport, ReportedProtection};
use model::id::{NodeId, RunnerId};
use model::message::Load;
use model::node::{Cordon, NodeDecisions};
use model::session::SessionState;
use model::spec::ExecutorKind;
use model::time::{Millis, Timestamp};

use crate::api::Core;
use crate::clock;
use crate::cluster::JoinedNode;
use crate::inbox::{Inbox, Status};

/// The number of attempts on a node is at most this old.
const COUNTED_WITHIN: Millis = Millis::from_secs(1);

/// What the views of nodes are made of, read once.
pub(crate) struct NodeViews<'a> {
    core: &'a Core,
    decisions: Arc<NodeDecisions>,
    statuses: Vec<Status>,
}

impl<'a> NodeViews<'a> {
    pub fn new(core: &'a Core) -> Self {
        Self { core, decisions: core.nodes.read(), statuses: core.inboxes.iter().map(Inbox::status).collect() }
    }

    /// The own node, then runner nodes, without timelines.
    pub fn all(&self) -> Vec<NodeView> {
        let others = self.core.cluster.nodes().into_iter().map(|(node, joined)| self.other(node, joined));
        std::iter::once(self.own()).chain(others).collect()
    }

    /// A node with its timeline.
    pub fn one(&self, node: NodeId) -> NodeView {
        let mut view = match self.core.cluster.node(node) {
            Some(joined) => self.other(node, joined),
            None => self.own(),
        };
        let timeline = self.core.cluster.watch().timeline(node).into_iter();
        let event = |entry: TimelineEntry| NodeEventView {
            at: Timestamp(entry.at),
            event: entry.what.to_owned(),
            detail: entry.detail,
        };
        view.timeline = timeline.map(event).collect();
        view
    }

    /// The session of a node.
    pub fn session(&self, node: NodeId) -> SessionView {
        let state = match self.core.cluster.node(node) {
            // It has joined and was never connected.
            Some(joined) if joined.newest.is_none() && !self.decisions.sessions.contains_key(&node) => {
                SessionState::Created
            }
            Some(_) | None => self.decisions.session_state(node),
        };
        let session = self.decisions.sessions.get(&node);
        SessionView {
            node,
            state,
            number: session.map_or(1, |session| session.number),
            since: session.map(|session| Timestamp(session.since)),
            by: session.and_then(|session| session.by.clone()),
            reason: session.and_then(|session| session.reason.clone()),
        }
    }

    /// Attempts on a node by executor.
    fn attempts(&self, node: NodeId) -> [u32; ExecutorKind::ALL.len()] {
        let mut sum = [0; ExecutorKind::ALL.len()];
        for counts in self.statuses.iter().filter_map(|status| status.in_flight.get(&RunnerId(node.0))) {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        sum
    }

    /// What a node reports. The rest is to be filled in.
    fn reported(&self, node: NodeId, report: NodeReport) -> NodeView {
        let attempts = self.attempts(node);
        let in_flight = attempts.iter().sum();
        let cordon = self.decisions.cordoned.get(&node);
        let session = self.session(node);
        let protections = report.protections.into_iter();
        let protection = |ReportedProtection { name, in_force, how }| ProtectionView { name, in_force, how };
        let load = |Load { cpu_percent, gpu_percent }| LoadView { cpu_percent, gpu_percent };
        NodeView {
            id: node,
            name: report.name,
            role: String::new(),
            incarnation: 0,
            version: report.version,
            state: state(session.state, cordon, in_flight).to_owned(),
            healthy: !session.state.is_given_up(),
            session,
            probes: self.core.cluster.watch().member(node).map(|member| probes(member.state).to_owned()),
            address: None,
            connected_since: None,
            joined_at: None,
            cordon: cordon.cloned().map(cordon_view),
            failing: self.core.nodes.failing(node),
            in_flight,
            in_use: CapacityView {
                process: attempts[ExecutorKind::Process as usize],
                wasm: attempts[ExecutorKind::Wasm as usize],
                echo: attempts[ExecutorKind::Echo as usize],
            },
            capacity: CapacityView {
                process: report.capacity.process,
                wasm: report.capacity.wasm,
                echo: report.capacity.echo,
            },
            load: self.core.cluster.peers().load(node).map(load),
            refuses_work: report.refuses_work,
            pools: report.profile.pools,
            capabilities: report.profile.capabilities,
            labels: report.profile.labels,
            cores: report.cores,
            memory_bytes: report.memory_bytes,
            disk_bytes: report.disk_bytes,
            disk_available_bytes: report.disk_available_bytes,
            gpus: report.gpus,
            memory_available_bytes: report.memory_available_bytes,
            protections: protections.map(protection).collect(),
            timeline: Vec::new(),
        }
    }

    /// This node.
    fn own(&self) -> NodeView {
        let mut view = self.reported(self.core.node, self.core.own_report());
        view.role = "control".to_owned();
        view.incarnation = self.core.runner.incarnation().0;
        view.healthy &= self.statuses.iter().all(|status| status.down.is_none());
        view
    }

    /// A runner node.
    fn other(&self, node: NodeId, joined: JoinedNode) -> NodeView {
        let cluster = &self.core.cluster;
        let report = cluster.peers().report(node);
        let report = report.unwrap_or_else(|| NodeReport { name: joined.name, ..NodeReport::default() });
        let mut view = self.reported(node, report);
        view.role = "runner".to_owned();
        view.joined_at = Some(Timestamp(joined.joined_at));
        let answers = view.probes.as_deref().is_none_or(|probes| probes != "dead" && probes != "left");
        view.healthy &= answers;
        match cluster.peers().get(node) {
            Some(peer) => {
                view.incarnation = peer.incarnation.0;
                view.version.clone_from(&peer.version);
                view.address = Some(peer.address.to_string());
                view.connected_since = Some(Timestamp(peer.connected_at));
            }
            None => (view.state, view.healthy) = ("disconnected".to_owned(), false),
        }
        if cluster.watch().is_lost(node) {
            (view.state, view.healthy) = ("lost".to_owned(), false);
        }
        view
    }
}

fn probes(state: fabric::State) -> &'static str {
    match state {
        fabric::State::Alive => "alive",
        fabric::State::ProbeFailed => "probe_failed",
        fabric::State::Suspected => "suspected",
        fabric::State::Dead => "dead",
        fabric::State::Left => "left",
    }
}

/// State of a connected node.
fn state(session: SessionState, cordon: Option<&Cordon>, in_flight: u32) -> &'static str {
    match (session, cordon) {
        (SessionState::Created | SessionState::Paused | SessionState::Abandoned | SessionState::Sunset, _) => {
            session.as_str()
        }
        (SessionState::Ready, None) => "ready",
        (SessionState::Ready, Some(_)) => "cordoned",
        (SessionState::Draining, _) if in_flight > 0 => "draining",
        // Attempts are counted every now and then: at first the number may be from before the drain.
        (SessionState::Draining, cordon) => {
            let begun = cordon.and_then(|cordon| cordon.drain.as_ref()).map_or(Millis(0), |drain| drain.at);
            if clock::now() < begun + COUNTED_WITHIN { "draining" } else { "drained" }
        }
    }
}

fn cordon_view(cordon: Cordon) -> CordonView {
    let Cordon { at, by, reason, drain, failing_since } = cordon;
    let drain_deadline = drain.and_then(|drain| drain.deadline).map(Timestamp);
    CordonView { at: Timestamp(at), by, reason, drain_deadline, failing_since: failing_since.map(Timestamp) }
}
