//! Invariants of the input policy: conditions for the start of an attempt.

use engine::{ApprovalDecision, PolicyMode};
use model::job::Job;
use model::machine::FAIL_OPEN_RULE;
use model::message::AttemptRef;
use model::verdict::{Approval, Constraints, Decision, Verdict};

use super::{Checked, appended, describe, require};
use crate::policy::Policy;

/// Policy and job record at the dispatch of an attempt.
#[derive(Debug, Clone)]
pub struct DispatchSnapshot {
    pub policy: PolicyMode,
    pub decision: Option<Decision>,
    pub approval: Option<Approval>,
    pub constraints: Option<Box<Constraints>>,
}

impl DispatchSnapshot {
    pub fn new(policy: PolicyMode, job: &Job) -> Self {
        Self {
            policy,
            decision: job.last_decision().cloned(),
            approval: job.approval.as_deref().cloned(),
            constraints: job.constraints.clone(),
        }
    }
}

/// The constraints of a decision.
pub fn constraints_of(decision: &Decision) -> Option<&Constraints> {
    match &decision.verdict {
        Verdict::AllowWith(constraints) => Some(constraints),
        Verdict::RequireApproval => decision.constraints.as_deref(),
        Verdict::Allow | Verdict::Deny | Verdict::Throttle(_) => None,
    }
}

/// 4: an attempt starts only on a decision of the policy version in force on its shard. The newest decision on record is
/// of that version, is correct, and allows the job, or requires an approval that is on record for this content and rule.
pub fn invariant_starts_follow_the_policy_in_force(
    job: &Job,
    attempt_ref: AttemptRef,
    snapshot: &DispatchSnapshot,
    policy: &Policy,
) -> Checked {
    const NAME: &str = "invariant_starts_follow_the_policy_in_force";
    let PolicyMode::Enforced(version) = snapshot.policy else { return Ok(()) };
    let about = |what: &str| format!("attempt {} {what}: {snapshot:?}, {}", attempt_ref.attempt, describe(job));
    let Some(decision) = &snapshot.decision else {
        return require(false, NAME, || about("started without a decision"));
    };
    require(job.decisions.contains(decision), NAME, || about("started on a decision that is not on record"))?;
    require(decision.policy == Some(version), NAME, || about("started on a decision of another policy version"))?;
    let allowed = match decision.verdict {
        Verdict::Allow | Verdict::AllowWith(_) => true,
        Verdict::RequireApproval => snapshot.approval.as_ref().is_some_and(|approval| {
            approval.approved && approval.digest == job.digest && approval.rule == decision.rule
        }),
        Verdict::Deny | Verdict::Throttle(_) => false,
    };
    require(allowed, NAME, || about("was not allowed"))?;
    let failed_open = decision.rule == FAIL_OPEN_RULE && (policy.is_fail_open() || is_compensation(job));
    let correct = failed_open || policy.expected_decision(job.digest, version).matches(decision);
    require(correct, NAME, || about("started on a decision that the policy did not make"))
}

/// 5: an attempt has the constraints of the newest decision.
pub fn invariant_starts_have_their_constraints(
    job: &Job,
    attempt_ref: AttemptRef,
    snapshot: &DispatchSnapshot,
) -> Checked {
    let PolicyMode::Enforced(_) = snapshot.policy else { return Ok(()) };
    let decided = snapshot.decision.as_ref().and_then(constraints_of);
    let given = snapshot.constraints.as_deref();
    // While the policy is unavailable, constraints of earlier decisions still apply.
    let from_earlier = snapshot.decision.as_ref().is_some_and(|decision| decision.rule == FAIL_OPEN_RULE)
        && job.decisions.iter().any(|earlier| constraints_of(earlier) == given);
    require(given == decided || from_earlier, "invariant_starts_have_their_constraints", || {
        format!("attempt {} started with {snapshot:?}: {}", attempt_ref.attempt, describe(job))
    })
}

/// 4: every decision on record was issued by the policy, by its fail-open mode, or by the job's workflow.
pub fn invariant_decisions_come_from_the_policy(before: Option<&Job>, after: &Job, policy: &Policy) -> Checked {
    let known = before.map_or(&[][..], |before| &before.decisions);
    let new = appended(known, &after.decisions).unwrap_or(&after.decisions);
    new.iter().try_for_each(|decision| {
        let issued = policy.has_issued(after.digest, decision) || is_issued_by_workflow(after, decision, policy);
        require(issued, "invariant_decisions_come_from_the_policy", || {
            format!("{decision:?} was never issued: {}", describe(after))
        })
    })
}

/// Whether the job is a compensation. Compensations do not wait for an unavailable policy.
fn is_compensation(job: &Job) -> bool {
    job.origin.as_ref().is_some_and(|origin| origin.compensation)
}

/// Whether the job's workflow issued the decision: for an approval task, or for a compensation while the policy was
/// unavailable.
fn is_issued_by_workflow(job: &Job, decision: &Decision, policy: &Policy) -> bool {
    let approval_task = decision.verdict == Verdict::RequireApproval && decision.rule == "workflow_approval";
    let failed_open = decision.verdict == Verdict::Allow && decision.rule == FAIL_OPEN_RULE;
    job.origin.is_some()
        && ((approval_task && !is_compensation(job))
            || (failed_open && is_compensation(job) && policy.was_unavailable(job.id)))
}

/// 4: every approval on record is an approver's answer for this content.
pub fn invariant_approvals_come_from_approvers(
    before: Option<&Job>,
    after: &Job,
    decisions: &[ApprovalDecision],
) -> Checked {
    let Some(approval) = after.approval.as_deref() else { return Ok(()) };
    if before.is_some_and(|before| before.approval == after.approval) {
        return Ok(());
    }
    let matches = |decision: &ApprovalDecision| {
        decision.approved == approval.approved
            && decision.digest.is_none_or(|digest| digest == approval.digest)
            && decision.rule.as_ref().is_none_or(|rule| *rule == approval.rule)
            && decision.by.as_deref().unwrap_or_default() == approval.by
    };
    let holds = approval.digest == after.digest && decisions.iter().any(matches);
    require(holds, "invariant_approvals_come_from_approvers", || {
        format!("{approval:?} is none of {decisions:?}: {}", describe(after))
    })
}

/// 5: retries stay within the limit of the policy. If a commit has several decisions, within the limit of one of them.
pub fn invariant_retries_stay_within_constraints(before: Option<&Job>, after: &Job) -> Checked {
    let Some(before) = before.filter(|before| before.retries < after.retries) else { return Ok(()) };
    let new = appended(&before.decisions, &after.decisions).unwrap_or(&after.decisions);
    let left = |constraints: Option<&Constraints>| {
        constraints.and_then(|constraints| constraints.max_retries).map_or(after.max_retries, |max| max)
    };
    let of_records = [left(before.constraints.as_deref()), left(after.constraints.as_deref())];
    // Without a new decision only a disabled policy lifts a limit.
    let most = new.iter().map(|decision| left(constraints_of(decision))).chain(of_records).max();
    let holds = most.is_some_and(|most| after.retries <= most);
    require(holds, "invariant_retries_stay_within_constraints", || {
        format!("{} retries, {most:?} are allowed: {}", after.retries, describe(after))
    })
}

/// 5: a runner receives the constraints on record.
pub fn invariant_runners_receive_the_constraints(
    attempt_ref: AttemptRef,
    sent: Option<&Constraints>,
    record: Option<&Job>,
) -> Checked {
    // Only the current attempt: a message about an older one is void.
    let Some(job) = record.filter(|job| job.attempt == attempt_ref.attempt && job.state.is_on_runner()) else {
        return Ok(());
    };
    require(job.constraints.as_deref() == sent, "invariant_runners_receive_the_constraints", || {
        format!("sent {sent:?}, on record {:?}: {}", job.constraints, describe(job))
    })
}
