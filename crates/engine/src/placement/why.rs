//! Explains why a job is not running, with a verdict on every connected runner.

use model::id::{JobId, RunnerId};
use model::job::Job;
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;

use crate::input::{Answer, Refusal, RequestId};
use crate::placement::LimitKey;
use crate::placement::candidate_set::{CandidateSet, CandidateSetKey, Ineligible};
use crate::placement::matching::PlacementRunner;
use crate::placement::unplaced::is_unplaced;
use crate::placement::wait_queue::{WaitQueueKey, position};
use crate::shard::Shard;
use crate::step::Step;

/// Maximum number of runners explained one by one. The others are only counted.
pub const RUNNERS_EXPLAINED_MAX: usize = 100;

/// What a job waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsFor {
    /// Not waiting for a runner: not, or no longer, scheduled.
    Nothing(State),
    /// The earliest time of its next attempt.
    Time(Millis),
    /// The job is exclusive, and an earlier attempt may still run on this runner: at most until then.
    Lease {
        runner: RunnerId,
        until: Millis,
    },
    /// No connected runner is eligible.
    Runner {
        code: ReasonCode,
        message: String,
    },
    TenantLimit {
        max_running: u32,
    },
    /// The running limit of its queue is reached; absent: the queue is cancelled.
    QueueLimit {
        max_running: Option<u32>,
    },
    /// The concurrency limit of a policy rule is reached.
    ConcurrencyLimit {
        rule: String,
        limit: u32,
    },
    /// Eligible runners have no free slot. `ahead`: jobs before it in its wait queue.
    FreeSlot {
        ahead: usize,
    },
}

impl WaitsFor {
    /// The stable reason code, if there is one.
    pub fn code(&self) -> Option<ReasonCode> {
        match self {
            Self::Runner { code, .. } => Some(*code),
            Self::TenantLimit { .. } => Some(ReasonCode::TenantLimit),
            Self::ConcurrencyLimit { .. } => Some(ReasonCode::ConcurrencyLimit),
            Self::Nothing(_) | Self::Time(_) | Self::Lease { .. } | Self::QueueLimit { .. } | Self::FreeSlot { .. } => {
                None
            }
        }
    }
}

/// Whether a runner can take a job, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerVerdict {
    OtherPool,
    LackCapability {
        missing: Vec<String>,
    },
    OtherLabel {
        label: String,
        wanted: String,
        has: Option<String>,
    },
    /// An operator has cordoned it, or it is draining: no new attempts.
    Cordoned,
    /// Its connection ended.
    Disconnected,
    Full,
    /// Chosen last; `excluded`: never chosen.
    Overloaded {
        excluded: bool,
    },
    /// The job has failed on it. Chosen only if there is no other.
    FailedBefore,
    Eligible,
}

/// The verdict on one runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerWhy {
    pub runner: RunnerId,
    /// Load in thousandths; the lowest is chosen first.
    pub score_milli: u64,
    pub verdict: RunnerVerdict,
}

/// Number of runners by verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WhyCounts {
    pub other_pool: u32,
    pub lack_capability: u32,
    pub other_label: u32,
    pub cordoned: u32,
    pub disconnected: u32,
    pub full: u32,
    pub overloaded: u32,
    pub failed_before: u32,
    pub eligible: u32,
}

impl WhyCounts {
    fn count(&mut self, verdict: &RunnerVerdict) {
        let number = match verdict {
            RunnerVerdict::OtherPool => &mut self.other_pool,
            RunnerVerdict::LackCapability { .. } => &mut self.lack_capability,
            RunnerVerdict::OtherLabel { .. } => &mut self.other_label,
            RunnerVerdict::Cordoned => &mut self.cordoned,
            RunnerVerdict::Disconnected => &mut self.disconnected,
            RunnerVerdict::Full => &mut self.full,
            RunnerVerdict::Overloaded { .. } => &mut self.overloaded,
            RunnerVerdict::FailedBefore => &mut self.failed_before,
            RunnerVerdict::Eligible => &mut self.eligible,
        };
        *number += 1;
    }
}

/// Why a job is not running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    pub job: JobId,
    pub waits_for: WaitsFor,
    /// Dispatch tries without an eligible runner.
    pub tries: u32,
    /// The job fails after this number of tries; 0: never.
    pub tries_max: u32,
    /// Connected runners in id order, at most [`RUNNERS_EXPLAINED_MAX`].
    pub runners: Vec<RunnerWhy>,
    /// Counts of all connected runners.
    pub counts: WhyCounts,
}

impl Shard {
    /// Answers why a job that has not ended is not running.
    pub(crate) fn explain(&mut self, request: RequestId, id: JobId, step: &mut Step) {
        let answer = match self.why(id) {
            Some(why) => Answer::Why(Box::new(why)),
            None => Answer::Refused(Refusal::UnknownJob(id)),
        };
        step.answer(request, answer);
    }

    fn why(&mut self, id: JobId) -> Option<Why> {
        let entry = self.jobs.get_mut(id).filter(|entry| !entry.job.state.is_terminal())?;
        // A restored job that was never in a wait queue has no requirement yet.
        let requirement = self.ready.requirement_of(&entry.job, entry.requirement());
        entry.set_requirement(requirement);
        let set_id = self.ready.candidate_set_of(requirement)?;
        let (entry, candidate_set) = (self.jobs.get(id)?, self.ready.candidate_set(set_id)?);
        let mut runners: Vec<&PlacementRunner> =
            self.ready.runners.iter().filter(|runner| runner.is_connected).collect();
        runners.sort_unstable_by_key(|runner| runner.id);
        let mut counts = WhyCounts::default();
        let mut explained = Vec::new();
        for runner in runners {
            let verdict = self.verdict_on(runner, candidate_set, &entry.job);
            counts.count(&verdict);
            if explained.len() < RUNNERS_EXPLAINED_MAX {
                let score_milli = runner.availability[candidate_set.key.executor as usize].score_milli;
                explained.push(RunnerWhy { runner: runner.id, score_milli, verdict });
            }
        }
        Some(Why {
            job: id,
            waits_for: self.waits_for(
                &entry.job,
                WaitQueueKey { requirement, queue: entry.job.queue },
                candidate_set,
            )?,
            tries: entry.job.dispatch_tries,
            tries_max: self.tries_max(&self.ready.requirements.get(requirement)?.key),
            runners: explained,
            counts,
        })
    }

    fn verdict_on(&self, runner: &PlacementRunner, candidate_set: &CandidateSet, job: &Job) -> RunnerVerdict {
        let key: &CandidateSetKey = &candidate_set.key;
        match key.check(&runner.profile) {
            Err(Ineligible::OtherPool) => return RunnerVerdict::OtherPool,
            Err(Ineligible::LackCapability) => {
                return RunnerVerdict::LackCapability { missing: runner.profile.missing(&key.runner_class.requires) };
            }
            Err(Ineligible::OtherLabels) => {
                let has = |name: &String| runner.profile.labels().get(name).cloned();
                let differs = key.labels.iter().find(|(name, value)| has(name).as_ref() != Some(value));
                let (label, wanted) = differs.cloned().unwrap_or_default();
                return RunnerVerdict::OtherLabel { has: has(&label), label, wanted };
            }
            Ok(()) => {}
        }
        let availability = runner.availability[key.executor as usize];
        if self.settings.cordoned.contains(&runner.id) {
            RunnerVerdict::Cordoned
        } else if self.is_disconnected(runner.id) {
            RunnerVerdict::Disconnected
        } else if availability.free == 0 {
            RunnerVerdict::Full
        } else if availability.overloaded {
            RunnerVerdict::Overloaded { excluded: key.excludes_overloaded(&runner.profile, &self.ready.settings) }
        } else if job.failed_on(runner.id) {
            RunnerVerdict::FailedBefore
        } else {
            RunnerVerdict::Eligible
        }
    }

    fn waits_for(&self, job: &Job, wait_queue: WaitQueueKey, candidate_set: &CandidateSet) -> Option<WaitsFor> {
        if job.state != State::Scheduled {
            return Some(WaitsFor::Nothing(job.state));
        }
        if let Some((runner, until)) = self.lease_wait(job.id) {
            return Some(WaitsFor::Lease { runner, until });
        }
        if job.eligible_at > self.now && !is_unplaced(job) {
            return Some(WaitsFor::Time(job.eligible_at));
        }
        let has_room = |queue| self.queues.has_room(queue);
        let tenant = self.ready.tenant_of(job.queue);
        match self.ready.exhausted_limit(tenant, wait_queue, &has_room) {
            Some(LimitKey::Tenant(tenant)) => {
                return self.ready.tenants.max_running(tenant).map(|max_running| WaitsFor::TenantLimit { max_running });
            }
            Some(LimitKey::Queue(queue)) => {
                let max_running = self.queues.get(queue).and_then(|entry| entry.queue().max_running);
                return Some(WaitsFor::QueueLimit { max_running });
            }
            Some(LimitKey::ConcurrencyGroup(_, rule)) => {
                let limit = self.ready.requirements.get(wait_queue.requirement)?.key.group.as_ref()?.limit;
                return Some(WaitsFor::ConcurrencyLimit { rule: rule.into(), limit });
            }
            None => {}
        }
        if let Some(code) = candidate_set.unplaced() {
            let message =
                self.describe_unplaced(&self.ready.requirements.get(wait_queue.requirement)?.key, candidate_set, code);
            return Some(WaitsFor::Runner { code, message });
        }
        let wait_queues = candidate_set.classes.iter().filter_map(|class| class.wait_queue(wait_queue));
        let own_queue = wait_queues.into_iter().find(|wait_queue| wait_queue.entries.contains_key(&position(job)));
        Some(WaitsFor::FreeSlot {
            ahead: own_queue.map_or(0, |wait_queue| wait_queue.entries.range(..position(job)).count()),
        })
    }
}
