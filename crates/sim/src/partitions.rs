//! Links that carry nothing in one direction for a while: between a runner and a shard, or between two shards.

use std::collections::BTreeMap;

use crate::coverage::Fault;
use crate::scenario::{SECOND, Time};
use crate::world::{World, trace};

/// One direction of a link, by indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    ToRunner { runner: usize, shard: usize },
    FromRunner { runner: usize, shard: usize },
    BetweenShards { from: usize, to: usize },
}

/// The cut directions, with the time at which each carries messages again.
#[derive(Debug, Default)]
pub struct Cuts {
    until: BTreeMap<Direction, Time>,
}

impl World {
    /// Whether a message in this direction is lost.
    pub(crate) fn is_cut(&mut self, direction: Direction) -> bool {
        let now = self.now;
        let is_cut = self.cuts.until.get(&direction).is_some_and(|until| *until > now);
        if is_cut {
            self.coverage.count_fault(Fault::MessageCut);
        }
        is_cut
    }

    fn cut(&mut self, direction: Direction) {
        let until = self.now + self.rng.between(SECOND, 40 * SECOND);
        trace!(self, "{direction:?} carries nothing until {until}");
        self.cuts.until.insert(direction, until);
    }

    /// Cuts one direction between a runner and some shards.
    pub(crate) fn cut_runner(&mut self, runner: usize) {
        self.coverage.count_fault(Fault::RunnerCutOneWay);
        let inbound = self.rng.one_in(2);
        let all = self.rng.one_in(2);
        for shard in 0..self.hosts.len() {
            if all || self.rng.one_in(3) {
                self.cut(match inbound {
                    true => Direction::ToRunner { runner, shard },
                    false => Direction::FromRunner { runner, shard },
                });
            }
        }
    }

    /// Cuts the links of a shard to some others, in one direction or both.
    pub(crate) fn cut_shard(&mut self, shard: usize) {
        self.coverage.count_fault(Fault::ShardsCut);
        let (sends, receives) = match self.rng.below(3) {
            0 => (true, false),
            1 => (false, true),
            _ => (true, true),
        };
        for other in (0..self.hosts.len()).filter(|other| *other != shard) {
            if self.rng.one_in(2) {
                if sends {
                    self.cut(Direction::BetweenShards { from: shard, to: other });
                }
                if receives {
                    self.cut(Direction::BetweenShards { from: other, to: shard });
                }
            }
        }
    }

    pub(crate) fn heal_cuts(&mut self) {
        self.cuts.until.clear();
    }
}
