//! Commits of simulated processes, and the faults of the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::Settings;
use model::batch::Batch;
use model::id::Epoch;
use model::message::AttemptRef;
use model::time::Millis;
use parking_lot::Mutex;
use store::{Error, ModelStore, Store};

use super::Process;
use crate::coverage::Fault;
use crate::crash::Crash;
use crate::invariants::{self, Checked, DispatchSnapshot, Violation};
use crate::ledger::{CheckContext, Commit};
use crate::rng::{Rate, Rng};
use crate::world::{Event, World, trace};

/// A commit that its owner has given up, on its way to the store.
#[derive(Debug)]
pub struct LateCommit {
    shard: usize,
    epoch: Epoch,
    process: u64,
    batch: Batch,
    now: Millis,
    settings: Vec<Arc<Settings>>,
    dispatched: BTreeMap<AttemptRef, DispatchSnapshot>,
}

/// Faults of the store.
#[derive(Debug, Clone)]
pub struct StoreFaults {
    /// The fault of the next commit.
    commit: Arc<Mutex<store::Fault>>,
    reads: Arc<Mutex<ReadFaults>>,
}

/// Faults of reads, drawn from a sequence of their own: not every reader is part of the world.
#[derive(Debug)]
struct ReadFaults {
    rng: Rng,
    rate: Rate,
    failed: u64,
}

impl StoreFaults {
    pub fn install(store: &ModelStore, seed: u64) -> Self {
        let reads = ReadFaults { rng: Rng::new(seed), rate: Rate::NEVER, failed: 0 };
        let faults = Self { commit: Arc::default(), reads: Arc::new(Mutex::new(reads)) };
        let (commit, reads) = (faults.commit.clone(), faults.reads.clone());
        store.plan_faults(move |_, _| std::mem::take(&mut *commit.lock()));
        store.plan_read_faults(move || {
            let mut reads = reads.lock();
            let rate = reads.rate;
            let fails = reads.rng.chance(rate);
            reads.failed += u64::from(fails);
            fails
        });
        faults
    }

    pub(super) fn set_next(&self, fault: store::Fault) {
        *self.commit.lock() = fault;
    }

    /// Runs an operation whose reads fail at this rate. Also returns the number of failed ones.
    pub(super) fn with_read_faults<T>(&self, rate: Rate, operation: impl FnOnce() -> T) -> (T, u64) {
        self.reads.lock().rate = rate;
        let result = operation();
        let mut reads = self.reads.lock();
        reads.rate = Rate::NEVER;
        (result, std::mem::take(&mut reads.failed))
    }
}

/// The fault of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundFault {
    None,
    CrashBefore,
    Store(store::Fault),
    CrashAfter,
    CrashDuringEffects,
}

impl World {
    /// Fault of a round with a commit.
    pub(super) fn next_round_fault(&mut self) -> RoundFault {
        self.commits += 1;
        match self.crash {
            Some(Crash::Before(number)) if number == self.commits => RoundFault::CrashBefore,
            Some(Crash::After(number)) if number == self.commits => RoundFault::CrashAfter,
            Some(_) | None => self.draw_round_fault(),
        }
    }

    pub(super) fn draw_round_fault(&mut self) -> RoundFault {
        let commits = self.scenario.commits;
        let faults = [
            (commits.crash_before, RoundFault::CrashBefore),
            (commits.refuse, RoundFault::Store(store::Fault::Refuse)),
            (commits.lands_but_errors, RoundFault::Store(store::Fault::LandsButErrors)),
            (commits.late, RoundFault::Store(store::Fault::Late)),
            (commits.torn, RoundFault::Store(store::Fault::Torn { lands: self.rng.one_in(2) })),
            (commits.crash_after, RoundFault::CrashAfter),
            (commits.crash_during_effects, RoundFault::CrashDuringEffects),
        ];
        let drawn = faults.into_iter().find(|(rate, _)| self.rng.chance(*rate));
        drawn.map_or(RoundFault::None, |(_, round_fault)| round_fault)
    }

    /// Commits the batch. Returns whether the process knows that it is durable.
    pub(super) fn commit(
        &mut self,
        shard: usize,
        process: &mut Process,
        round_fault: RoundFault,
    ) -> Result<bool, Violation> {
        let id = self.shard_id(shard);
        let fault = if let RoundFault::Store(fault) = round_fault { fault } else { store::Fault::None };
        let limit = self.scenario.config(id).step_bytes_max;
        let bytes = process.owner.step().batch.as_bytes().len();
        invariants::invariant_commits_are_bounded(bytes, limit)?;
        self.store_faults.set_next(fault);
        let result = match self.stolen_token(shard) {
            Some(mut token) => self.store.commit(&mut token, &process.owner.step().batch).map(drop).map_err(Into::into),
            None => process.owner.commit(&self.store),
        };
        self.store_faults.set_next(store::Fault::None);
        let landed = match &result {
            Ok(()) => true,
            Err(shard::Error::Store(Error::Failed { .. })) => fault.lands(),
            Err(shard::Error::Store(Error::Fenced { .. })) => {
                trace!(self, "shard {shard} process {} is fenced", process.number);
                self.coverage.count_fault(Fault::StaleCommitRefused);
                return Ok(false);
            }
            Err(error) => {
                self.expect_transient(shard, process, error)?;
                return Ok(false);
            }
        };
        trace!(
            self,
            "shard {shard} process {} commits {} ops, {bytes} bytes: {fault:?}",
            process.number,
            process.owner.step().batch.len(),
        );
        self.count_store_fault(fault);
        if landed {
            self.observe_round(shard, process)?;
        } else if fault == store::Fault::Late {
            self.delay_commit(shard, process);
        }
        Ok(result.is_ok())
    }

    /// Checks the landed commit of a round.
    fn observe_round(&mut self, shard: usize, process: &mut Process) -> Checked {
        let (epoch, now) = (process.owner.epoch(), process.owner.shard().now());
        let batch = std::mem::take(&mut process.owner.step().batch);
        let commit = Commit {
            shard: self.shard_id(shard),
            epoch,
            process: process.number,
            batch: &batch,
            now,
            settings: process.settings(),
            dispatched: &process.dispatched,
        };
        self.observe(commit)?;
        process.owner.step().batch = batch;
        self.check_results()?;
        self.check_lost_attempts(shard)
    }

    /// The commit stays under way after its owner has given it up.
    fn delay_commit(&mut self, shard: usize, process: &mut Process) {
        self.late_commits.push_back(LateCommit {
            shard,
            epoch: process.owner.epoch(),
            process: process.number,
            batch: process.owner.step().batch.clone(),
            now: process.owner.shard().now(),
            settings: process.settings.clone(),
            dispatched: process.dispatched.clone(),
        });
        // Before or after the next owner opens the shard.
        let delay = self.rng.below(2 * self.scenario.restart_max);
        self.after(delay, Event::CommitArrives);
    }

    /// The oldest late commit reaches the store. It is written unless the shard has a new owner.
    pub(crate) fn commit_arrives(&mut self) -> Checked {
        let (Some(late), Some(result)) = (self.late_commits.pop_front(), self.store.land_late()) else {
            return Ok(());
        };
        let LateCommit { shard, epoch, process, batch, now, settings, dispatched } = late;
        trace!(self, "late commit of shard {shard} process {process}: {}", result.is_ok());
        if result.is_err() {
            self.coverage.count_fault(Fault::LateCommitRefused);
            return Ok(());
        }
        self.coverage.count_fault(Fault::LateCommitLanded);
        let (settings, dispatched) = (&settings[..], &dispatched);
        let commit = Commit { shard: self.shard_id(shard), epoch, process, batch: &batch, now, settings, dispatched };
        self.observe(commit)?;
        self.check_results()?;
        self.check_lost_attempts(shard)
    }

    /// Checks a landed commit against all invariants.
    pub(crate) fn observe(&mut self, commit: Commit<'_>) -> Checked {
        let config = self.scenario.config(commit.shard);
        let dispatch_tries_max = self.scenario.dispatch_tries_max;
        let context = CheckContext {
            config: &config,
            dispatch_tries_max,
            tenants: &self.scenario.tenants,
            policy: &self.policy,
            scanner: &self.scanner,
        };
        self.ledger.observe(commit, context, &mut self.coverage)
    }

    fn check_results(&self) -> Checked {
        self.ledger.results.iter().try_for_each(|(attempt_ref, id)| {
            let runner = self.runners.iter().find(|runner| runner.id == *id);
            let reported = runner.is_some_and(|runner| runner.succeeded.contains(attempt_ref));
            invariants::invariant_results_come_from_their_runner(*attempt_ref, *id, reported)
        })
    }

    /// Attempts given up by the newest commit must not be among those their runner recovered and registered with this
    /// shard. After the runner was declared lost, they may be given up; also if a failover has lost their end.
    fn check_lost_attempts(&self, shard: usize) -> Checked {
        let found = self.ledger.lost_attempts.iter();
        let mut lost = found.filter(|lost| !self.ledger.losses.ends.contains(&lost.attempt_ref));
        lost.try_for_each(|lost| {
            self.check_lost_attempt(lost)?;
            let newest_incarnation = self.ledger.newest_incarnation(self.shard_id(shard), lost.runner);
            let registered = self.runners.iter().any(|runner| {
                runner.id == lost.runner
                    && Some(runner.incarnation) == newest_incarnation
                    && runner.recovered.contains(&lost.attempt_ref)
                    && runner.lost_before.is_none_or(|incarnation| incarnation < lost.incarnation)
            });
            invariants::invariant_registered_attempts_are_not_lost(lost, registered, newest_incarnation)
        })
    }

    fn count_store_fault(&mut self, fault: store::Fault) {
        match fault {
            store::Fault::None => {}
            store::Fault::Refuse => self.coverage.count_fault(Fault::CommitRefused),
            store::Fault::LandsButErrors => self.coverage.count_fault(Fault::CommitLandsButErrors),
            store::Fault::Torn { lands: true } => self.coverage.count_fault(Fault::CommitTornLanded),
            store::Fault::Torn { lands: false } => self.coverage.count_fault(Fault::CommitTornLost),
            store::Fault::Late => self.coverage.count_fault(Fault::CommitLate),
        }
    }
}
