//! Rehydration: rebuilds a shard's memory from its records and reissues effects lost in a crash.

use model::codec::DecodeError;
use model::id::RunnerId;
use model::job::Job;
use model::key::{KeyEntry, Made};
use model::message::{AttemptRef, RunnerCursor, ToRunner};
use model::queue::Queue;
use model::state::State;
use model::time::Millis;

use crate::anomaly::Anomaly;
use crate::fetch::Fetched;
use crate::input::Effect;
use crate::jobs::LiveJob;
use crate::runners::Runner;
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    /// Restores a queue. Restore all queues before the jobs.
    pub fn restore_queue(&mut self, queue: Queue) {
        self.reserve_ids_up_to(queue.id.0);
        self.add_queue(queue);
    }

    /// Restores a runner's cursor. Restore all runners before the jobs.
    pub fn restore_runner(&mut self, id: RunnerId, cursor: RunnerCursor) {
        self.put_runner(id, Runner::new(cursor));
    }

    /// Restores a lease that this shard, as home, has granted to another. Call it before [`Shard::resume`].
    pub fn restore_grant(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        self.ready.restore_grant(key, value)
    }

    /// Reserves all ids up to this one: none of them is issued again.
    pub fn reserve_ids_up_to(&mut self, id: u64) {
        self.ids.reserve_up_to(id);
    }

    /// Restores a job that is not terminal, with its spec.
    pub fn restore_job(&mut self, job: Job) {
        debug_assert!(!job.state.is_terminal() && !job.lacks_spec());
        self.reserve_ids_up_to(job.id.0);
        if let Some(key) = job.key {
            let made = Made::Job { id: job.id, seq: job.seq };
            self.keys.remember(key, KeyEntry { digest: job.digest.within(job.queue), at: job.created_at, made });
        }
        if self.queues.get(job.queue).is_none() {
            // Queue and job are written in one commit, so the store is damaged. The job is restored all the same.
            self.restore_expired_queue(&job);
        }
        self.queues.restore_job(job.queue, job.id, job.state.is_on_runner());
        if job.state.is_on_runner() {
            self.restore_assignment(&job);
        }
        self.timers.arm(&job, &self.config);
        self.stats.enter(job.state);
        self.jobs.insert(LiveJob::restored(job));
    }

    /// Starts a restored shard. Overdue timers fire with the first tick. Every effect that the records imply is issued
    /// again.
    pub fn resume(&mut self, now: Millis, step: &mut Step) {
        self.now = self.now.max(now);
        for id in self.jobs.sorted_ids() {
            let Some(entry) = self.jobs.get_mut(id) else {
                self.anomalies.note(Anomaly::MissingJob(id), "resume");
                continue;
            };
            if entry.job.retracting {
                self.timers.wake(entry, self.now + self.config.stop_timeout);
            }
            match entry.job.state {
                State::Pending => self.check_policy(id, step),
                State::Scheduled => self.make_ready(id, step),
                State::Dispatched | State::Running | State::Cancelling => resend(&entry.job, step),
                State::Scanning => self.request_scan(id, step),
                State::Blocked
                | State::ApprovalRequired
                | State::Succeeded
                | State::Failed
                | State::TimedOut
                | State::Cancelled
                | State::Denied
                | State::Quarantined
                | State::Abandoned => {}
            }
        }
        self.resume_leases();
        self.resume_workflows(step);
        self.resume_scans(step);
        self.resume_runners(step);
        for queue in self.queues.resume() {
            self.arm_expiry(queue);
        }
    }

    pub(crate) fn fetched(&mut self, fetched: Fetched, step: &mut Step) {
        match fetched {
            Fetched::Job { id, job } => self.fetched_job(id, job, step),
            Fetched::Keys { entries } => self.backlog.push_keys(entries),
            Fetched::UnreadableJob { id } => self.unreadable_job(id, step),
            Fetched::UnreadableKeys { keys } => self.unreadable_keys(&keys, step),
            Fetched::Finished { jobs, more } => self.fetched_finished(&jobs, more, step),
            Fetched::OldKeys { keys, more } => self.fetched_old_keys(&keys, more, step),
            Fetched::Workflow { id, found } => self.fetched_workflow(id, found, step),
            Fetched::UnreadableWorkflow { id } => self.unreadable_workflow(id, step),
            Fetched::FinishedWorkflows { workflows, more } => self.fetched_finished_workflows(workflows, more, step),
            Fetched::WorkflowRows { id, rows, more } => self.fetched_rows(id, &rows, more, step),
        }
    }
}

/// Resends the last message that the record implies; runners ignore duplicates. If the incarnation is gone, the message
/// is dropped: the next incarnation reports its attempts when it registers.
fn resend(job: &Job, step: &mut Step) {
    let Some((runner, incarnation)) = job.runner() else { return };
    let attempt_ref = AttemptRef { job: job.id, attempt: job.attempt };
    let message = match (job.is_to_stop(), job.state) {
        (true, _) => ToRunner::Stop { attempt_ref },
        (false, State::Dispatched) => {
            ToRunner::Run { attempt_ref, spec: job.spec.clone(), constraints: job.constraints.clone() }
        }
        (false, _) => return,
    };
    step.effects.push(Effect::Send { runner, incarnation, message });
}
