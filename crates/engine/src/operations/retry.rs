//! Retry: a job that failed is reopened, within its retry limit.

use model::audit::Action;
use model::id::JobId;
use model::job::Job;
use model::machine::{self, Event, Ignored};
use model::queue::QueueState;
use model::reason::ReasonCode;

use crate::input::{Actor, Refusal};
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    pub(super) fn retry(&mut self, id: JobId, by: &Actor, step: &mut Step) -> Result<(), Refusal> {
        let Some(job) = self.jobs.get(id).map(|entry| &entry.job) else { return Err(Refusal::UnknownJob(id)) };
        let max = job.retry_limit();
        // A task is retried through its workflow. A compensation may be retried directly.
        if let Some(origin) = &job.origin
            && (!origin.compensation || is_placeholder(job))
        {
            return Err(Refusal::JobOfWorkflow(origin.workflow));
        }
        let terminal = self.jobs.get(id).filter(|entry| entry.job.state.is_terminal());
        if let Some(job) = terminal.map(|entry| entry.job.clone()) {
            self.make_room_for_retry(&job)?;
        }
        match self.fire(id, Event::Reschedule, step) {
            Ok(_) => self.audit_job(Action::Retried, id, by, None, step),
            Err(Ignored::BudgetExhausted) => return Err(Refusal::RetriesUsedUp { max }),
            Err(why) => return Err(self.wrong_state(id, "retried", why)),
        }
        Ok(())
    }

    /// A retry counts against the limits of live jobs like a new job, and needs its queue. An expired queue is restored
    /// for its old jobs only.
    fn make_room_for_retry(&mut self, job: &Job) -> Result<(), Refusal> {
        // A retry that is refused anyway must not restore the queue.
        if machine::step(job, &Event::Reschedule).is_err() {
            return Ok(());
        }
        // The job itself is in memory already.
        if self.jobs.len() > self.config.live_jobs_max {
            return Err(Refusal::Full { retry_after: self.config.retry_after });
        }
        match self.queues.get(job.queue).map(|entry| entry.queue().state) {
            Some(QueueState::Cancelled) => return Err(Refusal::QueueClosed(QueueState::Cancelled)),
            Some(QueueState::Active | QueueState::Draining) => {}
            None => self.restore_expired_queue(job),
        }
        self.admit_again(job.queue)
    }
}

/// The job of a compensation that could not be rendered, written by version 0.1. It would succeed without compensating.
fn is_placeholder(job: &Job) -> bool {
    job.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::CompensationUnreadable)
}

#[cfg(test)]
mod tests {
    use model::state::State;

    use crate::operations::support::Bench;
    use crate::{Answer, Input, Refusal};

    #[test]
    fn a_failed_job_is_reopened() {
        let mut bench = Bench::with_runner();
        let job = bench.fail();
        let answer = bench.ask(|request| Input::Retry { request, job, by: None });
        let Answer::Job(job) = answer else { panic!("{answer:?}") };
        assert_eq!(job.state, State::Dispatched);
    }

    #[test]
    fn a_live_job_cannot_be_retried() {
        let mut bench = Bench::new();
        let job = bench.submit();
        let answer = bench.ask(|request| Input::Retry { request, job, by: None });
        assert!(matches!(answer, Answer::Refused(Refusal::WrongState { state: State::Scheduled, .. })), "{answer:?}");
    }
}
