//! Metrics of nodes.

use std::collections::BTreeMap;

use ::api::NodeView;
use model::id::NodeId;

use super::Reading;
use super::text::{Kind, Text};

/// Nodes with samples of their own. The attempts on all others are one sample.
const NODES_MAX: usize = 100;

/// States of nodes, as in the API.
const STATES: [&str; 10] =
    ["ready", "cordoned", "draining", "drained", "created", "paused", "abandoned", "sunset", "disconnected", "lost"];

/// What is counted of a node.
#[derive(Debug, Clone)]
pub(super) struct NodeSample {
    pub node: NodeId,
    pub state: String,
    pub is_healthy: bool,
    pub attempts: u32,
}

impl From<NodeView> for NodeSample {
    fn from(view: NodeView) -> Self {
        Self { node: view.id, state: view.state, is_healthy: view.healthy, attempts: view.in_flight }
    }
}

impl Reading<'_> {
    pub(super) fn nodes(&self, text: &mut Text) {
        let mut counts: BTreeMap<&str, u64> = STATES.map(|state| (state, 0)).into();
        for node in &self.nodes {
            *counts.entry(&node.state).or_default() += 1;
        }
        let states = text.family("outlast_nodes", Kind::Gauge, "Nodes of the cluster, by state.");
        for (state, count) in counts {
            states.sample(&[("state", state)], count);
        }
        let healthy = self.nodes.iter().filter(|node| node.is_healthy).count() as u64;
        text.gauge("outlast_nodes_healthy", "Nodes that are connected, answer and are not given up.", healthy);
        let help = "Attempts on a node. The label `other` sums up the nodes beyond the first hundred.";
        let attempts = text.family("outlast_node_attempts", Kind::Gauge, help);
        for node in self.nodes.iter().take(NODES_MAX) {
            attempts.sample(&[("node", &node.node.to_string())], u64::from(node.attempts));
        }
        if self.nodes.len() > NODES_MAX {
            let others = self.nodes.iter().skip(NODES_MAX).map(|node| u64::from(node.attempts)).sum();
            attempts.sample(&[("node", "other")], others);
        }
    }
}
