//! The gate on the way in: what must be true whenever an attempt begins.

use engine::{Gate, Word};
use model::job::Job;
use model::machine::FAIL_OPEN_RULE;
use model::message::Ticket;
use model::verdict::{Approval, Constraints, Decision, Verdict};

use super::{Checked, appended, describe, require};
use crate::policy::Policy;

/// How an attempt was given out: which rules its shard had in force at that moment, and what the job's record said.
#[derive(Debug, Clone)]
pub struct Begun {
    pub gate: Gate,
    pub decision: Option<Decision>,
    pub approval: Option<Approval>,
    pub constraints: Option<Box<Constraints>>,
}

impl Begun {
    pub fn new(gate: Gate, job: &Job) -> Self {
        Self {
            gate,
            decision: job.last_decision().cloned(),
            approval: job.approval.as_deref().cloned(),
            constraints: job.constraints.clone(),
        }
    }
}

/// What a decision limits the job to.
pub fn limits_of(decision: &Decision) -> Option<&Constraints> {
    match &decision.verdict {
        Verdict::AllowWith(constraints) => Some(constraints),
        Verdict::RequireApproval => decision.constraints.as_deref(),
        Verdict::Allow | Verdict::Deny | Verdict::Throttle(_) => None,
    }
}

/// 4: an attempt begins only on the word of the rules that are in force in its shard at that moment. The newest decision
/// on record is theirs, is what they think of the job, and allows it, or asks for an approval that is there: of this very
/// content, for that very rule.
pub fn invariant_starts_follow_the_rules_in_force(
    job: &Job,
    ticket: Ticket,
    begun: &Begun,
    policy: &Policy,
) -> Checked {
    const NAME: &str = "invariant_starts_follow_the_rules_in_force";
    let Gate::Policy(version) = begun.gate else { return Ok(()) };
    let about = |what: &str| format!("attempt {} {what}: {begun:?}, {}", ticket.attempt, describe(job));
    let Some(decision) = &begun.decision else { return require(false, NAME, || about("began undecided")) };
    require(job.decisions.contains(decision), NAME, || about("began on a decision that is not on record"))?;
    require(decision.policy == Some(version), NAME, || about("began on the word of other rules"))?;
    let allowed = match decision.verdict {
        Verdict::Allow | Verdict::AllowWith(_) => true,
        Verdict::RequireApproval => begun.approval.as_ref().is_some_and(|approval| {
            approval.approved && approval.digest == job.digest && approval.rule == decision.rule
        }),
        Verdict::Deny | Verdict::Throttle(_) => false,
    };
    require(allowed, NAME, || about("was not allowed"))?;
    let failed_open = decision.rule == FAIL_OPEN_RULE && (policy.fails_open() || undoes(job));
    let true_word = failed_open || policy.opinion(job.digest, version).admits(decision);
    require(true_word, NAME, || about("began on what the rules do not say"))
}

/// 5: an attempt is limited as the newest decision says.
pub fn invariant_starts_are_limited_as_decided(job: &Job, ticket: Ticket, begun: &Begun) -> Checked {
    let Gate::Policy(_) = begun.gate else { return Ok(()) };
    let limits = begun.decision.as_ref().and_then(limits_of);
    let given = begun.constraints.as_deref();
    // Where nobody could be asked, what was last decided still limits the job.
    let in_its_place = begun.decision.as_ref().is_some_and(|decision| decision.rule == FAIL_OPEN_RULE)
        && job.decisions.iter().any(|earlier| limits_of(earlier) == given);
    require(given == limits || in_its_place, "invariant_starts_are_limited_as_decided", || {
        format!("attempt {} began as {begun:?}: {}", ticket.attempt, describe(job))
    })
}

/// 4: every decision on record was said: by the policy, or, where jobs pass while it is away, in its place.
pub fn invariant_decisions_are_never_invented(before: Option<&Job>, after: &Job, policy: &Policy) -> Checked {
    let known = before.map_or(&[][..], |before| &before.decisions);
    let new = appended(known, &after.decisions).unwrap_or(&after.decisions);
    new.iter().try_for_each(|decision| {
        let said = policy.has_said(after.digest, decision) || is_of_workflow(after, decision, policy);
        require(said, "invariant_decisions_are_never_invented", || {
            format!("nobody has said {decision:?}: {}", describe(after))
        })
    })
}

/// What undoes a step of a workflow does not wait for a policy that cannot be asked.
fn undoes(job: &Job) -> bool {
    job.origin.as_ref().is_some_and(|origin| origin.compensation)
}

/// Whether it was said by the workflow that the job is part of: a task that asks for a person's word, or a compensation
/// about which the policy could not be asked.
fn is_of_workflow(job: &Job, decision: &Decision, policy: &Policy) -> bool {
    let asks = decision.verdict == Verdict::RequireApproval && decision.rule == "workflow_approval";
    let failed_open = decision.verdict == Verdict::Allow && decision.rule == FAIL_OPEN_RULE;
    job.origin.is_some() && ((asks && !undoes(job)) || (failed_open && undoes(job) && policy.was_unavailable(job.id)))
}

/// 4: every approval on record is somebody's word on this very content.
pub fn invariant_approvals_are_never_invented(before: Option<&Job>, after: &Job, words: &[Word]) -> Checked {
    let Some(approval) = after.approval.as_deref() else { return Ok(()) };
    if before.is_some_and(|before| before.approval == after.approval) {
        return Ok(());
    }
    let said = |word: &Word| {
        word.approved == approval.approved
            && word.digest.is_none_or(|digest| digest == approval.digest)
            && word.rule.as_ref().is_none_or(|rule| *rule == approval.rule)
            && word.by.as_deref().unwrap_or_default() == approval.by
    };
    let holds = approval.digest == after.digest && words.iter().any(said);
    require(holds, "invariant_approvals_are_never_invented", || {
        format!("{approval:?} is none of {words:?}: {}", describe(after))
    })
}

/// 5: a retry is granted only within what the policy leaves of the job's own. Where several decisions came with the same
/// commit, it is within what one of them leaves.
pub fn invariant_retries_stay_within_their_limits(before: Option<&Job>, after: &Job) -> Checked {
    let Some(before) = before.filter(|before| before.retries < after.retries) else { return Ok(()) };
    let new = appended(&before.decisions, &after.decisions).unwrap_or(&after.decisions);
    let left = |constraints: Option<&Constraints>| {
        constraints.and_then(|constraints| constraints.max_retries).map_or(after.max_retries, |max| max)
    };
    let of_records = [left(before.constraints.as_deref()), left(after.constraints.as_deref())];
    // Without a new decision nothing but a gate that was opened meanwhile lifts a limit.
    let most = new.iter().map(|decision| left(limits_of(decision))).chain(of_records).max();
    let holds = most.is_some_and(|most| after.retries <= most);
    require(holds, "invariant_retries_stay_within_their_limits", || {
        format!("{} retries, {most:?} were allowed: {}", after.retries, describe(after))
    })
}

/// 5: a runner is told the limits that are on record.
pub fn invariant_runners_are_told_the_limits(
    ticket: Ticket,
    told: Option<&Constraints>,
    record: Option<&Job>,
) -> Checked {
    // A record that has gone on since says nothing about what is void anyway.
    let Some(job) = record.filter(|job| job.attempt == ticket.attempt && job.state.is_on_runner()) else {
        return Ok(());
    };
    require(job.constraints.as_deref() == told, "invariant_runners_are_told_the_limits", || {
        format!("told {told:?}, on record {:?}: {}", job.constraints, describe(job))
    })
}
