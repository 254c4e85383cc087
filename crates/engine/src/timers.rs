//! Timers of jobs and queues. They are derived from records and not stored themselves.

use std::collections::BTreeSet;

use model::id::{JobId, QueueId};
use model::job::Job;
use model::machine::Event;
use model::state::State;
use model::time::Millis;

use crate::anomaly::Anomaly;
use crate::config::Config;
use crate::jobs::LiveJob;
use crate::shard::Shard;
use crate::step::Step;

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A delayed job becomes eligible.
    Due(JobId),
    /// A waiting job is checked again: [`LiveJob::wakes_at`].
    Wake(JobId),
    /// No approval in time.
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
        // Woken by `Timer::Wake`, where needed.
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

    /// Sets the timers that a job's record implies.
    pub fn arm(&mut self, job: &Job, config: &Config) {
        self.set.extend(state_timer(job, config));
        self.set.extend(deadline_timer(job));
    }

    /// Removes a job's timers. Call it before the record changes.
    pub fn disarm(&mut self, job: &Job, config: &Config) {
        for timer in state_timer(job, config).into_iter().chain(deadline_timer(job)) {
            self.set.remove(&timer);
        }
    }

    /// Sets the wake timer of a job, replacing an earlier one.
    pub fn wake(&mut self, entry: &mut LiveJob, at: Millis) {
        if let Some(old) = entry.set_wakes_at(Some(at)) {
            self.set.remove(&(old, Timer::Wake(entry.job.id)));
        }
        self.set.insert((at, Timer::Wake(entry.job.id)));
    }

    pub fn cancel_wake(&mut self, entry: &mut LiveJob) {
        if let Some(at) = entry.set_wakes_at(None) {
            self.set.remove(&(at, Timer::Wake(entry.job.id)));
        }
    }

    pub fn arm_expiry(&mut self, queue: QueueId, at: Millis) {
        self.set.insert((at, Timer::QueueExpiry(queue)));
    }

    fn pop_due(&mut self, now: Millis) -> Option<Timer> {
        let first = self.set.first().filter(|(at, _)| *at <= now).copied()?;
        self.set.remove(&first);
        Some(first.1)
    }
}

impl Shard {
    /// Fires due timers and continues background work, a bounded amount of it.
    pub(crate) fn tick(&mut self, step: &mut Step) {
        for _ in 0..self.config.timers_per_step {
            if self.is_full(step) {
                break;
            }
            let Some(timer) = self.timers.pop_due(self.now) else { break };
            self.fire_timer(timer, step);
        }
        self.check_runners(step);
        self.check_scans(step);
        self.tick_workflows(step);
        self.continue_cancelling(step);
        self.continue_sweep(step);
    }

    fn fire_timer(&mut self, timer: Timer, step: &mut Step) {
        // An ignored event is counted where it is ignored; a timer needs no answer.
        let _ = match timer {
            Timer::Due(job) => self.fire(job, Event::Due, step),
            Timer::ApprovalExpiry(job) => return self.expire_approval(job, step),
            Timer::AttemptTimeout(job) => match self.jobs.get(job).map(|entry| entry.job.attempt) {
                Some(attempt) => self.fire(job, Event::AttemptTimedOut { attempt }, step),
                None => return,
            },
            Timer::StopOverdue(job) => match self.jobs.get(job).map(|entry| entry.job.attempt) {
                Some(attempt) => self.fire(job, Event::StopOverdue { attempt }, step),
                None => return,
            },
            Timer::Deadline(job) => self.fire(job, Event::DeadlinePassed, step),
            Timer::Wake(job) => return self.wake_job(job, step),
            Timer::QueueExpiry(queue) => return self.expire_queue(queue, step),
        };
    }

    /// The wake timer of a job has fired: its delay is over, or an answer is missing.
    fn wake_job(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "wake job");
        };
        entry.set_wakes_at(None);
        match entry.job.state {
            State::Pending => {
                // The throttle is over, or the policy has not answered.
                self.stats.replayed += u64::from(entry.job.eligible_at < self.now);
                self.check_policy(id, step);
            }
            State::Scheduled => self.check_for_runner(id, step),
            State::Scanning => {
                self.stats.replayed += 1;
                self.request_scan(id, step);
            }
            State::Blocked
            | State::ApprovalRequired
            | State::Dispatched
            | State::Running
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
}
