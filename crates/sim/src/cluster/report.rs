//! Measurements of a cluster: how long it takes to find a dead node, and how often a running one is taken for dead. And
//! the story of a death.

use std::collections::BTreeMap;
use std::fmt;

use super::life::Stop;
use super::{Death, Plan};
use crate::invariants::Violation;
use crate::rng::Rate;
use crate::scenario::{SECOND, Time};
use crate::world::World;

/// Times from deaths of nodes until they were found.
#[derive(Debug, Clone, Default)]
pub struct Detections {
    /// By the control node's decision.
    lost: BTreeMap<(Death, bool), Vec<Time>>,
    /// By the membership of each other node.
    members: Vec<Time>,
    /// Running, reachable nodes that the control node declared lost.
    pub false_alarms: u64,
    /// Running, reachable nodes that a membership declared dead, counted once for each observer.
    pub false_suspects: u64,
}

impl Detections {
    pub(super) fn add(&mut self, death: Death, is_alone: bool, time: Time) {
        self.lost.entry((death, is_alone)).or_default().push(time);
    }

    pub(super) fn member(&mut self, death: Death, time: Time) {
        if death == Death::PowerLost {
            self.members.push(time);
        }
    }

    fn merge(&mut self, other: Self) {
        for (kind, times) in other.lost {
            self.lost.entry(kind).or_default().extend(times);
        }
        self.members.extend(other.members);
        self.false_alarms += other.false_alarms;
        self.false_suspects += other.false_suspects;
    }
}

/// Measurements of clusters of one size and one network.
#[derive(Debug)]
pub struct ClusterReport {
    pub nodes: usize,
    pub loss: Rate,
    pub detections: Detections,
    /// Nodes times hours of virtual time.
    pub node_hours: f64,
    pub jobs: usize,
    pub events: u64,
}

/// Least, median, 99th percentile and most.
fn summary(times: &[Time]) -> String {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    format!("{:>5} deaths  p50 {:>5} ms  p99 {:>5} ms  max {:>5} ms", times.len(), at(50), at(99), at(100))
}

impl fmt::Display for ClusterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, loss, detections, node_hours, jobs, .. } = self;
        writeln!(f, "{nodes} nodes, {} % of packets lost, {node_hours:.1} node-hours, {jobs} jobs", loss.0 / 100)?;
        for ((death, is_alone), times) in &detections.lost {
            let what = match death {
                Death::Killed => "killed",
                Death::PowerLost => "power lost",
                Death::Hung => "hung",
            };
            let how = if *is_alone { "one node" } else { "many at once" };
            writeln!(f, "  lost, {what:<10} {how:<12} {}", summary(times))?;
        }
        if !detections.members.is_empty() {
            writeln!(f, "  dead in member lists, power lost {}", summary(&detections.members))?;
        }
        writeln!(
            f,
            "  false alarms: {} of the control node, {} in member lists ({:.2} per node-hour)",
            detections.false_alarms,
            detections.false_suspects,
            detections.false_suspects as f64 / node_hours
        )
    }
}

/// Runs a cluster of `nodes` runner nodes, in which nodes die, and measures.
pub fn measure(nodes: usize, loss_percent: u32, seeds: std::ops::Range<u64>) -> Result<ClusterReport, Violation> {
    let loss = Rate(100 * loss_percent);
    let mut report =
        ClusterReport { nodes, loss, detections: Detections::default(), node_hours: 0.0, jobs: 0, events: 0 };
    for seed in seeds {
        let mut world = World::clustered(seed, Plan::measured(nodes, loss), false, None);
        report.events += world.run()?;
        report.node_hours += world.node_hours();
        report.jobs += world.ledger.jobs.len();
        report.detections.merge(std::mem::take(&mut world.cluster.truth.detections));
    }
    Ok(report)
}

/// The story of a node that loses its power while it runs a job, as the cluster saw it: one line for each event, in
/// virtual time since the death.
pub fn story_of_a_death(nodes: usize, seed: u64) -> Result<Vec<String>, Violation> {
    let mut world = World::clustered(seed, Plan::quiet(nodes), false, None);
    world.run_until(40 * SECOND)?;
    let Some(victim) = world.busiest_runner() else {
        return Err(Violation { invariant: "story_of_a_death", detail: "no node runs a job".to_owned() });
    };
    world.begin_story(victim);
    world.kill(victim, Stop::PowerLost, true)?;
    world.run_until(50 * SECOND)?;
    Ok(world.take_story())
}
