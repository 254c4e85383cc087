//! What the network does to a packet.

use std::collections::BTreeSet;

use model::time::Millis;

use crate::random::Random;

const OUT_OF: u64 = 10_000;

/// Faults of the network. Rates are in units of 1/10,000.
#[derive(Debug, Clone, Default)]
pub struct Network {
    pub loss: u64,
    pub duplication: u64,
    /// Packets that are delayed by `delay_long_ms` more, so that others overtake them.
    pub reordering: u64,
    pub delay_min_ms: u64,
    pub delay_max_ms: u64,
    pub delay_long_ms: u64,
    /// Directions that are cut.
    cut: BTreeSet<(usize, usize)>,
}

impl Network {
    /// A local network without faults.
    pub fn good() -> Self {
        Self { delay_min_ms: 0, delay_max_ms: 2, delay_long_ms: 60, ..Self::default() }
    }

    /// Drops everything from one node to another.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.cut.insert((from, to));
    }

    /// Cuts the nodes of `part` off from all others.
    pub fn divide(&mut self, nodes: usize, part: &[usize]) {
        for inside in part {
            for outside in (0..nodes).filter(|node| !part.contains(node)) {
                self.cut(*inside, outside);
                self.cut(outside, *inside);
            }
        }
    }

    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut.contains(&(from, to))
    }

    pub fn mend(&mut self) {
        self.cut.clear();
    }

    /// The delays after which copies of a packet arrive: none, one or two.
    pub(super) fn deliver(&self, from: usize, to: usize, random: &mut Random) -> Vec<Millis> {
        if self.is_cut(from, to) {
            return Vec::new();
        }
        let copies = if random.below(OUT_OF) < self.duplication { 2 } else { 1 };
        let mut delays = Vec::with_capacity(copies);
        for _ in 0..copies {
            if random.below(OUT_OF) < self.loss {
                continue;
            }
            let mut delay = self.delay_min_ms + random.below(self.delay_max_ms - self.delay_min_ms + 1);
            if random.below(OUT_OF) < self.reordering {
                delay += random.below(self.delay_long_ms + 1);
            }
            delays.push(Millis(delay));
        }
        delays
    }
}
