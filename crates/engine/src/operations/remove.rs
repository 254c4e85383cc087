//! Remove: the records of a terminal job are deleted, by request or by age.

use model::audit::Action;
use model::batch::Keyspace;
use model::change::Change;
use model::dead_letter::is_dead;
use model::job::Job;
use model::key;
use model::state::State;

use crate::input::{Actor, Answer};
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    pub(super) fn remove(&mut self, job: Job, by: &Actor, step: &mut Step) -> (Answer, Option<Job>) {
        self.remove_stored(&job, step);
        self.audit_job(Action::Removed, job.id, by, None, step);
        (Answer::Removed, None)
    }

    /// Deletes all records of a terminal job that is not in memory. Its idempotency key stays until it expires.
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
        self.sweep.touch(job.id);
        // The newest id may be deleted with its record; it must not be handed out again.
        step.batch.put(Keyspace::Meta, key::META_LAST_ID, &self.ids.last().to_be_bytes());
        step.announce(&Change::JobRemoved { id: job.id, queue: job.queue, at: self.now });
    }
}

#[cfg(test)]
mod tests {
    use crate::operations::support::Bench;
    use crate::{Answer, Input, Refusal};

    #[test]
    fn a_terminal_job_is_removed_once() {
        let mut bench = Bench::with_runner();
        let job = bench.succeed();
        assert_eq!(bench.ask(|request| Input::Remove { request, job, by: None }), Answer::Removed);
        let again = bench.ask(|request| Input::Remove { request, job, by: None });
        assert_eq!(again, Answer::Refused(Refusal::UnknownJob(job)));
    }

    #[test]
    fn a_live_job_cannot_be_removed() {
        let mut bench = Bench::new();
        let job = bench.submit();
        let answer = bench.ask(|request| Input::Remove { request, job, by: None });
        assert!(matches!(answer, Answer::Refused(Refusal::WrongState { what: "deleted", .. })), "{answer:?}");
    }
}
