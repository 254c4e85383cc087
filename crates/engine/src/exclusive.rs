//! Exclusive jobs: no two of their attempts run at the same time.
//!
//! An attempt of an exclusive job has a lease. Its runner kills it when the lease runs out, and the shard renews it as long
//! as it hears the runner and owns the job: a renewal is sent only after the store has confirmed that nobody else owns the
//! shard. The lease counts on the runner's clock from the newest time that the shard has heard, so the attempt has ended at
//! the latest a lease, and a margin for drifting clocks and for killing it, after the shard last heard the runner.
//!
//! An attempt that is given up without confirmation of its end holds its job: the next attempt waits until the runner
//! confirms, or until that time has passed. Nothing of this is stored but the lease of each attempt. A new owner of the
//! shard assumes that the owner before renewed it until the very end: the time counts from the start of the new owner.

use std::collections::{BTreeMap, BTreeSet};

use model::id::{Incarnation, JobId, RunnerId};
use model::job::Job;
use model::message::AttemptRef;
use model::state::State;
use model::time::Millis;

use crate::config::exclusive_wait;
use crate::input::Effect;
use crate::shard::{Map, Shard};
use crate::step::Step;

/// An attempt that may still run.
#[derive(Debug, Clone, Copy)]
struct Hold {
    attempt_ref: AttemptRef,
    runner: RunnerId,
    incarnation: Incarnation,
    /// Inventories up to this one were requested before the attempt was dispatched.
    inventory: u64,
    lease: Millis,
    /// When the shard looks again, on the steady clock.
    until: Millis,
}

/// Exclusive attempts in flight, and those that hold their jobs.
#[derive(Debug)]
pub(crate) struct Exclusive {
    /// When this owner of the shard began. Earlier owners have renewed no lease since.
    owner_since: Millis,
    in_flight: Map<RunnerId, BTreeSet<JobId>>,
    /// A job has at most one: the next attempt waits for it.
    holds: BTreeMap<JobId, Hold>,
    due: BTreeSet<(Millis, JobId)>,
}

impl Exclusive {
    pub fn new(now: Millis) -> Self {
        Self { owner_since: now, in_flight: Map::default(), holds: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// The owner begins: no earlier one has renewed a lease since.
    pub fn begin(&mut self, now: Millis) {
        self.owner_since = now;
        self.due.clear();
        for (job, hold) in &mut self.holds {
            hold.until = now + exclusive_wait(hold.lease);
            self.due.insert((hold.until, *job));
        }
    }

    pub fn note_dispatched(&mut self, runner: RunnerId, job: JobId) {
        self.in_flight.entry(runner).or_default().insert(job);
    }

    pub fn note_left(&mut self, runner: RunnerId, job: JobId) {
        if let Some(jobs) = self.in_flight.get_mut(&runner) {
            jobs.remove(&job);
            if jobs.is_empty() {
                self.in_flight.remove(&runner);
            }
        }
    }

    /// Whether an earlier attempt of the job may still run.
    pub fn is_held(&self, job: JobId) -> bool {
        !self.holds.is_empty() && self.holds.contains_key(&job)
    }

    /// When a hold may end.
    pub fn next(&self) -> Option<Millis> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Number of exclusive attempts in flight, to compare with a recount.
    pub fn in_flight(&self) -> usize {
        self.in_flight.values().map(BTreeSet::len).sum()
    }

    fn hold(&mut self, job: JobId, hold: Hold) {
        if let Some(before) = self.holds.insert(job, hold) {
            self.due.remove(&(before.until, job));
        }
        self.due.insert((hold.until, job));
    }

    fn release(&mut self, job: JobId) -> bool {
        let hold = self.holds.remove(&job);
        if let Some(hold) = hold {
            self.due.remove(&(hold.until, job));
        }
        hold.is_some()
    }
}

impl Shard {
    /// Renews the leases of a runner that was just heard.
    pub(crate) fn renew_leases(&mut self, id: RunnerId, incarnation: Incarnation, step: &mut Step) {
        if !self.exclusive.in_flight.contains_key(&id) {
            return;
        }
        let now = self.steady;
        if let Some(message) = self.runner_mut(id).and_then(|runner| runner.renew_leases(now)) {
            step.effects.push(Effect::Send { runner: id, incarnation, message });
        }
    }

    /// An exclusive job has changed. If it left its runner without confirmation, or was reopened after that, it is held.
    pub(crate) fn hold_exclusive(&mut self, id: JobId, from: State, is_unconfirmed: bool) {
        let Some(entry) = self.jobs.get(id) else { return };
        let inventory = entry.dispatched_after();
        let Some((attempt, lease)) = entry.job.unconfirmed_lease() else {
            return;
        };
        let heard_at = if from.is_on_runner() && is_unconfirmed {
            self.heard_at(attempt.runner)
        } else if from.is_terminal() && !self.exclusive.is_held(id) {
            // Released before by this owner, or given up under an earlier one.
            self.exclusive.owner_since
        } else {
            return;
        };
        let until = heard_at + exclusive_wait(lease);
        if until > self.steady {
            let attempt_ref = AttemptRef { job: id, attempt: attempt.attempt };
            let (runner, incarnation) = (attempt.runner, attempt.incarnation);
            self.exclusive.hold(id, Hold { attempt_ref, runner, incarnation, inventory, lease, until });
        }
    }

    /// Restores the hold of a live job. Its attempt may have been renewed until this owner began.
    pub(crate) fn restore_hold(&mut self, job: &Job) {
        if let Some((attempt, lease)) = job.unconfirmed_lease() {
            let attempt_ref = AttemptRef { job: job.id, attempt: attempt.attempt };
            let (runner, incarnation) = (attempt.runner, attempt.incarnation);
            let until = self.exclusive.owner_since + exclusive_wait(lease);
            self.exclusive.hold(job.id, Hold { attempt_ref, runner, incarnation, inventory: 0, lease, until });
        }
    }

    /// When this owner last heard a runner, or could have: no lease counts from later.
    fn heard_at(&self, runner: RunnerId) -> Millis {
        let known = self.runners.index(runner).and_then(|index| self.runners.get(index));
        known.map_or(self.steady, |(_, runner)| runner.heard_at()).max(self.exclusive.owner_since)
    }

    /// Releases the jobs whose attempts must have ended by now. A runner that was heard meanwhile may have renewed them.
    pub(crate) fn check_holds(&mut self, step: &mut Step) {
        for _ in 0..self.config.timers_per_step {
            let Some((_, job)) = self.exclusive.due.first().copied().filter(|(at, _)| *at <= self.steady) else {
                break;
            };
            let Some(hold) = self.exclusive.holds.get(&job).copied() else { break };
            let known = self.runners.index(hold.runner).and_then(|index| self.runners.get(index));
            let heard_at = known.map_or(Millis(0), |(_, runner)| runner.heard_at());
            let until = heard_at + exclusive_wait(hold.lease);
            if until > self.steady {
                // The runner lives, and may not know that it is waited for: its inventory confirms or denies the attempt.
                let incarnation = known.map(|(_, runner)| runner.incarnation);
                self.exclusive.hold(job, Hold { until, ..hold });
                if let Some(incarnation) = incarnation {
                    self.request_inventory(hold.runner, incarnation, step);
                }
            } else {
                self.release_hold(job, step);
            }
        }
    }

    fn release_hold(&mut self, job: JobId, step: &mut Step) {
        if self.exclusive.release(job) && self.jobs.contains(job) {
            self.make_ready(job, step);
        }
    }

    /// A runner has reported the end of an attempt.
    pub(crate) fn confirm_exclusive(&mut self, runner: RunnerId, attempt_ref: AttemptRef, step: &mut Step) {
        let hold = self.exclusive.holds.get(&attempt_ref.job);
        if hold.is_some_and(|hold| hold.attempt_ref == attempt_ref && hold.runner == runner) {
            self.release_hold(attempt_ref.job, step);
        }
    }

    /// A runner has registered, or answered an inventory request. `in_flight` is sorted. `answered`: number of the
    /// request that it answers, or 0.
    pub(crate) fn confirm_exclusive_absent(
        &mut self,
        runner: RunnerId,
        incarnation: Incarnation,
        in_flight: &[AttemptRef],
        answered: u64,
        step: &mut Step,
    ) {
        let is_absent = |hold: &Hold| {
            // A dispatch may reach its runner after an inventory that was requested before it.
            let is_complete = hold.incarnation < incarnation || answered > hold.inventory;
            hold.runner == runner && is_complete && in_flight.binary_search(&hold.attempt_ref).is_err()
        };
        let absent: Vec<JobId> =
            self.exclusive.holds.iter().filter(|(_, hold)| is_absent(hold)).map(|(job, _)| *job).collect();
        for job in absent {
            self.release_hold(job, step);
        }
    }

    /// Until when a job waits for the lease of its last attempt at least, and the runner of that attempt.
    pub(crate) fn lease_wait(&self, job: JobId) -> Option<(RunnerId, Millis)> {
        let hold = self.exclusive.holds.get(&job)?;
        let known = self.runners.index(hold.runner).and_then(|index| self.runners.get(index));
        let heard_at = known.map_or(Millis(0), |(_, runner)| runner.heard_at());
        let until = hold.until.max(heard_at + exclusive_wait(hold.lease));
        Some((hold.runner, self.now + until.saturating_sub(self.steady)))
    }
}
