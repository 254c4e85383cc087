//! The network between nodes: what is cut, lost, repeated and delayed. Packets and streams share it.

use std::collections::{BTreeMap, BTreeSet};

use super::{ClusterEvent, Plan};
use crate::coverage::Fault;
use crate::rng::Rate;
use crate::scenario::Time;
use crate::world::{World, trace};

/// Longest extra delay of a packet that others overtake.
const REORDER_MAX: Time = 60;
/// First wait of a stream before it sends a lost segment again. Doubles each time.
const RETRANSMIT_FIRST: Time = 200;
const RETRANSMIT_MAX: Time = 10_000;
/// A stream whose segment arrives later than this has stalled.
const STALL: Time = 1_000;

/// A datagram of the membership.
#[derive(Debug)]
pub struct Packet {
    pub to: usize,
    pub payload: Vec<u8>,
}

/// One direction between two nodes.
pub type Direction = (usize, usize);

#[derive(Debug)]
pub struct Network {
    pub loss: Rate,
    duplicate: Rate,
    reorder: Rate,
    delay_max: Time,
    /// Directions that carry nothing, by fault.
    cuts: BTreeMap<u64, BTreeSet<Direction>>,
    last_cut: u64,
}

impl Network {
    pub fn new(plan: &Plan) -> Self {
        Self {
            loss: plan.loss,
            duplicate: plan.duplicate,
            reorder: plan.reorder,
            delay_max: plan.delay_max,
            cuts: BTreeMap::new(),
            last_cut: 0,
        }
    }

    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.values().any(|cut| cut.contains(&(from, to)))
    }

    /// Whether both directions carry something.
    pub fn is_connected(&self, one: usize, other: usize) -> bool {
        !self.is_cut(one, other) && !self.is_cut(other, one)
    }

    pub fn is_whole(&self) -> bool {
        self.cuts.is_empty()
    }
}

impl World {
    /// Cuts directions for a while.
    pub(super) fn cut_directions(&mut self, directions: BTreeSet<Direction>, duration: Time) {
        let network = &mut self.cluster.network;
        network.last_cut += 1;
        let cut = network.last_cut;
        trace!(self, "{} directions are cut for {duration} ms: {:?}", directions.len(), directions.first());
        self.cluster.network.cuts.insert(cut, directions);
        self.cluster_after(duration, ClusterEvent::Mends { cut });
    }

    pub(super) fn mend(&mut self, cut: u64) {
        if self.cluster.network.cuts.remove(&cut).is_some() {
            trace!(self, "a cut is mended");
            self.resume_streams();
        }
    }

    pub(super) fn mend_all(&mut self) {
        self.cluster.network.cuts.clear();
        self.note_loss(Rate::NEVER);
        self.resume_streams();
    }

    pub(super) fn send_packet(&mut self, from: usize, to: usize, payload: &[u8]) {
        if self.cluster.network.is_cut(from, to) {
            return;
        }
        let (loss, duplicate, reorder) =
            (self.cluster.network.loss, self.cluster.network.duplicate, self.cluster.network.reorder);
        let copies = if self.rng.chance(duplicate) { 2 } else { 1 };
        if copies > 1 {
            self.coverage.count_fault(Fault::PacketDuplicated);
        }
        for _ in 0..copies {
            if self.rng.chance(loss) {
                self.coverage.count_fault(Fault::PacketLost);
                continue;
            }
            let mut delay = self.rng.below(self.cluster.network.delay_max + 1);
            if self.rng.chance(reorder) {
                self.coverage.count_fault(Fault::PacketReordered);
                delay += self.rng.below(REORDER_MAX);
            }
            let packet = Packet { to, payload: payload.to_vec() };
            self.cluster_after(delay, ClusterEvent::PacketArrives(packet));
        }
    }

    /// Delay of a segment of a stream. A lost one is sent again, after longer and longer waits.
    pub(super) fn segment_delay(&mut self) -> Time {
        let mut delay = self.rng.below(self.cluster.network.delay_max + 1);
        let mut wait = RETRANSMIT_FIRST;
        while self.rng.chance(self.cluster.network.loss) {
            delay += wait;
            wait = (2 * wait).min(RETRANSMIT_MAX);
        }
        if delay >= STALL {
            self.coverage.count_fault(Fault::StreamStalled);
        }
        delay
    }

    /// Whether a packet there and the answer to it arrive.
    pub(super) fn is_answered(&mut self, one: usize, other: usize) -> bool {
        let loss = self.cluster.network.loss;
        let lost = self.rng.chance(loss) | self.rng.chance(loss);
        self.cluster.network.is_connected(one, other) && !lost
    }
}
