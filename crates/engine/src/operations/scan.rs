//! The answer of the content scan: a result is allowed, quarantined or redacted.

use model::id::{Attempt, JobId};
use model::job::Scan;
use model::machine::Event;

use crate::input::Refusal;
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    pub(super) fn apply_scan(
        &mut self,
        id: JobId,
        attempt: Attempt,
        scan: Box<Scan>,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        self.finish_scan(id, attempt, scan, true, step)
    }

    /// The result could not be scanned: the fail mode of its topic decides.
    pub(super) fn apply_failed_scan(
        &mut self,
        id: JobId,
        attempt: Attempt,
        message: String,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let Some(entry) = self.jobs.get(id) else { return Err(Refusal::UnknownJob(id)) };
        let scan = Box::new(self.fallback_scan(&entry.job.spec, message));
        self.finish_scan(id, attempt, scan, false, step)
    }

    fn finish_scan(
        &mut self,
        id: JobId,
        attempt: Attempt,
        scan: Box<Scan>,
        checked: bool,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let decision = scan.decision.clone();
        let fired = self.fire(id, Event::Scanned { attempt, scan }, step);
        fired.map_err(|why| self.wrong_state(id, "scanned", why))?;
        self.audit_output(id, &decision, checked, step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::state::State;

    use crate::operations::support::Bench;

    #[test]
    fn a_quarantined_result_is_a_dead_letter() {
        let mut bench = Bench::with_runner();
        let job = bench.quarantine();
        let stored = bench.stored(job).expect("a terminal job is stored");
        assert_eq!(stored.state, State::Quarantined);
        assert_eq!(bench.shard().stats().dead_letters, 1);
    }
}
