//! Timers of jobs and queues. They are derived from records and not stored themselves.
//!
//! Deadlines, delays and expiries of approvals are times of the wall clock. Limits of attempts, of stops and of idle
//! queues count on the steady clock, which does not jump. After a restart a running attempt has no limit until its runner
//! has reported how long it has been running.

use std::collections::BTreeSet;

use model::id::{JobId, QueueId};
use model::job::Job;
use model::machine::Event;
use model::state::State;
use model::time::{Millis, Now};

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
    wall: BTreeSet<(Millis, Timer)>,
    steady: BTreeSet<(Millis, Timer)>,
}

/// How long the state of a job may last on the steady clock.
pub(crate) fn limit(job: &Job, config: &Config) -> Option<Millis> {
    match job.state {
        State::Running => job.runtime_limit(),
        State::Cancelling => Some(config.stop_timeout),
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
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

/// The timer of [`limit`].
fn limit_timer(entry: &LiveJob) -> Option<(Millis, Timer)> {
    let id = entry.job.id;
    let timer = if entry.job.state == State::Cancelling { Timer::StopOverdue(id) } else { Timer::AttemptTimeout(id) };
    entry.limit_at().map(|at| (at, timer))
}

/// The timer on the wall clock that goes with a job's state.
fn state_timer(job: &Job, config: &Config) -> Option<(Millis, Timer)> {
    match job.state {
        State::Blocked => Some((job.eligible_at, Timer::Due(job.id))),
        State::ApprovalRequired => Some((job.since() + config.approval_expiry, Timer::ApprovalExpiry(job.id))),
        // Woken by `Timer::Wake`, where needed.
        State::Pending | State::Scheduled => None,
        State::Dispatched
        | State::Running
        | State::Cancelling
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
    /// The next one on the wall clock.
    pub fn next(&self) -> Option<Millis> {
        self.wall.first().map(|(at, _)| *at)
    }

    /// The next one on the steady clock.
    pub fn next_steady(&self) -> Option<Millis> {
        self.steady.first().map(|(at, _)| *at)
    }

    /// Sets the timers of a job.
    pub fn arm(&mut self, entry: &LiveJob, config: &Config) {
        self.wall.extend(state_timer(&entry.job, config));
        self.wall.extend(deadline_timer(&entry.job));
        self.steady.extend(limit_timer(entry));
    }

    /// Removes a job's timers. Call it before the job changes.
    pub fn disarm(&mut self, entry: &LiveJob, config: &Config) {
        for timer in state_timer(&entry.job, config).into_iter().chain(deadline_timer(&entry.job)) {
            self.wall.remove(&timer);
        }
        if let Some(timer) = limit_timer(entry) {
            self.steady.remove(&timer);
        }
    }

    /// Sets the limit of a job's state.
    pub fn set_limit(&mut self, entry: &mut LiveJob, at: Millis) {
        entry.set_limit_at(Some(at));
        self.steady.extend(limit_timer(entry));
    }

    /// Sets the wake timer of a job, replacing an earlier one.
    pub fn wake(&mut self, entry: &mut LiveJob, at: Millis) {
        if let Some(old) = entry.set_wakes_at(Some(at)) {
            self.wall.remove(&(old, Timer::Wake(entry.job.id)));
        }
        self.wall.insert((at, Timer::Wake(entry.job.id)));
    }

    pub fn cancel_wake(&mut self, entry: &mut LiveJob) {
        if let Some(at) = entry.set_wakes_at(None) {
            self.wall.remove(&(at, Timer::Wake(entry.job.id)));
        }
    }

    pub fn arm_expiry(&mut self, queue: QueueId, at: Millis) {
        self.steady.insert((at, Timer::QueueExpiry(queue)));
    }

    fn pop_due(&mut self, now: Now) -> Option<Timer> {
        pop(&mut self.steady, now.steady).or_else(|| pop(&mut self.wall, now.wall))
    }
}

fn pop(timers: &mut BTreeSet<(Millis, Timer)>, now: Millis) -> Option<Timer> {
    let first = timers.first().filter(|(at, _)| *at <= now).copied()?;
    timers.remove(&first);
    Some(first.1)
}

impl Shard {
    /// Fires due timers and continues background work, a bounded amount of it.
    pub(crate) fn tick(&mut self, step: &mut Step) {
        for _ in 0..self.config.timers_per_step {
            if self.is_full(step) {
                break;
            }
            let Some(timer) = self.timers.pop_due(self.clocks()) else { break };
            self.fire_timer(timer, step);
        }
        self.check_runners(step);
        self.check_holds(step);
        self.check_scans(step);
        self.check_claims(step);
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
