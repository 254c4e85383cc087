//! Approve or reject: a person decides about a job that requires it.

use model::audit::Action;
use model::id::JobId;
use model::job::Job;
use model::machine::{Event, Ignored};
use model::reason::{ReasonCode, cut};
use model::time::Millis;
use model::verdict::Approval;

use crate::input::{Actor, ApprovalDecision, Refusal};
use crate::shard::Shard;
use crate::step::Step;

impl Shard {
    pub(super) fn approve(
        &mut self,
        id: JobId,
        by: &Actor,
        decision: ApprovalDecision,
        step: &mut Step,
    ) -> Result<(), Refusal> {
        let Some(entry) = self.jobs.get(id) else { return Err(Refusal::UnknownJob(id)) };
        let action = if decision.approved { Action::Approved } else { Action::Rejected };
        let comment = decision.comment.clone();
        let event = Event::Approval(approval(decision, &entry.job, self.now));
        match self.fire(id, event, step) {
            Ok(_) => self.audit_job(action, id, by, comment, step),
            Err(Ignored::OtherContent) => return Err(Refusal::OtherContent),
            Err(Ignored::OtherRule) => return Err(Refusal::OtherRule),
            Err(why) => {
                let refusal = self.jobs.get(id).map(|entry| undecidable(&entry.job, why));
                return Err(refusal.unwrap_or(Refusal::UnknownJob(id)));
            }
        }
        Ok(())
    }
}

/// The decision as it is recorded: bound to the job's content and to the rule that asked.
fn approval(decision: ApprovalDecision, job: &Job, now: Millis) -> Approval {
    let asking = || job.last_decision().map(|decision| decision.rule.clone()).unwrap_or_default();
    Approval {
        at: now,
        by: decision.by.map(String::from).unwrap_or_default(),
        approved: decision.approved,
        comment: decision.comment.map(cut),
        digest: decision.digest.unwrap_or(job.digest),
        rule: decision.rule.unwrap_or_else(asking),
    }
}

/// Why a job cannot be approved or rejected.
fn undecidable(job: &Job, why: Ignored) -> Refusal {
    if job.reason.as_ref().is_some_and(|reason| reason.code == ReasonCode::ApprovalExpired) {
        return Refusal::ApprovalExpired;
    }
    match &job.approval {
        Some(decided) => {
            // An anonymous decision is reported too.
            let by = if decided.by.is_empty() { "somebody".to_owned() } else { decided.by.clone() };
            Refusal::AlreadyDecided { approved: decided.approved, by }
        }
        None => Refusal::WrongState { state: job.state, what: "approved or rejected", why },
    }
}

#[cfg(test)]
mod tests {
    use model::state::State;

    use crate::operations::support::Bench;
    use crate::{Answer, ApprovalDecision, Input, Refusal};

    fn decide(bench: &mut Bench, job: model::id::JobId, approved: bool) -> Answer {
        let decision =
            Box::new(ApprovalDecision { by: Some("anna".into()), approved, comment: None, digest: None, rule: None });
        bench.ask(|request| Input::Approve { request, job, decision })
    }

    #[test]
    fn a_rejected_job_is_denied_and_not_decided_again() {
        let mut bench = Bench::with_approvals();
        let job = bench.submit_for_approval();
        assert!(matches!(decide(&mut bench, job, false), Answer::Job(job) if job.state == State::Denied));
        let again = Refusal::AlreadyDecided { approved: false, by: "anna".to_owned() };
        assert_eq!(decide(&mut bench, job, true), Answer::Refused(again));
    }

    #[test]
    fn an_approved_job_is_checked_again() {
        let mut bench = Bench::with_approvals();
        let job = bench.submit_for_approval();
        assert!(matches!(decide(&mut bench, job, true), Answer::Job(job) if job.state == State::Pending));
    }
}
