//! All runners by index, with their pending checks. No operation iterates over all of them.

use std::collections::BTreeSet;

use model::id::{Epoch, JobId, RunnerId};
use model::time::Millis;

use crate::placement::attributes::RunnerIndex;
use crate::runners::Runner;
use crate::shard::{Map, Set};

/// Bits of an inventory request's number that count within an epoch: a request per second for 30 years.
const INVENTORY_BITS: u32 = 30;
/// Bits that count the epochs within a generation. The rest is for the generation.
const EPOCH_BITS: u32 = 22;

/// The runners that have sent a message to this shard, until they expire.
#[derive(Debug, Default)]
pub(crate) struct Runners {
    /// `None`: the runner has expired, its index is free.
    list: Vec<Option<(RunnerId, Runner)>>,
    free: Vec<RunnerIndex>,
    by_id: Map<RunnerId, RunnerIndex>,
    /// Runners whose cursor has moved since the last flush.
    dirty: Vec<RunnerIndex>,
    /// Time of the next check of each runner, earliest first. An outdated time is too early; it is corrected when due.
    checks: BTreeSet<(Millis, RunnerIndex)>,
    /// Jobs with an attempt in flight on each runner, in any incarnation.
    jobs: Map<RunnerId, Set<JobId>>,
    /// Number of the last session with any runner.
    sessions: u64,
    /// Number of inventory requests to all runners.
    inventories: u64,
}

impl Runners {
    pub fn index(&self, id: RunnerId) -> Option<RunnerIndex> {
        self.by_id.get(&id).copied()
    }

    pub fn add(&mut self, id: RunnerId, runner: Runner) -> RunnerIndex {
        let index = self.free.pop().unwrap_or(RunnerIndex(self.list.len() as u32));
        self.by_id.insert(id, index);
        if index.0 as usize == self.list.len() {
            self.list.push(None);
        }
        self.list[index.0 as usize] = Some((id, runner));
        index
    }

    /// Forgets a runner without jobs. Its index is used again.
    pub fn remove(&mut self, index: RunnerIndex) {
        let Some((id, runner)) = self.list.get_mut(index.0 as usize).and_then(Option::take) else { return };
        if let Some(at) = runner.check_at {
            self.checks.remove(&(at, index));
        }
        self.by_id.remove(&id);
        self.jobs.remove(&id);
        self.free.push(index);
    }

    pub fn next_session(&mut self) -> u64 {
        self.sessions += 1;
        self.sessions
    }

    /// Number of a new inventory request. Unique over all runners and epochs of the shard: an answer to an earlier owner,
    /// or from before a runner was forgotten, does not match.
    pub fn next_inventory(&mut self, epoch: Epoch) -> u64 {
        self.inventories += 1;
        let epoch = (epoch.generation() << EPOCH_BITS) + epoch.within_generation();
        (epoch << INVENTORY_BITS) + self.inventories
    }

    pub fn iter(&self) -> impl Iterator<Item = &(RunnerId, Runner)> {
        self.list.iter().flatten()
    }

    pub fn get(&self, index: RunnerIndex) -> Option<&(RunnerId, Runner)> {
        self.list.get(index.0 as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, index: RunnerIndex) -> Option<&mut Runner> {
        self.get_entry_mut(index).map(|(_, runner)| runner)
    }

    pub fn get_entry_mut(&mut self, index: RunnerIndex) -> Option<&mut (RunnerId, Runner)> {
        self.list.get_mut(index.0 as usize)?.as_mut()
    }

    pub fn mark_dirty(&mut self, index: RunnerIndex) {
        if let Some(runner) = self.get_mut(index)
            && !runner.dirty
        {
            runner.dirty = true;
            self.dirty.push(index);
        }
    }

    pub fn assign(&mut self, id: RunnerId, job: JobId) {
        self.jobs.entry(id).or_default().insert(job);
    }

    pub fn unassign(&mut self, id: RunnerId, job: JobId) {
        if let Some(jobs) = self.jobs.get_mut(&id) {
            jobs.remove(&job);
            // Release the memory of an earlier peak.
            if jobs.capacity() > 1024 && jobs.len() * 8 < jobs.capacity() {
                jobs.shrink_to(2 * jobs.len());
            }
        }
    }

    pub fn has_jobs(&self, id: RunnerId) -> bool {
        self.jobs.get(&id).is_some_and(|jobs| !jobs.is_empty())
    }

    /// Jobs with an attempt in flight on a runner.
    pub fn jobs_of(&self, id: RunnerId) -> impl Iterator<Item = JobId> {
        self.jobs.get(&id).into_iter().flatten().copied()
    }

    /// Runners whose cursor has moved since the last call.
    pub fn take_dirty(&mut self) -> Vec<RunnerIndex> {
        let dirty = std::mem::take(&mut self.dirty);
        for index in &dirty {
            if let Some(runner) = self.get_mut(*index) {
                runner.dirty = false;
            }
        }
        dirty
    }

    /// Schedules a check of a runner at `at`, if that is sooner than the planned one.
    pub fn check(&mut self, index: RunnerIndex, at: Option<Millis>) {
        let (Some(at), Some(Some((_, runner)))) = (at, self.list.get_mut(index.0 as usize)) else { return };
        if runner.check_at.is_none_or(|planned| at < planned) {
            if let Some(planned) = runner.check_at.replace(at) {
                self.checks.remove(&(planned, index));
            }
            self.checks.insert((at, index));
        }
    }

    pub fn pop_check(&mut self, now: Millis) -> Option<RunnerIndex> {
        let (at, index) = self.checks.first().copied().filter(|(at, _)| *at <= now)?;
        self.checks.remove(&(at, index));
        if let Some(runner) = self.get_mut(index) {
            runner.check_at = None;
        }
        Some(index)
    }

    pub fn next_check(&self) -> Option<Millis> {
        self.checks.first().map(|(at, _)| *at)
    }
}
