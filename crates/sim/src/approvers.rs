//! Approvers: they approve or reject jobs, also with the wrong content or rule, twice, too late or never.

use engine::ApprovalDecision;
use model::id::JobId;
use model::job::Job;
use model::reason::ReasonCode;
use model::spec::Digest;
use model::state::State;

use crate::client::Operation;
use crate::coverage::Fault;
use crate::policy::{APPROVAL_RULE, OTHER_APPROVAL_RULE};
use crate::rng::mix;
use crate::scenario::{SECOND, Time};
use crate::world::{Event, World};

const CHECK_EVERY: Time = 5 * SECOND;

/// A job that requires an approval, as an approver sees it.
struct PendingApproval {
    job: JobId,
    digest: Digest,
    rule: String,
    is_late: bool,
}

fn is_pending(job: &Job) -> bool {
    job.state == State::ApprovalRequired
}

/// The approval expired.
fn has_expired(job: &Job) -> bool {
    job.state == State::Denied && job.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::ApprovalExpired)
}

impl World {
    /// Approvers answer some of the pending approvals.
    pub(crate) fn approvers_act(&mut self) {
        let known = self.ledger.jobs.values().filter(|known| !known.removed).map(|known| &known.record);
        let pending: Vec<PendingApproval> = known
            .filter(|job| is_pending(job) || has_expired(job))
            .map(|job| PendingApproval {
                job: job.id,
                digest: job.digest,
                rule: job.last_decision().map(|decision| decision.rule.clone()).unwrap_or_default(),
                is_late: !is_pending(job),
            })
            .collect();
        for pending in pending {
            self.answer_approval(&pending);
        }
        self.after(CHECK_EVERY, Event::ApproversAct);
    }

    fn answer_approval(&mut self, pending: &PendingApproval) {
        let approvers = self.scenario.approvers;
        if pending.is_late {
            if self.is_healed() || !self.rng.chance(approvers.too_late) {
                return;
            }
            self.coverage.count_fault(Fault::ApprovalTooLate);
        } else if !self.is_healed() && self.rng.one_in(2) {
            return;
        }
        let mut decision = ApprovalDecision {
            by: Some("someone".into()),
            approved: self.scenario.is_calm || !mix(pending.job.0.rotate_left(7)).is_multiple_of(4),
            comment: None,
            digest: Some(pending.digest),
            rule: Some(pending.rule.clone()),
        };
        if !self.is_healed() {
            self.corrupt_approval(&mut decision);
        }
        let twice = !self.is_healed() && self.rng.chance(approvers.twice);
        for _ in 0..=u8::from(twice) {
            let operation = Operation::Approve { job: pending.job, decision: Box::new(decision.clone()) };
            self.ledger.record_approval(pending.job, &decision);
            self.send_job_operation(operation);
        }
        if twice {
            self.coverage.count_fault(Fault::ApprovalTwice);
        }
    }

    fn corrupt_approval(&mut self, decision: &mut ApprovalDecision) {
        let approvers = self.scenario.approvers;
        if self.rng.chance(approvers.other_content) {
            self.coverage.count_fault(Fault::ApprovalOfOtherContent);
            decision.digest = Some(Digest([0xEE; 16]));
        } else if self.rng.chance(approvers.other_rule) {
            self.coverage.count_fault(Fault::ApprovalOfOtherRule);
            let other =
                if decision.rule.as_deref() == Some(APPROVAL_RULE) { OTHER_APPROVAL_RULE } else { APPROVAL_RULE };
            decision.rule = Some(other.to_owned());
        } else if self.rng.chance(approvers.unspecific) {
            (decision.digest, decision.rule) = (None, None);
        }
    }
}
