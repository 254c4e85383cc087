//! Removing terminal jobs: by hand or by age.

use model::batch::Keyspace;
use model::change::Change;
use model::dead_letter::is_dead;
use model::job::Job;
use model::key;
use model::state::State;

use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    /// Deletes every trace of a terminal job that is not in memory. Its idempotency key lives on until its day is over.
    pub(crate) fn remove_stored(&mut self, job: &Job, step: &mut Step) {
        step.batch.delete(Keyspace::Done, &job.id.key());
        step.batch.delete(Keyspace::ByQueue, &key::by_queue(job.queue, job.id));
        if job.state != State::Succeeded {
            step.batch.delete(Keyspace::ByState, &key::by_state(job.state, job.id));
        }
        if is_dead(job.state) {
            step.batch.delete(Keyspace::DeadLetters, &job.id.key());
        }
        self.close_scan(job.id, step);
        if job.has_large_spec() || job.lacks_spec() {
            step.batch.delete(Keyspace::Spec, &job.id.key());
        }
        if self.sweep.is_under_way() {
            self.sweep.touched.insert(job.id);
        }
        // The newest id may go with its record; it must not be handed out again.
        step.batch.put(Keyspace::Meta, key::META_LAST_ID, &self.last_id.to_be_bytes());
        step.tell(&Change::JobRemoved { id: job.id, queue: job.queue, at: self.now });
    }
}
