//! Retention: deletes terminal jobs after their retention and idempotency keys after their day.

use std::collections::BTreeSet;

use model::batch::Keyspace;
use model::dead_letter::is_dead;
use model::id::JobId;
use model::job::Job;
use model::key::Day;
use model::time::Millis;

use crate::fetch::Fetch;
use crate::input::Effect;
use crate::shard::Shard;
use crate::step::Step;

/// State of the sweep over old records.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// When the next chunk is due.
    next: Millis,
    /// Sweep cursor: terminal jobs up to this one are checked.
    after: JobId,
    jobs_requested: bool,
    keys_requested: bool,
    /// Jobs stored or removed since the chunk was requested: its copies of them are outdated.
    touched: BTreeSet<JobId>,
}

impl Sweep {
    pub fn new(now: Millis) -> Self {
        Self { next: now, after: JobId(0), jobs_requested: false, keys_requested: false, touched: BTreeSet::new() }
    }

    pub fn next(&self) -> Millis {
        self.next
    }

    /// Marks a stored or removed job: a requested chunk has an outdated copy of it.
    pub fn touch(&mut self, job: JobId) {
        if self.jobs_requested {
            self.touched.insert(job);
        }
    }
}

impl Shard {
    pub(crate) fn continue_sweep(&mut self, step: &mut Step) {
        if self.now < self.sweep.next {
            return;
        }
        self.sweep.next = self.now + self.config.sweep_interval;
        let limit = self.config.sweep_chunk;
        if !self.sweep.jobs_requested {
            self.sweep.jobs_requested = true;
            step.effects.push(Effect::Fetch(Fetch::Finished { after: self.sweep.after, limit }));
        }
        if !self.sweep.keys_requested {
            self.sweep.keys_requested = true;
            let before = Day::of(self.now.saturating_sub(self.config.key_lifetime));
            step.effects.push(Effect::Fetch(Fetch::OldKeys { before, limit }));
        }
        self.sweep_audit(step);
    }

    pub(crate) fn fetched_finished(&mut self, jobs: &[Job], more: bool, step: &mut Step) {
        self.sweep.jobs_requested = false;
        let expired = self.now.saturating_sub(self.config.retention);
        for job in jobs {
            let busy =
                self.jobs.contains(job.id) || self.operations.contains(job.id) || self.sweep.touched.contains(&job.id);
            // Dead letters stay longer, for operators.
            let dead_letter_retention = if is_dead(job.state) { self.config.dead_letter_retention } else { Millis(0) };
            let expired = self.now.saturating_sub(self.config.retention.max(dead_letter_retention));
            if !busy && job.ended_at().is_some_and(|ended| ended < expired) {
                self.remove_stored(job, step);
            }
        }
        self.sweep.touched.clear();
        // Ids sort by creation: no job after one younger than the retention can be older than the retention.
        let reached_young = jobs.last().is_some_and(|job| job.created_at >= expired);
        match jobs.last() {
            Some(last) if more && !reached_young => {
                self.sweep.after = last.id;
                self.sweep.next = self.now;
            }
            Some(_) | None => self.sweep.after = JobId(0),
        }
    }

    pub(crate) fn fetched_old_keys(&mut self, keys: &[Vec<u8>], more: bool, step: &mut Step) {
        self.sweep.keys_requested = false;
        for key in keys {
            step.batch.delete(Keyspace::Keys, key);
        }
        if more {
            self.sweep.next = self.now;
        }
    }
}
