//! Cancel: a job that is not terminal ends as `cancelled`, at once or when its runner has stopped it.

use model::audit::Action;
use model::id::JobId;
use model::machine::{Event, Ignored};
use model::reason::ReasonCode;

use crate::input::{Actor, Refusal};
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    /// Idempotent: cancelling a cancelled job changes nothing.
    pub(super) fn cancel(&mut self, id: JobId, by: &Actor, step: &mut Step) -> Result<(), Refusal> {
        match self.fire(id, Event::Cancel(ReasonCode::CancelRequested), step) {
            Ok(_) => self.audit_job(Action::Cancelled, id, by, None, step),
            Err(Ignored::Duplicate) => {}
            Err(why) => return Err(self.wrong_state(id, "cancelled", why)),
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
    fn a_waiting_job_is_cancelled_at_once_and_again_without_effect() {
        let mut bench = Bench::new();
        let job = bench.submit();
        for _ in 0..2 {
            let answer = bench.ask(|request| Input::Cancel { request, job, by: None });
            assert!(matches!(answer, Answer::Job(job) if job.state == State::Cancelled));
        }
    }

    #[test]
    fn a_running_job_waits_for_its_runner() {
        let mut bench = Bench::with_runner();
        let job = bench.start();
        let answer = bench.ask(|request| Input::Cancel { request, job, by: None });
        assert!(matches!(answer, Answer::Job(job) if job.state == State::Cancelling));
    }

    #[test]
    fn a_succeeded_job_cannot_be_cancelled() {
        let mut bench = Bench::with_runner();
        let job = bench.succeed();
        let answer = bench.ask(|request| Input::Cancel { request, job, by: None });
        let Answer::Refused(Refusal::WrongState { state, what, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!((state, what), (State::Succeeded, "cancelled"));
    }
}
