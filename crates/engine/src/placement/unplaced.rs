//! Unplaced jobs: no connected runner is eligible.
//!
//! Such a job stays in its wait queue, so that a new eligible runner takes it at once. A retry timer checks it from
//! time to time. A check without an eligible runner counts as a try in the job's record; after the maximum number of
//! tries the job fails. Waiting for a free slot or at a limit is not a try.
//!
//! When a candidate set loses its last eligible runner, its waiting jobs get retry timers ("arming"), a bounded number
//! per step. When a runner joins, the timers stay: a check that finds an eligible runner has no effect.

use model::id::JobId;
use model::job::Job;
use model::machine::Event;
use model::reason::ReasonCode;
use model::state::State;

use crate::anomaly::Anomaly;
use crate::jitter;
use crate::placement::Ready;
use crate::placement::candidate_set::{CandidateSet, CandidateSetId};
use crate::placement::requirement::RequirementKey;
use crate::placement::wait_queue::WaitQueueKey;
use crate::settings::DISPATCH_TRIES_DEFAULT;
use crate::shard::Shard;
use crate::step::Step;

/// Maximum number of retry timers armed in one step.
const ARMED_PER_STEP_MAX: usize = 1_000;

/// Whether the job waits for an eligible runner, not for a time.
pub(crate) fn is_unplaced(job: &Job) -> bool {
    let unplaced = [ReasonCode::NoPoolMapping, ReasonCode::NoWorkers, ReasonCode::PoolOverloaded];
    let code = job.reason.as_ref().map(|reason| reason.code);
    job.state == State::Scheduled && job.dispatch_tries > 0 && code.is_some_and(|code| unplaced.contains(&code))
}

impl Ready {
    /// Starts to arm retry timers for the waiting jobs of a candidate set.
    pub(crate) fn begin_arming_timers(&mut self, id: CandidateSetId) {
        let Some(candidate_set) = self.candidate_sets.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return self.anomalies.note(Anomaly::MissingCandidateSet(id.0), "begin arming timers");
        };
        // From the last class to the first: jobs promoted meanwhile move to the first.
        candidate_set.timer_cursor = Some((candidate_set.classes.len() - 1, None));
        self.unarmed_sets.insert(id);
    }

    /// The next jobs that need a retry timer.
    fn next_unarmed_jobs(&mut self) -> Vec<JobId> {
        let Some(id) = self.unarmed_sets.first().copied() else { return Vec::new() };
        let candidate_set = self.candidate_sets.get_mut(id.0 as usize).and_then(Option::as_mut);
        let Some((candidate_set, (class, from))) =
            candidate_set.and_then(|candidate_set| candidate_set.timer_cursor.map(|cursor| (candidate_set, cursor)))
        else {
            self.unarmed_sets.remove(&id);
            return Vec::new();
        };
        let found = candidate_set.classes[class].after(from, ARMED_PER_STEP_MAX);
        candidate_set.timer_cursor = match found.last() {
            _ if candidate_set.unplaced().is_none() => None,
            Some(last) if found.len() == ARMED_PER_STEP_MAX => Some((class, Some(*last))),
            Some(_) | None => class.checked_sub(1).map(|class| (class, None)),
        };
        if candidate_set.timer_cursor.is_none() {
            self.unarmed_sets.remove(&id);
        }
        found.into_iter().map(|(_, position)| position.1).collect()
    }
}

impl Shard {
    /// Sets the retry timer of a waiting job if no runner is eligible.
    pub(crate) fn await_runner(&mut self, id: JobId) {
        let Some(entry) = self.jobs.get_mut(id).filter(|entry| entry.is_ready()) else { return };
        let Some(candidate_set) = entry.requirement().and_then(|requirement| self.ready.candidate_set_of(requirement))
        else {
            return;
        };
        if self.ready.candidate_set(candidate_set).is_none_or(|candidate_set| candidate_set.unplaced().is_none()) {
            return;
        }
        let at = if is_unplaced(&entry.job) && entry.job.eligible_at > self.now {
            entry.job.eligible_at
        } else {
            self.now + jitter::delay(&self.config.jitter_key, id, entry.job.dispatch_tries)
        };
        self.timers.wake(entry, at);
    }

    /// Arms the retry timers of the next jobs that have lost their last eligible runner.
    pub(crate) fn arm_unplaced_timers(&mut self) {
        for id in self.ready.next_unarmed_jobs() {
            if self.jobs.get(id).is_some_and(|entry| entry.wakes_at().is_none()) {
                self.await_runner(id);
            }
        }
    }

    /// The wake timer of a scheduled job: makes it ready, or checks for an eligible runner.
    pub(crate) fn check_for_runner(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get(id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "check for runner");
        };
        if !entry.is_ready() {
            return self.make_ready(id, step);
        }
        let (job, requirement) = (&entry.job, entry.requirement());
        let Some(candidate_set) = requirement
            .and_then(|requirement| self.ready.candidate_set_of(requirement))
            .and_then(|id| self.ready.candidate_set(id))
        else {
            return;
        };
        let Some((key, code)) = requirement
            .and_then(|requirement| self.ready.requirements.get(requirement))
            .map(|requirement| &requirement.key)
            .zip(candidate_set.unplaced())
        else {
            return;
        };
        if let Some(requirement) = requirement {
            let wait_queue = WaitQueueKey { requirement, queue: job.queue };
            let queues = &self.queues;
            let has_room = |queue| queues.has_room(queue);
            if self.ready.exhausted_limit(self.ready.tenant_of(job.queue), wait_queue, &has_room).is_some() {
                return self.await_runner(id);
            }
        }
        let tries_max = self.tries_max(key);
        let tries = job.dispatch_tries + 1;
        let is_last = tries_max != 0 && tries >= tries_max;
        let until = (!is_last).then(|| self.now + jitter::delay(&self.config.jitter_key, id, tries));
        let message = self.describe_unplaced(key, candidate_set, code);
        if self.fire(id, Event::Unplaced { code, message, until }, step).is_ok() {
            self.stats.count_unplaced(code);
        }
    }

    pub(crate) fn tries_max(&self, key: &RequirementKey) -> u32 {
        self.ready.settings.topic(&key.topic).map_or(DISPATCH_TRIES_DEFAULT, |topic| topic.dispatch_tries_max)
    }

    /// Why no runner is eligible, as text.
    pub(crate) fn describe_unplaced(
        &self,
        key: &RequirementKey,
        candidate_set: &CandidateSet,
        code: ReasonCode,
    ) -> String {
        if code == ReasonCode::NoPoolMapping {
            return match &key.pool {
                Some(pool) => format!("topic `{}` is not mapped to the preferred pool `{pool}`", key.topic),
                None => format!("topic `{}` is not mapped to any pool", key.topic),
            };
        }
        let mut needs = format!("it needs a runner of pool {}", candidate_set.key.runner_class.pools.join(" or "));
        if !key.requires.is_empty() {
            needs += &format!(" with {}", key.requires.join(" and "));
        }
        if !key.labels.is_empty() {
            let labels: Vec<String> = key.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            needs += &format!(" labelled {}", labels.join(" and "));
        }
        format!("{needs}; {}", self.ready.describe_ineligible(key, candidate_set))
    }
}

impl Ready {
    /// Why the connected runners cannot take the jobs of a candidate set.
    fn describe_ineligible(&self, key: &RequirementKey, candidate_set: &CandidateSet) -> String {
        let counts = self.counts(candidate_set);
        if self.connected == 1 {
            let only = self.runners.iter().find(|runner| runner.is_connected);
            let lacks = || only.map(|runner| runner.profile.missing(&key.requires).join("`, `")).unwrap_or_default();
            return match () {
                () if candidate_set.excluded > 0 => "the only runner is overloaded".to_owned(),
                () if counts.other_pool > 0 => "the only runner is in another pool".to_owned(),
                () if counts.lack_capability > 0 => format!("the only runner lacks `{}`", lacks()),
                () => "the only runner has other labels".to_owned(),
            };
        }
        let groups = [
            (candidate_set.excluded, "overloaded"),
            (counts.other_pool, "in other pools"),
            (counts.lack_capability, "without a required capability"),
            (counts.other_labels, "with other labels"),
        ];
        let groups: Vec<String> =
            groups.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        match self.connected {
            0 => "no runner is connected".to_owned(),
            all => format!("{all} runners: {}", groups.join(", ")),
        }
    }
}
