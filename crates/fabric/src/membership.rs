//! The membership of one node, without I/O and without a clock.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroUsize};

use foca::{Foca, Header, Member, Message, NoCustomBroadcast, Timer};
use model::id::{Incarnation, NodeId};
use model::time::Millis;

use crate::admission::{self, Refusal};
use crate::effects::{Effects, Notice};
use crate::events::Events;
use crate::health::Health;
use crate::identity::Identity;
use crate::limits::{
    FAREWELL_MEMBERS_MAX, JOIN_ADDRESSES_AT_ONCE, JOIN_ADDRESSES_MAX, JOIN_DEAD_AT_ONCE, PACKET_BYTES_MAX, PACKETS_MAX,
    SWEEP_INTERVAL, TIMERS_AT_ONCE,
};
use crate::options::{Options, OptionsError};
use crate::packet::{Packet, PacketCodec};
use crate::profile::Profile;
use crate::random::Random;
use crate::roster::Roster;
use crate::timers::{Alarm, Timers};
use crate::view::{Event, MemberView, Source, State};

/// A packet to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    pub to: SocketAddr,
    pub payload: Vec<u8>,
}

/// Numbers for operators. They only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub packets_received: u64,
    pub packets_sent: u64,
    /// Packets dropped because nobody sent them.
    pub packets_dropped: u64,
    /// Packets without a meaning, from a newer version or damaged.
    pub malformed: u64,
    /// Packets for another node, for an earlier life of this one or from an earlier life of a member.
    pub misdirected: u64,
    /// Packets of a second process with the id of a member.
    pub duplicates_refused: u64,
    /// Packets of new members without room.
    pub refused_full: u64,
    /// Probes that nobody answered.
    pub probes_failed: u64,
    /// How often this node was stopped.
    pub pauses: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Member,
    /// Left or superseded: sends nothing.
    Silent,
}

/// The probe under way.
#[derive(Debug, Clone, Copy)]
struct Probe {
    target: Identity,
    number: u8,
    answered: bool,
    /// The direct probe was not answered in time.
    failed: bool,
}

/// The membership of one node.
///
/// Inputs are the `handle_*` methods, [`join`](Self::join), [`leave`](Self::leave), [`declare_dead`](Self::declare_dead)
/// and [`forget`](Self::forget). After each of them, take all packets with [`poll_packet`](Self::poll_packet) and all events
/// with [`poll_event`](Self::poll_event), and call [`handle_timers`](Self::handle_timers) at
/// [`next_timer`](Self::next_timer). If packets and timers are due at once, packets come first: answers to probes may be
/// among them. `now` is monotonic; a time before the latest one counts as the latest one.
pub struct Membership {
    foca: Foca<Identity, PacketCodec, Random, NoCustomBroadcast>,
    profile: Profile,
    phase: Phase,
    started_at: Millis,
    now: Millis,
    timers: Timers,
    roster: Roster,
    health: Health,
    probe: Option<Probe>,
    join_addresses: Vec<SocketAddr>,
    random: Random,
    effects: Effects,
    /// Own SWIM incarnation: counts refuted suspicions of this life.
    own_incarnation: u16,
    /// Number of nodes that foca is configured for.
    configured_for: usize,
    packets: VecDeque<Transmit>,
    events: Events,
    counters: Counters,
}

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Membership").field("me", self.foca.identity()).field("roster", &self.roster).finish()
    }
}

impl Membership {
    pub fn new(now: Millis, options: Options) -> Result<Self, OptionsError> {
        let Options { node, incarnation, address, role, profile, seed } = options;
        profile.validate()?;
        let me = Identity { node, incarnation, rejoins: 0, leaving: false, address, role };
        if node == Identity::UNKNOWN {
            return Err(OptionsError::NoNodeId);
        }
        if !me.is_valid() {
            return Err(OptionsError::Unreachable(address));
        }
        let mut random = Random::new(seed);
        let foca = Foca::new(me, profile.config(1), Random::new(random.next()), PacketCodec);
        let mut timers = Timers::default();
        timers.set(now + SWEEP_INTERVAL, Alarm::Sweep);
        Ok(Self {
            foca,
            profile,
            phase: Phase::Member,
            started_at: now,
            now,
            timers,
            roster: Roster::default(),
            health: Health::default(),
            probe: None,
            join_addresses: Vec::new(),
            random,
            effects: Effects::default(),
            own_incarnation: 0,
            configured_for: 1,
            packets: VecDeque::new(),
            events: Events::default(),
            counters: Counters::default(),
        })
    }

    /// Joins the cluster of the nodes at these addresses, at most [`JOIN_ADDRESSES_MAX`]. Repeated until one answers and
    /// whenever this node is alone. Nodes that have never heard of each other meet only at a common join address.
    pub fn join(&mut self, now: Millis, addresses: &[SocketAddr]) {
        self.advance(now);
        let own = self.foca.identity().address;
        self.join_addresses = addresses.iter().copied().filter(|address| *address != own).collect();
        self.join_addresses.truncate(JOIN_ADDRESSES_MAX);
        if self.phase == Phase::Member {
            self.timers.set(self.now, Alarm::Join);
            self.handle_timers(now);
        }
    }

    /// Takes a packet. One that makes no sense is counted and changes nothing.
    pub fn handle_packet(&mut self, now: Millis, payload: &[u8]) {
        self.advance(now);
        self.counters.packets_received += 1;
        if self.phase == Phase::Silent {
            return;
        }
        let Ok(mut packet) = Packet::decode(payload) else {
            self.counters.malformed += 1;
            return;
        };
        if self.roster.is_full()
            && let Some(node) = self.roster.replaceable()
        {
            self.remove(node);
        }
        match admission::examine(&mut packet, self.foca.identity(), &self.roster) {
            Ok(false) => self.accept(&packet, payload),
            Ok(true) => self.accept(&packet, &packet.encode()),
            Err(refusal) => self.refuse(&packet, refusal),
        }
    }

    /// Handles the timers that are due.
    pub fn handle_timers(&mut self, now: Millis) {
        self.advance(now);
        let mut first = true;
        for _ in 0..TIMERS_AT_ONCE {
            let Some((at, alarm)) = self.timers.take_due(self.now) else { break };
            if first {
                self.health.timer_fired(self.now - at, self.profile.probe_timeout);
                first = false;
            }
            match alarm {
                Alarm::Foca(timer) => self.handle_foca_timer(timer),
                Alarm::Join => self.announce(),
                Alarm::Sweep => {
                    for node in self.roster.forgettable(self.now) {
                        self.remove(node);
                    }
                    self.timers.set(self.now + SWEEP_INTERVAL, Alarm::Sweep);
                }
            }
        }
    }

    /// Leaves the cluster. Announces the departure to all members; afterwards this node is silent.
    pub fn leave(&mut self, now: Millis) {
        self.advance(now);
        if self.phase == Phase::Silent {
            return;
        }
        // Gossip goes to as many members as there are helpers, and repeats news as often as configured.
        let members = self.foca.num_members().clamp(1, FAREWELL_MEMBERS_MAX);
        let mut config = self.profile.config(members);
        config.num_indirect_probes = NonZeroUsize::new(members).unwrap_or(NonZeroUsize::MIN);
        config.max_transmissions = NonZeroU8::MAX;
        let leaving = self.foca.identity().leaving();
        // None of them fails: the timings are the same, the identity is new and fits into a packet.
        let _ = self.foca.set_config(config);
        let _ = self.foca.change_identity(leaving, &mut self.effects);
        let _ = self.foca.leave_cluster(&mut self.effects);
        self.settle(Source::Operator);
        self.fall_silent();
    }

    /// Declares a member dead: the transport or an operator knows better than the probes. Ignored if the member has been
    /// started again since `incarnation`.
    pub fn declare_dead(&mut self, now: Millis, node: NodeId, incarnation: Incarnation, source: Source) {
        self.advance(now);
        let Some(identity) = self.roster.identity(node).filter(|identity| identity.incarnation == incarnation) else {
            return;
        };
        let running = self.roster.view(node).is_some_and(|view| view.state.is_running());
        if !running || self.phase == Phase::Silent {
            return;
        }
        // Foca fails here only if it cannot encode, and members always fit.
        let down = Member::new(identity, 0, foca::State::Down);
        let _ = self.foca.apply_many(std::iter::once(down), true, &mut self.effects);
        let _ = self.foca.gossip(&mut self.effects);
        self.effects.touched.push(node);
        self.settle(source);
    }

    /// Removes a member that is dead or gone from the list. It no longer counts for majorities.
    pub fn forget(&mut self, now: Millis, node: NodeId) {
        self.advance(now);
        self.remove(node);
    }

    /// The time at which [`handle_timers`](Self::handle_timers) is due.
    pub fn next_timer(&self) -> Option<Millis> {
        self.timers.next_at()
    }

    /// The next packet to send.
    pub fn poll_packet(&mut self) -> Option<Transmit> {
        self.packets.pop_front()
    }

    /// The next change.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// All members, this node among them, ordered by id.
    pub fn members(&self) -> Vec<MemberView> {
        let mut members: Vec<_> = self.roster.views().chain([self.own_view()]).collect();
        members.sort_by_key(|member| member.node);
        members
    }

    /// Grows with every change of [`members`](Self::members).
    pub fn version(&self) -> u64 {
        self.roster.version() + u64::from(self.phase == Phase::Silent)
    }

    /// How slow this node seems to itself: 0 is healthy, at 8 its probes take nine times as long.
    pub fn health_score(&self) -> u32 {
        self.health.score()
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn own_view(&self) -> MemberView {
        let me = self.foca.identity();
        MemberView {
            node: me.node,
            incarnation: me.incarnation,
            address: me.address,
            role: me.role,
            state: if self.phase == Phase::Silent { State::Left } else { State::Alive },
            changed_at: self.started_at,
            source: Source::Gossip(me.node),
        }
    }

    /// Follows the clock. A timer that is late by more than a probe can wait means that this node was stopped: its timers
    /// count only the time in which it ran, and the answer to its probe may have been lost.
    fn advance(&mut self, now: Millis) {
        self.now = self.now.max(now);
        let Some(due_at) = self.timers.next_at() else { return };
        let late = self.now - due_at;
        if late < self.profile.probe_timeout {
            return;
        }
        self.counters.pauses += 1;
        self.timers.delay(late);
        self.health.timer_fired(late, self.profile.probe_timeout);
        self.events.push(Event::SelfPaused { at: self.now, duration: late });
        self.cancel_probe();
    }

    /// Ends the probe under way without a result. Foca has no such call, so it receives an answer in the target's name, with
    /// the oldest SWIM incarnation, which refutes nothing.
    fn cancel_probe(&mut self) {
        let Some(probe) = self.probe.take().filter(|probe| !probe.answered) else { return };
        let node = probe.target.node;
        let running = self.roster.view(node).is_some_and(|view| view.state.is_running());
        if !running || self.roster.identity(node) != Some(probe.target) {
            return;
        }
        let header = Header {
            src: probe.target,
            src_incarnation: 0,
            dst: *self.foca.identity(),
            message: Message::Ack(probe.number),
        };
        let answer = Packet { header, updates: Vec::new() }.encode();
        let _ = self.foca.handle_data(&answer, &mut self.effects);
        self.effects.touched.push(node);
        self.settle(Source::Probe);
    }

    fn accept(&mut self, packet: &Packet, payload: &[u8]) {
        let src = packet.header.src;
        // Its errors concern the packet only: the decoding has succeeded here, and members always fit into a packet.
        if self.foca.handle_data(payload, &mut self.effects).is_err() {
            self.counters.malformed += 1;
        }
        self.effects.touched.push(src.node);
        self.effects.touched.extend(packet.updates.iter().map(|update| update.id().node));
        self.settle(Source::Gossip(src.node));
        match packet.header.message {
            Message::Ack(number) => self.probe_answered(src, number),
            Message::ForwardedAck { origin, probe_number } => self.probe_answered(origin, probe_number),
            Message::Ping(_)
            | Message::PingReq { .. }
            | Message::IndirectPing { .. }
            | Message::IndirectAck { .. }
            | Message::Announce
            | Message::Feed
            | Message::Gossip
            | Message::Broadcast
            | Message::TurnUndead => {}
        }
    }

    fn probe_answered(&mut self, target: Identity, number: u8) {
        let Some(probe) = self.probe.as_mut().filter(|probe| probe.target == target && probe.number == number) else {
            return;
        };
        if !probe.failed && !probe.answered {
            self.health.probe_answered();
        }
        probe.answered = true;
        probe.failed = false;
        self.effects.touched.push(target.node);
        self.settle(Source::Probe);
    }

    fn refuse(&mut self, packet: &Packet, refusal: Refusal) {
        let src = packet.header.src;
        match refusal {
            Refusal::Own => {}
            Refusal::Misdirected => self.counters.misdirected += 1,
            Refusal::ForEarlierLife => {
                self.counters.misdirected += 1;
                // The sender hears of this life at once, before it suspects the earlier one.
                let _ = self.foca.announce(src, &mut self.effects);
                self.settle(Source::Gossip(src.node));
            }
            Refusal::FromEarlierLife { known } => {
                self.counters.misdirected += 1;
                if src.incarnation < known.incarnation {
                    self.inform(src, known);
                }
            }
            Refusal::Duplicate { known } => {
                self.counters.duplicates_refused += 1;
                if let Some(member) = self.roster.view(known.node) {
                    self.events.push(Event::DuplicateRefused { member, address: src.address });
                }
                self.inform(src, known);
            }
            Refusal::Full => self.counters.refused_full += 1,
            Refusal::Superseded { by } => {
                self.events.push(Event::Superseded { at: self.now, by: by.incarnation, address: by.address });
                self.fall_silent();
            }
        }
    }

    /// Tells `rival` that another process has its id.
    fn inform(&mut self, rival: Identity, known: Identity) {
        let header = Header {
            src: *self.foca.identity(),
            src_incarnation: self.own_incarnation,
            dst: rival,
            message: Message::Gossip,
        };
        let payload = Packet { header, updates: vec![Member::alive(known)] }.encode();
        self.send(Transmit { to: rival.address, payload });
    }

    fn handle_foca_timer(&mut self, timer: Timer<Identity>) {
        match &timer {
            Timer::SendIndirectProbe { probed_id, .. } => {
                if let Some(probe) = self.probe.as_mut().filter(|probe| probe.target == *probed_id && !probe.answered) {
                    probe.failed = true;
                    self.effects.touched.push(probed_id.node);
                }
            }
            Timer::ChangeSuspectToDown { member_id, incarnation, .. } => {
                // Foca 2.0 tells a member that it is dead even if it has refuted the suspicion since.
                let suspicion = Member::new(*member_id, *incarnation, foca::State::Suspect);
                if self.roster.suspicion(member_id.node) != Some(suspicion) {
                    return;
                }
                self.effects.touched.push(member_id.node);
            }
            Timer::ProbeRandomMember(_)
            | Timer::PeriodicAnnounce(_)
            | Timer::PeriodicAnnounceDown(_)
            | Timer::PeriodicGossip(_)
            | Timer::RemoveDown(_) => {}
        }
        // Foca reports an incomplete probe and has recovered from it already.
        let _ = self.foca.handle_timer(timer, &mut self.effects);
        self.settle(Source::Probe);
    }

    /// Announces this node: to the join addresses and to dead members while it is alone, else to the join addresses without
    /// an alive member, where the other half of a divided cluster may be.
    fn announce(&mut self) {
        let mut targets = Vec::new();
        let alone = self.foca.num_members() == 0;
        if !self.join_addresses.is_empty() {
            let start = self.random.below(self.join_addresses.len() as u64) as usize;
            self.join_addresses.rotate_left(start);
        }
        if alone {
            targets.extend(self.join_addresses.iter().take(JOIN_ADDRESSES_AT_ONCE).map(|to| Identity::unknown(*to)));
            let dead: Vec<_> = self.roster.views().filter(|member| member.state == State::Dead).collect();
            for _ in 0..JOIN_DEAD_AT_ONCE.min(dead.len()) {
                let member = &dead[self.random.below(dead.len() as u64) as usize];
                targets.extend(self.roster.identity(member.node));
            }
        } else {
            let is_known = |address: &SocketAddr| {
                self.roster.views().any(|member| member.address == *address && member.state.is_running())
            };
            let unknown = self.join_addresses.iter().filter(|to| !is_known(to)).take(JOIN_ADDRESSES_AT_ONCE);
            targets.extend(unknown.map(|to| Identity::unknown(*to)));
        }
        for target in targets {
            let _ = self.foca.announce(target, &mut self.effects);
        }
        self.settle(Source::Probe);
        let interval = if alone { self.profile.join_interval } else { self.profile.reseed_interval };
        self.timers.set(self.now + interval, Alarm::Join);
    }

    /// Carries out what foca wants done, and takes over what it learned from `source`.
    fn settle(&mut self, source: Source) {
        let mut rejoined = false;
        for (timer, after) in std::mem::take(&mut self.effects.timers) {
            let after = Millis(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
            let after = match &timer {
                Timer::ProbeRandomMember(_) | Timer::SendIndirectProbe { .. } => self.health.stretch_probe(after),
                Timer::ChangeSuspectToDown { .. } => self.health.stretch_suspicion(after),
                Timer::PeriodicAnnounce(_)
                | Timer::PeriodicAnnounceDown(_)
                | Timer::PeriodicGossip(_)
                | Timer::RemoveDown(_) => after,
            };
            self.timers.set(self.now + after, Alarm::Foca(timer));
        }
        for (to, payload) in std::mem::take(&mut self.effects.packets) {
            let payload = self.with_suspicion(to.node, payload);
            self.send(Transmit { to: to.address, payload });
        }
        for notice in std::mem::take(&mut self.effects.notices) {
            match notice {
                Notice::ProbeStarted { target, number } => {
                    let last = self.probe.replace(Probe { target, number, answered: false, failed: false });
                    self.effects.touched.extend(last.filter(|probe| probe.failed).map(|probe| probe.target.node));
                }
                Notice::ProbeFailed(node) => {
                    self.counters.probes_failed += 1;
                    self.health.probe_failed(node);
                }
                Notice::ProbeStopped => {
                    self.effects.touched.extend(self.probe.take().map(|probe| probe.target.node));
                    self.timers.set(self.now + self.profile.join_interval, Alarm::Join);
                }
                Notice::Rejoined => rejoined = true,
            }
        }
        self.reconcile(source);
        self.note_own_incarnation(rejoined);
        if rejoined && self.phase == Phase::Member {
            self.events.push(Event::SelfDeclaredDead { at: self.now });
            // Foca waits for a packet before it probes again. It may have to wait for ever.
            let _ = self.foca.apply_many(std::iter::empty(), false, &mut self.effects);
            self.settle(source);
        }
        let nodes = self.foca.num_members() + 1;
        if nodes != self.configured_for && self.phase == Phase::Member {
            self.configured_for = nodes;
            // Only the suspicion and the number of transmissions change, which foca permits.
            let _ = self.foca.set_config(self.profile.config(nodes));
        }
    }

    /// Adds the suspicion of the receiver to a packet: a suspect must hear of it to refute it, and gossip spreads each piece
    /// of news only for a moment (Lifeguard's buddy system).
    fn with_suspicion(&self, to: NodeId, payload: Vec<u8>) -> Vec<u8> {
        let Some(suspicion) = self.roster.suspicion(to) else { return payload };
        let Ok(mut packet) = Packet::decode(&payload) else { return payload };
        match packet.header.message {
            Message::Announce | Message::TurnUndead | Message::Broadcast => return payload,
            Message::Ping(_)
            | Message::Ack(_)
            | Message::PingReq { .. }
            | Message::IndirectPing { .. }
            | Message::IndirectAck { .. }
            | Message::ForwardedAck { .. }
            | Message::Feed
            | Message::Gossip => {}
        }
        if packet.updates.contains(&suspicion) {
            return payload;
        }
        packet.updates.push(suspicion);
        let extended = packet.encode();
        if extended.len() <= PACKET_BYTES_MAX.get() { extended } else { payload }
    }

    /// Takes over the state of the members that foca may have changed.
    fn reconcile(&mut self, source: Source) {
        let touched = std::mem::take(&mut self.effects.touched);
        if touched.is_empty() {
            return;
        }
        for member in self.foca.iter_membership_state().filter(|member| touched.contains(&member.id().node)) {
            let probe_failed = self.probe.is_some_and(|probe| probe.failed && probe.target == *member.id());
            self.roster.observe(self.now, member, probe_failed, source, &mut self.events);
        }
    }

    /// Foca refutes suspicions on its own; a greater incarnation in its packets shows it.
    fn note_own_incarnation(&mut self, rejoined: bool) {
        let incarnation = self.effects.own_incarnation;
        if !rejoined && incarnation > self.own_incarnation {
            self.health.suspected();
            self.events.push(Event::SelfSuspected { at: self.now });
        }
        self.own_incarnation = incarnation;
    }

    fn send(&mut self, transmit: Transmit) {
        if self.packets.len() >= PACKETS_MAX {
            self.counters.packets_dropped += 1;
            return;
        }
        self.counters.packets_sent += 1;
        self.packets.push_back(transmit);
    }

    fn remove(&mut self, node: NodeId) {
        let Some(identity) = self.roster.forget(node, &mut self.events) else { return };
        // Foca removes dead members only, and a departed one may still be alive for it.
        let down = Member::new(identity, 0, foca::State::Down);
        let _ = self.foca.apply_many(std::iter::once(down), false, &mut self.effects);
        let _ = self.foca.handle_timer(Timer::RemoveDown(identity), &mut self.effects);
        self.settle(Source::Operator);
    }

    fn fall_silent(&mut self) {
        self.phase = Phase::Silent;
        self.timers.clear();
        self.probe = None;
    }
}
