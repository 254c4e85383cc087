//! Work that did not fit into the step that began it.
//!
//! A runner that is lost or comes back may have a hundred thousand attempts in flight, and as many keys may be looked
//! up at once. Their consequences are processed in bounded steps. All of it can be derived from the records again.

use std::collections::VecDeque;

use model::id::JobId;
use model::key::KeyEntry;
use model::spec::KeyHash;

use crate::shard::Shard;
use crate::step::Step;

/// Work for the next step.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Jobs with a [`crate::jobs::PendingDecision`].
    attempts: VecDeque<JobId>,
    /// Keys that were looked up.
    keys: VecDeque<(KeyHash, Option<KeyEntry>)>,
    /// Jobs and runners are left to match, but the step was full.
    unfilled: bool,
    /// Estimated size of the jobs and task rows that the flush will write.
    written_bytes: usize,
}

impl Backlog {
    pub fn is_due(&self) -> bool {
        !self.attempts.is_empty() || !self.keys.is_empty() || self.unfilled
    }

    pub fn push_attempt(&mut self, job: JobId) {
        self.attempts.push_back(job);
    }

    pub fn push_keys(&mut self, entries: Vec<(KeyHash, Option<KeyEntry>)>) {
        self.keys.extend(entries);
    }

    pub fn set_unfilled(&mut self, unfilled: bool) {
        self.unfilled = unfilled;
    }

    pub fn add_written(&mut self, bytes: usize) {
        self.written_bytes += bytes;
    }

    pub fn clear_written(&mut self) {
        self.written_bytes = 0;
    }
}

impl Shard {
    /// Estimated size of the step's commit. The shell stops adding inputs when it is large.
    pub fn pending_bytes(&self, step: &Step) -> usize {
        self.backlog.written_bytes
            + self.workflows.dirty_bytes()
            + self.queues.dirty_bytes()
            + step.batch.as_bytes().len()
    }

    pub(crate) fn is_full(&self, step: &Step) -> bool {
        self.pending_bytes(step) >= self.config.step_bytes_max
    }

    /// Processes as much of the backlog as fits into this step.
    pub(crate) fn process_backlog(&mut self, step: &mut Step) {
        while !self.is_full(step)
            && let Some(job) = self.backlog.attempts.pop_front()
        {
            self.apply_pending(job, step);
        }
        while !self.is_full(step)
            && let Some((key, entry)) = self.backlog.keys.pop_front()
        {
            self.answered_key(key, entry, step);
        }
    }
}
