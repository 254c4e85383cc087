//! Exclusive jobs: runners and spawners kill attempts whose lease has run out, each by its own drifting clock, whether the
//! runner is reachable, cut off or down. No two attempts of such a job run at the same time anywhere.

use std::sync::Arc;

use link::Lease;
use model::job::End;
use model::message::{AttemptRef, Profile};
use model::time::Millis;

use crate::coverage::Fault;
use crate::invariants::{self, Checked};
use crate::runner::AttemptPhase;
use crate::sabotage::Sabotage;
use crate::scenario::{SECOND, Time};
use crate::spawner::Orphan;
use crate::world::{Event, World, trace};

/// Longest time to kill an attempt whose lease has run out.
const KILL_MAX: Time = 3 * SECOND;

/// The profile of all runners.
pub fn profile() -> Arc<Profile> {
    Arc::new(Profile { keeps_leases: true, ..Profile::default() })
}

impl World {
    /// An attempt that was just accepted has this lease.
    pub(crate) fn hold_lease(&mut self, index: usize, shard: usize, attempt_ref: AttemptRef, lease: Option<Lease>) {
        if let (Some(lease), Some(link)) = (lease, self.runners[index].links.get_mut(&shard))
            && link.is_in_flight(attempt_ref)
        {
            link.hold_lease(attempt_ref, lease);
            self.watch_leases(index);
        }
    }

    /// Schedules the next expiry of a lease on this runner.
    pub(crate) fn watch_leases(&mut self, index: usize) {
        let runner = &self.runners[index];
        let held = runner.links.values().filter_map(|link| link.next_expiry());
        let left = runner.orphan_leases.values().map(|lease| lease.until);
        if let Some(until) = held.chain(left).min() {
            let remaining = until.saturating_sub(self.steady(index)).0;
            // The clock of the runner is faster or slower than that of the world.
            let delay = (remaining as i64 * 1_000_000 / (1_000_000 + self.runners[index].drift_ppm)).max(0) as Time + 1;
            let at = self.now + delay;
            // A renewal only moves it: a check that comes too early looks again.
            if self.runners[index].lease_check_at.is_none_or(|next| at < next) {
                self.runners[index].lease_check_at = Some(at);
                self.at(at, Event::LeasesExpire { runner: index });
            }
        }
    }

    pub(crate) fn leases_expire(&mut self, index: usize) {
        if self.sabotage == Some(Sabotage::IgnoreLeases) || self.runners[index].lease_check_at != Some(self.now) {
            return;
        }
        self.runners[index].lease_check_at = None;
        let now = self.steady(index);
        self.expire_held(index, now);
        self.expire_orphans(index, now);
        self.watch_leases(index);
    }

    /// Attempts of a runner that is up. Killing takes a moment.
    fn expire_held(&mut self, index: usize, now: Millis) {
        let links = self.runners[index].links.iter_mut();
        let expired: Vec<(usize, AttemptRef)> =
            links.flat_map(|(shard, link)| link.take_expired(now).into_iter().map(|it| (*shard, it))).collect();
        let incarnation = self.runners[index].incarnation;
        for (shard, attempt_ref) in expired {
            trace!(self, "{}: lease of {}/{} ran out", self.runners[index].id, attempt_ref.job, attempt_ref.attempt);
            self.coverage.count_fault(Fault::LeaseExpired);
            let link = self.runners[index].links.get_mut(&shard);
            if let Some(phase) = link.and_then(|link| link.get_mut(attempt_ref)) {
                *phase = AttemptPhase::Stopping;
                let delay = self.rng.below(KILL_MAX);
                let end = End::LeaseExpired;
                self.after(delay, Event::AttemptEnds { runner: index, incarnation, shard, attempt_ref, end });
            }
        }
    }

    /// Attempts whose runner is down: its spawner kills them.
    fn expire_orphans(&mut self, index: usize, now: Millis) {
        let runner = &mut self.runners[index];
        let expired: Vec<AttemptRef> =
            runner.orphan_leases.extract_if(.., |_, lease| lease.until <= now).map(|(it, _)| it).collect();
        for attempt_ref in expired {
            let orphans = self.runners[index].orphans.values_mut();
            let orphan = orphans.filter_map(|orphans| orphans.get_mut(&attempt_ref)).next();
            if let Some(orphan @ Orphan::Running(_)) = orphan {
                *orphan = Orphan::Ended(End::LeaseExpired);
                self.coverage.count_fault(Fault::LeaseExpiredUnattended);
                self.stop_unattended(attempt_ref);
            }
        }
    }

    /// The lease of an attempt has run out while its server process is down or stopped. The spawner kills a process. An
    /// attempt in a stopped server process stands still with it, and ends as soon as that continues.
    pub(crate) fn stop_unattended(&mut self, attempt_ref: AttemptRef) {
        if self.alive.remove(&attempt_ref) {
            self.ended_before.insert(attempt_ref);
        }
    }

    /// A new incarnation takes over the leases of the attempts that it recovered.
    pub(crate) fn recover_leases(&mut self, index: usize, shard: usize, orphans: impl Iterator<Item = AttemptRef>) {
        for attempt_ref in orphans {
            let lease = self.runners[index].orphan_leases.remove(&attempt_ref);
            self.hold_lease(index, shard, attempt_ref, lease);
        }
    }

    /// 7: while an attempt of an exclusive job starts, no other one runs. A store that has lost its dispatch cannot know
    /// of it.
    pub(crate) fn check_exclusive_runs_alone(&mut self, attempt_ref: AttemptRef) -> Checked {
        let is_exclusive = self.ledger.jobs.get(&attempt_ref.job).is_some_and(|known| known.record.exclusive);
        if !is_exclusive {
            return Ok(());
        }
        if attempt_ref.attempt.0 > 1 {
            self.coverage.count("exclusive attempts started after another");
        }
        let lost = &self.ledger.losses;
        let is_other = |it: &&AttemptRef| it.job == attempt_ref.job && **it != attempt_ref;
        let beside = self.alive.iter().filter(is_other).find(|it| !lost.dispatches.contains(it));
        invariants::invariant_exclusive_attempts_run_alone(attempt_ref, beside.copied())
    }
}
