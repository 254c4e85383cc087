//! The gate on the way in.

use model::id::JobId;
use model::machine::Event;
use model::state::State;
use model::verdict::{Decision, Verdict};

use crate::config::PolicyMode;
use crate::input::Effect;
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    /// Asks the policy about a pending job; without one, allows it.
    pub(crate) fn ask_policy(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get(&id) else { return };
        if entry.job.state != State::Pending {
            return;
        }
        match self.config.policy {
            PolicyMode::AllowAll => {
                let decision =
                    Decision { at: self.now, verdict: Verdict::Allow, rule: String::new(), message: None };
                self.verdict(id, decision, step);
            }
            PolicyMode::Ask => step.effects.push(Effect::CheckPolicy {
                job: id,
                digest: entry.job.digest,
                spec: entry.job.spec.clone(),
            }),
        }
    }

    /// The policy's answer. One that comes twice, or too late, changes nothing.
    pub(crate) fn verdict(&mut self, id: JobId, decision: Decision, step: &mut Step) {
        let _ = self.fire(id, Event::Verdict(decision), step);
    }
}
