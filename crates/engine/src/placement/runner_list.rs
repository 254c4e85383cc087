//! All runners by number, and what is to be done about which of them: nothing here looks at all of them.

use std::collections::BTreeSet;

use model::id::{JobId, RunnerId};
use model::time::Millis;

use crate::placement::staff::RunnerIndex;
use crate::runners::Runner;
use crate::shard::{Map, Set};

/// All runners that this shard has ever heard of, and what is to be done about them.
#[derive(Debug, Default)]
pub(crate) struct Runners {
    list: Vec<(RunnerId, Runner)>,
    by_id: Map<RunnerId, RunnerIndex>,
    /// Those whose cursor has moved since the last flush.
    dirty: Vec<RunnerIndex>,
    /// When each is to be looked after, soonest first. A time that is stale is too early, and set right when it comes.
    checks: BTreeSet<(Millis, RunnerIndex)>,
    /// The jobs whose attempt is in the hands of each, whatever its incarnation.
    jobs: Map<RunnerId, Set<JobId>>,
}

impl Runners {
    pub fn index(&self, id: RunnerId) -> Option<RunnerIndex> {
        self.by_id.get(&id).copied()
    }

    /// Makes a runner known.
    pub fn add(&mut self, id: RunnerId, runner: Runner) -> RunnerIndex {
        let index = RunnerIndex(self.list.len() as u32);
        self.by_id.insert(id, index);
        self.list.push((id, runner));
        index
    }

    pub fn iter(&self) -> impl Iterator<Item = &(RunnerId, Runner)> {
        self.list.iter()
    }

    pub fn get(&self, index: RunnerIndex) -> Option<&(RunnerId, Runner)> {
        self.list.get(index.0 as usize)
    }

    pub fn get_mut(&mut self, index: RunnerIndex) -> Option<&mut Runner> {
        self.list.get_mut(index.0 as usize).map(|(_, runner)| runner)
    }

    pub fn mark_dirty(&mut self, index: RunnerIndex) {
        if let Some((_, runner)) = self.list.get_mut(index.0 as usize)
            && !runner.dirty
        {
            runner.dirty = true;
            self.dirty.push(index);
        }
    }

    /// A job's attempt has gone to a runner.
    pub fn hand_over(&mut self, id: RunnerId, job: JobId) {
        self.jobs.entry(id).or_default().insert(job);
    }

    pub fn hand_back(&mut self, id: RunnerId, job: JobId) {
        if let Some(jobs) = self.jobs.get_mut(&id) {
            jobs.remove(&job);
            // What a runner once had at its busiest is no measure for what it will have.
            if jobs.capacity() > 1024 && jobs.len() * 8 < jobs.capacity() {
                jobs.shrink_to(2 * jobs.len());
            }
        }
    }

    /// The jobs that have an attempt in the hands of a runner.
    pub fn jobs_of(&self, id: RunnerId) -> impl Iterator<Item = JobId> {
        self.jobs.get(&id).into_iter().flatten().copied()
    }

    /// Those whose cursor has moved since this was last asked.
    pub fn take_dirty(&mut self) -> Vec<RunnerIndex> {
        let dirty = std::mem::take(&mut self.dirty);
        for index in &dirty {
            if let Some(runner) = self.get_mut(*index) {
                runner.dirty = false;
            }
        }
        dirty
    }

    /// Has a runner looked after at `at`, if that is sooner than it would be.
    pub fn check(&mut self, index: RunnerIndex, at: Option<Millis>) {
        let (Some(at), Some((_, runner))) = (at, self.list.get_mut(index.0 as usize)) else { return };
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
