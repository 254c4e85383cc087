//! Metrics of nodes.

use std::collections::BTreeMap;

use ::api::NodeView;

use super::text::{Kind, Text};

/// Nodes with samples of their own. The attempts on all others are one sample.
pub(super) const NODES_MAX: usize = 100;

/// States of nodes, as in the API.
const STATES: [&str; 10] = [
    "ready", "cordoned", "draining", "drained", "created", "paused", "abandoned", "sunset", "disconnected", "lost",
];

pub(super) fn nodes(nodes: &[NodeView], text: &mut Text) {
    let mut counts: BTreeMap<&str, u64> = STATES.map(|state| (state, 0)).into();
    for node in nodes {
        *counts.entry(&node.state).or_default() += 1;
    }
    let states = text.family("outlast_nodes", Kind::Gauge, "Nodes of the cluster, by state.");
    for (state, count) in counts {
        states.sample(&[("state", state)], count);
    }
    let healthy = nodes.iter().filter(|node| node.healthy).count() as u64;
    text.gauge("outlast_nodes_healthy", "Nodes that are connected, answer and are not given up.", healthy);
    let help = "Attempts on a node. The label `other` sums up the nodes beyond the first hundred.";
    let attempts = text.family("outlast_node_attempts", Kind::Gauge, help);
    for node in nodes.iter().take(NODES_MAX) {
        attempts.sample(&[("node", &node.id.to_string())], u64::from(node.in_flight));
    }
    if nodes.len() > NODES_MAX {
        let others = nodes.iter().skip(NODES_MAX).map(|node| u64::from(node.in_flight)).sum();
        attempts.sample(&[("node", "other")], others);
    }
}
