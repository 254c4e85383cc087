//! Attempts that outlive their runner, and those that do not.
//!
//! Processes live on while their server is replaced. The first word of a runner's new incarnation says what it has in
//! hand, also of what an earlier one was given: that is **adopted** and goes on as the same attempt, with its time-outs
//! and its slot; what is not named is lost. What is decided so is noted in memory at once and in the records by and by,
//! in steps of bounded size. A crash in between costs nothing: a job whose record names an earlier incarnation is an
//! orphan, and the next thing its runner says of its hands decides about it again.

use model::id::{Incarnation, JobId, RunnerId};
use model::job::Job;
use model::machine::{Event, Fault};
use model::message::{RunnerCursor, Ticket};

use crate::runners::Runner;
use crate::shard::{Decided, Shard};
use crate::step::Step;

/// Whom the loss of an attempt together with its runner is put down to.
fn fault_of_loss(job: &Job) -> Fault {
    if job.lane.restarts_free_of_charge() { Fault::NotTheJobs } else { Fault::Unknown }
}

impl Shard {
    /// A runner that is new, or new again. What an earlier incarnation had in hand waits for what this one says of it:
    /// should its first word not be that it is here, then for the one that is.
    pub(crate) fn welcome(&mut self, id: RunnerId, incarnation: Incarnation) {
        self.strangers.remove(&id);
        let runner = Runner::new(RunnerCursor { incarnation, sequence: 0 });
        self.put_runner(id, runner);
    }

    /// Decides about everything that earlier incarnations of a runner were given. `holding` is sorted.
    pub(crate) fn decide_orphans(&mut self, id: RunnerId, incarnation: Incarnation, holding: &[Ticket]) {
        let mut adopted = Vec::new();
        for job in self.on_runner(id, |holder| holder < incarnation) {
            let Some(entry) = self.jobs.get_mut(&job) else { continue };
            let ticket = Ticket { job, attempt: entry.job.attempt };
            if holding.binary_search(&ticket).is_err() {
                let fault = fault_of_loss(&entry.job);
                self.give_up(job, fault);
                continue;
            }
            entry.decided = Some(Decided::Adopt(incarnation));
            // It was given out before this incarnation was asked anything.
            entry.dispatched_after = 0;
            adopted.push((entry.job.lane, ticket, entry.job.since()));
            self.backlog.attempts.push_back(job);
        }
        if let Some(runner) = self.runner_mut(id) {
            runner.is_unheard = false;
            for (lane, ticket, since) in adopted {
                runner.take(lane, ticket, since);
            }
            runner.sort_dispatched();
            self.runner_changed_by_id(id);
        }
    }

    /// Decides that an attempt is lost. If its job goes on without that, before its turn comes, it does.
    pub(crate) fn give_up(&mut self, id: JobId, fault: Fault) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let (before, holder, lane) = (entry.decided, entry.holder(), entry.job.lane);
        entry.decided = Some(Decided::Lose(fault));
        self.backlog.attempts.push_back(id);
        if let (Some(Decided::Adopt(_)), Some((runner, incarnation))) = (before, holder) {
            // Its record names an earlier incarnation, and so will its loss: this one's slot is free.
            self.free_slot(runner, incarnation, lane);
        }
    }

    /// The runner is gone, and everything it had in hand.
    pub(crate) fn runner_lost(&mut self, id: RunnerId, incarnation: Incarnation) {
        if let Some(runner) = self.runner_mut(id) {
            if runner.incarnation > incarnation {
                // A newer one has come since: it knows, and says, what is left of its predecessors.
                return;
            }
            runner.close();
            self.runner_changed_by_id(id);
        }
        for job in self.on_runner(id, |holder| holder <= incarnation) {
            let Some(entry) = self.jobs.get(&job) else { continue };
            let fault = fault_of_loss(&entry.job);
            self.give_up(job, fault);
        }
    }

    /// Does what is decided about the attempt of a job, unless that has taken care of itself.
    pub(crate) fn do_decided(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get(&id) else { return };
        match entry.decided {
            None => {}
            Some(Decided::Adopt(incarnation)) => self.adopt(id, incarnation, step),
            Some(Decided::Lose(fault)) => {
                let attempt = entry.job.attempt;
                let _ = self.fire(id, Event::Lost { attempt, fault }, step);
            }
        }
    }

    /// Tells the record which incarnation has the attempt in hand.
    pub(crate) fn adopt(&mut self, id: JobId, incarnation: Incarnation, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.decided = None;
        let attempt = entry.job.attempt;
        if self.fire(id, Event::Adopted { attempt, incarnation }, step).is_ok() {
            self.stats.adopted += 1;
        }
    }
}
