//! Streams between runner nodes and the control node: links and tethers, as TCP carries them. In order, without loss, but
//! they stall while their direction is cut, and end at both sides at different times.

use std::collections::VecDeque;

use fabric::liveness::LinkEnd;
use fabric::watch::{LinkId, TetherEnd};
use model::id::{Incarnation, ShardId};
use model::message::{RunnerFrame, ToRunner};

use super::{Cluster, ClusterEvent};
use crate::coverage::Fault;
use crate::invariants::Checked;
use crate::scenario::{SECOND, Time};
use crate::world::{Event, Inbound, World, trace};

/// Time without data after which a process pings, and time to answer: those of the transport's links.
const PING_AFTER: Time = SECOND;
const PONG_WITHIN: Time = 4 * SECOND;
/// Interval of the kernel's probes of a tether, and the unanswered ones after which it ends.
const PROBE_INTERVAL: Time = SECOND;
const PROBES_MAX: u32 = 3;
/// A stream that could not send continues within this time.
const CONTINUES_WITHIN: Time = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Node,
    Control,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Node => Self::Control,
            Self::Control => Self::Node,
        }
    }
}

/// What a stream carries.
#[derive(Debug, Clone)]
pub enum Item {
    Frame {
        shard: ShardId,
        frame: Box<RunnerFrame>,
    },
    Leaving {
        keeps_processes: bool,
    },
    ToRunner {
        shard: ShardId,
        message: ToRunner,
    },
    OpenTether,
    Ping,
    Pong,
    /// The other process closed the stream or ended.
    Fin,
    /// The other machine does not know the stream.
    Reset,
}

/// Why a side's stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    Closed,
    Reset,
    /// The other side does not answer. Something was read recently, or nothing was.
    Unanswered {
        is_silent: bool,
    },
}

#[derive(Debug)]
pub struct Connection {
    node: usize,
    pub(super) incarnation: Incarnation,
    /// Of a link. Absent for a tether.
    link: Option<LinkId>,
    open: [bool; 2],
    /// When the last item arrives, by receiver.
    arrives_at: [Time; 2],
    /// Items that wait for a cut to be mended, by receiver.
    stalled: [VecDeque<Item>; 2],
    last_read: [Time; 2],
    ping_sent: [Option<Time>; 2],
    probes_missed: u32,
}

impl Connection {
    pub fn is_tether(&self) -> bool {
        self.link.is_none()
    }

    /// The node at a side of the stream.
    pub fn node_at(&self, side: Side, control: usize) -> usize {
        match side {
            Side::Node => self.node,
            Side::Control => control,
        }
    }

    pub(super) fn is_open(&self, side: Side) -> bool {
        self.open[side as usize]
    }

    pub(super) fn node(&self) -> usize {
        self.node
    }
}

impl World {
    /// A new stream, open at both sides.
    pub(super) fn open_stream(&mut self, node: usize, incarnation: Incarnation, link: Option<LinkId>) -> u64 {
        self.cluster.last_connection += 1;
        let number = self.cluster.last_connection;
        let connection = Connection {
            node,
            incarnation,
            link,
            open: [true; 2],
            arrives_at: [self.now; 2],
            stalled: Default::default(),
            last_read: [self.now; 2],
            ping_sent: [None; 2],
            probes_missed: 0,
        };
        self.cluster.connections.insert(number, connection);
        if link.is_some() {
            for side in [Side::Node, Side::Control] {
                self.cluster_after(PING_AFTER, ClusterEvent::KeepAlive { connection: number, side });
            }
        } else {
            self.cluster_after(PROBE_INTERVAL, ClusterEvent::TetherProbed { connection: number });
        }
        number
    }

    /// Sends something to one side. It waits while the direction is cut.
    pub(super) fn send_item(&mut self, number: u64, to: Side, item: Item) {
        let control = self.cluster.control_index();
        let delay = self.segment_delay();
        let Some(connection) = self.cluster.connections.get_mut(&number) else { return };
        let (from, receiver) = (connection.node_at(to.other(), control), connection.node_at(to, control));
        if !connection.stalled[to as usize].is_empty() || self.cluster.network.is_cut(from, receiver) {
            connection.stalled[to as usize].push_back(item);
            return;
        }
        let at = connection.arrives_at[to as usize].max(self.now + delay);
        connection.arrives_at[to as usize] = at;
        self.cluster_after(at - self.now, ClusterEvent::ItemArrives { connection: number, to, item });
    }

    /// Streams continue where the network carries something again.
    pub(super) fn resume_streams(&mut self) {
        let numbers: Vec<u64> = self.cluster.connections.keys().copied().collect();
        for number in numbers {
            for to in [Side::Node, Side::Control] {
                let Some(connection) = self.cluster.connections.get_mut(&number) else { continue };
                let waiting = std::mem::take(&mut connection.stalled[to as usize]);
                if waiting.is_empty() {
                    continue;
                }
                connection.arrives_at[to as usize] = self.now + self.rng.below(CONTINUES_WITHIN);
                for item in waiting {
                    self.send_item(number, to, item);
                }
            }
        }
    }

    pub(super) fn item_arrives(&mut self, number: u64, to: Side, item: Item) -> Checked {
        let control = self.cluster.control_index();
        let now = self.now;
        let Some(connection) = self.cluster.connections.get_mut(&number) else { return Ok(()) };
        if !self.cluster.nodes[connection.node_at(to, control)].machine_up {
            return Ok(());
        }
        if !connection.is_open(to) {
            if !matches!(item, Item::Fin | Item::Reset) {
                self.send_item(number, to.other(), Item::Reset);
            }
            return Ok(());
        }
        connection.last_read[to as usize] = now;
        let (node, link) = (connection.node, connection.link);
        if let (Side::Control, Some(link)) = (to, link) {
            let now = self.control_now();
            self.cluster.control.watch.heard(now, Cluster::id(node), link);
            self.note_heard(node);
        }
        match item {
            Item::Frame { shard, frame } => {
                let inbound = Inbound::RunnerFrame(*frame);
                self.after(0, Event::Deliver { shard: usize::from(shard.0), inbound });
            }
            Item::Leaving { keeps_processes } => {
                if let Some(link) = link {
                    let now = self.control_now();
                    self.cluster.control.watch.leaving(now, Cluster::id(node), link, keeps_processes);
                    return self.check_nodes();
                }
            }
            Item::ToRunner { shard, message } => {
                let incarnation = self.runners[node].incarnation;
                return self.runner_receives(node, incarnation, usize::from(shard.0), message);
            }
            Item::OpenTether => {
                if let Some(link) = self.cluster.nodes[node].link {
                    self.cluster_after(SECOND, ClusterEvent::OpensTether { node, link });
                }
            }
            Item::Ping => self.send_item(number, to.other(), Item::Pong),
            Item::Pong => connection_mut(&mut self.cluster, number, |it| it.ping_sent[to as usize] = None),
            Item::Fin => return self.stream_ends(number, to, StreamEnd::Closed),
            Item::Reset => return self.stream_ends(number, to, StreamEnd::Reset),
        }
        Ok(())
    }

    /// A process pings over an idle link, and closes it if there is no answer.
    pub(super) fn keep_alive(&mut self, number: u64, side: Side) -> Checked {
        let Some(connection) = self.cluster.connections.get_mut(&number).filter(|it| it.is_open(side)) else {
            return Ok(());
        };
        let index = side as usize;
        let idle_for = self.now - connection.last_read[index];
        let next = match connection.ping_sent[index] {
            Some(sent) if self.now - sent >= PONG_WITHIN => {
                let is_silent = idle_for >= PONG_WITHIN;
                return self.close_stream(number, side, Some(StreamEnd::Unanswered { is_silent }));
            }
            Some(sent) => sent + PONG_WITHIN,
            None if idle_for >= PING_AFTER => {
                connection.ping_sent[index] = Some(self.now);
                self.send_item(number, side.other(), Item::Ping);
                self.now + PONG_WITHIN
            }
            None => connection.last_read[index] + PING_AFTER,
        };
        // An answer ends the wait: the next ping is due sooner.
        let wait = (next - self.now).min(PING_AFTER);
        self.cluster_after(wait, ClusterEvent::KeepAlive { connection: number, side });
        Ok(())
    }

    /// The kernels of both machines probe a tether.
    pub(super) fn probe_tether(&mut self, number: u64) -> Checked {
        let control = self.cluster.control_index();
        let Some(connection) = self.cluster.connections.get(&number) else { return Ok(()) };
        let (node, open) = (connection.node, connection.open);
        let machine_up = self.cluster.nodes[node].machine_up;
        let is_answered = self.is_answered(node, control) && machine_up;
        let mut missed = 0;
        connection_mut(&mut self.cluster, number, |it| {
            it.probes_missed = if is_answered { 0 } else { it.probes_missed + 1 };
            missed = it.probes_missed;
        });
        if is_answered && open != [true; 2] {
            for side in [Side::Node, Side::Control] {
                self.stream_ends(number, side, StreamEnd::Reset)?;
            }
            return Ok(());
        }
        if missed > PROBES_MAX {
            for side in [Side::Node, Side::Control] {
                self.stream_ends(number, side, StreamEnd::Unanswered { is_silent: true })?;
            }
            return Ok(());
        }
        self.cluster_after(PROBE_INTERVAL, ClusterEvent::TetherProbed { connection: number });
        Ok(())
    }

    /// The network breaks a stream: both sides see a reset.
    pub(super) fn reset_stream(&mut self, number: u64) -> Checked {
        self.coverage.count_fault(Fault::StreamReset);
        for side in [Side::Node, Side::Control] {
            self.stream_ends(number, side, StreamEnd::Reset)?;
        }
        Ok(())
    }

    /// One side closes a stream and tells the other one.
    pub(super) fn close_stream(&mut self, number: u64, side: Side, end: Option<StreamEnd>) -> Checked {
        self.send_item(number, side.other(), Item::Fin);
        match end {
            Some(end) => self.stream_ends(number, side, end),
            // Nobody on this side wants to know.
            None => {
                connection_mut(&mut self.cluster, number, |it| it.open[side as usize] = false);
                self.remove_if_closed(number);
                Ok(())
            }
        }
    }

    /// A machine without power: its side of a stream is gone, and what waited there.
    pub(super) fn drop_side(&mut self, number: u64, side: Side) {
        connection_mut(&mut self.cluster, number, |it| {
            it.open[side as usize] = false;
            it.stalled[side.other() as usize].clear();
        });
        self.remove_if_closed(number);
    }

    fn remove_if_closed(&mut self, number: u64) {
        if self.cluster.connections.get(&number).is_some_and(|it| it.open == [false; 2]) {
            self.cluster.connections.remove(&number);
        }
    }

    /// A side finds that its stream has ended.
    fn stream_ends(&mut self, number: u64, side: Side, end: StreamEnd) -> Checked {
        let Some(connection) = self.cluster.connections.get_mut(&number).filter(|it| it.is_open(side)) else {
            return Ok(());
        };
        connection.open[side as usize] = false;
        let (node, incarnation, link) = (connection.node, connection.incarnation, connection.link);
        self.remove_if_closed(number);
        match (side, link) {
            (Side::Node, Some(_)) => {
                if self.cluster.nodes[node].link == Some(number) {
                    self.cluster.nodes[node].link = None;
                    self.connect_later(node, incarnation);
                }
                Ok(())
            }
            (Side::Node, None) => {
                self.cluster.nodes[node].tethers.retain(|held| *held != number);
                Ok(())
            }
            (Side::Control, Some(link)) => self.link_ended(node, (number, link), end),
            (Side::Control, None) => {
                let (now, end) = (self.control_now(), tether_end(end));
                trace!(self, "the tether of {} ends: {end:?}", self.runners[node].id);
                self.note_tether_ended(node);
                self.cluster.control.watch.tether_closed(now, Cluster::id(node), end);
                self.check_nodes()
            }
        }
    }

    fn link_ended(&mut self, node: usize, (number, link): (u64, LinkId), end: StreamEnd) -> Checked {
        let id = Cluster::id(node);
        if self.cluster.control.links.get(&id) == Some(&number) {
            self.cluster.control.links.remove(&id);
        }
        // As the transport tells its reasons apart: what was read recently is not silence.
        let (end, reason) = match end {
            StreamEnd::Closed => (LinkEnd::Ended, "closed by the peer"),
            StreamEnd::Reset => (LinkEnd::Ended, "the connection broke: reset"),
            StreamEnd::Unanswered { is_silent: true } => (LinkEnd::Silent, "the peer did not answer keep-alive pings"),
            StreamEnd::Unanswered { is_silent: false } => (LinkEnd::Ended, "closed by this node"),
        };
        let now = self.control_now();
        self.cluster.control.watch.link_down(now, id, link, end, reason.to_owned());
        self.check_nodes()
    }
}

fn connection_mut(cluster: &mut Cluster, number: u64, change: impl FnOnce(&mut Connection)) {
    if let Some(connection) = cluster.connections.get_mut(&number) {
        change(connection);
    }
}

fn tether_end(end: StreamEnd) -> TetherEnd {
    match end {
        StreamEnd::Closed => TetherEnd::Closed,
        StreamEnd::Reset => TetherEnd::Reset,
        StreamEnd::Unanswered { .. } => TetherEnd::Vanished,
    }
}
