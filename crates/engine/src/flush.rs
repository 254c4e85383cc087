//! The end of a step: every record that changed is written once, however often it changed.

use model::batch::Keyspace;
use model::codec;
use model::dead_letter::{DeadLetter, is_dead};
use model::id::JobId;
use model::job::Job;
use model::key;
use model::message::ToRunner;
use model::spec::decode_owner;
use model::state::State;

use crate::input::Effect;
use crate::shard::{Entry, Shard};
use crate::step::{Ended, Step};

impl Entry {
    pub fn new(job: Job) -> Self {
        Self {
            job,
            dirty: false,
            stored: false,
            was_done: None,
            in_ready: false,
            ask: None,
            wakes_at: None,
            dispatched_after: 0,
            policy_misses: 0,
            scan_after: false,
            decided: None,
        }
    }
}

impl Shard {
    /// Encodes what changed into the step's batch. Call it once after the step's inputs, before the commit.
    pub fn flush(&mut self, step: &mut Step) {
        // What has become of the jobs of workflows belongs to the same commit.
        self.hear_jobs(step);
        self.dirty_bytes = 0;
        let mut jobs = std::mem::take(&mut self.dirty_jobs);
        for id in jobs.drain(..) {
            self.flush_job(id, step);
        }
        self.dirty_jobs = jobs;
        for id in std::mem::take(&mut self.dirty_queues) {
            if let Some(entry) = self.queues.get_mut(&id) {
                entry.dirty = false;
                step.batch.put_with(Keyspace::Queues, &id.key(), |buffer| codec::encode_into(&entry.queue, buffer));
            }
        }
        self.flush_flows(step);
        self.send_key_questions(step);
        self.flush_audit(step);
        self.flush_leases(step);
        for (id, cursor) in self.take_moved_cursors() {
            step.batch.put_with(Keyspace::Runners, &key::runner(id), |buffer| codec::encode_into(&cursor, buffer));
            let message = ToRunner::Committed { sequence: cursor.sequence };
            step.effects.push(Effect::Send { runner: id, incarnation: cursor.incarnation, message });
        }
    }

    fn flush_job(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.dirty = false;
        let key = id.key();
        let now_done = entry.job.state.is_terminal();
        let place = if now_done { Keyspace::Done } else { Keyspace::Live };
        step.batch.put_with(place, &key, |buffer| entry.job.encode_into(buffer));
        if let Some(was) = entry.was_done.take() {
            if !now_done {
                step.batch.delete(Keyspace::Done, &key);
            }
            if was != State::Succeeded {
                step.batch.delete(Keyspace::ByState, &key::by_state(was, id));
            }
            if is_dead(was) {
                step.batch.delete(Keyspace::DeadLetters, &key);
            }
        }
        if !now_done {
            entry.stored = true;
            return;
        }
        if entry.stored {
            step.batch.delete(Keyspace::Live, &key);
        }
        if entry.job.state != State::Succeeded {
            step.batch.put(Keyspace::ByState, &key::by_state(entry.job.state, id), &[]);
        }
        if is_dead(entry.job.state) {
            let letter = dead_letter(&entry.job);
            step.batch.put_with(Keyspace::DeadLetters, &key, |buffer| codec::encode_into(&letter, buffer));
            self.stats.dead_letters += 1;
        }
        let attempt = entry.job.attempt;
        let scan = std::mem::take(&mut entry.scan_after) && entry.job.state == State::Succeeded;
        if let Some(key) = entry.job.key {
            self.forget_key(key, id);
        }
        if self.sweep.is_under_way() {
            self.sweep.touched.insert(id);
        }
        step.ended.extend(self.jobs.remove(&id).map(Ended));
        if scan {
            self.mark_scan(id, attempt, step);
        }
    }
}

/// What an operator finds of a job that ended undone.
fn dead_letter(job: &Job) -> DeadLetter {
    let (topic, tenant) = decode_owner(&job.spec).unwrap_or_default();
    DeadLetter::new(job, topic, tenant)
}
