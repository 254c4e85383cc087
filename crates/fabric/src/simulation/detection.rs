//! How long it takes until all nodes know that one is dead.

use model::time::Millis;

use super::checker::{Checker, Violation};
use super::cluster::{Cluster, Settings};
use crate::view::State;

/// Longest wait until all nodes have found each other, and until all have noticed a death.
const LIMIT: Millis = Millis::from_secs(300);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detection {
    /// From the death until it is known, one for each other node, in ascending order.
    pub times: Vec<Millis>,
    pub false_alarms: u64,
}

/// Starts a cluster, kills one node at a random time and waits until all others know.
pub fn measure_detection(settings: Settings, loss: u64) -> Result<Detection, Violation> {
    let (nodes, seed) = (settings.nodes, settings.seed);
    let mut cluster = Cluster::new(settings);
    cluster.network.loss = loss;
    for node in 0..nodes {
        cluster.start(node);
        // Nodes that start at once would probe in step.
        cluster.run_for(Millis(1 + (seed * 31 + node as u64 * 67) % 211));
    }
    let mut checker = Checker::default();
    if !cluster.run_until(LIMIT, Cluster::agree) {
        return Err(Violation(format!("seed {seed}: the nodes do not find each other: {:?}", cluster.disagreement())));
    }
    cluster.run_for(Millis(seed % 1_999));
    checker.check(&mut cluster)?;
    let victim = seed as usize % nodes;
    cluster.crash(victim);
    let died_at = cluster.now();
    let mut times = Vec::new();
    let mut known = vec![false; nodes];
    while times.len() < nodes - 1 {
        if cluster.now() - died_at > LIMIT {
            return Err(Violation(format!("seed {seed}: the death of node {victim} stays unnoticed")));
        }
        cluster.run_for(Millis(5));
        checker.check(&mut cluster)?;
        for observer in (0..nodes).filter(|observer| *observer != victim) {
            let dead = checker.last(observer, victim).is_some_and(|(state, _)| state == State::Dead);
            if dead && !std::mem::replace(&mut known[observer], true) {
                times.push(cluster.now() - died_at);
            }
        }
    }
    Ok(Detection { times, false_alarms: checker.false_alarms })
}
