//! Coming back: a shard's memory made from its records, and the effects that a crash swallowed.

use model::codec::DecodeError;
use model::id::{JobId, RunnerId};
use model::job::Job;
use model::key::{KeyEntry, Made};
use model::message::{RunnerCursor, Ticket, ToRunner};
use model::queue::Queue;
use model::state::State;
use model::time::Millis;

use crate::fetch::Fetched;
use crate::input::Effect;
use crate::runners::Runner;
use crate::shard::{Entry, Shard};
use crate::step::Step;

impl Shard {
    /// Puts back a queue. All queues come before the jobs.
    pub fn restore_queue(&mut self, queue: Queue) {
        self.see_id(queue.id.0);
        self.add_queue(queue);
    }

    /// Puts back a runner's cursor. All runners come before the jobs.
    pub fn restore_runner(&mut self, id: RunnerId, cursor: RunnerCursor) {
        self.put_runner(id, Runner::new(cursor));
    }

    /// Puts back what another shard was granted of a limit whose home this is. Before the shard is resumed.
    pub fn restore_grant(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        self.ready.leases.restore_ledger(key, value)
    }

    /// Makes sure that no id up to this one is handed out again.
    pub fn see_id(&mut self, id: u64) {
        if id > self.last_id {
            self.last_id = id;
            self.ids = model::id::IdSource::after(id);
        }
    }

    /// Puts back a job that is not terminal, with its spec.
    pub fn restore_job(&mut self, job: Job) {
        debug_assert!(!job.state.is_terminal() && !job.lacks_spec());
        self.see_id(job.id.0);
        if let Some(key) = job.key {
            let made = Made::Job { id: job.id, seq: job.seq };
            self.remember_key(key, KeyEntry { digest: job.digest.within(job.queue), at: job.created_at, made });
        }
        if !self.queues.contains_key(&job.queue) {
            // Its queue is written in the same commit as the job, so this is damage; the job is not lost by it.
            self.restore_expired_queue(&job);
        }
        if let Some(queue) = self.queues.get_mut(&job.queue) {
            queue.active.insert(job.id);
            queue.on_runner += u32::from(job.state.is_on_runner());
        }
        if job.state.is_on_runner() {
            self.restore_hand(&job);
        }
        self.timers.arm(&job, &self.config);
        self.stats.enter(job.state);
        self.jobs.insert(job.id, Box::new(Entry { stored: true, ..Entry::new(job) }));
    }

    /// Sets a restored shard going: past-due timers fire with the first tick, and every effect that the
    /// records ask for is issued again.
    pub fn resume(&mut self, now: Millis, step: &mut Step) {
        self.now = self.now.max(now);
        let mut ids: Vec<JobId> = self.jobs.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(entry) = self.jobs.get_mut(&id) else { continue };
            if entry.job.retracting {
                self.timers.wake(entry, self.now + self.config.stop_timeout);
            }
            match entry.job.state {
                State::Pending => self.ask_policy(id, step),
                State::Scheduled => self.make_ready(id, step),
                State::Dispatched | State::Running | State::Cancelling => repeat(&entry.job, step),
                State::Scanning => self.ask_scan(id, step),
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
        self.resume_flows(step);
        self.resume_scans(step);
        self.resume_runners(step);
        let Self { queues, timers, config, .. } = self;
        for entry in queues.values_mut() {
            // What can be counted is counted; in a queue that had to be made up it is all there is.
            entry.queue.counters.active = entry.active.len() as u64;
            if entry.active.is_empty() {
                timers.arm_expiry(entry, config);
            }
        }
    }

    pub(crate) fn fetched(&mut self, fetched: Fetched, step: &mut Step) {
        match fetched {
            Fetched::Job { id, job } => self.fetched_job(id, job, step),
            Fetched::Keys { entries } => self.backlog.keys.extend(entries),
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

/// Says again to the runner what the record says it was told; it ignores what it knows. An incarnation that is gone does
/// not hear it: the next one says by itself what it has in hand.
fn repeat(job: &Job, step: &mut Step) {
    let Some((runner, incarnation)) = job.runner() else { return };
    let ticket = Ticket { job: job.id, attempt: job.attempt };
    let message = match (job.is_to_stop(), job.state) {
        (true, _) => ToRunner::Stop { ticket },
        (false, State::Dispatched) => {
            ToRunner::Run { ticket, spec: job.spec.clone(), constraints: job.constraints.clone() }
        }
        (false, _) => return,
    };
    step.effects.push(Effect::Send { runner, incarnation, message });
}
