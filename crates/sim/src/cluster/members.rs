//! The production membership of every node, on the simulated network.

use std::net::{IpAddr, SocketAddr};

use fabric::{Event as MemberEvent, Membership, Options, Role, State, Transmit};
use model::id::Incarnation;
use model::time::Millis;

use super::network::Packet;
use super::{Cluster, ClusterEvent};
use crate::invariants::Checked;
use crate::scenario::{DAY, Time};
use crate::world::World;

const PORT: u16 = 7_071;
/// Packets that wait for a paused process: a socket's buffer. The rest is lost.
const SOCKET_PACKETS_MAX: usize = 256;

fn address(node: usize) -> SocketAddr {
    let [_, _, high, low] = (node as u32).to_be_bytes();
    SocketAddr::from(([10, 0, high, low], PORT))
}

impl World {
    /// The steady clock of a node.
    pub(super) fn node_clock(&self, node: usize) -> Millis {
        self.drifted(self.node_drift(node))
    }

    fn node_drift(&self, node: usize) -> i64 {
        match self.runners.get(node) {
            Some(runner) => runner.drift_ppm(),
            None => self.hosts.first().map_or(0, |host| host.drift_ppm),
        }
    }

    /// The first time at which the steady clock of a node shows `reading`.
    pub(super) fn time_of(&self, node: usize, reading: Millis) -> Time {
        let ppm = self.node_drift(node);
        let shown = |time: Time| (DAY + time).saturating_add_signed((DAY + time) as i64 * ppm / 1_000_000);
        let estimate = (i128::from(reading.0) * 1_000_000 / i128::from(1_000_000 + ppm)) as u64;
        let mut time = estimate.saturating_sub(DAY + 2);
        while shown(time) < reading.0 {
            time += 1;
        }
        time.max(self.now)
    }

    fn node_incarnation(&self, node: usize) -> Incarnation {
        self.runners.get(node).map_or(self.cluster.control.incarnation, |runner| runner.incarnation)
    }

    /// Starts the membership of a node, or tells it the address of the control node again.
    pub(super) fn join_members(&mut self, node: usize) -> Checked {
        let control = self.cluster.control_index();
        let now = self.node_clock(node);
        let join: Vec<SocketAddr> = if node == control { Vec::new() } else { vec![address(control)] };
        if self.cluster.nodes[node].membership.is_none() {
            let options = Options {
                node: Cluster::id(node),
                incarnation: self.node_incarnation(node),
                address: address(node),
                role: if node == control { Role::Control } else { Role::Runner },
                profile: self.cluster.plan.profile,
                seed: self.rng.next(),
            };
            let Ok(membership) = Membership::new(now, options) else {
                unreachable!("the options of simulated nodes are valid")
            };
            self.cluster.nodes[node].membership = Some(membership);
        }
        self.with_members(node, |membership| membership.join(now, &join))
    }

    /// Calls a method of a node's membership, then sends its packets and passes its events on.
    pub(super) fn with_members(&mut self, node: usize, act: impl FnOnce(&mut Membership)) -> Checked {
        let Some(membership) = &mut self.cluster.nodes[node].membership else { return Ok(()) };
        act(membership);
        let packets: Vec<Transmit> = std::iter::from_fn(|| membership.poll_packet()).collect();
        let events: Vec<MemberEvent> = std::iter::from_fn(|| membership.poll_event()).collect();
        let next = membership.next_timer();
        let host = &mut self.cluster.nodes[node];
        host.wake += 1;
        let wake = host.wake;
        if let Some(reading) = next {
            let at = self.time_of(node, reading);
            self.cluster_after(at - self.now, ClusterEvent::MemberWakes { node, wake });
        }
        for Transmit { to, payload } in packets {
            let IpAddr::V4(ip) = to.ip() else { continue };
            let [_, _, high, low] = ip.octets();
            self.send_packet(node, usize::from(u16::from_be_bytes([high, low])), &payload);
        }
        for event in events {
            self.member_event(node, event)?;
        }
        Ok(())
    }

    fn member_event(&mut self, node: usize, event: MemberEvent) -> Checked {
        if let MemberEvent::Changed { member, .. } = event
            && member.state == State::Dead
        {
            self.note_member_death(&member);
        }
        self.note_story(node, &event);
        if node == self.cluster.control_index() {
            let now = self.control_now();
            self.cluster.control.watch.membership(now, &event);
            return self.check_nodes();
        }
        Ok(())
    }

    pub(super) fn member_wakes(&mut self, node: usize, wake: u64) -> Checked {
        if self.cluster.nodes[node].wake != wake {
            return Ok(());
        }
        let now = self.node_clock(node);
        self.with_members(node, |membership| membership.handle_timers(now))
    }

    pub(super) fn packet_arrives(&mut self, packet: Packet) -> Checked {
        let host = &mut self.cluster.nodes[packet.to];
        if host.paused_until > self.now {
            host.packets_waiting += 1;
            if host.packets_waiting <= SOCKET_PACKETS_MAX {
                let left = host.paused_until - self.now;
                self.cluster_after(left, ClusterEvent::PacketArrives(packet));
            }
            return Ok(());
        }
        host.packets_waiting = 0;
        let now = self.node_clock(packet.to);
        self.with_members(packet.to, |membership| membership.handle_packet(now, &packet.payload))
    }
}
