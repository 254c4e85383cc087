//! A control node and its runner nodes on one simulated network: the production membership, the production watch over
//! links and tethers, and what both tell the engine.
//!
//! All shards belong to the control node. Frames between shards and runners travel over the stream of their node.
//! Packets and streams share the partitions of the network. What the shells of the real nodes do (connect again, hold a
//! tether, answer keep-alive pings) is modelled here; every decision is made by the code that ships.

mod control;
mod faults;
mod life;
mod members;
mod network;
mod plan;
mod report;
mod streams;
mod truth;

use std::collections::{BTreeMap, VecDeque};

use fabric::Membership;
use fabric::watch::Watch;
use model::id::{Incarnation, NodeId};
use model::job::End;

pub use plan::{LOSS_MAX, Plan};
pub use report::{ClusterReport, Detections, measure, story_of_a_death};
pub use truth::Death;

use crate::cluster::network::{Network, Packet};
use crate::cluster::streams::{Connection, Item, Side};
use crate::invariants::Checked;
use crate::scenario::Time;
use crate::world::{Event, World};

/// What happens to nodes, packets and streams.
#[derive(Debug)]
pub enum ClusterEvent {
    /// The server process of a runner node starts, on its machine.
    NodeStarts {
        node: usize,
    },
    ControlStarts,
    PacketArrives(Packet),
    MemberWakes {
        node: usize,
        wake: u64,
    },
    /// A server process tries to connect to the control node.
    Connects {
        node: usize,
        incarnation: Incarnation,
    },
    /// Its request has reached the control node.
    Connected {
        node: usize,
        incarnation: Incarnation,
    },
    /// The node opens a tether while its link is open.
    OpensTether {
        node: usize,
        link: u64,
    },
    ItemArrives {
        connection: u64,
        to: Side,
        item: Item,
    },
    KeepAlive {
        connection: u64,
        side: Side,
    },
    TetherProbed {
        connection: u64,
    },
    WatchChecks {
        check: u64,
    },
    Mends {
        cut: u64,
    },
    FaultsAct,
    /// A dead node must be found by now.
    DetectionDue {
        node: usize,
        death: Death,
    },
}

/// A node. The control node is the last one.
#[derive(Debug, Default)]
pub struct Node {
    /// Present while the server process takes part in the membership.
    membership: Option<Membership>,
    /// The wake-up that counts. Earlier ones are outdated.
    wake: u64,
    machine_up: bool,
    /// The server process is stopped until then, like by SIGSTOP.
    paused_until: Time,
    /// Packets that wait for the paused process.
    packets_waiting: usize,
    /// The node's end of its link.
    link: Option<u64>,
    /// The tethers that its spawner holds, oldest first.
    tethers: VecDeque<u64>,
    /// Wait before the next attempt to connect.
    backoff: Time,
    truth: truth::NodeTruth,
}

/// The control node.
#[derive(Debug)]
struct Control {
    is_up: bool,
    incarnation: Incarnation,
    /// When it is up again.
    down_until: Time,
    watch: Watch,
    /// The check that counts.
    check: u64,
    /// The current link of each node, by connection.
    links: BTreeMap<NodeId, u64>,
}

/// The nodes and their network. Without nodes, runners and shards exchange messages directly.
#[derive(Debug)]
pub struct Cluster {
    plan: Plan,
    network: Network,
    nodes: Vec<Node>,
    control: Control,
    connections: BTreeMap<u64, Connection>,
    last_connection: u64,
    truth: truth::Truth,
}

impl Cluster {
    /// A world without nodes.
    pub fn none() -> Self {
        Self::new(Plan::none())
    }

    pub fn new(plan: Plan) -> Self {
        let count = if plan.runners == 0 { 0 } else { plan.runners + 1 };
        let nodes = (0..count).map(|_| Node { machine_up: true, ..Node::default() }).collect();
        let control = Control {
            is_up: false,
            incarnation: Incarnation(0),
            down_until: 0,
            watch: Watch::new(plan.adopt_grace),
            check: 0,
            links: BTreeMap::new(),
        };
        Self {
            network: Network::new(&plan),
            plan,
            nodes,
            control,
            connections: BTreeMap::new(),
            last_connection: 0,
            truth: truth::Truth::default(),
        }
    }

    pub fn is_active(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Index of the control node.
    fn control_index(&self) -> usize {
        self.nodes.len() - 1
    }

    fn id(node: usize) -> NodeId {
        NodeId(node as u64 + 1)
    }

    fn index(id: NodeId) -> usize {
        id.0 as usize - 1
    }
}

impl World {
    pub(crate) fn begin_cluster(&mut self) {
        self.after(0, Event::Cluster(ClusterEvent::ControlStarts));
        for node in 0..self.runners.len() {
            let delay = self.rng.below(1_000);
            self.after(delay, Event::Cluster(ClusterEvent::NodeStarts { node }));
        }
        if self.cluster.plan.loss == LOSS_MAX {
            self.coverage.count("networks that lose 30 % of the packets");
        }
        let first = self.cluster.plan.first_fault;
        self.after(first, Event::Cluster(ClusterEvent::FaultsAct));
    }

    fn cluster_after(&mut self, delay: Time, event: ClusterEvent) {
        self.after(delay, Event::Cluster(event));
    }

    pub(crate) fn cluster_event(&mut self, event: ClusterEvent) -> Checked {
        match event {
            ClusterEvent::NodeStarts { node } => self.node_starts(node),
            ClusterEvent::ControlStarts => self.control_starts(),
            ClusterEvent::PacketArrives(packet) => return self.packet_arrives(packet),
            ClusterEvent::MemberWakes { node, wake } => return self.member_wakes(node, wake),
            ClusterEvent::Connects { node, incarnation } => self.node_connects(node, incarnation),
            ClusterEvent::Connected { node, incarnation } => return self.node_connected(node, incarnation),
            ClusterEvent::OpensTether { node, link } => return self.open_tether(node, link),
            ClusterEvent::ItemArrives { connection, to, item } => return self.item_arrives(connection, to, item),
            ClusterEvent::KeepAlive { connection, side } => return self.keep_alive(connection, side),
            ClusterEvent::TetherProbed { connection } => return self.probe_tether(connection),
            ClusterEvent::WatchChecks { check } if check == self.cluster.control.check => return self.check_nodes(),
            ClusterEvent::WatchChecks { .. } => {}
            ClusterEvent::Mends { cut } => self.mend(cut),
            ClusterEvent::FaultsAct => return self.faults_act(),
            ClusterEvent::DetectionDue { node, death } => return self.check_detection(node, death),
        }
        Ok(())
    }

    /// When the process that an event is for runs again, if it is stopped.
    pub(crate) fn postponed_until(&mut self, event: &Event) -> Option<Time> {
        if !self.cluster.is_active() {
            return None;
        }
        let control = self.cluster.control_index();
        let paused =
            |world: &Self, node: usize| Some(world.cluster.nodes[node].paused_until).filter(|until| *until > world.now);
        match event {
            Event::ToRunner { runner, .. } | Event::AttemptStarts { runner, .. } | Event::RunnerTick { runner, .. } => {
                paused(self, *runner)
            }
            Event::AttemptEnds { runner, incarnation, attempt_ref, end, .. } => {
                let until = paused(self, *runner)?;
                if *end == End::LeaseExpired && self.runners[*runner].incarnation == *incarnation {
                    self.stop_unattended(*attempt_ref);
                }
                Some(until)
            }
            Event::StartShard { .. } if !self.cluster.control.is_up => {
                Some(self.cluster.control.down_until.max(self.now + 1))
            }
            Event::StartShard { .. } => paused(self, control),
            Event::Round { shard, process } => {
                let until = paused(self, control)?;
                self.hosts[*shard].postpone_round(*process, self.now, until);
                Some(until)
            }
            Event::Cluster(event) => match event {
                // Packets that wait are read first.
                ClusterEvent::MemberWakes { node, .. } => paused(self, *node).map(|until| until + 1),
                ClusterEvent::Connects { node, .. } | ClusterEvent::OpensTether { node, .. } => paused(self, *node),
                ClusterEvent::Connected { .. } | ClusterEvent::WatchChecks { .. } => paused(self, control),
                ClusterEvent::ItemArrives { connection, to, .. } | ClusterEvent::KeepAlive { connection, side: to } => {
                    let connection = self.cluster.connections.get(connection)?;
                    // The kernel answers for a tether.
                    if connection.is_tether() {
                        return None;
                    }
                    paused(self, connection.node_at(*to, control))
                }
                ClusterEvent::NodeStarts { .. }
                | ClusterEvent::ControlStarts
                | ClusterEvent::PacketArrives(_)
                | ClusterEvent::TetherProbed { .. }
                | ClusterEvent::Mends { .. }
                | ClusterEvent::FaultsAct
                | ClusterEvent::DetectionDue { .. } => None,
            },
            _ => None,
        }
    }
}
