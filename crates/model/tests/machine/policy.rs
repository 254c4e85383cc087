//! Policy transitions: verdicts, approvals, content scan, release.

use model::job::End;
use model::limits;
use model::machine::{Event, Ignored};
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;
use model::verdict::{Constraints, Verdict};

use crate::support::{Case, OTHER_DIGEST, approval, dispatch, ended, scanned, started, verdict, verdict_of};

#[test]
fn a_denied_job_never_starts() {
    let case = Case::in_state(State::Pending).then(verdict(Verdict::Deny));
    let case = case.is(State::Denied).because(ReasonCode::PolicyDenied);
    case.ignores(verdict(Verdict::Allow), Ignored::Terminal).ignores(dispatch(1), Ignored::Terminal);
}

#[test]
fn a_verdict_is_applied_once() {
    let case = Case::in_state(State::Pending).then(verdict(Verdict::Allow));
    case.ignores(verdict(Verdict::Deny), Ignored::OutOfOrder).is(State::Scheduled);
}

#[test]
fn an_approval_is_bound_to_the_digest() {
    let case = Case::in_state(State::ApprovalRequired).because(ReasonCode::ApprovalRequired);
    let digest = case.job.digest;
    let case = case.ignores(approval(true, OTHER_DIGEST, "a rule"), Ignored::OtherContent);
    let case = case.then(approval(true, digest, "a rule")).is(State::Pending);
    case.ignores(approval(true, digest, "a rule"), Ignored::OutOfOrder);
}

/// The policy does not know of the approval and requires one again; the recorded one satisfies it.
#[test]
fn an_approval_satisfies_the_rule_that_required_it() {
    let case = Case::in_state(State::ApprovalRequired);
    let digest = case.job.digest;
    let case = case.then(approval(true, digest, "a rule"));
    let case = case.then(verdict_of("a rule", Verdict::RequireApproval)).is(State::Scheduled);
    assert_eq!(case.job.decisions.len(), 2);
}

#[test]
fn another_rule_requires_its_own_approval() {
    let case = Case::in_state(State::ApprovalRequired);
    let digest = case.job.digest;
    let case = case.then(approval(true, digest, "a rule"));
    let case = case.then(verdict_of("another rule", Verdict::RequireApproval)).is(State::ApprovalRequired);
    let case = case.then(approval(true, digest, "another rule"));
    case.then(verdict_of("another rule", Verdict::RequireApproval)).is(State::Scheduled);
}

#[test]
fn a_rejected_job_is_denied() {
    let case = Case::in_state(State::ApprovalRequired);
    let digest = case.job.digest;
    case.then(approval(false, digest, "a rule")).is(State::Denied).because(ReasonCode::ApprovalRejected);
}

#[test]
fn a_throttled_job_waits_and_uses_no_budget() {
    let until = Millis(5_000_000);
    let case = Case::in_state(State::Pending).then(verdict(Verdict::Throttle(until)));
    let case = case.is(State::Pending).because(ReasonCode::Throttled);
    assert_eq!((case.job.eligible_at, case.used()), (until, (0, 0)));
    case.then(verdict(Verdict::Allow)).is(State::Scheduled);
}

/// The policy's clock may be behind, or a clock may have gone back.
#[test]
fn a_throttle_never_makes_a_job_eligible_earlier() {
    let case = Case::in_state(State::Blocked).then(Event::Due);
    let not_before = case.job.eligible_at;
    let case = case.then(verdict(Verdict::Throttle(Millis(5))));
    assert_eq!(case.job.eligible_at, not_before);
}

/// The limits of the spec still apply; constraints of earlier decisions do not.
#[test]
fn constraints_are_those_of_the_newest_decision() {
    let narrow = Constraints { max_runtime: Some(Millis(10)), max_retries: Some(1), ..Constraints::default() };
    let wide = Constraints { max_runtime: Some(Millis(1_000)), max_retries: Some(100), ..Constraints::default() };
    let case = Case::in_state(State::Pending).then(verdict(Verdict::AllowWith(narrow)));
    assert_eq!((case.job.runtime_limit(), case.job.retry_limit()), (Some(Millis(10)), 1));
    let case = case.is(State::Scheduled).then(dispatch(1)).then(started(1)).then(ended(1, End::Fatal));
    let case = case.then(Event::Reschedule).then(verdict(Verdict::AllowWith(wide))).is(State::Scheduled);
    assert_eq!((case.job.runtime_limit(), case.job.retry_limit()), (Some(Millis(1_000)), case.job.max_retries));
}

#[test]
fn the_decision_history_is_limited() {
    let mut case = Case::in_state(State::Pending);
    for _ in 0..=limits::HISTORY_ENTRIES_MAX {
        case = case.then(verdict(Verdict::Throttle(Millis(0))));
    }
    assert_eq!(case.job.decisions.len(), limits::HISTORY_ENTRIES_MAX);
}

#[test]
fn a_withheld_result_is_shown_after_a_clean_scan() {
    let case = Case::in_state(State::Scanning).ignores(Event::DeadlinePassed, Ignored::OutOfOrder);
    let case = case.then(scanned(true)).is(State::Succeeded);
    assert_eq!(case.job.output_decisions().len(), 1, "the scan is recorded");
    case.ignores(scanned(true), Ignored::Terminal);
}

#[test]
fn a_result_is_quarantined_before_and_after_it_is_shown() {
    for state in [State::Scanning, State::Succeeded] {
        let case = Case::in_state(state).then(scanned(false)).is(State::Quarantined);
        let case = case.because(ReasonCode::OutputQuarantined).ignores(scanned(false), Ignored::Terminal);
        let case = case.then(Event::Release).is(State::Succeeded).because(ReasonCode::Released);
        assert!(case.job.result.is_some(), "the quarantined result is retained");
    }
}

#[test]
fn only_a_quarantined_result_can_be_released() {
    for state in State::ALL.into_iter().filter(|state| *state != State::Quarantined) {
        let why = if state.is_terminal() { Ignored::Terminal } else { Ignored::OutOfOrder };
        Case::in_state(state).ignores(Event::Release, why);
    }
}
