//! The gate on the way in.

use model::id::JobId;
use model::machine::Event;
use model::state::State;
use model::time::Millis;
use model::verdict::{Decision, Verdict};

use crate::config::PolicyMode;
use crate::input::Effect;
use crate::shard::Shard;
use crate::step::Step;

/// How long the policy's answer is waited for before the question is asked again.
const POLICY_PATIENCE: Millis = Millis::from_secs(120);

impl Shard {
    /// Asks the policy about a pending job, now or when a throttle is over; without one, allows it.
    pub(crate) fn ask_policy(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        if entry.job.state != State::Pending {
            return;
        }
        match self.config.policy {
            PolicyMode::AllowAll => {
                let decision = Decision { at: self.now, verdict: Verdict::Allow, rule: String::new(), message: None };
                self.verdict(id, decision, step);
            }
            PolicyMode::Ask if entry.job.eligible_at > self.now => {
                let at = entry.job.eligible_at;
                self.timers.wake(entry, at);
            }
            PolicyMode::Ask => {
                self.timers.wake(entry, self.now + POLICY_PATIENCE);
                let (digest, spec) = (entry.job.digest, entry.job.spec.clone());
                step.effects.push(Effect::CheckPolicy { job: id, digest, spec });
            }
        }
    }

    /// The policy's answer. One that comes twice, or too late, changes nothing.
    pub(crate) fn verdict(&mut self, id: JobId, decision: Decision, step: &mut Step) {
        let _ = self.fire(id, Event::Verdict(decision), step);
    }
}
