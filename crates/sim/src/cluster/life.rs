//! The life of a runner node: its machine, its server process and its spawner, and how it connects.

use std::collections::VecDeque;

use model::id::{Incarnation, ShardId};
use model::message::RunnerFrame;

use super::streams::{Item, Side};
use super::{Cluster, ClusterEvent};
use crate::coverage::Fault;
use crate::invariants::Checked;
use crate::scenario::{SECOND, Time};
use crate::world::{World, trace};

/// Waits between attempts to connect: those of a runner node.
const BACKOFF_MIN: Time = 50;
const BACKOFF_MAX: Time = SECOND;
/// Tethers that a spawner holds.
const TETHERS_MAX: usize = 4;
/// A connection that cannot be opened is given up after this time.
const CONNECT_TIMEOUT: Time = 5 * SECOND;

/// How a server process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Killed. The spawner and its processes go on.
    ServerKilled,
    /// Told to end, as for an upgrade. The spawner and its processes go on.
    ServerReplaced,
    /// The spawner and all processes are killed too.
    AllKilled,
    /// The machine loses its power: nobody is told.
    PowerLost,
    /// Told to leave: processes end too.
    Leaves,
}

impl Stop {
    fn keeps_processes(self) -> bool {
        match self {
            Self::ServerKilled | Self::ServerReplaced => true,
            Self::AllKilled | Self::PowerLost | Self::Leaves => false,
        }
    }
}

impl World {
    pub(super) fn node_starts(&mut self, node: usize) {
        if self.runners[node].is_up() || self.cluster.nodes[node].truth.stays_dead {
            return;
        }
        let host = &mut self.cluster.nodes[node];
        (host.machine_up, host.paused_until, host.backoff) = (true, 0, BACKOFF_MIN);
        self.note_start(node);
        self.runner_starts(node);
        let incarnation = self.runners[node].incarnation;
        let delay = self.rng.below(50);
        self.cluster_after(delay, ClusterEvent::Connects { node, incarnation });
    }

    /// Ends the server process of a node, and perhaps more. It starts again after `down`.
    pub(super) fn stop_node(&mut self, node: usize, stop: Stop, down: Option<Time>) -> Checked {
        if !self.runners[node].is_up() {
            return Ok(());
        }
        trace!(self, "{}: {stop:?}, down for {down:?} ms", self.runners[node].id);
        self.note_stop(node, stop.keeps_processes());
        let host = &mut self.cluster.nodes[node];
        let (link, paused) = (host.link.take(), host.paused_until > self.now);
        host.paused_until = 0;
        let tethers = if stop.keeps_processes() { VecDeque::new() } else { std::mem::take(&mut host.tethers) };
        match stop {
            Stop::ServerReplaced | Stop::Leaves if !paused => {
                if let Some(link) = link {
                    let keeps_processes = stop.keeps_processes();
                    self.send_item(link, Side::Control, Item::Leaving { keeps_processes });
                }
                if stop == Stop::Leaves {
                    let now = self.node_clock(node);
                    self.with_members(node, |membership| membership.leave(now))?;
                }
            }
            Stop::ServerReplaced | Stop::Leaves | Stop::ServerKilled | Stop::AllKilled | Stop::PowerLost => {}
        }
        let host = &mut self.cluster.nodes[node];
        host.membership = None;
        host.machine_up = stop != Stop::PowerLost;
        for stream in link.into_iter().chain(tethers) {
            match stop {
                Stop::PowerLost => self.drop_side(stream, Side::Node),
                Stop::ServerKilled | Stop::ServerReplaced | Stop::AllKilled | Stop::Leaves => {
                    self.close_stream(stream, Side::Node, None)?;
                }
            }
        }
        self.stop_runner(node, !stop.keeps_processes());
        match down {
            Some(down) => self.cluster_after(down, ClusterEvent::NodeStarts { node }),
            None => self.cluster.nodes[node].truth.stays_dead = true,
        }
        Ok(())
    }

    /// Stops the server process like SIGSTOP, until then.
    pub(super) fn pause_node(&mut self, node: usize, duration: Time) {
        let until = self.now + duration;
        trace!(self, "node {} stops for {duration} ms", node + 1);
        self.cluster.nodes[node].paused_until = until;
        self.cluster.nodes[node].packets_waiting = 0;
    }

    pub(super) fn connect_later(&mut self, node: usize, incarnation: Incarnation) {
        let host = &mut self.cluster.nodes[node];
        let wait = host.backoff;
        host.backoff = (2 * wait).min(BACKOFF_MAX);
        let delay = wait / 2 + self.rng.below(wait / 2 + 1);
        self.cluster_after(delay, ClusterEvent::Connects { node, incarnation });
    }

    fn wants_link(&self, node: usize, incarnation: Incarnation) -> bool {
        let runner = &self.runners[node];
        runner.is_up() && runner.incarnation == incarnation && self.cluster.nodes[node].link.is_none()
    }

    pub(super) fn node_connects(&mut self, node: usize, incarnation: Incarnation) {
        if !self.wants_link(node, incarnation) {
            return;
        }
        let control = self.cluster.control_index();
        if !self.cluster.network.is_connected(node, control) {
            self.cluster_after(CONNECT_TIMEOUT, ClusterEvent::Connects { node, incarnation });
        } else if !self.cluster.control.is_up {
            self.connect_later(node, incarnation);
        } else {
            // Connection, handshake and hello.
            let delay = 1 + self.segment_delay() + self.segment_delay() + self.segment_delay();
            if delay > CONNECT_TIMEOUT {
                return self.cluster_after(CONNECT_TIMEOUT, ClusterEvent::Connects { node, incarnation });
            }
            self.cluster_after(delay, ClusterEvent::Connected { node, incarnation });
        }
    }

    pub(super) fn node_connected(&mut self, node: usize, incarnation: Incarnation) -> Checked {
        if !self.wants_link(node, incarnation) {
            return Ok(());
        }
        let control = self.cluster.control_index();
        if !self.cluster.control.is_up || !self.cluster.network.is_connected(node, control) {
            self.connect_later(node, incarnation);
            return Ok(());
        }
        let Some(link) = self.admit(node, incarnation)? else {
            self.coverage.count("links refused");
            self.connect_later(node, incarnation);
            return Ok(());
        };
        self.cluster.nodes[node].link = Some(link);
        self.cluster.nodes[node].backoff = BACKOFF_MIN;
        trace!(self, "{} is connected", self.runners[node].id);
        self.join_members(node)?;
        let delay = self.segment_delay() + self.segment_delay();
        self.cluster_after(delay, ClusterEvent::OpensTether { node, link });
        self.runner_connected(node)
    }

    /// Sends at once what is due: a node that was disconnected has waited.
    fn runner_connected(&mut self, node: usize) -> Checked {
        for shard in 0..self.hosts.len() {
            self.send_due(node, shard);
        }
        Ok(())
    }

    /// Opens a tether while its link is open. The spawner holds it, if need be in place of the oldest.
    pub(super) fn open_tether(&mut self, node: usize, link: u64) -> Checked {
        if self.cluster.nodes[node].link != Some(link) || !self.runners[node].is_up() {
            return Ok(());
        }
        let control = self.cluster.control_index();
        if !self.cluster.network.is_connected(node, control) || !self.cluster.control.is_up {
            self.cluster_after(SECOND, ClusterEvent::OpensTether { node, link });
            return Ok(());
        }
        let incarnation = self.runners[node].incarnation;
        let tether = self.open_stream(node, incarnation, None);
        let held = &mut self.cluster.nodes[node].tethers;
        held.push_back(tether);
        let oldest = if held.len() > TETHERS_MAX { held.pop_front() } else { None };
        let now = self.control_now();
        self.cluster.control.watch.tether_opened(now, Cluster::id(node));
        self.note_tether_opened(node);
        self.perform_watch()?;
        match oldest {
            Some(oldest) => self.close_stream(oldest, Side::Node, None),
            None => Ok(()),
        }
    }

    /// Sends a frame of a runner over the link of its node. Without a link it is lost: the runner sends it again.
    pub(crate) fn send_over_link(&mut self, node: usize, shard: usize, frame: RunnerFrame) {
        if let Some(link) = self.cluster.nodes[node].link {
            let shard = ShardId(shard as u16);
            self.send_item(link, Side::Control, Item::Frame { shard, frame: Box::new(frame) });
        }
    }

    pub(super) fn count_stop(&mut self, stop: Stop) {
        self.coverage.count_fault(match stop {
            Stop::ServerKilled | Stop::ServerReplaced => Fault::ServerRestarted,
            Stop::AllKilled => Fault::NodeKilled,
            Stop::PowerLost => Fault::NodePowerLost,
            Stop::Leaves => Fault::NodeLeft,
        });
    }
}
