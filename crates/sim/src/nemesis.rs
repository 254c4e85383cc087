//! Who makes things go wrong that no message or commit does by itself.

use crate::coverage::Fault;
use crate::world::{Event, World, trace};

impl World {
    pub(crate) fn nemesis_looks(&mut self) {
        if self.is_healed() {
            return;
        }
        let nemesis = self.plan.nemesis;
        for runner in 0..self.runners.len() {
            if self.rng.chance(nemesis.crash_runner) {
                self.crash_runner(runner);
            }
            if self.rng.chance(nemesis.cut_off_runner) {
                self.cut_off_runner(runner);
            }
        }
        if self.rng.chance(nemesis.change_policy) {
            self.change_policy();
        }
        if self.rng.chance(nemesis.change_outputs) {
            self.change_outputs();
        }
        if self.rng.chance(nemesis.policy_away) {
            self.policy_goes_away();
        }
        for shard in 0..self.hosts.len() {
            if self.rng.chance(nemesis.jump_clock) {
                self.jump_clock(shard);
            }
            if self.rng.chance(nemesis.take_over) && self.hosts[shard].processes.len() == 1 {
                trace!(self, "shard {shard} is taken over");
                self.coverage.fault(Fault::ShardTakenOver);
                self.after(0, Event::StartShard { shard });
            }
        }
        self.after(nemesis.every, Event::NemesisLooks);
    }

    fn jump_clock(&mut self, shard: usize) {
        let by = self.rng.between(1, self.plan.nemesis.jump_max) as i64;
        let forward = self.rng.one_in(2);
        trace!(self, "the clock of shard {shard} jumps by {}{by} ms", if forward { "" } else { "-" });
        self.coverage.fault(if forward { Fault::ClockForward } else { Fault::ClockBackward });
        self.hosts[shard].jump(if forward { by } else { -by });
    }
}
