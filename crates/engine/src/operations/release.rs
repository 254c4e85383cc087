//! Release: an operator shows a quarantined result after all.

use model::audit::Action;
use model::id::JobId;
use model::machine::Event;

use crate::input::{Actor, Refusal};
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    pub(super) fn release(&mut self, id: JobId, by: &Actor, step: &mut Step) -> Result<(), Refusal> {
        self.fire(id, Event::Release, step).map_err(|why| self.wrong_state(id, "released", why))?;
        self.audit_job(Action::Released, id, by, None, step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::state::State;

    use crate::operations::support::Bench;
    use crate::{Answer, Input, Refusal};

    #[test]
    fn a_quarantined_result_is_shown() {
        let mut bench = Bench::with_runner();
        let job = bench.quarantine();
        let answer = bench.ask(|request| Input::Release { request, job, by: None });
        assert!(matches!(answer, Answer::Job(job) if job.state == State::Succeeded));
    }

    #[test]
    fn only_quarantined_results_are_released() {
        let mut bench = Bench::with_runner();
        let job = bench.succeed();
        let answer = bench.ask(|request| Input::Release { request, job, by: None });
        assert!(matches!(answer, Answer::Refused(Refusal::WrongState { what: "released", .. })), "{answer:?}");
    }
}
