//! Giving jobs to runners.

use model::id::{JobId, RunnerId};
use model::job::{Job, Placement};
use model::machine::Event;
use model::message::{Ticket, ToRunner};
use model::spec::Lane;
use model::state::State;

use crate::input::Effect;
use crate::placement::ask::AskId;
use crate::placement::fit::{Fit, FitId};
use crate::placement::line::{LineKey, ready_since};
use crate::placement::staff::RunnerIndex;
use crate::placement::unplaced::is_unplaced;
use crate::ready::Next;
use crate::shard::{Map, Shard};
use crate::spread::{SPREAD_RUNNERS_MAX, Shares};
use crate::step::Step;

/// How the batches of one round are spread, by whom they may go to.
type Plans = Map<FitId, Shares>;

/// A runner for a job, and why that one.
struct Choice {
    runner: RunnerIndex,
    preferred: bool,
}

impl Shard {
    /// A scheduled job whose time has come: to a runner at once if nobody waits before it, else in line.
    pub(crate) fn make_ready(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        if entry.job.state != State::Scheduled {
            return;
        }
        if entry.in_ready {
            return self.await_runner(id);
        }
        if entry.job.eligible_at > self.now && !is_unplaced(&entry.job) {
            let at = entry.job.eligible_at;
            return self.timers.wake(entry, at);
        }
        let ask = self.ready.ask_of(&entry.job, entry.ask);
        entry.ask = Some(ask);
        if let Some(runner) = self.only_runner(id, ask) {
            self.dispatch(id, runner, None, step);
            return;
        }
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.in_ready = true;
            self.ready.insert(&entry.job, ask);
            self.await_runner(id);
        }
    }

    /// The runner that a job may go to at once, if there is but one. Several get their parts of all that is ready at the
    /// end of an input, so it waits for that.
    fn only_runner(&mut self, id: JobId, ask: AskId) -> Option<RunnerIndex> {
        let job = &self.jobs.get(&id)?.job;
        if self.ready.connected != 1 || !self.ready.is_empty(job.lane) {
            return None;
        }
        let fit = self.ready.fit_of(ask)?;
        let runner = self.ready.fit(fit)?.roomy.first()?.index;
        let line = LineKey { ask, queue: job.queue };
        let queues = &self.queues;
        let has_room = |queue| queues.get(&queue).is_some_and(|entry| entry.has_room());
        let shut = self.ready.shut_gate(self.ready.tenant_of(job.queue), line, &has_room);
        shut.is_none().then_some(runner)
    }

    /// Gives waiting jobs to runners while there is room.
    pub(crate) fn fill_runners(&mut self, step: &mut Step) {
        self.backlog.unfilled = false;
        let mut plans = Plans::default();
        while !self.ready.is_idle() {
            if self.is_full(step) {
                self.backlog.unfilled = true;
                return;
            }
            let queues = &self.queues;
            let has_room = |queue| queues.get(&queue).is_some_and(|entry| entry.has_room());
            let Some(next) = self.ready.next(self.now, has_room) else { break };
            self.place(next, &mut plans, step);
        }
        self.arm_unplaced();
        self.backlog.unfilled = !self.ready.arming.is_empty();
    }

    fn place(&mut self, next: Next, plans: &mut Plans, step: &mut Step) {
        let chosen = self.ready.look_at(next).and_then(|id| self.choose(next, id, plans).map(|choice| (id, choice)));
        let Some((id, choice)) = chosen else {
            // There is none after all: whatever changes that comes back here.
            return self.ready.cool(next.fit);
        };
        let placement = self.placement(next.fit, &choice);
        self.ready.take(next);
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.in_ready = false;
        }
        self.dispatch(id, choice.runner, placement, step);
    }

    /// Which runner gets a job: the one that it prefers, if that is fit, has room and is not overloaded. Then one that
    /// has not failed it, then one that is not overloaded, then its part of the batch or the least loaded.
    fn choose(&self, next: Next, id: JobId, plans: &mut Plans) -> Option<Choice> {
        let fit = self.ready.fit(next.fit)?;
        let job = &self.jobs.get(&id)?.job;
        let worker = self.ready.asks.get(next.line.ask)?.key.worker;
        if let Some(runner) = worker.and_then(|worker| self.preferred(worker, next.fit, fit.key.lane)) {
            return Some(Choice { runner, preferred: true });
        }
        if let Some(runner) = self.by_plan(next.fit, fit, job, plans) {
            return Some(Choice { runner, preferred: false });
        }
        let fresh = fit.roomy.iter().find(|candidate| job.attempts.is_empty() || !job.failed_on(candidate.id));
        let runner = fresh.or(fit.roomy.first())?.index;
        Some(Choice { runner, preferred: false })
    }

    fn preferred(&self, worker: RunnerId, fit: FitId, lane: Lane) -> Option<RunnerIndex> {
        let index = self.runners.index(worker)?;
        let member = self.ready.member(index)?;
        let standing = member.standings[lane as usize];
        let is_fit = member.fits.iter().any(|(other, _)| *other == fit);
        (is_fit && standing.free > 0 && !standing.overloaded).then_some(index)
    }

    /// The runner whose share of the batch is the least used up. None if this is no batch, or nobody with a share is
    /// left who has not failed the job.
    fn by_plan(&self, id: FitId, fit: &Fit, job: &Job, plans: &mut Plans) -> Option<RunnerIndex> {
        if plans.get(&id).is_none_or(Shares::are_spent) {
            plans.remove(&id);
            let runners = fit.roomy.len();
            if fit.waiting < 2 || runners < 2 || (runners > SPREAD_RUNNERS_MAX && fit.waiting < runners) {
                return None;
            }
            plans.insert(id, self.plan(fit));
        }
        let lane = fit.key.lane as usize;
        let has_room = |index: RunnerIndex| self.ready.member(index).is_some_and(|m| m.standings[lane].free > 0);
        let failed = |index: RunnerIndex| self.runners.get(index).is_some_and(|(runner, _)| job.failed_on(*runner));
        plans.get_mut(&id)?.next(has_room, |index| job.attempts.is_empty() || !failed(index))
    }

    /// Shares of all that waits, for the runners that are not overloaded, or for all if all are.
    fn plan(&self, fit: &Fit) -> Shares {
        let roomy = fit.roomy.iter().take_while(|candidate| fit.available == 0 || !candidate.overloaded);
        let mut runners: Vec<_> = roomy.map(|candidate| (candidate.id, candidate.index)).collect();
        runners.sort_unstable();
        let lane = fit.key.lane as usize;
        let free = |index: RunnerIndex| self.ready.member(index).map_or(0, |member| member.standings[lane].free);
        let free: Vec<(RunnerIndex, u32)> = runners.into_iter().map(|(_, index)| (index, free(index))).collect();
        Shares::of(fit.waiting, &free)
    }

    /// Why this runner; not worth a word where there is no other.
    fn placement(&self, fit: FitId, choice: &Choice) -> Option<Box<Placement>> {
        if self.ready.connected <= 1 {
            return None;
        }
        let fit = self.ready.fit(fit)?;
        let score_milli = self.ready.member(choice.runner)?.standings[fit.key.lane as usize].score_milli;
        Some(Box::new(Placement { score_milli, preferred: choice.preferred, ..self.ready.counts(fit) }))
    }

    fn dispatch(&mut self, id: JobId, index: RunnerIndex, placement: Option<Box<Placement>>, step: &mut Step) {
        let Some(entry) = self.jobs.get(&id) else { return };
        let waited = self.now.saturating_sub(ready_since(&entry.job));
        // Its timer has not rung yet; nobody must start it in between.
        if entry.job.deadline.is_some_and(|deadline| deadline <= self.now) {
            let _ = self.fire(id, Event::DeadlinePassed, step);
            return;
        }
        if !self.passes_gate(id, step) {
            return;
        }
        let Some((runner, known)) = self.runners.get(index) else { return };
        let (runner, question, incarnation) = (*runner, known.question, known.incarnation);
        if self.fire(id, Event::Dispatch { runner, incarnation, placement }, step).is_err() {
            return;
        }
        self.stats.dispatched += 1;
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.dispatched_after = question;
        let topic = self.ready.asks.topic_of(entry.ask, &entry.job);
        self.ready.asks.topics.count_dispatched(topic, waited);
        let ticket = Ticket { job: id, attempt: entry.job.attempt };
        let message =
            ToRunner::Run { ticket, spec: entry.job.spec.clone(), constraints: entry.job.constraints.clone() };
        step.effects.push(Effect::Send { runner, incarnation, message });
        let lane = entry.job.lane;
        if let Some(runner) = self.runners.get_mut(index) {
            runner.take(lane, ticket, self.now);
        }
        self.runner_changed(index);
    }
}
