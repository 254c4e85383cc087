//! Failovers of a store that may lose acknowledged commits: at any time, between a commit and its effects, and together
//! with crashes.

use model::id::ShardId;
use store::Lost;

use crate::coverage::{Coverage, Fault};
use crate::host::RoundFault;
use crate::invariants::{Checked, Violation};
use crate::ledger::CheckContext;
use crate::world::{World, trace};

/// What has happened to the commit whose effects are performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommitFate {
    #[default]
    Current,
    /// The store has failed over, the commit is kept.
    Kept,
    /// The store has failed over and lost the commit.
    Lost,
}

impl World {
    /// The store sometimes fails over, sometimes together with crashes.
    pub(crate) fn maybe_fail_over(&mut self) -> Checked {
        let Some(losses) = self.scenario.losses else { return Ok(()) };
        if !self.rng.chance(losses.at_any_time) {
            return Ok(());
        }
        let commits = self.fail_over()?;
        if self.rng.chance(losses.with_crash) {
            if !commits.is_empty() {
                self.coverage.count_fault(Fault::CommitsLostWithCrash);
            }
            for shard in 0..self.hosts.len() {
                if self.rng.one_in(2) {
                    self.crash_shard(shard);
                }
            }
        }
        Ok(())
    }

    /// The store sometimes fails over between a commit and its effects. Returns the fault of the rest of the round.
    pub(crate) fn maybe_fail_over_before_effects(
        &mut self,
        shard: usize,
        fault: RoundFault,
    ) -> Result<RoundFault, Violation> {
        self.commit_fate = CommitFate::Current;
        let Some(losses) = self.scenario.losses else { return Ok(fault) };
        if !self.rng.chance(losses.before_effects) {
            return Ok(fault);
        }
        let commits = self.fail_over()?;
        let is_lost = commits.contains(&self.shard_id(shard));
        self.commit_fate = if is_lost { CommitFate::Lost } else { CommitFate::Kept };
        if is_lost {
            self.coverage.count_fault(Fault::CommitLostBeforeEffects);
        }
        if fault == RoundFault::None && self.rng.chance(losses.with_crash) {
            if is_lost {
                self.coverage.count_fault(Fault::CommitsLostWithCrash);
            }
            return Ok(RoundFault::CrashDuringEffects);
        }
        Ok(fault)
    }

    /// The store fails over to a replica that lacks the newest writes of one shard or of all. Returns the shards of the
    /// lost commits.
    fn fail_over(&mut self) -> Result<Vec<ShardId>, Violation> {
        let most = self.scenario.losses.map_or(0, |losses| losses.writes_max);
        let shard = self.rng.index(self.hosts.len());
        let lost = if self.rng.one_in(2) { Lost::All } else { Lost::Shard(self.shard_id(shard)) };
        let writes = self.rng.between(0, most) as usize;
        let commits = self.readers.fail_over(|| self.store.lose_suffix(lost, writes));
        self.failovers += 1;
        self.failed_over_before = std::mem::replace(&mut self.failed_over_at, self.store.commits());
        trace!(self, "the store fails over: {lost:?}, {writes} writes, {} commits lost", commits.len());
        self.coverage.count_fault(Fault::StoreFailedOver);
        self.coverage.count_faults(Fault::CommitLost, commits.len() as u64);
        self.roll_back_ledger(lost, &commits)?;
        Ok(commits)
    }

    /// A failover takes states back. Number of commits at the last one before the commit that is answered now.
    pub(crate) fn answered_after(&self) -> u64 {
        match self.commit_fate {
            CommitFate::Current => self.failed_over_at,
            CommitFate::Kept | CommitFate::Lost => self.failed_over_before,
        }
    }

    fn roll_back_ledger(&mut self, lost: Lost, commits: &[ShardId]) -> Checked {
        let (mut ledger, kept) = self.ledger.roll_back(lost, commits, self.failovers);
        // Counted when they landed.
        let mut coverage = Coverage::default();
        for landed in &kept {
            let config = self.scenario.config(landed.shard);
            let context = CheckContext {
                config: &config,
                dispatch_tries_max: self.scenario.dispatch_tries_max,
                tenants: &self.scenario.tenants,
                policy: &self.policy,
                scanner: &self.scanner,
            };
            ledger.apply(landed.commit(), context, &mut coverage)?;
        }
        ledger.lost_attempts.clear();
        ledger.compare_with(&self.ledger);
        let lost_jobs = ledger.losses.jobs.len() - self.ledger.losses.jobs.len();
        self.coverage.add("jobs lost by failovers", lost_jobs as u64);
        self.ledger = ledger;
        Ok(())
    }
}
