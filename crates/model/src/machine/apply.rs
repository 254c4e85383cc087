//! Applies transitions to a job's record.

use super::{Backoff, Charge, Event, FAIL_OPEN_RULE, Transition, Wait};
use crate::id::RunnerId;
use crate::job::{
    Artifact, AttemptRecord, Job, NodeFailure, Original, Outcome, Redacted, ResultForm, Scan, SpilledResult,
};
use crate::limits;
use crate::reason::cut;
use crate::time::Millis;
use crate::verdict::{Decision, OutputDecision, Verdict};

impl Job {
    /// Applies the transition that [`super::step`] computed for `event`.
    pub fn apply(&mut self, now: Millis, event: Event, transition: &Transition, backoff: Backoff) {
        match transition.charge {
            Charge::Nothing => {}
            Charge::Retry => self.retries += 1,
            Charge::Infrastructure => self.infrastructure_failures += 1,
        }
        match transition.wait {
            Wait::No => {}
            Wait::Backoff(tries) => {
                let spread = self.id.0 ^ (self.id.0 >> 22) ^ u64::from(self.attempt.0).wrapping_mul(0x9E37_79B9);
                self.eligible_at = now + backoff.delay(tries, spread);
            }
            Wait::Until(time) => self.eligible_at = self.eligible_at.max(time),
        }
        let node_failed = matches!(&event, Event::Ended { outcome, .. } if outcome.node_at_fault);
        self.record(now, event);
        if node_failed
            && transition.charge == Charge::Infrastructure
            && let Some(attempt) = self.last_attempt_mut()
        {
            attempt.node_failure = Some(NodeFailure::Charged);
        }
        let left_runner = self.state.is_on_runner() && !transition.to.is_on_runner();
        if left_runner {
            self.retracting = false;
            self.close_attempt(now);
        }
        if transition.to != self.state {
            self.enter(transition.to, now);
            self.reason.clone_from(&transition.reason);
        } else if transition.reason.is_some() {
            self.reason.clone_from(&transition.reason);
        }
    }

    /// Records the event's data.
    fn record(&mut self, now: Millis, event: Event) {
        match event {
            Event::Verdict(decision) => {
                self.record_decision(decision);
            }
            Event::Approval(approval) => self.approval = Some(Box::new(approval)),
            Event::Dispatch { runner, incarnation, placement, lease } => {
                let record = AttemptRecord::new(self.attempt.next(), runner, incarnation, now);
                self.begin_attempt(AttemptRecord { placement, ..record }.with_lease(lease));
                self.dispatch_tries = 0;
            }
            Event::Unplaced { until, .. } => {
                self.dispatch_tries += 1;
                self.eligible_at = until.unwrap_or(self.eligible_at);
            }
            Event::Adopted { incarnation, .. } => {
                if let Some(attempt) = self.last_attempt_mut() {
                    attempt.incarnation = incarnation;
                }
            }
            Event::Started { at, .. } => {
                if let Some(attempt) = self.last_attempt_mut() {
                    attempt.started_at = Some(at);
                }
            }
            Event::Ended { outcome, .. } => self.record_outcome(now, *outcome),
            Event::Scanned { scan, .. } => self.record_scan(*scan),
            Event::Retract => self.retracting = true,
            Event::Refund { runner, since } => self.refund(runner, since),
            Event::Reschedule => {
                self.result = None;
                self.result_form = None;
                self.artifacts = None;
                self.original = None;
                self.infrastructure_failures = 0;
                self.dispatch_tries = 0;
                // `not_before` may still be in the future.
                self.eligible_at = self.eligible_at.max(now);
            }
            Event::Due
            | Event::Lost { .. }
            | Event::Cancel(_)
            | Event::DeadlinePassed
            | Event::AttemptTimedOut { .. }
            | Event::DispatchTimedOut { .. }
            | Event::StopOverdue { .. }
            | Event::PolicyUnavailable { .. }
            | Event::Recheck
            | Event::ApprovalExpired
            | Event::Unrunnable { .. }
            | Event::Release
            | Event::Abandon => {}
        }
    }

    fn record_outcome(&mut self, now: Millis, outcome: Outcome) {
        if let Some(attempt) = self.last_attempt_mut() {
            attempt.ended_at = Some(now);
            attempt.end = Some(outcome.end);
            attempt.exit_code = outcome.exit_code;
            attempt.signal = outcome.signal;
            attempt.usage = outcome.usage.map(Box::new);
            attempt.message = outcome.message.map(cut);
            attempt.log = outcome.log.map(Box::new);
        }
        if let Some(decision) = outcome.policy {
            self.record_output_decision(*decision);
        }
        self.result = outcome.result;
        self.set_result_form(outcome.spilled);
        let mut artifacts = outcome.artifacts;
        // Runners keep to this limit; a faulty one must not make the record unreadable.
        artifacts.truncate(Artifact::fitting(&artifacts));
        self.artifacts = (!artifacts.is_empty()).then(|| Box::new(artifacts));
    }

    /// The newest decision replaces the constraints of earlier ones.
    fn record_decision(&mut self, decision: Decision) {
        // The default "allow" of a server without a policy has no rule and is not recorded. It does not lift earlier
        // constraints: the policy may be configured again.
        if decision.rule.is_empty() {
            return;
        }
        match &decision.verdict {
            Verdict::AllowWith(constraints) => self.constraints = Some(Box::new(constraints.clone())),
            Verdict::RequireApproval => self.constraints.clone_from(&decision.constraints),
            // Fail open does not lift constraints: the policy was not evaluated.
            Verdict::Allow if decision.rule == FAIL_OPEN_RULE => {}
            Verdict::Allow | Verdict::Deny | Verdict::Throttle(_) => self.constraints = None,
        }
        if self.decisions.len() >= limits::HISTORY_ENTRIES_MAX {
            self.decisions.remove(limits::HISTORY_ENTRIES_MAX / 2);
        }
        // Most jobs have one decision.
        self.decisions.reserve_exact(1);
        self.decisions.push(decision);
    }

    fn record_output_decision(&mut self, decision: OutputDecision) {
        let decision = OutputDecision { attempt: self.attempt, ..decision };
        let decisions = self.output_decisions.get_or_insert_default();
        if decisions.len() >= limits::HISTORY_ENTRIES_MAX {
            decisions.remove(limits::HISTORY_ENTRIES_MAX / 2);
        }
        decisions.push(decision);
    }

    fn record_scan(&mut self, scan: Scan) {
        self.record_output_decision(scan.decision);
        let Some(Redacted { result, spilled, artifacts, log, keep_original }) = scan.redacted else { return };
        let attempt_log = self.attempts.last_mut().map(|attempt| &mut attempt.log);
        let old_log = match (attempt_log, log) {
            (Some(current), Some(log)) => current.replace(Box::new(log)).map(|log| *log),
            (Some(_), None) | (None, _) => None,
        };
        let old_artifacts =
            std::mem::replace(&mut self.artifacts, (!artifacts.is_empty()).then(|| Box::new(artifacts)));
        let old_result = std::mem::replace(&mut self.result, result);
        self.set_result_form(spilled);
        self.original = keep_original.then(|| {
            let artifacts = old_artifacts.map(|artifacts| *artifacts).unwrap_or_default();
            Box::new(Original { result: old_result, artifacts, log: old_log })
        });
    }

    /// Only tasks of workflows spill results.
    fn set_result_form(&mut self, spilled: Option<Box<SpilledResult>>) {
        self.result_form = self
            .origin
            .as_ref()
            .map(|_| Box::new(spilled.map_or(ResultForm::Inline, |spilled| ResultForm::Spilled(*spilled))));
    }

    fn refund(&mut self, runner: RunnerId, since: Millis) {
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.is_charged_on(runner, since)) {
            attempt.node_failure = Some(NodeFailure::Refunded);
            self.infrastructure_failures = self.infrastructure_failures.saturating_sub(1);
        }
    }

    fn close_attempt(&mut self, now: Millis) {
        if let Some(attempt) = self.last_attempt_mut()
            && attempt.ended_at.is_none()
        {
            attempt.ended_at = Some(now);
        }
    }
}
