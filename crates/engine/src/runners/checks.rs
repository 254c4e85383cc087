//! Checks of runners when they are due: attempts that do not start, stops that are not confirmed, messages that are not
//! acknowledged, runners that stay silent.

use model::batch::Keyspace;
use model::key;
use model::machine::Event;
use model::spec::ExecutorKind;

use crate::anomaly::Anomaly;
use crate::input::Effect;
use crate::placement::attributes::RunnerIndex;
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    /// Checks the runners that are due, a bounded number of them: for attempts that did not start in time, and for
    /// stops that were not confirmed.
    pub(crate) fn check_runners(&mut self, step: &mut Step) {
        for _ in 0..self.config.timers_per_step {
            let Some(index) = self.runners.pop_check(self.steady) else { break };
            self.check_dispatched(index, step);
            self.check_inventory(index, step);
            self.check_grace(index, step);
            self.retransmit(index, step);
            self.expire_runner(index, step);
            let next = self.runners.get(index).and_then(|(_, runner)| runner.next_check(&self.config));
            self.runners.check(index, next);
        }
    }

    fn check_dispatched(&mut self, index: RunnerIndex, step: &mut Step) {
        for _ in 0..self.config.timers_per_step {
            self.trim_dispatched(index);
            let Some(runner) = self.runners.get_mut(index) else {
                self.anomalies.note(Anomaly::MissingRunnerIndex(index.0), "check dispatched");
                break;
            };
            let overdue = runner.pop_overdue(self.steady, &self.config);
            let Some(attempt_ref) = overdue else { break };
            let _ = self.fire(attempt_ref.job, Event::DispatchTimedOut { attempt: attempt_ref.attempt }, step);
        }
    }

    /// Requests an inventory if stops are unconfirmed (the stop message may have been lost) or the runner has not
    /// registered.
    fn check_inventory(&mut self, index: RunnerIndex, step: &mut Step) {
        let Some((id, runner)) = self.runners.get(index) else {
            return self.anomalies.note(Anomaly::MissingRunnerIndex(index.0), "check inventory");
        };
        let (id, incarnation) = (*id, runner.incarnation);
        if runner.next_inventory(self.config.stop_timeout).is_some_and(|at| at <= self.steady) {
            self.request_inventory(id, incarnation, step);
        }
    }

    /// A runner of which this owner of the shard has heard nothing for the grace period is lost.
    fn check_grace(&mut self, index: RunnerIndex, step: &mut Step) {
        let Some((id, runner)) = self.runners.get(index) else {
            return self.anomalies.note(Anomaly::MissingRunnerIndex(index.0), "check grace");
        };
        if runner.is_unregistered && runner.silent_since + self.config.runner_grace <= self.steady {
            self.runner_lost(*id, runner.incarnation, step);
        }
    }

    /// Sends the messages again that a runner has not acknowledged in time.
    fn retransmit(&mut self, index: RunnerIndex, step: &mut Step) {
        let Some((id, runner)) = self.runners.get_entry_mut(index) else {
            return self.anomalies.note(Anomaly::MissingRunnerIndex(index.0), "retransmit");
        };
        let (id, incarnation) = (*id, runner.incarnation);
        let again = runner.link.retransmit(self.steady);
        self.stats.retransmitted += again.len() as u64;
        step.effects.extend(again.into_iter().map(|message| Effect::Send { runner: id, incarnation, message }));
    }

    /// Forgets a runner that has been silent for long and that nothing waits for. If it comes back, it registers anew.
    fn expire_runner(&mut self, index: RunnerIndex, step: &mut Step) {
        let Some((id, runner)) = self.runners.get(index) else {
            return self.anomalies.note(Anomaly::MissingRunnerIndex(index.0), "expire runner");
        };
        let (id, is_expired) = (*id, runner.silent_since + self.config.runner_expiry <= self.steady);
        if !runner.may_expire() || !is_expired {
            return;
        }
        let is_in_use = runner.dirty
            || runner.in_flight != [0; ExecutorKind::ALL.len()]
            || self.runners.has_jobs(id)
            || self.has_unconfirmed(id);
        if is_in_use {
            if let Some(runner) = self.runners.get_mut(index) {
                runner.silent_since = self.steady;
            }
            return;
        }
        self.runners.remove(index);
        self.health.forget(id);
        step.batch.delete(Keyspace::Runners, &key::runner(id));
    }
}
