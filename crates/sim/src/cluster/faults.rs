//! The faults of a cluster: one at a time, now and then many at once.

use std::collections::BTreeSet;

use fabric::liveness::{Cause, Lost};
use model::id::{Incarnation, NodeId, RunnerId};

use super::life::Stop;
use super::network::Direction;
use super::truth::Death;
use super::{Cluster, ClusterEvent, LOSS_MAX};
use crate::coverage::Fault;
use crate::invariants::Checked;
use crate::rng::Rate;
use crate::scenario::{SECOND, Time};
use crate::world::{Event, Inbound, World, trace};

/// Longest pause of a server process.
const PAUSE_MAX: Time = 20 * SECOND;

#[derive(Debug, Clone, Copy)]
enum Act {
    RestartServer,
    KillNode,
    PowerOff,
    Pause,
    Leave,
    Partition,
    CutOneWay,
    CutPairs,
    ResetStream,
    FailTogether,
    RestartControl,
    PauseControl,
    ChangeLoss,
}

impl World {
    pub(super) fn faults_act(&mut self) -> Checked {
        if self.is_healed() {
            return Ok(());
        }
        let (least, most) = self.cluster.plan.fault_every;
        let next = self.rng.between(least, most);
        self.cluster_after(next, ClusterEvent::FaultsAct);
        if let Some(act) = self.draw_act() {
            self.act(act)?;
        }
        Ok(())
    }

    fn draw_act(&mut self) -> Option<Act> {
        let weights = self.cluster.plan.weights;
        let acts = [
            (weights.restart_server, Act::RestartServer),
            (weights.kill_node, Act::KillNode),
            (weights.power_off, Act::PowerOff),
            (weights.pause, Act::Pause),
            (weights.leave, Act::Leave),
            (weights.partition, Act::Partition),
            (weights.cut_one_way, Act::CutOneWay),
            (weights.cut_pairs, Act::CutPairs),
            (weights.reset_stream, Act::ResetStream),
            (weights.fail_together, Act::FailTogether),
            (weights.restart_control, Act::RestartControl),
            (weights.pause_control, Act::PauseControl),
            (weights.change_loss, Act::ChangeLoss),
        ];
        let mut drawn = self.rng.below(acts.iter().map(|(weight, _)| weight).sum());
        acts.into_iter()
            .find(|(weight, _)| {
                let is_drawn = drawn < *weight;
                drawn = drawn.saturating_sub(*weight);
                is_drawn
            })
            .map(|(_, act)| act)
    }

    fn act(&mut self, act: Act) -> Checked {
        let node = self.rng.index(self.runners.len());
        match act {
            Act::RestartServer => {
                let stop = if self.rng.one_in(2) { Stop::ServerKilled } else { Stop::ServerReplaced };
                let grace = self.cluster.plan.adopt_grace.0;
                let down = if self.rng.one_in(5) { grace + 5 * SECOND } else { self.rng.between(100, grace * 9 / 10) };
                self.stop(node, stop, Some(down))?;
            }
            Act::KillNode => self.kill(node, Stop::AllKilled, true)?,
            Act::PowerOff => self.kill(node, Stop::PowerLost, true)?,
            Act::Leave => self.kill(node, Stop::Leaves, true)?,
            Act::Pause => {
                let duration = self.rng.between(100, PAUSE_MAX);
                self.hang(node, duration, true);
            }
            Act::Partition | Act::CutOneWay | Act::CutPairs => self.cut_some(act, node),
            Act::ResetStream => {
                let streams: Vec<u64> = self.cluster.connections.keys().copied().collect();
                if let Some(stream) = self.rng.pick(&streams).copied() {
                    let of = self.cluster.connections[&stream].node();
                    trace!(self, "a stream of {} breaks", self.runners[of].id);
                    self.note_stream_reset(of);
                    self.disturb(self.now);
                    self.reset_stream(stream)?;
                }
            }
            Act::FailTogether => {
                self.coverage.count_fault(Fault::NodesFailedTogether);
                let all = self.runners.len();
                for node in (0..all).filter(|node| node % 3 != 2 || all < 3) {
                    match self.rng.below(3) {
                        0 => self.kill(node, Stop::AllKilled, false)?,
                        1 => self.kill(node, Stop::PowerLost, false)?,
                        _ => self.hang(node, 10 * SECOND, false),
                    }
                }
            }
            Act::RestartControl => {
                let down = self.rng.between(200, 10 * SECOND);
                self.disturb(self.now + down);
                self.restart_control(down)?;
            }
            Act::PauseControl => self.pause_control(),
            Act::ChangeLoss => {
                let most = u64::from(self.cluster.plan.loss_max.0);
                let loss = if self.rng.one_in(4) { most } else { self.rng.below(most) };
                self.note_loss(Rate(loss as u32));
                trace!(self, "{loss} of 10000 packets are lost");
                if self.cluster.network.loss == LOSS_MAX {
                    self.coverage.count("networks that lose 30 % of the packets");
                }
            }
        }
        Ok(())
    }

    fn pause_control(&mut self) {
        let control = self.cluster.control_index();
        if self.cluster.control.is_up {
            let duration = self.rng.between(100, 12 * SECOND);
            self.coverage.count_fault(Fault::ControlPaused);
            self.disturb(self.now + duration);
            self.note_control_pause(duration);
            self.pause_node(control, duration);
        }
    }

    /// Stops the server process alone. The node keeps its excuses, but gets none for this.
    fn stop(&mut self, node: usize, stop: Stop, down: Option<Time>) -> Checked {
        if self.runners[node].is_up() {
            self.count_stop(stop);
            let until = self.now + down.unwrap_or_default();
            self.disturb(until);
            self.stop_node(node, stop, down)?;
        }
        Ok(())
    }

    /// Ends all processes of a node.
    pub(super) fn kill(&mut self, node: usize, stop: Stop, is_alone: bool) -> Checked {
        if !self.runners[node].is_up() {
            return Ok(());
        }
        self.count_stop(stop);
        let stays = self.rng.chance(self.cluster.plan.stays_dead) && self.standing() > 1;
        let down = if stays { None } else { Some(self.rng.between(SECOND, 40 * SECOND)) };
        match stop {
            Stop::AllKilled => self.note_death(node, Death::Killed, is_alone),
            Stop::PowerLost => self.note_death(node, Death::PowerLost, is_alone),
            Stop::Leaves | Stop::ServerKilled | Stop::ServerReplaced => {}
        }
        self.disturb(self.now);
        self.stop_node(node, stop, down)
    }

    fn hang(&mut self, node: usize, duration: Time, is_alone: bool) {
        if !self.runners[node].is_up() {
            return;
        }
        self.coverage.count_fault(Fault::NodePaused);
        if duration > 5 * SECOND {
            self.note_death(node, Death::Hung, is_alone);
        }
        self.disturb(self.now);
        self.excuse(node, self.now + duration);
        self.pause_node(node, duration);
    }

    /// Nodes that are not dead for good.
    fn standing(&self) -> usize {
        self.cluster.nodes.iter().take(self.runners.len()).filter(|node| !node.truth.stays_dead).count()
    }

    /// Cuts the network: some nodes from all others, one direction of a node, or some pairs of runner nodes.
    fn cut_some(&mut self, act: Act, node: usize) {
        let (all, control) = (self.cluster.nodes.len(), self.cluster.control_index());
        let mut directions: BTreeSet<Direction> = BTreeSet::new();
        match act {
            Act::Partition => {
                self.coverage.count_fault(Fault::NodesPartitioned);
                let part: Vec<usize> = (0..control).filter(|other| *other == node || self.rng.one_in(3)).collect();
                for inside in &part {
                    let outside = (0..all).filter(|other| !part.contains(other));
                    directions.extend(outside.flat_map(|other| [(*inside, other), (other, *inside)]));
                }
            }
            Act::CutOneWay => {
                self.coverage.count_fault(Fault::NodeCutOneWay);
                let inbound = self.rng.one_in(2);
                let others = (0..all).filter(|other| *other != node);
                directions.extend(others.map(|other| if inbound { (other, node) } else { (node, other) }));
            }
            _ => {
                self.coverage.count_fault(Fault::NodePairsCut);
                for one in 0..control {
                    for other in (0..control).filter(|other| *other != one) {
                        if self.rng.one_in(2) {
                            directions.insert((one, other));
                        }
                    }
                }
            }
        }
        let duration = self.rng.between(200, 30 * SECOND);
        let until = self.now + duration;
        self.disturb(until);
        for node in 0..control {
            if directions.contains(&(node, control)) || directions.contains(&(control, node)) {
                self.excuse(node, until);
            }
        }
        self.cut_directions(directions, duration);
    }

    /// Ends all faults. Nodes that stay dead do.
    pub(crate) fn heal_cluster(&mut self) {
        if !self.cluster.is_active() {
            return;
        }
        self.mend_all();
        for node in &mut self.cluster.nodes {
            node.paused_until = node.paused_until.min(self.now);
        }
        for node in 0..self.runners.len() {
            self.excuse(node, self.now);
            self.node_starts(node);
        }
    }

    /// Whether a runner never comes back.
    pub(crate) fn stays_dead(&self, runner: usize) -> bool {
        self.cluster.is_active() && self.cluster.nodes[runner].truth.stays_dead
    }

    /// Sabotage: declares nodes lost that run and can be reached.
    pub(crate) fn declare_reachable_nodes_lost(&mut self) -> Checked {
        for (node, incarnation) in self.connected_nodes() {
            self.lose(Lost { node, incarnation, cause: Cause::Silent })?;
        }
        Ok(())
    }

    /// Sabotage: tells the shards that the runners of reachable nodes are lost.
    pub(crate) fn give_up_reachable_runners(&mut self) {
        for (node, incarnation) in self.connected_nodes() {
            for shard in 0..self.hosts.len() {
                let inbound = Inbound::RunnerLost { runner: RunnerId(node.0), incarnation };
                self.after(0, Event::Deliver { shard, inbound });
            }
        }
    }

    fn connected_nodes(&self) -> Vec<(NodeId, Incarnation)> {
        let connected = self.cluster.control.links.keys();
        connected.map(|node| (*node, self.runners[Cluster::index(*node)].incarnation)).collect()
    }
}
