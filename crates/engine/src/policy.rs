//! Policy checks of jobs before they run.
//!
//! A job is dispatched only if the policy version in force at that moment allows it. Decisions of earlier versions are
//! checked again.

use std::sync::Arc;

use model::audit::{Action, AuditEntry};
use model::id::{JobId, RunnerId};
use model::job::Job;
use model::machine::{Event, FAIL_OPEN_RULE, is_approved};
use model::state::State;
use model::time::Millis;
use model::verdict::{Decision, Verdict};

use crate::anomaly::Anomaly;
use crate::input::Effect;
use crate::jitter;
use crate::settings::{PolicyMode, Settings};
use crate::shard::Shard;
use crate::step::Step;

/// A policy check without an answer is repeated after this time.
const POLICY_TIMEOUT: Millis = Millis::from_secs(120);

impl Shard {
    /// Applies new settings.
    pub(crate) fn apply_settings(&mut self, settings: Arc<Settings>, step: &mut Step) {
        self.scans.apply_settings(&settings);
        // Tenants without a limit were not counted: restore their use.
        if !self.ready.change_settings(settings.clone()).is_empty() {
            self.resume_leases();
        }
        let before = std::mem::replace(&mut self.settings, settings);
        let changed: Vec<RunnerId> = before.cordoned.symmetric_difference(&self.settings.cordoned).copied().collect();
        changed.into_iter().for_each(|runner| self.runner_changed_by_id(runner));
        self.refund_failures(&before, step);
        if before.policy != self.settings.policy {
            let policy = match self.settings.policy {
                PolicyMode::Disabled => None,
                PolicyMode::Enforced(version) => Some(version),
            };
            self.audit_event(AuditEntry { policy, ..AuditEntry::of(Action::PolicyChanged) }, step);
        }
    }

    /// Requests a decision about a pending job, now or when its throttle ends. Without a policy the job is allowed.
    pub(crate) fn check_policy(&mut self, id: JobId, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(id) else {
            return self.anomalies.note(Anomaly::MissingJob(id), "check policy");
        };
        if entry.job.state != State::Pending {
            return;
        }
        match self.settings.policy {
            PolicyMode::Disabled => {
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
            PolicyMode::Enforced(_) if entry.job.eligible_at > self.now => {
                let at = entry.job.eligible_at;
                self.timers.wake(entry, at);
            }
            PolicyMode::Enforced(_) => {
                self.timers.wake(entry, self.now + POLICY_TIMEOUT);
                let (spec, submitter) = (entry.job.spec.clone(), entry.job.submitter.clone());
                step.effects.push(Effect::CheckPolicy { job: id, spec, submitter });
            }
        }
    }

    /// Applies a policy decision. Duplicate and late decisions have no effect. A decision of an older policy version is
    /// checked again.
    pub(crate) fn verdict(&mut self, id: JobId, mut decision: Decision, step: &mut Step) {
        // The policy backend may have another clock. In the history no job starts before it was allowed.
        decision.at = decision.at.min(self.now);
        if let PolicyMode::Enforced(current) = self.settings.policy
            && decision.policy != Some(current)
        {
            // The job may have ended since the decision was requested.
            if self.jobs.contains(id) {
                self.check_policy(id, step);
            }
            return;
        }
        let noted = decision.clone();
        if self.fire(id, Event::Verdict(decision), step).is_ok() {
            if let Some(entry) = self.jobs.get_mut(id) {
                entry.reset_policy_misses();
            }
            self.stats.count_decision(&noted);
            self.stats.failed_open += u64::from(noted.rule == FAIL_OPEN_RULE);
            self.audit_decision(id, &noted, step);
        }
    }

    /// The policy check failed. The job waits with increasing delays and uses no retry.
    pub(crate) fn policy_unavailable(&mut self, id: JobId, message: String, step: &mut Step) {
        let Some(entry) = self.jobs.get_mut(id) else { return };
        // Compensations fail open: a rollback does not wait for an unavailable policy.
        if let (Some(true), PolicyMode::Enforced(policy)) =
            (entry.job.origin.as_ref().map(|origin| origin.compensation), self.settings.policy)
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
        let misses = entry.count_policy_miss();
        self.stats.policy_unavailable += 1;
        let until = self.now + jitter::delay(&self.config.jitter_key, id, u32::from(misses));
        let _ = self.fire(id, Event::PolicyUnavailable { until, message: Some(message) }, step);
    }

    /// The time for an approval is over.
    pub(crate) fn expire_approval(&mut self, id: JobId, step: &mut Step) {
        if self.fire(id, Event::ApprovalExpired, step).is_ok() {
            self.stats.approvals_expired += 1;
            self.audit_event(AuditEntry { job: Some(id), ..AuditEntry::of(Action::ApprovalExpired) }, step);
        }
    }

    /// Whether a scheduled job may be dispatched. A job allowed by an older policy version is checked again.
    pub(crate) fn passes_policy(&mut self, id: JobId, step: &mut Step) -> bool {
        let Some(entry) = self.jobs.get(id) else {
            self.anomalies.note(Anomaly::MissingJob(id), "passes policy");
            return false;
        };
        if is_cleared(&entry.job, self.settings.policy) {
            return true;
        }
        self.stats.rechecked += 1;
        let _ = self.fire(id, Event::Recheck, step);
        false
    }
}

/// Whether the policy version in force allows this job.
fn is_cleared(job: &Job, mode: PolicyMode) -> bool {
    match (mode, job.last_decision()) {
        (PolicyMode::Disabled, _) => true,
        (PolicyMode::Enforced(_), None) => false,
        (PolicyMode::Enforced(current), Some(decision)) => {
            decision.policy == Some(current)
                && match &decision.verdict {
                    Verdict::Allow | Verdict::AllowWith(_) => true,
                    Verdict::RequireApproval => is_approved(job, &decision.rule),
                    Verdict::Deny | Verdict::Throttle(_) => false,
                }
        }
    }
}
