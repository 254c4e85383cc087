//! Forgetting what is old: finished jobs after their retention, idempotency keys after their day.

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

/// Where a look through the old records has come to.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// When the next look, or the next part of this one, is due.
    pub next: Millis,
    /// Finished jobs up to this one have been looked at.
    after: JobId,
    jobs_asked: bool,
    keys_asked: bool,
    /// Jobs that were finished again or removed while a part of a look is under way: what it brings of them is old.
    pub(crate) touched: BTreeSet<JobId>,
}

impl Sweep {
    pub fn new(now: Millis) -> Self {
        Self { next: now, after: JobId(0), jobs_asked: false, keys_asked: false, touched: BTreeSet::new() }
    }

    pub fn is_under_way(&self) -> bool {
        self.jobs_asked
    }
}

impl Shard {
    pub(crate) fn go_on_sweeping(&mut self, step: &mut Step) {
        if self.now < self.sweep.next {
            return;
        }
        self.sweep.next = self.now + self.config.sweep_interval;
        let limit = self.config.sweep_chunk;
        if !self.sweep.jobs_asked {
            self.sweep.jobs_asked = true;
            step.effects.push(Effect::Fetch(Fetch::Finished { after: self.sweep.after, limit }));
        }
        if !self.sweep.keys_asked {
            self.sweep.keys_asked = true;
            let before = Day::of(self.now.saturating_sub(self.config.key_lifetime));
            step.effects.push(Effect::Fetch(Fetch::OldKeys { before, limit }));
        }
    }

    pub(crate) fn fetched_finished(&mut self, jobs: &[Job], more: bool, step: &mut Step) {
        self.sweep.jobs_asked = false;
        let expired = self.now.saturating_sub(self.config.retention);
        for job in jobs {
            let busy = self.jobs.contains_key(&job.id)
                || self.asked_jobs.contains_key(&job.id)
                || self.sweep.touched.contains(&job.id);
            // What an operator may still want to look at stays for longer.
            let kept = if is_dead(job.state) { self.config.dead_letter_retention } else { Millis(0) };
            let expired = self.now.saturating_sub(self.config.retention.max(kept));
            if !busy && job.ended_at().is_some_and(|ended| ended < expired) {
                self.remove_stored(job, step);
            }
        }
        self.sweep.touched.clear();
        // Ids sort by creation: behind a job younger than the retention nothing can be older than it.
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
        self.sweep.keys_asked = false;
        for key in keys {
            step.batch.delete(Keyspace::Keys, key);
        }
        if more {
            self.sweep.next = self.now;
        }
    }
}
