//! The gate on the way in.
//!
//! A job is started only on the word of the rules that are in force when it is started: what earlier ones have allowed
//! is asked again.

use std::sync::Arc;

use model::audit::{Action, Entry};
use model::id::JobId;
use model::job::Job;
use model::machine::{Event, FAIL_OPEN_RULE, is_approved};
use model::state::State;
use model::time::Millis;
use model::verdict::{Decision, Verdict};

use crate::input::Effect;
use crate::jitter;
use crate::setup::{Gate, Setup};
use crate::shard::Shard;
use crate::step::Step;

/// How long the policy's answer is waited for before the question is asked again.
const POLICY_PATIENCE: Millis = Millis::from_secs(120);

impl Shard {
    /// What operators say has changed.
    pub(crate) fn set_up(&mut self, setup: Arc<Setup>, step: &mut Step) {
        self.scans_outputs = setup.scans_outputs();
        // A tenant that had no limit was not counted.
        if !self.ready.change_setup(setup.clone()).is_empty() {
            self.resume_leases();
        }
        let before = std::mem::replace(&mut self.setup, setup);
        if before.gate != self.setup.gate {
            let policy = match self.setup.gate {
                Gate::Open => None,
                Gate::Policy(version) => Some(version),
            };
            self.note_event(Entry { policy, ..Entry::of(Action::PolicyChanged) }, step);
        }
    }

    /// Asks the policy about a pending job, now or when a throttle is over; without one, allows it.
    pub(crate) fn ask_policy(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        if entry.job.state != State::Pending {
            return;
        }
        match self.setup.gate {
            Gate::Open => {
                let decision = Decision {
                    at: self.now,
                    verdict: Verdict::Allow,
                    rule: String::new(),
                    message: None,
                    policy: None,
                    constraints: None,
                };
                let _ = self.fire(id, Event::Verdict(decision), step);
            }
            Gate::Policy(_) if entry.job.eligible_at > self.now => {
                let at = entry.job.eligible_at;
                self.timers.wake(entry, at);
            }
            Gate::Policy(_) => {
                self.timers.wake(entry, self.now + POLICY_PATIENCE);
                let (spec, submitter) = (entry.job.spec.clone(), entry.job.submitter.clone());
                step.effects.push(Effect::CheckPolicy { job: id, spec, submitter });
            }
        }
    }

    /// The policy's answer. One that comes twice, or too late, changes nothing; one of rules that are no longer in force
    /// leads to another question.
    pub(crate) fn verdict(&mut self, id: JobId, mut decision: Decision, step: &mut Step) {
        // Whoever answered may have another clock: in the history nothing starts before it was allowed.
        decision.at = decision.at.min(self.now);
        if let Gate::Policy(current) = self.setup.gate
            && decision.policy != Some(current)
        {
            return self.ask_policy(id, step);
        }
        let noted = decision.clone();
        if self.fire(id, Event::Verdict(decision), step).is_ok() {
            if let Some(entry) = self.jobs.get_mut(&id) {
                entry.policy_misses = 0;
            }
            self.stats.count_decision(&noted);
            self.stats.failed_open += u64::from(noted.rule == FAIL_OPEN_RULE);
            self.note_decision(id, &noted, step);
        }
    }

    /// The policy could not be asked: the job waits, longer each time, and nothing is held against it.
    pub(crate) fn policy_unavailable(&mut self, id: JobId, message: String, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        // What undoes a step does not wait for a policy that cannot be asked.
        if let (Some(true), Gate::Policy(policy)) =
            (entry.job.origin.as_ref().map(|origin| origin.compensation), self.setup.gate)
        {
            let decision = Decision {
                at: self.now,
                verdict: Verdict::Allow,
                rule: FAIL_OPEN_RULE.to_owned(),
                message: Some(message),
                policy: Some(policy),
                constraints: None,
            };
            self.stats.policy_unavailable += 1;
            return self.verdict(id, decision, step);
        }
        let misses = entry.policy_misses;
        entry.policy_misses = misses.saturating_add(1);
        self.stats.policy_unavailable += 1;
        let until = self.now + jitter::delay(&self.config.jitter_key, id, u32::from(misses));
        let _ = self.fire(id, Event::PolicyUnavailable { until, message: Some(message) }, step);
    }

    /// A job has waited for a person's word for long enough.
    pub(crate) fn expire_approval(&mut self, id: JobId, step: &mut Step) {
        if self.fire(id, Event::ApprovalExpired, step).is_ok() {
            self.stats.approvals_expired += 1;
            self.note_event(Entry { job: Some(id), ..Entry::of(Action::ApprovalExpired) }, step);
        }
    }

    /// Whether a scheduled job may be started. One that was allowed by rules that are no longer in force goes back to
    /// the gate.
    pub(crate) fn passes_gate(&mut self, id: JobId, step: &mut Step) -> bool {
        let Some(entry) = self.jobs.get(&id) else { return false };
        if is_cleared(&entry.job, self.setup.gate) {
            return true;
        }
        self.stats.rechecked += 1;
        let _ = self.fire(id, Event::Recheck, step);
        false
    }
}

/// Whether the rules in force have let this job pass.
fn is_cleared(job: &Job, gate: Gate) -> bool {
    match (gate, job.last_decision()) {
        (Gate::Open, _) => true,
        (Gate::Policy(_), None) => false,
        (Gate::Policy(current), Some(decision)) => {
            decision.policy == Some(current)
                && match &decision.verdict {
                    Verdict::Allow | Verdict::AllowWith(_) => true,
                    Verdict::RequireApproval => is_approved(job, &decision.rule),
                    Verdict::Deny | Verdict::Throttle(_) => false,
                }
        }
    }
}
