//! Dispatch: chooses runners for ready jobs and hands attempts to them.

use model::id::{JobId, RunnerId};
use model::job::{Job, Placement};
use model::machine::Event;
use model::message::{AttemptRef, ShardMessage};
use model::spec::ExecutorKind;
use model::state::State;

use crate::anomaly::Anomaly;
use crate::placement::NextJob;
use crate::placement::attributes::RunnerIndex;
use crate::placement::candidate_set::{CandidateSet, CandidateSetId};
use crate::placement::requirement::RequirementId;
use crate::placement::spread::{SPREAD_RUNNERS_MAX, Shares};
use crate::placement::unplaced::is_unplaced;
use crate::placement::wait_queue::{WaitQueueKey, ready_since};
use crate::shard::{Map, Shard};
use crate::step::Step;

/// Shares of the batches of one round, by candidate set.
type BatchShares = Map<CandidateSetId, Shares>;

/// The chosen runner, and whether the job prefers it.
struct Choice {
    runner: RunnerIndex,
    preferred: bool,
}

impl Shard {
    /// Makes an eligible scheduled job ready: dispatches it at once if no other job waits, else adds it to its wait
    /// queue.
    pub(crate) fn make_ready(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "make ready");
        };
        if entry.job.state != State::Scheduled {
            return;
        }
        if entry.is_ready() {
            return self.await_runner(id);
        }
        if self.exclusive.is_held(id) {
            // Called again when the lease of the attempt before has run out.
            return;
        }
        if entry.job.eligible_at > self.now && !is_unplaced(&entry.job) {
            let at = entry.job.eligible_at;
            return self.timers.wake(entry, at);
        }
        let requirement = self.ready.requirement_of(&entry.job, entry.requirement());
        entry.set_requirement(requirement);
        if let Some(runner) = self.only_runner(id, requirement) {
            self.dispatch(id, runner, None, step);
            return;
        }
        if let Some(entry) = self.jobs.get_mut(id) {
            entry.set_ready(true);
            self.ready.insert(&entry.job, requirement);
            self.await_runner(id);
        }
    }

    /// The runner for an immediate dispatch, if only one is connected. With several, jobs are spread over them at the
    /// end of the input.
    fn only_runner(&mut self, id: JobId, requirement: RequirementId) -> Option<RunnerIndex> {
        let job = &self.jobs.get(id)?.job;
        if self.ready.connected() != 1 || !self.ready.is_empty(job.executor) {
            return None;
        }
        let candidate_set = self.ready.candidate_set_of(requirement)?;
        let runner = self.ready.candidate_set(candidate_set)?.candidates.first()?.index;
        let wait_queue = WaitQueueKey { requirement, queue: job.queue };
        let queues = &self.queues;
        let has_room = |queue| queues.has_room(queue);
        let exhausted = self.ready.exhausted_limit(self.ready.tenant_of(job.queue), wait_queue, &has_room);
        exhausted.is_none().then_some(runner)
    }

    /// Dispatches waiting jobs while there are free slots.
    pub(crate) fn fill_runners(&mut self, step: &mut Step) {
        self.backlog.set_unfilled(false);
        let mut shares = BatchShares::default();
        while !self.ready.is_idle() {
            if self.is_full(step) {
                self.backlog.set_unfilled(true);
                return;
            }
            let queues = &self.queues;
            let has_room = |queue| queues.has_room(queue);
            let Some(next) = self.ready.next(self.now, has_room) else { break };
            self.place(next, &mut shares, step);
        }
        self.arm_unplaced_timers();
        self.backlog.set_unfilled(self.ready.has_unarmed_jobs());
    }

    fn place(&mut self, next: NextJob, shares: &mut BatchShares, step: &mut Step) {
        let chosen = self.ready.peek(next).and_then(|id| self.choose(next, id, shares).map(|choice| (id, choice)));
        let Some((id, choice)) = chosen else {
            // No eligible runner; retried on the next change.
            return self.ready.deactivate(next.candidate_set);
        };
        let placement = self.placement(next.candidate_set, &choice);
        self.ready.take(next);
        if let Some(entry) = self.jobs.get_mut(id) {
            entry.set_ready(false);
        }
        self.dispatch(id, choice.runner, placement, step);
    }

    /// Chooses a runner: the preferred one, if it is eligible, has a free slot and is not overloaded. Otherwise in this
    /// order: one on which the job has not failed, one that is not overloaded, the next share of the batch or the least
    /// loaded.
    fn choose(&self, next: NextJob, id: JobId, shares: &mut BatchShares) -> Option<Choice> {
        let candidate_set = self.ready.candidate_set(next.candidate_set)?;
        let job = &self.jobs.get(id)?.job;
        let preferred = self.ready.requirement(next.wait_queue.requirement)?.key.preferred_runner;
        if let Some(runner) =
            preferred.and_then(|runner| self.preferred(runner, next.candidate_set, candidate_set.key.executor))
        {
            return Some(Choice { runner, preferred: true });
        }
        if let Some(runner) = self.by_share(next.candidate_set, candidate_set, job, shares) {
            return Some(Choice { runner, preferred: false });
        }
        let fresh =
            candidate_set.candidates.iter().find(|candidate| job.attempts.is_empty() || !job.failed_on(candidate.id));
        let runner = fresh.or(candidate_set.candidates.first())?.index;
        Some(Choice { runner, preferred: false })
    }

    fn preferred(
        &self,
        runner: RunnerId,
        candidate_set: CandidateSetId,
        executor: ExecutorKind,
    ) -> Option<RunnerIndex> {
        let index = self.runners.index(runner)?;
        let runner = self.ready.runner(index)?;
        let availability = runner.availability[executor as usize];
        let is_eligible = runner.candidate_sets.iter().any(|(other, _)| *other == candidate_set);
        (is_eligible && availability.free > 0 && !availability.overloaded).then_some(index)
    }

    /// The runner with the largest unused part of its batch share. None if there is no batch, or the job has failed on
    /// all runners with a share left.
    fn by_share(
        &self,
        id: CandidateSetId,
        candidate_set: &CandidateSet,
        job: &Job,
        shares: &mut BatchShares,
    ) -> Option<RunnerIndex> {
        if shares.get(&id).is_none_or(Shares::are_spent) {
            shares.remove(&id);
            let runners = candidate_set.candidates.len();
            if candidate_set.waiting < 2
                || runners < 2
                || (runners > SPREAD_RUNNERS_MAX && candidate_set.waiting < runners)
            {
                return None;
            }
            shares.insert(id, self.plan(candidate_set));
        }
        let executor = candidate_set.key.executor as usize;
        let has_room =
            |index: RunnerIndex| self.ready.runner(index).is_some_and(|runner| runner.availability[executor].free > 0);
        let failed = |index: RunnerIndex| self.runners.get(index).is_some_and(|(runner, _)| job.failed_on(*runner));
        shares.get_mut(&id)?.next(has_room, |index| job.attempts.is_empty() || !failed(index))
    }

    /// Shares of all waiting jobs, over the runners that are not overloaded, or over all if all are.
    fn plan(&self, candidate_set: &CandidateSet) -> Shares {
        let candidates = candidate_set
            .candidates
            .iter()
            .take_while(|candidate| candidate_set.available == 0 || !candidate.overloaded);
        let mut runners: Vec<_> = candidates.map(|candidate| (candidate.id, candidate.index)).collect();
        runners.sort_unstable();
        let executor = candidate_set.key.executor as usize;
        let free = |index: RunnerIndex| self.ready.runner(index).map_or(0, |runner| runner.availability[executor].free);
        let free: Vec<(RunnerIndex, u32)> = runners.into_iter().map(|(_, index)| (index, free(index))).collect();
        Shares::of(candidate_set.waiting, &free)
    }

    /// Placement record for the job's history. Omitted if only one runner is connected.
    fn placement(&self, candidate_set: CandidateSetId, choice: &Choice) -> Option<Box<Placement>> {
        if self.ready.connected() <= 1 {
            return None;
        }
        let candidate_set = self.ready.candidate_set(candidate_set)?;
        let score_milli =
            self.ready.runner(choice.runner)?.availability[candidate_set.key.executor as usize].score_milli;
        Some(Box::new(Placement { score_milli, preferred: choice.preferred, ..self.ready.counts(candidate_set) }))
    }

    fn dispatch(&mut self, id: JobId, index: RunnerIndex, placement: Option<Box<Placement>>, step: &mut Step) {
        let Some(entry) = self.jobs.get(id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "dispatch");
        };
        let waited = self.now.saturating_sub(ready_since(&entry.job));
        let lease = entry.job.exclusive.then_some(self.config.exclusive_lease);
        // The deadline timer has not fired yet, but the job must not start any more.
        if entry.job.deadline.is_some_and(|deadline| deadline <= self.now) {
            let _ = self.fire(id, Event::DeadlinePassed, step);
            return;
        }
        if !self.passes_policy(id, step) {
            return;
        }
        let Some((runner, known)) = self.runners.get(index) else {
            return self.anomalies.note(Anomaly::MissingRunnerIndex(index.0), "dispatch");
        };
        let (runner, inventory, incarnation) = (*runner, known.inventory, known.incarnation);
        debug_assert!(!self.exclusive.is_held(id), "an attempt of {id} may still run");
        if self.fire(id, Event::Dispatch { runner, incarnation, placement, lease }, step).is_err() {
            return;
        }
        self.stats.dispatched += 1;
        let Some(entry) = self.jobs.get_mut(id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "dispatch");
        };
        entry.set_dispatched_after(inventory);
        entry.set_accepted(false);
        self.ready.count_dispatched(entry.requirement(), &entry.job, waited);
        let attempt_ref = AttemptRef { job: id, attempt: entry.job.attempt };
        let (spec, constraints) = (entry.job.spec.clone(), entry.job.constraints.clone());
        let executor = entry.job.executor;
        let valid_for = self.config.dispatch_valid_for();
        let message = ShardMessage::Run { attempt_ref, valid_for, spec, constraints, lease };
        self.send_to_runner(runner, incarnation, message, step);
        if let Some(runner) = self.runners.get_mut(index) {
            runner.take(executor, attempt_ref, self.steady);
        }
        self.runner_changed(index);
    }
}
