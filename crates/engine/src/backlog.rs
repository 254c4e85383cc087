//! Work that did not fit into the step that began it.
//!
//! A runner that is gone, or comes back, may have a hundred thousand jobs in hand, and as many keys may be answered at
//! once. What they lead to is worked off in steps of bounded size. All of it can be derived from the records again.

use std::collections::VecDeque;

use model::id::JobId;
use model::job::Job;
use model::key::KeyEntry;
use model::spec::KeyHash;

use crate::shard::Shard;
use crate::step::Step;

/// What a record takes besides its spec and its result, roughly.
const RECORD_BYTES: usize = 300;

/// What waits for the next step.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Jobs with something decided about the attempt in hand: [`crate::shard::Entry::decided`].
    pub attempts: VecDeque<JobId>,
    /// Keys that the store has told of.
    pub keys: VecDeque<(KeyHash, Option<KeyEntry>)>,
    /// There are jobs and room for them, but the step was full.
    pub unfilled: bool,
}

impl Backlog {
    pub fn is_due(&self) -> bool {
        !self.attempts.is_empty() || !self.keys.is_empty() || self.unfilled
    }
}

/// About how much the record of a job takes.
pub(crate) fn record_bytes(job: &Job) -> usize {
    let spec = if job.has_large_spec() { 0 } else { job.spec.len() };
    RECORD_BYTES + spec
}

impl Shard {
    /// About how much this step will write: whoever brings more inputs should stop when it is a lot.
    pub fn pending_bytes(&self, step: &Step) -> usize {
        self.dirty_bytes + step.batch.as_bytes().len()
    }

    pub(crate) fn is_full(&self, step: &Step) -> bool {
        self.pending_bytes(step) >= self.config.step_bytes_max
    }

    /// Does as much of what waits as fits into this step.
    pub(crate) fn work_off(&mut self, step: &mut Step) {
        while !self.is_full(step)
            && let Some(job) = self.backlog.attempts.pop_front()
        {
            self.do_decided(job, step);
        }
        while !self.is_full(step)
            && let Some((key, entry)) = self.backlog.keys.pop_front()
        {
            self.answered_key(key, entry, step);
        }
    }
}
