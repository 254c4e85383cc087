//! Purge: a dead letter is deleted together with its job.

use model::audit::Action;
use model::dead_letter::is_dead;
use model::job::Job;

use crate::input::{Actor, Answer, Refusal};
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    pub(super) fn purge(&mut self, job: Job, by: &Actor, step: &mut Step) -> (Answer, Option<Job>) {
        if !is_dead(job.state) {
            return (Answer::Refused(Refusal::NoDeadLetter(job.state)), Some(job));
        }
        self.remove_stored(&job, step);
        self.audit_job(Action::DeadLetterPurged, job.id, by, None, step);
        (Answer::Removed, None)
    }
}

#[cfg(test)]
mod tests {
    use model::state::State;

    use crate::operations::support::Bench;
    use crate::{Answer, Input, Refusal};

    #[test]
    fn a_failed_job_is_purged() {
        let mut bench = Bench::with_runner();
        let job = bench.fail();
        assert_eq!(bench.ask(|request| Input::Purge { request, job, by: None }), Answer::Removed);
    }

    #[test]
    fn a_job_without_a_dead_letter_stays() {
        let mut bench = Bench::with_runner();
        let job = bench.succeed();
        let answer = bench.ask(|request| Input::Purge { request, job, by: None });
        assert_eq!(answer, Answer::Refused(Refusal::NoDeadLetter(State::Succeeded)));
        assert_eq!(bench.ask(|request| Input::Remove { request, job, by: None }), Answer::Removed);
    }
}
