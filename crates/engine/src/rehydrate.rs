//! Rehydration: rebuilds a shard's memory from its records and reissues effects lost in a crash.

use std::collections::VecDeque;

use model::batch::Keyspace;
use model::codec::DecodeError;
use model::id::{JobId, QueueId, RunnerId, ScheduleId, WorkflowId};
use model::job::Job;
use model::key::{self, CreatedObject, KeyEntry};
use model::message::RunnerCursor;
use model::queue::Queue;
use model::state::State;
use model::time::Now;

use crate::anomaly::Anomaly;
use crate::fetch::Fetched;
use crate::jobs::LiveJob;
use crate::names;
use crate::runners::Runner;
use crate::shard::Shard;
use crate::step::Step;

/// Limit of effects in one step of [`Shard::resume`].
const RESUME_EFFECTS_MAX: usize = 10_000;

/// The next thing that [`Shard::resume`] does.
#[derive(Debug)]
pub(crate) enum Resuming {
    /// The next id; counters and expiry of queues. Nothing is written.
    Queues,
    /// Index entries that earlier versions did not write.
    QueueName(QueueId),
    ScheduleName(ScheduleId),
    NamesIndexed,
    Job(JobId),
    /// What all workflows need before one of them is resumed. Nothing is written.
    AllWorkflows,
    Workflow(WorkflowId),
    /// Schedules, scans and runners. Nothing is written.
    Rest,
}

impl Shard {
    /// Restores a queue. Restore all queues before the jobs.
    pub fn restore_queue(&mut self, queue: Queue) {
        self.reserve_ids_up_to(queue.id.0);
        self.add_queue(queue);
    }

    /// Restores a runner's cursor. Restore all runners before the jobs.
    pub fn restore_runner(&mut self, id: RunnerId, cursor: RunnerCursor) {
        let session = self.new_session();
        self.put_runner(id, Runner::new(cursor, session, self.steady));
    }

    /// Restores a lease that this shard, as home, has granted to another. Call it before [`Shard::resume`].
    pub fn restore_grant(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        self.ready.restore_grant(key, value)
    }

    /// All names are indexed. Otherwise [`Shard::resume`] does it.
    pub fn restore_names_indexed(&mut self) {
        self.names_indexed = true;
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
            let made = CreatedObject::Job { id: job.id, seq: job.seq };
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
        self.restore_unconfirmed(&job);
        self.restore_hold(&job);
        self.stats.enter(job.state);
        let mut entry = LiveJob::restored(job);
        if entry.job.state == State::Cancelling {
            entry.set_limit_at(Some(self.steady + self.config.stop_timeout));
        }
        self.timers.arm(&entry, &self.config);
        self.jobs.insert(entry);
    }

    /// Resumes a restored shard: every effect that the records imply is issued again. Overdue timers fire with the
    /// first tick.
    ///
    /// Returns whether it is finished. If not, the step is full: commit it and call this again. Inputs wait until then.
    #[must_use]
    pub fn resume(&mut self, now: Now, step: &mut Step) -> bool {
        self.advance_to(now);
        let mut left = match std::mem::take(&mut self.resuming) {
            Some(left) => left,
            None => {
                self.exclusive.begin(self.steady);
                self.things_to_resume()
            }
        };
        while !self.is_full(step) && step.effects.len() < RESUME_EFFECTS_MAX {
            match left.pop_front() {
                Some(next) => self.resume_next(next, step),
                None => return true,
            }
        }
        self.resuming = Some(left);
        false
    }

    fn things_to_resume(&self) -> VecDeque<Resuming> {
        let jobs = self.jobs.sorted_ids().into_iter().map(Resuming::Job);
        let workflows = self.workflows.sorted_ids().into_iter().map(Resuming::Workflow);
        let queues = std::iter::once(Resuming::Queues).chain(self.names_to_index());
        queues.chain(jobs).chain([Resuming::AllWorkflows]).chain(workflows).chain([Resuming::Rest]).collect()
    }

    fn names_to_index(&self) -> Vec<Resuming> {
        if self.names_indexed {
            return Vec::new();
        }
        let queues = self.queues.sorted_ids().into_iter().map(Resuming::QueueName);
        let schedules = self.workflows.schedule_ids().into_iter().map(Resuming::ScheduleName);
        queues.chain(schedules).chain([Resuming::NamesIndexed]).collect()
    }

    fn resume_next(&mut self, next: Resuming, step: &mut Step) {
        match next {
            Resuming::Queues => {
                if self.epoch.generation() > 0 {
                    self.ids.skip_lost(self.now, self.epoch);
                }
                for queue in self.queues.resume() {
                    self.arm_expiry(queue);
                }
            }
            Resuming::QueueName(id) => {
                if let Some(entry) = self.queues.get(id) {
                    names::add_queue(entry.queue(), &mut step.batch);
                }
            }
            Resuming::ScheduleName(id) => {
                if let Some(schedule) = self.schedule(id) {
                    names::add_schedule(&schedule.name, id, &mut step.batch);
                }
            }
            Resuming::NamesIndexed => {
                self.names_indexed = true;
                step.batch.put(Keyspace::Meta, key::META_NAMES_INDEXED, &[]);
            }
            Resuming::Job(id) => self.resume_job(id, step),
            Resuming::AllWorkflows => {
                self.resume_leases();
                self.link_workflows();
            }
            Resuming::Workflow(id) => self.resume_workflow_by_id(id, step),
            Resuming::Rest => {
                self.resume_schedules();
                self.apply_job_updates(step);
                self.fetch_rows_to_remove(step);
                self.resume_late_updates(step);
                self.resume_scans(step);
                self.resume_runners(step);
            }
        }
    }

    fn resume_job(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get(id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "resume");
        };
        if !self.settings.failing.is_empty() && !entry.job.attempts.is_empty() {
            self.refund_job(id, step);
        }
        let Some(entry) = self.jobs.get(id) else { return };
        match entry.job.state {
            State::Pending => self.check_policy(id, step),
            State::Scheduled => self.make_ready(id, step),
            // The inventory of their runner decides.
            State::Dispatched | State::Running | State::Cancelling => {}
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

    pub(crate) fn fetched(&mut self, fetched: Fetched, step: &mut Step) {
        match fetched {
            Fetched::Job { id, job } => self.fetched_job(id, job, step),
            Fetched::Keys { entries } => self.backlog.push_keys(entries),
            Fetched::UnreadableJob { id } => self.unreadable_job(id, step),
            Fetched::UnreadableKeys { keys } => self.unreadable_keys(&keys, step),
            Fetched::Finished { jobs, more } => self.fetched_finished(&jobs, more, step),
            Fetched::OldKeys { keys, more } => self.fetched_old_keys(&keys, more, step),
            Fetched::OldAudit { entries, more } => self.fetched_old_audit(&entries, more, step),
            Fetched::Workflow { id, found } => self.fetched_workflow(id, found, step),
            Fetched::UnreadableWorkflow { id } => self.unreadable_workflow(id, step),
            Fetched::FinishedWorkflows { workflows, more } => self.fetched_finished_workflows(workflows, more, step),
            Fetched::UnusedDefinitions { unused, after } => self.fetched_unused_definitions(unused, after, step),
            Fetched::WorkflowRows { id, rows, more } => self.fetched_rows(id, &rows, more, step),
        }
    }
}
