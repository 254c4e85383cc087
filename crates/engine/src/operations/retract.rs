//! Retract: the attempt in flight is taken back, and the job goes to another runner without using a retry.

use model::audit::Action;
use model::id::JobId;
use model::machine::{Event, Ignored};

use crate::input::{Actor, Refusal};
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    /// Idempotent: retracting twice takes the attempt back once.
    pub(super) fn retract(&mut self, id: JobId, by: &Actor, step: &mut Step) -> Result<(), Refusal> {
        match self.fire(id, Event::Retract, step) {
            Ok(_) => self.audit_job(Action::Retracted, id, by, None, step),
            Err(Ignored::Duplicate) => {}
            Err(why) => return Err(self.wrong_state(id, "retracted", why)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::state::State;

    use crate::operations::support::Bench;
    use crate::{Answer, Input, Refusal};

    #[test]
    fn retracting_twice_takes_the_attempt_back_once() {
        let mut bench = Bench::with_runner();
        let job = bench.start();
        for _ in 0..2 {
            let answer = bench.ask(|request| Input::Retract { request, job, by: None });
            let Answer::Job(job) = answer else { panic!("{answer:?}") };
            assert!(job.retracting && job.retries == 0);
        }
    }

    #[test]
    fn a_terminal_job_cannot_be_retracted() {
        let mut bench = Bench::with_runner();
        let job = bench.succeed();
        let answer = bench.ask(|request| Input::Retract { request, job, by: None });
        let Answer::Refused(Refusal::WrongState { state, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!(state, State::Succeeded);
    }
}
