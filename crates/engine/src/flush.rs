//! The end of a step: every changed record is written once, however often it changed.

use model::batch::Keyspace;
use model::codec;
use model::dead_letter::{DeadLetter, is_dead};
use model::id::JobId;
use model::job::Job;
use model::key;
use model::spec::decode_owner;
use model::state::State;

use crate::anomaly::Anomaly;
use crate::shard::Shard;
use crate::step::{Ended, Step};

impl Shard {
    /// Encodes all changes into the step's batch. Called once after the step's inputs, before the commit.
    pub fn flush(&mut self, step: &mut Step) {
        // The end of a job and of its task belong to one commit.
        self.apply_job_updates(step);
        self.backlog.clear_written();
        let jobs = self.jobs.take_dirty();
        for id in &jobs {
            self.flush_job(*id, step);
        }
        self.jobs.return_buffer(jobs);
        self.queues.flush(step);
        self.flush_workflows(step);
        self.request_keys(step);
        self.flush_audit(step);
        self.flush_leases(step);
        for (id, cursor) in self.take_moved_cursors() {
            step.batch.put_with(Keyspace::Runners, &key::runner(id), |buffer| codec::encode_into(&cursor, buffer));
            self.acknowledge(id, cursor, step);
        }
        self.ready.hand_over_anomalies(&mut self.anomalies);
        self.anomalies.report(step);
        self.stats.anomalies = self.anomalies.total();
    }

    fn flush_job(&mut self, id: JobId, step: &mut Step) {
        let Some((entry, moved)) = self.jobs.flush(id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "flush");
        };
        let (job, key) = (&entry.job, id.key());
        let now_done = job.state.is_terminal();
        let keyspace = if now_done { Keyspace::Done } else { Keyspace::Live };
        step.batch.put_with(keyspace, &key, |buffer| {
            let before = buffer.len();
            job.encode_into(buffer);
            debug_assert!(
                buffer.len() - before <= job.record_bytes(),
                "the record of {id} is larger than its estimate"
            );
        });
        if let Some(was) = moved.from_done {
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
            return;
        }
        if moved.from_live {
            step.batch.delete(Keyspace::Live, &key);
        }
        if job.state != State::Succeeded {
            step.batch.put(Keyspace::ByState, &key::by_state(job.state, id), &[]);
        }
        if is_dead(job.state) {
            let letter = dead_letter(job);
            step.batch.put_with(Keyspace::DeadLetters, &key, |buffer| codec::encode_into(&letter, buffer));
            self.stats.dead_letters += 1;
        }
        self.leave_memory(id, step);
    }

    /// A terminal job that is written leaves memory.
    fn leave_memory(&mut self, id: JobId, step: &mut Step) {
        let Some(mut entry) = self.jobs.remove(id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "leave memory");
        };
        let scan = entry.take_scan_after() && entry.job.state == State::Succeeded;
        let attempt = entry.job.attempt;
        if let Some(key) = entry.job.key {
            self.keys.forget(key, id);
        }
        self.sweep.touch(id);
        step.ended.push(Ended(entry));
        if scan {
            self.mark_scan(id, attempt, step);
        }
    }
}

/// The dead letter of a job that failed for good.
fn dead_letter(job: &Job) -> DeadLetter {
    let (topic, tenant) = decode_owner(&job.spec).unwrap_or_default();
    DeadLetter::new(job, topic, tenant)
}
