//! Why a job is where it is: said on demand, about every runner there is.

use model::id::{JobId, RunnerId};
use model::job::Job;
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;

use crate::input::{Answer, Refusal, RequestId};
use crate::placement::fit::{Fit, FitKey, Unfit};
use crate::placement::line::{LineKey, place};
use crate::placement::roster::Member;
use crate::placement::unplaced::is_unplaced;
use crate::ready::Gate;
use crate::shard::Shard;
use crate::step::Step;

/// Of how many runners it is said one by one; of the others only how many they are.
pub const RUNNERS_EXPLAINED_MAX: usize = 100;

/// What a job waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitsFor {
    /// It does not wait for a runner: it is not, or no longer, scheduled.
    Nothing(State),
    /// Its next try is not before then.
    Time(Millis),
    /// No runner there is can take it.
    Runner {
        code: ReasonCode,
        message: String,
    },
    TenantLimit {
        max_running: u32,
    },
    /// Its queue has as many runners as it may have; absent: the queue is cancelled.
    QueueLimit {
        max_running: Option<u32>,
    },
    /// As many jobs that this rule of the policy has allowed are with runners as may be.
    ConcurrencyLimit {
        rule: String,
        limit: u32,
    },
    /// Runners are fit and have no room: so many jobs of its queue that ask for the same go first.
    Turn {
        ahead: usize,
    },
}

impl WaitsFor {
    /// The stable name of it, where it has one.
    pub fn code(&self) -> Option<ReasonCode> {
        match self {
            Self::Runner { code, .. } => Some(*code),
            Self::TenantLimit { .. } => Some(ReasonCode::TenantLimit),
            Self::ConcurrencyLimit { .. } => Some(ReasonCode::ConcurrencyLimit),
            Self::Nothing(_) | Self::Time(_) | Self::QueueLimit { .. } | Self::Turn { .. } => None,
        }
    }
}

/// How a runner stands to a job.
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
    Full,
    /// It gets the job only if there is no other, or not even then.
    Overloaded {
        spared: bool,
    },
    /// It gets the job only if there is no other.
    FailedBefore,
    Fit,
}

/// A runner and how it stands to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerWhy {
    pub runner: RunnerId,
    /// Its load in thousandths; the lowest goes first.
    pub score_milli: u64,
    pub verdict: RunnerVerdict,
}

/// How many runners there are of each kind of verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WhyCounts {
    pub other_pool: u32,
    pub lack_capability: u32,
    pub other_label: u32,
    pub full: u32,
    pub overloaded: u32,
    pub failed_before: u32,
    pub fit: u32,
}

impl WhyCounts {
    fn count(&mut self, verdict: &RunnerVerdict) {
        let number = match verdict {
            RunnerVerdict::OtherPool => &mut self.other_pool,
            RunnerVerdict::LackCapability { .. } => &mut self.lack_capability,
            RunnerVerdict::OtherLabel { .. } => &mut self.other_label,
            RunnerVerdict::Full => &mut self.full,
            RunnerVerdict::Overloaded { .. } => &mut self.overloaded,
            RunnerVerdict::FailedBefore => &mut self.failed_before,
            RunnerVerdict::Fit => &mut self.fit,
        };
        *number += 1;
    }
}

/// Why a job is not with a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    pub job: JobId,
    pub waits_for: WaitsFor,
    /// How often nobody was found who could take it.
    pub tries: u32,
    /// After so many it fails; 0: never.
    pub tries_max: u32,
    /// The runners that are here, in the order of their ids, at most [`RUNNERS_EXPLAINED_MAX`].
    pub runners: Vec<RunnerWhy>,
    /// All of them.
    pub counts: WhyCounts,
}

impl Shard {
    /// Says why a job that has not ended is where it is.
    pub(crate) fn explain(&mut self, request: RequestId, id: JobId, step: &mut Step) {
        let answer = match self.why(id) {
            Some(why) => Answer::Why(Box::new(why)),
            None => Answer::Refused(Refusal::UnknownJob(id)),
        };
        step.answer(request, answer);
    }

    fn why(&mut self, id: JobId) -> Option<Why> {
        let entry = self.jobs.get_mut(&id).filter(|entry| !entry.job.state.is_terminal())?;
        // One that was never in line since it was restored has not been asked what it asks for.
        let ask = self.ready.ask_of(&entry.job, entry.ask);
        entry.ask = Some(ask);
        let fit_id = self.ready.fit_of(ask)?;
        let (entry, fit) = (self.jobs.get(&id)?, self.ready.fit(fit_id)?);
        let mut runners: Vec<&Member> = self.ready.staff.iter().filter(|member| member.is_here).collect();
        runners.sort_unstable_by_key(|member| member.id);
        let mut counts = WhyCounts::default();
        let mut explained = Vec::new();
        for member in runners {
            let verdict = self.verdict_on(member, fit, &entry.job);
            counts.count(&verdict);
            if explained.len() < RUNNERS_EXPLAINED_MAX {
                let score_milli = member.standings[fit.key.lane as usize].score_milli;
                explained.push(RunnerWhy { runner: member.id, score_milli, verdict });
            }
        }
        Some(Why {
            job: id,
            waits_for: self.waits_for(&entry.job, LineKey { ask, queue: entry.job.queue }, fit)?,
            tries: entry.job.dispatch_tries,
            tries_max: self.tries_max(&self.ready.asks.get(ask)?.key),
            runners: explained,
            counts,
        })
    }

    fn verdict_on(&self, member: &Member, fit: &Fit, job: &Job) -> RunnerVerdict {
        let key: &FitKey = &fit.key;
        match key.check(&member.traits) {
            Err(Unfit::OtherPool) => return RunnerVerdict::OtherPool,
            Err(Unfit::LackCapability) => {
                return RunnerVerdict::LackCapability { missing: member.traits.missing(&key.crew.requires) };
            }
            Err(Unfit::OtherLabels) => {
                let has = |name: &String| member.traits.labels().get(name).cloned();
                let differs = key.labels.iter().find(|(name, value)| has(name).as_ref() != Some(value));
                let (label, wanted) = differs.cloned().unwrap_or_default();
                return RunnerVerdict::OtherLabel { has: has(&label), label, wanted };
            }
            Ok(()) => {}
        }
        let standing = member.standings[key.lane as usize];
        if standing.free == 0 {
            RunnerVerdict::Full
        } else if standing.overloaded {
            RunnerVerdict::Overloaded { spared: key.spares(&member.traits, &self.ready.setup) }
        } else if job.failed_on(member.id) {
            RunnerVerdict::FailedBefore
        } else {
            RunnerVerdict::Fit
        }
    }

    fn waits_for(&self, job: &Job, line: LineKey, fit: &Fit) -> Option<WaitsFor> {
        if job.state != State::Scheduled {
            return Some(WaitsFor::Nothing(job.state));
        }
        if job.eligible_at > self.now && !is_unplaced(job) {
            return Some(WaitsFor::Time(job.eligible_at));
        }
        let has_room = |queue| self.queues.get(&queue).is_some_and(|entry| entry.has_room());
        let tenant = self.ready.tenant_of(job.queue);
        match self.ready.shut_gate(tenant, line, &has_room) {
            Some(Gate::Tenant(tenant)) => {
                return self.ready.tenants.max_running(tenant).map(|max_running| WaitsFor::TenantLimit { max_running });
            }
            Some(Gate::Queue(queue)) => {
                let max_running = self.queues.get(&queue).and_then(|entry| entry.queue.max_running);
                return Some(WaitsFor::QueueLimit { max_running });
            }
            Some(Gate::Group(_, rule)) => {
                let limit = self.ready.asks.get(line.ask)?.key.group.as_ref()?.limit;
                return Some(WaitsFor::ConcurrencyLimit { rule: rule.into(), limit });
            }
            None => {}
        }
        if let Some(code) = fit.unplaced() {
            let message = self.describe_lack(&self.ready.asks.get(line.ask)?.key, fit, code);
            return Some(WaitsFor::Runner { code, message });
        }
        let lines = fit.classes.iter().filter_map(|class| class.line(line));
        let holding = lines.into_iter().find(|line| line.places.contains_key(&place(job)));
        Some(WaitsFor::Turn { ahead: holding.map_or(0, |line| line.places.range(..place(job)).count()) })
    }
}
