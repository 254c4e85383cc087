//! The nodes, the network between them, and time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use model::id::{Incarnation, NodeId};
use model::time::Millis;

use super::clock::Clock;
use super::network::Network;
use crate::identity::Role;
use crate::membership::{Membership, Transmit};
use crate::options::Options;
use crate::profile::Profile;
use crate::random::Random;
use crate::view::{Event, MemberView, State};

const PORT: u16 = 7_000;

/// Packets that wait for a paused node: a socket's buffer. The rest is lost.
const SOCKET_PACKETS_MAX: usize = 256;

/// Join addresses of every node: those of the first nodes.
pub(super) const JOIN_ADDRESSES: usize = 3;

#[derive(Debug, Clone)]
pub struct Settings {
    pub nodes: usize,
    pub profile: Profile,
    pub seed: u64,
    /// Greatest error of a clock's speed, in parts per million.
    pub drift_ppm: u64,
}

impl Settings {
    pub fn new(nodes: usize, profile: Profile, seed: u64) -> Self {
        Self { nodes, profile, seed, drift_ppm: 20_000 }
    }
}

/// A change that a node observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// True time.
    pub at: Millis,
    pub observer: usize,
    pub event: Event,
}

struct Host {
    clock: Clock,
    incarnation: u64,
    /// Absent while the process does not run.
    membership: Option<Membership>,
    paused: bool,
    left: bool,
    /// Received while paused.
    socket: VecDeque<Vec<u8>>,
    /// Longest delay until the busy node gets a core.
    busy_ms: u64,
    /// The wake-up that counts. Earlier ones are outdated.
    wake: u64,
}

enum Action {
    Deliver { to: usize, payload: Vec<u8> },
    Wake { node: usize, wake: u64 },
}

/// Nodes 0 to n - 1. The id of node i is i + 1. Each fourth node is a runner, the others are control nodes.
pub struct Cluster {
    now: Millis,
    settings: Settings,
    random: Random,
    pub network: Network,
    hosts: Vec<Host>,
    queue: BinaryHeap<Reverse<(Millis, u64)>>,
    /// Actions by the number in the queue.
    actions: hashbrown::HashMap<u64, Action, foldhash::fast::FixedState>,
    scheduled: u64,
    observations: Vec<Observation>,
}

impl Cluster {
    /// A cluster whose nodes do not run yet.
    pub fn new(settings: Settings) -> Self {
        let mut random = Random::new(settings.seed);
        let hosts = (0..settings.nodes)
            .map(|_| {
                let drift = random.below(2 * settings.drift_ppm + 1) as i64 - settings.drift_ppm as i64;
                let clock = Clock::new(1_000 + random.below(1_000_000), drift);
                Host {
                    clock,
                    incarnation: 0,
                    membership: None,
                    paused: false,
                    left: false,
                    socket: VecDeque::new(),
                    busy_ms: 0,
                    wake: 0,
                }
            })
            .collect();
        Self {
            now: Millis(0),
            settings,
            random,
            network: Network::good(),
            hosts,
            queue: BinaryHeap::new(),
            actions: hashbrown::HashMap::default(),
            scheduled: 0,
            observations: Vec::new(),
        }
    }

    pub fn now(&self) -> Millis {
        self.now
    }

    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    pub fn id(node: usize) -> NodeId {
        NodeId(node as u64 + 1)
    }

    pub fn index(id: NodeId) -> usize {
        id.0 as usize - 1
    }

    fn address(node: usize) -> SocketAddr {
        let [_, _, high, low] = (node as u32).to_be_bytes();
        SocketAddr::from(([10, 0, high, low], PORT))
    }

    pub fn incarnation(&self, node: usize) -> Incarnation {
        Incarnation(self.hosts[node].incarnation)
    }

    /// The process runs, stopped or not.
    pub fn is_up(&self, node: usize) -> bool {
        self.hosts[node].membership.is_some()
    }

    pub fn is_paused(&self, node: usize) -> bool {
        self.hosts[node].paused
    }

    pub fn has_left(&self, node: usize) -> bool {
        self.hosts[node].left
    }

    pub fn membership(&self, node: usize) -> Option<&Membership> {
        self.hosts[node].membership.as_ref()
    }

    pub fn take_observations(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.observations)
    }

    /// Starts a node, or starts it again after a crash or a departure.
    pub fn start(&mut self, node: usize) {
        let seed = self.random.next();
        let join: Vec<_> = (0..JOIN_ADDRESSES.min(self.hosts.len())).map(Self::address).collect();
        let host = &mut self.hosts[node];
        host.incarnation += 1;
        let options = Options {
            node: Self::id(node),
            incarnation: Incarnation(host.incarnation),
            address: Self::address(node),
            role: if node % 4 == 3 { Role::Runner } else { Role::Control },
            profile: self.settings.profile,
            seed,
        };
        let now = host.clock.read(self.now);
        let Ok(mut membership) = Membership::new(now, options) else {
            unreachable!("the options of simulated nodes are valid")
        };
        membership.join(now, &join);
        host.membership = Some(membership);
        host.left = false;
        host.paused = false;
        host.socket.clear();
        self.settle(node);
    }

    /// Kills a node without a word.
    pub fn crash(&mut self, node: usize) {
        self.hosts[node].membership = None;
    }

    pub fn leave(&mut self, node: usize) {
        self.with(node, |membership, now| membership.leave(now));
        self.hosts[node].membership = None;
        self.hosts[node].left = true;
    }

    /// Stops a node like SIGSTOP: its socket still receives.
    pub fn pause(&mut self, node: usize) {
        self.hosts[node].paused = true;
    }

    /// Lets a paused node continue. It reads its socket first and then handles its timers.
    pub fn resume(&mut self, node: usize) {
        self.hosts[node].paused = false;
        for payload in std::mem::take(&mut self.hosts[node].socket) {
            self.with(node, |membership, now| membership.handle_packet(now, &payload));
        }
        self.with(node, |membership, now| membership.handle_timers(now));
    }

    /// From now on the node handles packets and timers up to this much later.
    pub fn set_busy(&mut self, node: usize, busy_ms: u64) {
        self.hosts[node].busy_ms = busy_ms;
    }

    /// Calls a method of a node's membership at its own time.
    pub fn with(&mut self, node: usize, act: impl FnOnce(&mut Membership, Millis)) {
        let now = self.hosts[node].clock.read(self.now);
        if let Some(membership) = &mut self.hosts[node].membership {
            act(membership, now);
            self.settle(node);
        }
    }

    pub fn members(&self, node: usize) -> Vec<MemberView> {
        self.hosts[node].membership.as_ref().map(Membership::members).unwrap_or_default()
    }

    /// The state of `node` in the eyes of `observer`.
    pub fn state(&self, observer: usize, node: usize) -> Option<State> {
        let member = self.members(observer).into_iter().find(|member| member.node == Self::id(node))?;
        Some(member.state)
    }

    /// Whether every running node knows exactly the running nodes as alive, in their current incarnations.
    pub fn agree(&self) -> bool {
        self.disagreement().is_none()
    }

    /// The first error in a member list: observer, node, state.
    pub fn disagreement(&self) -> Option<(usize, usize, Option<State>)> {
        for observer in (0..self.len()).filter(|node| self.is_up(*node)) {
            let members = self.members(observer);
            for node in 0..self.len() {
                let known = members.iter().find(|member| member.node == Self::id(node));
                let state = known.map(|member| member.state);
                let right = match known {
                    Some(member) if self.is_up(node) => {
                        member.state == State::Alive && member.incarnation == self.incarnation(node)
                    }
                    Some(member) => !member.state.is_running(),
                    None => !self.is_up(node),
                };
                if !right {
                    return Some((observer, node, state));
                }
            }
        }
        None
    }

    /// Runs until the condition holds, at most for `limit`. Returns whether it holds.
    pub fn run_until(&mut self, limit: Millis, mut condition: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now + limit;
        while !condition(self) {
            if self.now >= end {
                return false;
            }
            self.run_to((self.now + Millis(20)).min(end));
        }
        true
    }

    pub fn run_for(&mut self, duration: Millis) {
        self.run_to(self.now + duration);
    }

    fn run_to(&mut self, end: Millis) {
        while let Some(Reverse((at, number))) = self.queue.peek().copied() {
            if at > end {
                break;
            }
            self.queue.pop();
            self.now = at;
            match self.actions.remove(&number) {
                Some(Action::Deliver { to, payload }) => self.receive(to, payload),
                Some(Action::Wake { node, wake }) => self.wake(node, wake),
                None => {}
            }
        }
        self.now = end;
    }

    fn receive(&mut self, to: usize, payload: Vec<u8>) {
        let host = &mut self.hosts[to];
        if host.paused {
            if host.socket.len() < SOCKET_PACKETS_MAX && host.membership.is_some() {
                host.socket.push_back(payload);
            }
            return;
        }
        self.with(to, |membership, now| membership.handle_packet(now, &payload));
    }

    fn wake(&mut self, node: usize, wake: u64) {
        if self.hosts[node].wake == wake && !self.hosts[node].paused {
            self.with(node, |membership, now| membership.handle_timers(now));
        }
    }

    /// Sends a node's packets, notes its observations and sets its alarm.
    fn settle(&mut self, node: usize) {
        let mut packets = Vec::new();
        let host = &mut self.hosts[node];
        let Some(membership) = &mut host.membership else { return };
        packets.extend(std::iter::from_fn(|| membership.poll_packet()));
        while let Some(event) = membership.poll_event() {
            self.observations.push(Observation { at: self.now, observer: node, event });
        }
        host.wake += 1;
        let wake = host.wake;
        let next = membership.next_timer().map(|reading| host.clock.time_of(reading).max(self.now));
        if let Some(at) = next {
            let busy = Millis(self.random.below(self.hosts[node].busy_ms + 1));
            self.schedule(at + busy, Action::Wake { node, wake });
        }
        for Transmit { to, payload } in packets {
            let Some(to) = self.host_at(to) else { continue };
            for delay in self.network.deliver(node, to, &mut self.random) {
                let busy = Millis(self.random.below(self.hosts[to].busy_ms + 1));
                self.schedule(self.now + delay + busy, Action::Deliver { to, payload: payload.clone() });
            }
        }
    }

    fn host_at(&self, address: SocketAddr) -> Option<usize> {
        let IpAddr::V4(ip) = address.ip() else { return None };
        let [_, _, high, low] = ip.octets();
        let node = usize::from(u16::from_be_bytes([high, low]));
        (node < self.hosts.len()).then_some(node)
    }

    fn schedule(&mut self, at: Millis, action: Action) {
        self.scheduled += 1;
        self.actions.insert(self.scheduled, action);
        self.queue.push(Reverse((at, self.scheduled)));
    }
}
