//! Read original: an operator sees what the policy redacted from a result. Only the audit log changes.

use model::audit::Action;
use model::id::JobId;
use model::state::State;

use crate::input::{Actor, Refusal};
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    pub(super) fn read_original(&mut self, id: JobId, by: &Actor, step: &mut Step) -> Result<(), Refusal> {
        match self.jobs.get(id) {
            Some(entry) if entry.job.original.is_some() && entry.job.state == State::Succeeded => {
                self.audit_job(Action::OriginalRead, id, by, None, step);
                Ok(())
            }
            Some(_) => Err(Refusal::NoOriginal),
            None => Err(Refusal::UnknownJob(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::operations::support::Bench;
    use crate::{Answer, Input, Refusal};

    #[test]
    fn a_result_that_was_not_redacted_has_no_original() {
        let mut bench = Bench::with_runner();
        let job = bench.succeed();
        let answer = bench.ask(|request| Input::ReadOriginal { request, job, by: None });
        assert_eq!(answer, Answer::Refused(Refusal::NoOriginal));
    }
}
