//! Invariants of the output policy: conditions for showing a result.

use std::sync::Arc;

use engine::{FailMode, OutputRules, Settings};
use model::job::Job;
use model::json::Json;
use model::machine::UNCHECKED_RULE;
use model::message::AttemptRef;
use model::spec::decode_topic;
use model::state::State;
use model::verdict::{OutputDecision, OutputVerdict, Phase};

use super::{Checked, appended, describe, entered, require, result_of_job};
use crate::host::spilled_form;
use crate::scanner::Scanner;

fn attempt_of(job: &Job) -> AttemptRef {
    AttemptRef { job: job.id, attempt: job.attempt }
}

/// Output rules of a job's topic during the round of the commit, usually one.
fn rules<'a>(job: &'a Job, settings: &'a [Arc<Settings>]) -> impl Iterator<Item = OutputRules> + 'a {
    let topic = decode_topic(&job.spec).unwrap_or_default();
    settings.iter().map(move |settings| settings.topic(topic).map_or(OutputRules::OFF, |topic| topic.output))
}

fn is_unchecked(decision: &OutputDecision) -> bool {
    decision.rule == UNCHECKED_RULE
}

/// The redacted copy of an attempt's result.
pub fn redacted_of(attempt_ref: AttemptRef) -> Json {
    Json::of(&format!("redacted {}/{}", attempt_ref.job, attempt_ref.attempt))
}

/// Whether the decision is the scan of this result and allows it.
fn passes(job: &Job, decision: &OutputDecision, scanner: &Scanner) -> bool {
    let scan = scanner.content_scan(attempt_of(job));
    *decision == scan.decision
        && match scan.decision.verdict {
            OutputVerdict::Allow => true,
            OutputVerdict::Redact => scan.redacted.is_some(),
            OutputVerdict::Quarantine | OutputVerdict::Deny => false,
        }
}

/// Whether the decision allows a result whose scan failed, by a fail-open rule.
fn passes_unchecked(job: &Job, decision: &OutputDecision, settings: &[Arc<Settings>], scanner: &Scanner) -> bool {
    is_unchecked(decision)
        && decision.verdict == OutputVerdict::Allow
        && scanner.has_failed(attempt_of(job))
        && rules(job, settings).any(|rules| rules.fail_mode == FailMode::Open)
}

/// A result that the metadata check wants redacted is shown only after a scan allowed or redacted it, or after a
/// release. A failed scan does not show it, not even with a fail-open topic: it is still unredacted.
pub fn invariant_unredacted_results_stay_hidden(job: &Job, scanner: &Scanner) -> Checked {
    let known = scanner.metadata_decision(attempt_of(job)).filter(|known| known.verdict == OutputVerdict::Redact);
    let Some(known) = known.filter(|_| job.state == State::Succeeded) else { return Ok(()) };
    let scanned = job.output_decisions().iter().any(|decision| passes(job, decision, scanner));
    let released = job.states.iter().rev().nth(1).is_some_and(|entry| entry.state == State::Quarantined);
    require(scanned || released, "invariant_unredacted_results_stay_hidden", || {
        format!("{known:?}, then {:?}: {}", job.output_decisions().last(), describe(job))
    })
}

/// A result is shown only if it is not withheld and the metadata check allows it, or a scan of this result allows it, or
/// its scan failed and the topic fails open. A quarantined one needs a release, which the audit invariants check.
pub fn invariant_shown_results_are_allowed(
    before: Option<&Job>,
    after: &Job,
    settings: &[Arc<Settings>],
    scanner: &Scanner,
) -> Checked {
    const NAME: &str = "invariant_shown_results_are_allowed";
    if after.state != State::Succeeded {
        return Ok(());
    }
    let last = after.output_decisions().last();
    let pair = entered(before, after).last().copied();
    let holds = match pair.map(|(from, _)| from) {
        // Shown before: all later decisions must allow it.
        None => {
            let known = before.map_or(&[][..], Job::output_decisions);
            let new = appended(known, after.output_decisions()).unwrap_or_default();
            new.iter().all(|decision| {
                passes(after, decision, scanner) || passes_unchecked(after, decision, settings, scanner)
            })
        }
        Some(State::Scanning) => last.is_some_and(|decision| {
            passes(after, decision, scanner) || passes_unchecked(after, decision, settings, scanner)
        }),
        // Scheduled: the result of an attempt that was lost with its runner.
        Some(State::Dispatched | State::Running | State::Cancelling | State::Scheduled) => {
            let known = scanner.metadata_decision(attempt_of(after));
            let allowed = known
                .as_ref()
                .is_none_or(|known| known.verdict == OutputVerdict::Allow && after.output_decisions().contains(known));
            allowed && rules(after, settings).any(|rules| !(rules.scan && rules.hold_until_scanned))
        }
        Some(State::Quarantined) => true,
        Some(
            State::Pending
            | State::Blocked
            | State::ApprovalRequired
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

/// Every output decision was issued by the scanner for a result of this job, or by the topic's fail mode after a failed
/// scan.
pub fn invariant_output_decisions_come_from_the_scanner(
    before: Option<&Job>,
    after: &Job,
    settings: &[Arc<Settings>],
    scanner: &Scanner,
) -> Checked {
    let known = before.map_or(&[][..], Job::output_decisions);
    let new = appended(known, after.output_decisions()).unwrap_or_default();
    new.iter().try_for_each(|decision| {
        let holds = if is_unchecked(decision) {
            decision.phase == Phase::Content
                && rules(after, settings).any(|rules| {
                    decision.verdict
                        == match rules.fail_mode {
                            FailMode::Open => OutputVerdict::Allow,
                            FailMode::Closed => OutputVerdict::Quarantine,
                        }
                })
        } else {
            scanner.has_issued(after.id, after.attempt, decision)
        };
        require(holds, "invariant_output_decisions_come_from_the_scanner", || {
            format!("{decision:?}: {}", describe(after))
        })
    })
}

/// The result of a job is that of its newest attempt, or its redacted copy. With a copy the original is hidden, and
/// stored if the policy says so.
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
    let attempt_ref = attempt_of(job);
    let scan = scanner.content_scan(attempt_ref);
    let copy = scan.redacted.filter(|_| job.output_decisions().contains(&scan.decision));
    let inline = result_of_job(job, attempt_ref);
    let spilled = Json::of(&spilled_form(&inline));
    let original = if job.spilled().is_some() { spilled.clone() } else { inline.clone() };
    let expected = if copy.is_some() { redacted_of(attempt_ref) } else { original };
    require(job.result.as_ref() == Some(&expected), NAME, || {
        format!("{:?} is shown instead of {expected:?}: {}", job.result, describe(job))
    })?;
    let is_kept = copy.is_some_and(|copy| copy.keep_original);
    let recorded = job.original.as_ref().and_then(|original| original.result.as_ref());
    let is_right = recorded.is_none_or(|recorded| *recorded == inline || *recorded == spilled);
    require(is_kept == recorded.is_some() && is_right, NAME, || {
        format!("{recorded:?} is the stored original instead of {inline:?} (kept: {is_kept}): {}", describe(job))
    })
}
