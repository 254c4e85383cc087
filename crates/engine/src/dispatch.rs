//! Giving jobs to runners.

use model::id::{Incarnation, JobId, RunnerId};
use model::machine::Event;
use model::message::{Ticket, ToRunner};
use model::spec::Lane;
use model::state::State;

use crate::input::Effect;
use crate::shard::Shard;
use crate::spread::Shares;
use crate::step::Step;

impl Shard {
    /// A scheduled job whose time has come: to a runner at once if nobody waits before it, else in line.
    pub(crate) fn make_ready(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        if entry.job.state != State::Scheduled || entry.in_ready {
            return;
        }
        if entry.job.eligible_at > self.now {
            let at = entry.job.eligible_at;
            return self.timers.wake(entry, at);
        }
        let lane = entry.job.lane;
        // Several runners get their parts of all that is ready at the end of an input, so it waits for that.
        if let [(_, runner)] = self.runners.as_slice()
            && runner.free(lane) > 0
            && self.ready.is_empty(lane)
            && self.queues.get(&entry.job.queue).is_some_and(|queue| queue.has_room())
        {
            self.dispatch(id, 0, step);
            return;
        }
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.in_ready = true;
            self.ready.insert(&entry.job);
        }
    }

    /// Gives waiting jobs to runners while there is room.
    pub(crate) fn fill_runners(&mut self, step: &mut Step) {
        self.backlog.unfilled = false;
        for lane in Lane::ALL {
            let mut shares = Shares::default();
            while !self.ready.is_empty(lane) && self.runners.iter().any(|(_, runner)| runner.free(lane) > 0) {
                if self.is_full(step) {
                    self.backlog.unfilled = true;
                    return;
                }
                let queues = &self.queues;
                let may_run = |queue| queues.get(&queue).is_some_and(|entry| entry.has_room());
                let Some(id) = self.ready.pop(lane, self.now, may_run) else { break };
                if let Some(entry) = self.jobs.get_mut(&id) {
                    entry.in_ready = false;
                }
                if self.runners.len() > 1 && shares.are_spent() {
                    let free: Vec<u32> = self.runners.iter().map(|(_, runner)| runner.free(lane)).collect();
                    // With the one that was just taken out.
                    shares = Shares::of(self.ready.len(lane) + 1, &free);
                }
                let Some(index) = self.pick_runner(lane, id, &shares) else { break };
                if self.dispatch(id, index, step) {
                    shares.spend(index);
                }
            }
        }
    }

    /// Of the runners with room the one whose share is the least used up; one that failed this job only if there is no
    /// other.
    fn pick_runner(&self, lane: Lane, id: JobId, shares: &Shares) -> Option<usize> {
        let roomy = |index: &usize| self.runners[*index].1.free(lane) > 0;
        if self.runners.len() == 1 {
            return Some(0).filter(roomy);
        }
        let job = &self.jobs.get(&id)?.job;
        let fresh = |index: usize| !job.failed_on(self.runners[index].0);
        // The last of equals is taken, and that is to be the first runner.
        (0..self.runners.len())
            .rev()
            .filter(roomy)
            .max_by(|one, other| fresh(*one).cmp(&fresh(*other)).then_with(|| shares.compare(*one, *other)))
    }

    /// Whether the runner got it.
    fn dispatch(&mut self, id: JobId, runner_index: usize, step: &mut Step) -> bool {
        // Its timer has not rung yet; nobody must start it in between.
        if self.jobs.get(&id).is_some_and(|entry| entry.job.deadline.is_some_and(|deadline| deadline <= self.now)) {
            let _ = self.fire(id, Event::DeadlinePassed, step);
            return false;
        }
        let (runner, question, incarnation): (RunnerId, u64, Incarnation) = {
            let (id, runner) = &self.runners[runner_index];
            (*id, runner.question, runner.incarnation)
        };
        if self.fire(id, Event::Dispatch { runner, incarnation }, step).is_err() {
            return false;
        }
        self.stats.dispatched += 1;
        let Some(entry) = self.jobs.get_mut(&id) else { return false };
        entry.dispatched_after = question;
        let ticket = Ticket { job: id, attempt: entry.job.attempt };
        let message = ToRunner::Run { ticket, spec: entry.job.spec.clone() };
        step.effects.push(Effect::Send { runner, incarnation, message });
        self.runners[runner_index].1.take(entry.job.lane, ticket, self.now);
        true
    }
}
