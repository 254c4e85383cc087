//! Runners that fail distinct jobs through their own fault.
//!
//! One job that fails on many nodes is a bad job; many jobs that fail on one node have a bad node. Each shard notes which
//! jobs a runner has failed since its last success there. The shell puts the notes of all shards together:
//! [`failing_runners`] is the decision, and the node is cordoned by new [`Settings`](crate::Settings). The jobs get back
//! what they were charged for its failures. What the records say is enough to do that again after a crash.
//!
//! Only failures count that the runner reports as its own: it could not set up an attempt, its disk is full. A missing input,
//! a server that cannot store a result, and a lost node do not: a node that loses its power fails all of its jobs at once.

use std::collections::{BTreeMap, BTreeSet};

use model::id::{JobId, RunnerId};
use model::job::End;
use model::machine::Event;
use model::time::Millis;

use crate::settings::Settings;
use crate::shard::{Map, Shard};
use crate::step::Step;

/// Most failed jobs that are noted per runner. More say nothing new.
const JOBS_MAX: usize = 100;

/// Age of a failure before it counts. The notes of shards are collected every half second, one after the other: a success
/// on another shard must not be missed.
const SETTLED_AFTER: Millis = Millis(2_000);

#[derive(Debug, Default)]
struct Notes {
    /// Jobs that failed since the last success, with the time of the last failure of each.
    failures: BTreeMap<JobId, Millis>,
    succeeded_at: Option<Millis>,
}

/// What a shard has seen of its runners.
#[derive(Debug, Default)]
pub(crate) struct Health {
    notes: Map<RunnerId, Notes>,
}

impl Health {
    pub fn forget(&mut self, runner: RunnerId) {
        self.notes.remove(&runner);
    }

    pub fn report(&self, runner: RunnerId, is_usable: bool, pools: BTreeSet<String>) -> RunnerHealth {
        let notes = self.notes.get(&runner);
        RunnerHealth {
            runner,
            is_usable,
            pools,
            failures: notes
                .map(|notes| notes.failures.iter().map(|(job, at)| (*job, *at)).collect())
                .unwrap_or_default(),
            succeeded_at: notes.and_then(|notes| notes.succeeded_at),
        }
    }
}

/// How a runner has done, as one shard has seen it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerHealth {
    pub runner: RunnerId,
    /// It is connected and could get jobs.
    pub is_usable: bool,
    pub pools: BTreeSet<String>,
    /// Jobs that failed through its fault since its last success, with the time of the last failure of each.
    pub failures: Vec<(JobId, Millis)>,
    pub succeeded_at: Option<Millis>,
}

/// When a node counts as failing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailingRule {
    /// Distinct jobs that have failed through its fault, with no success in between. 0: never.
    pub jobs_min: usize,
    /// Older failures do not count.
    pub window: Millis,
}

impl Default for FailingRule {
    fn default() -> Self {
        Self { jobs_min: 3, window: Millis::from_secs(600) }
    }
}

/// A runner that fails distinct jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingRunner {
    pub runner: RunnerId,
    /// Time of the first failure that counts.
    pub since: Millis,
    pub jobs: Vec<JobId>,
    /// One of its pools has no other usable runner: a cordon would leave the pool without any.
    pub is_last: bool,
}

/// The runners that are not cordoned and fail distinct jobs, from what all shards have seen.
pub fn failing_runners(
    reports: &[RunnerHealth],
    cordoned: &BTreeSet<RunnerId>,
    rule: FailingRule,
    now: Millis,
) -> Vec<FailingRunner> {
    if rule.jobs_min == 0 {
        return Vec::new();
    }
    let mut by_runner: BTreeMap<RunnerId, Vec<&RunnerHealth>> = BTreeMap::new();
    for report in reports.iter().filter(|report| !cordoned.contains(&report.runner)) {
        by_runner.entry(report.runner).or_default().push(report);
    }
    let mut failing: Vec<FailingRunner> =
        by_runner.iter().filter_map(|(runner, reports)| judge(*runner, reports, rule, now)).collect();
    let suspects: BTreeSet<RunnerId> = failing.iter().map(|failing| failing.runner).collect();
    let is_healthy = |runner: &RunnerId, reports: &[&RunnerHealth]| {
        !suspects.contains(runner) && reports.iter().any(|report| report.is_usable)
    };
    for suspect in &mut failing {
        let pools = by_runner[&suspect.runner].iter().flat_map(|report| report.pools.iter());
        suspect.is_last = pools.into_iter().any(|pool| {
            let has_pool = |reports: &[&RunnerHealth]| reports.iter().any(|report| report.pools.contains(pool));
            !by_runner.iter().any(|(runner, reports)| is_healthy(runner, reports) && has_pool(reports))
        });
    }
    failing
}

fn judge(runner: RunnerId, reports: &[&RunnerHealth], rule: FailingRule, now: Millis) -> Option<FailingRunner> {
    let succeeded_at = reports.iter().filter_map(|report| report.succeeded_at).max();
    let counts = |at: Millis| {
        succeeded_at.is_none_or(|success| at > success) && at + rule.window > now && at + SETTLED_AFTER <= now
    };
    let failures: BTreeMap<JobId, Millis> =
        reports.iter().flat_map(|report| &report.failures).filter(|(_, at)| counts(*at)).copied().collect();
    let since = failures.values().min().copied().filter(|_| failures.len() >= rule.jobs_min)?;
    Some(FailingRunner { runner, since, jobs: failures.into_keys().collect(), is_last: false })
}

impl Shard {
    /// Notes how an attempt ended on a runner.
    pub(crate) fn note_health(&mut self, id: RunnerId, job: JobId, end: End, node_at_fault: bool, step: &mut Step) {
        if end == End::Succeeded {
            let notes = self.health.notes.entry(id).or_default();
            notes.succeeded_at = Some(self.now);
            notes.failures.clear();
        } else if end == End::Infrastructure && node_at_fault {
            let notes = self.health.notes.entry(id).or_default();
            if notes.failures.len() < JOBS_MAX || notes.failures.contains_key(&job) {
                notes.failures.insert(job, self.now);
            }
            // It is known to be failing: this attempt began before the cordon.
            self.refund_job(job, step);
        }
    }

    /// Refunds the failures of runners that were found to be failing since the settings before.
    pub(crate) fn refund_failures(&mut self, before: &Settings, step: &mut Step) {
        let found = self.settings.failing.keys().filter(|runner| !before.failing.contains_key(runner));
        let notes = found.filter_map(|runner| self.health.notes.get(runner));
        let jobs: BTreeSet<JobId> = notes.flat_map(|notes| notes.failures.keys().copied()).collect();
        for job in jobs {
            self.refund_job(job, step);
        }
        // After it is uncordoned, a node starts with a clean record.
        let ended = before.failing.keys().filter(|runner| !self.settings.failing.contains_key(runner));
        let ended: Vec<RunnerId> = ended.copied().collect();
        ended.into_iter().for_each(|runner| self.health.forget(runner));
    }

    /// Refunds what a job was charged for failures of runners that are known to be failing.
    pub(crate) fn refund_job(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get(id).filter(|entry| !entry.job.state.is_terminal()) else { return };
        let is_charged =
            |(runner, since): &(&RunnerId, &Millis)| entry.job.charged_on(**runner, **since).next().is_some();
        let due: Vec<(RunnerId, Millis)> =
            self.settings.failing.iter().filter(is_charged).map(|(runner, since)| (*runner, *since)).collect();
        for (runner, since) in due {
            if self.fire(id, Event::Refund { runner, since }, step).is_ok() {
                self.stats.refunded_failures += 1;
            }
        }
    }
}
