//! The gate on the way out: what must be true whenever a result can be seen.

use std::sync::Arc;

use engine::{FailMode, OutputRules, Setup};
use model::job::Job;
use model::json::Json;
use model::machine::UNCHECKED_RULE;
use model::message::Ticket;
use model::spec::decode_topic;
use model::state::State;
use model::verdict::{OutputDecision, OutputVerdict, Phase};

use super::{Checked, appended, describe, entered, require, result_of_job};
use crate::scanner::Scanner;

fn ticket_of(job: &Job) -> Ticket {
    Ticket { job: job.id, attempt: job.attempt }
}

/// What operators said of a job's results while the commit was in the making: usually one thing.
fn rules<'a>(job: &'a Job, setups: &'a [Arc<Setup>]) -> impl Iterator<Item = OutputRules> + 'a {
    let topic = decode_topic(&job.spec).unwrap_or_default();
    setups.iter().map(move |setup| setup.topic(topic).map_or(OutputRules::OFF, |topic| topic.output))
}

fn is_unchecked(decision: &OutputDecision) -> bool {
    decision.rule == UNCHECKED_RULE
}

/// What a redacted copy of an attempt's result says.
pub fn redacted_of(ticket: Ticket) -> Json {
    Json::of(&format!("redacted {}/{}", ticket.job, ticket.attempt))
}

/// Whether a scan of this very result lets it be seen.
fn passes(job: &Job, decision: &OutputDecision, scanner: &Scanner) -> bool {
    let scan = scanner.content(ticket_of(job));
    *decision == scan.decision
        && match scan.decision.verdict {
            OutputVerdict::Allow => true,
            OutputVerdict::Redact => scan.redacted.is_some(),
            OutputVerdict::Quarantine | OutputVerdict::Deny => false,
        }
}

/// Whether a result that could not be looked at passes all the same.
fn passes_unchecked(job: &Job, decision: &OutputDecision, setups: &[Arc<Setup>], scanner: &Scanner) -> bool {
    is_unchecked(decision)
        && decision.verdict == OutputVerdict::Allow
        && scanner.has_failed(ticket_of(job))
        && rules(job, setups).any(|rules| rules.fail_mode == FailMode::Open)
}

/// A result from which something was to be removed is seen only after a look at its content has let it pass, with or
/// without a copy, or an operator has released it. That it could not be looked at does not let it out, whatever its topic
/// says: what was to be removed is still in it.
pub fn invariant_what_is_to_be_redacted_stays_inside(job: &Job, scanner: &Scanner) -> Checked {
    let known = scanner.metadata(ticket_of(job)).filter(|known| known.verdict == OutputVerdict::Redact);
    let Some(known) = known.filter(|_| job.state == State::Succeeded) else { return Ok(()) };
    let looked = job.output_decisions().iter().any(|decision| passes(job, decision, scanner));
    let released = job.states.iter().rev().nth(1).is_some_and(|entry| entry.state == State::Quarantined);
    require(looked || released, "invariant_what_is_to_be_redacted_stays_inside", || {
        format!("{known:?}, then {:?}: {}", job.output_decisions().last(), describe(job))
    })
}

/// A result can be seen only if nothing holds it and nothing bad is known of it, or a scan of this very result has let it
/// pass, or it could not be scanned and its topic lets such results pass. A quarantined one needs a release, which is an
/// act and is looked for in the audit log.
pub fn invariant_what_is_shown_may_be_seen(
    before: Option<&Job>,
    after: &Job,
    setups: &[Arc<Setup>],
    scanner: &Scanner,
) -> Checked {
    const NAME: &str = "invariant_what_is_shown_may_be_seen";
    if after.state != State::Succeeded {
        return Ok(());
    }
    let last = after.output_decisions().last();
    let pair = entered(before, after).last().copied();
    let holds = match pair.map(|(from, _)| from) {
        // It was shown before: whatever was said since lets it pass.
        None => {
            let known = before.map_or(&[][..], Job::output_decisions);
            let new = appended(known, after.output_decisions()).unwrap_or_default();
            new.iter()
                .all(|decision| passes(after, decision, scanner) || passes_unchecked(after, decision, setups, scanner))
        }
        Some(State::Scanning) => last.is_some_and(|decision| {
            passes(after, decision, scanner) || passes_unchecked(after, decision, setups, scanner)
        }),
        Some(State::Dispatched | State::Running | State::Cancelling) => {
            let known = scanner.metadata(ticket_of(after));
            let said = known
                .as_ref()
                .is_none_or(|known| known.verdict == OutputVerdict::Allow && after.output_decisions().contains(known));
            said && rules(after, setups).any(|rules| !(rules.scan && rules.hold_until_scanned))
        }
        Some(State::Quarantined) => true,
        Some(
            State::Pending
            | State::Blocked
            | State::ApprovalRequired
            | State::Scheduled
            | State::Succeeded
            | State::Failed
            | State::TimedOut
            | State::Cancelled
            | State::Denied
            | State::Abandoned,
        ) => false,
    };
    require(holds, NAME, || format!("{pair:?} after {last:?}: {}", describe(after)))
}

/// Every decision about a result was said of a result of this job, or was made by the topic's fail mode about one that
/// could not be looked at.
pub fn invariant_output_decisions_are_never_invented(
    before: Option<&Job>,
    after: &Job,
    setups: &[Arc<Setup>],
    scanner: &Scanner,
) -> Checked {
    let known = before.map_or(&[][..], Job::output_decisions);
    let new = appended(known, after.output_decisions()).unwrap_or_default();
    new.iter().try_for_each(|decision| {
        let holds = if is_unchecked(decision) {
            decision.phase == Phase::Content
                && rules(after, setups).any(|rules| {
                    decision.verdict
                        == match rules.fail_mode {
                            FailMode::Open => OutputVerdict::Allow,
                            FailMode::Closed => OutputVerdict::Quarantine,
                        }
                })
        } else {
            scanner.has_said(after.id, after.attempt, decision)
        };
        require(holds, "invariant_output_decisions_are_never_invented", || format!("{decision:?}: {}", describe(after)))
    })
}

/// The result of a job is the one of its newest attempt, or a copy of it without what the policy does not let out. Once
/// there is a copy nobody sees the original, which is kept if the policy says so.
pub fn invariant_results_are_of_the_newest_attempt(job: &Job, scanner: &Scanner) -> Checked {
    const NAME: &str = "invariant_results_are_of_the_newest_attempt";
    match job.state {
        State::Succeeded | State::Quarantined | State::Scanning => {}
        State::Pending
        | State::Blocked
        | State::ApprovalRequired
        | State::Scheduled
        | State::Dispatched
        | State::Running
        | State::Cancelling
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Denied
        | State::Abandoned => return Ok(()),
    }
    let ticket = ticket_of(job);
    let scan = scanner.content(ticket);
    let copy = scan.redacted.filter(|_| job.output_decisions().contains(&scan.decision));
    let original = result_of_job(job, ticket);
    let expected = if copy.is_some() { redacted_of(ticket) } else { original.clone() };
    require(job.result.as_ref() == Some(&expected), NAME, || {
        format!("{:?} is shown instead of {expected:?}: {}", job.result, describe(job))
    })?;
    let kept = copy.is_some_and(|copy| copy.keep_original).then_some(original);
    let found = job.original.as_ref().and_then(|original| original.result.clone());
    require(kept == found, NAME, || format!("{found:?} is kept instead of {kept:?}: {}", describe(job)))
}
