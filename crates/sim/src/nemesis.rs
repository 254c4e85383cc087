//! The nemesis: injects faults that do not belong to a message or a commit.

use crate::coverage::Fault;
use crate::invariants::Checked;
use crate::world::{Event, World, trace};

impl World {
    pub(crate) fn nemesis_acts(&mut self) -> Checked {
        if self.is_healed() {
            return Ok(());
        }
        let nemesis = self.scenario.nemesis;
        for runner in 0..self.runners.len() {
            if self.rng.chance(nemesis.crash_runner) {
                self.crash_runner(runner);
            }
            if self.rng.chance(nemesis.partition_runner) {
                self.partition_runner(runner);
            }
            if self.rng.chance(nemesis.cut_runner) {
                self.cut_runner(runner);
            }
        }
        if self.rng.chance(nemesis.change_policy) {
            self.change_policy();
        }
        if self.rng.chance(nemesis.change_outputs) {
            self.change_outputs();
        }
        if self.rng.chance(nemesis.cordon) {
            self.cordon_or_uncordon();
        }
        if self.rng.chance(nemesis.policy_outage) {
            self.start_policy_outage();
        }
        for shard in 0..self.hosts.len() {
            if self.rng.chance(nemesis.jump_clock) {
                self.jump_clock(shard);
            }
            if self.hosts.len() > 1 && self.rng.chance(nemesis.cut_shard) {
                self.cut_shard(shard);
            }
            if self.rng.chance(nemesis.take_over) && self.hosts[shard].processes.len() == 1 {
                trace!(self, "shard {shard} is taken over");
                self.coverage.count_fault(Fault::ShardTakenOver);
                self.after(0, Event::StartShard { shard });
            }
        }
        self.after(nemesis.every, Event::NemesisActs);
        self.maybe_fail_over()
    }

    fn jump_clock(&mut self, shard: usize) {
        let by = self.rng.between(1, self.scenario.nemesis.jump_max) as i64;
        let forward = self.rng.one_in(2);
        trace!(self, "clock of shard {shard} jumps by {}{by} ms", if forward { "" } else { "-" });
        self.coverage.count_fault(if forward { Fault::ClockForward } else { Fault::ClockBackward });
        self.hosts[shard].jump(if forward { by } else { -by });
    }
}
