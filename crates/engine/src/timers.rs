//! Timers are derived from records: nothing extra to lose, nothing fires twice.

use std::collections::BTreeSet;

use model::id::{JobId, QueueId};
use model::job::Job;
use model::machine::Event;
use model::message::{Ticket, ToRunner};
use model::state::State;
use model::time::Millis;

use crate::config::Config;
use crate::input::Effect;
use crate::shard::{Entry, QueueEntry, Shard};
use crate::step::Step;

/// What is to happen at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A blocked job's time has come.
    Due(JobId),
    /// A job that waits, or is being taken back, is to be looked at again: [`Entry::wakes_at`].
    Wake(JobId),
    /// Nobody has said whether it may run.
    ApprovalExpiry(JobId),
    AttemptTimeout(JobId),
    StopOverdue(JobId),
    Deadline(JobId),
    QueueExpiry(QueueId),
}

/// All timers of a shard, soonest first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    set: BTreeSet<(Millis, Timer)>,
}

/// The timer that goes with a job's state.
fn state_timer(job: &Job, config: &Config) -> Option<(Millis, Timer)> {
    match job.state {
        State::Blocked => Some((job.eligible_at, Timer::Due(job.id))),
        State::Running => job.runtime_limit().map(|limit| (job.since() + limit, Timer::AttemptTimeout(job.id))),
        State::Cancelling => Some((job.since() + config.stop_timeout, Timer::StopOverdue(job.id))),
        // These are woken, if they need to be, by whoever lets them wait.
        State::Pending | State::Scheduled => None,
        State::ApprovalRequired => Some((job.since() + config.approval_expiry, Timer::ApprovalExpiry(job.id))),
        State::Dispatched
        | State::Scanning
        | State::Succeeded
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Denied
        | State::Quarantined
        | State::Abandoned => None,
    }
}

fn deadline_timer(job: &Job) -> Option<(Millis, Timer)> {
    let deadline = job.deadline?;
    match job.state {
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running => Some((deadline, Timer::Deadline(job.id))),
        State::Cancelling
        | State::Scanning
        | State::Succeeded
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Denied
        | State::Quarantined
        | State::Abandoned => None,
    }
}

impl Timers {
    pub fn next(&self) -> Option<Millis> {
        self.set.first().map(|(at, _)| *at)
    }

    /// Sets the timers of a job as its record says.
    pub fn arm(&mut self, job: &Job, config: &Config) {
        self.set.extend(state_timer(job, config));
        self.set.extend(deadline_timer(job));
    }

    /// Takes them back, before the record changes.
    pub fn disarm(&mut self, job: &Job, config: &Config) {
        for timer in state_timer(job, config).into_iter().chain(deadline_timer(job)) {
            self.set.remove(&timer);
        }
    }

    /// Has a waiting job looked at again at `at`, instead of whenever it was to be before.
    pub fn wake(&mut self, entry: &mut Entry, at: Millis) {
        self.let_sleep(entry);
        entry.wakes_at = Some(at);
        self.set.insert((at, Timer::Wake(entry.job.id)));
    }

    pub fn let_sleep(&mut self, entry: &mut Entry) {
        if let Some(at) = entry.wakes_at.take() {
            self.set.remove(&(at, Timer::Wake(entry.job.id)));
        }
    }

    /// Lets an idle queue expire later, unless it already will.
    pub fn arm_expiry(&mut self, entry: &mut QueueEntry, config: &Config) {
        if !entry.queue.implicit && !entry.expiry_armed {
            entry.expiry_armed = true;
            let at = entry.queue.idle_since + config.queue_idle_expiry;
            self.set.insert((at, Timer::QueueExpiry(entry.queue.id)));
        }
    }

    fn pop_due(&mut self, now: Millis) -> Option<Timer> {
        let first = self.set.first().filter(|(at, _)| *at <= now).copied()?;
        self.set.remove(&first);
        Some(first.1)
    }
}

impl Shard {
    /// Does what time asks for, a bounded amount of it.
    pub(crate) fn tick(&mut self, step: &mut Step) {
        for _ in 0..self.config.timers_per_step {
            if self.is_full(step) {
                break;
            }
            let Some(timer) = self.timers.pop_due(self.now) else { break };
            self.ring(timer, step);
        }
        self.check_runners(step);
        self.check_scans(step);
        self.tick_flows(step);
        self.go_on_cancelling(step);
        self.go_on_sweeping(step);
    }

    fn ring(&mut self, timer: Timer, step: &mut Step) {
        // An ignored event is counted where it is ignored; a timer needs no answer.
        let _ = match timer {
            Timer::Due(job) => self.fire(job, Event::Due, step),
            Timer::ApprovalExpiry(job) => return self.expire_approval(job, step),
            Timer::AttemptTimeout(job) => match self.jobs.get(&job).map(|entry| entry.job.attempt) {
                Some(attempt) => self.fire(job, Event::AttemptTimedOut { attempt }, step),
                None => return,
            },
            Timer::StopOverdue(job) => match self.jobs.get(&job).map(|entry| entry.job.attempt) {
                Some(attempt) => self.fire(job, Event::StopOverdue { attempt }, step),
                None => return,
            },
            Timer::Deadline(job) => self.fire(job, Event::DeadlinePassed, step),
            Timer::Wake(job) => return self.look_again(job, step),
            Timer::QueueExpiry(queue) => return self.expire_queue(queue, step),
        };
    }

    /// A job that was waiting for a time, or for an answer that has not come.
    fn look_again(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.wakes_at = None;
        match entry.job.state {
            State::Pending => {
                // Either a throttle is over, or the answer has not come.
                self.stats.replayed += u64::from(entry.job.eligible_at < self.now);
                self.ask_policy(id, step);
            }
            State::Scheduled => self.look_for_runner(id, step),
            State::Scanning => {
                self.stats.replayed += 1;
                self.ask_scan(id, step);
            }
            State::Dispatched | State::Running => self.stop_again(id, step),
            State::Blocked
            | State::ApprovalRequired
            | State::Cancelling
            | State::Succeeded
            | State::Failed
            | State::TimedOut
            | State::Cancelled
            | State::Denied
            | State::Quarantined
            | State::Abandoned => {}
        }
    }

    /// A job that is being taken back and that its runner has not let go of: the order to stop may have been lost.
    fn stop_again(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(&id).filter(|entry| entry.job.retracting) else { return };
        let Some((runner, incarnation)) = entry.holder() else { return };
        let ticket = Ticket { job: id, attempt: entry.job.attempt };
        step.effects.push(Effect::Send { runner, incarnation, message: ToRunner::Stop { ticket } });
        self.timers.wake(entry, self.now + self.config.stop_timeout);
    }
}
