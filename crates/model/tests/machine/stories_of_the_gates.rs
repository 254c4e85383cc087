//! The gates on the way in and on the way out: verdicts, approvals, the content scan.

use model::job::End;
use model::limits;
use model::machine::{Event, Ignored};
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;
use model::verdict::{Constraints, Verdict};

use crate::fixture::{Life, OTHER_DIGEST, approval, dispatch, ended, scanned, started, verdict, verdict_of};

#[test]
fn a_denied_job_never_starts() {
    let life = Life::in_state(State::Pending).then(verdict(Verdict::Deny));
    let life = life.is(State::Denied).because(ReasonCode::PolicyDenied);
    life.ignores(verdict(Verdict::Allow), Ignored::Terminal).ignores(dispatch(1), Ignored::Terminal);
}

#[test]
fn a_verdict_counts_once() {
    let life = Life::in_state(State::Pending).then(verdict(Verdict::Allow));
    life.ignores(verdict(Verdict::Deny), Ignored::OutOfOrder).is(State::Scheduled);
}

#[test]
fn an_approval_is_good_for_this_very_content() {
    let life = Life::in_state(State::ApprovalRequired).because(ReasonCode::ApprovalRequired);
    let digest = life.job.digest;
    let life = life.ignores(approval(true, OTHER_DIGEST, "a rule"), Ignored::OtherContent);
    let life = life.then(approval(true, digest, "a rule")).is(State::Pending);
    life.ignores(approval(true, digest, "a rule"), Ignored::OutOfOrder);
}

/// The policy does not know of the approval: it asks for one again, and it is there.
#[test]
fn an_approval_satisfies_the_rule_that_asked_for_it() {
    let life = Life::in_state(State::ApprovalRequired);
    let digest = life.job.digest;
    let life = life.then(approval(true, digest, "a rule"));
    let life = life.then(verdict_of("a rule", Verdict::RequireApproval)).is(State::Scheduled);
    assert_eq!(life.job.decisions.len(), 2);
}

#[test]
fn another_rule_asks_for_an_approval_of_its_own() {
    let life = Life::in_state(State::ApprovalRequired);
    let digest = life.job.digest;
    let life = life.then(approval(true, digest, "a rule"));
    let life = life.then(verdict_of("another rule", Verdict::RequireApproval)).is(State::ApprovalRequired);
    let life = life.then(approval(true, digest, "another rule"));
    life.then(verdict_of("another rule", Verdict::RequireApproval)).is(State::Scheduled);
}

#[test]
fn a_rejected_job_is_denied() {
    let life = Life::in_state(State::ApprovalRequired);
    let digest = life.job.digest;
    life.then(approval(false, digest, "a rule")).is(State::Denied).because(ReasonCode::ApprovalRejected);
}

#[test]
fn a_throttled_job_waits_and_uses_no_budget() {
    let until = Millis(5_000_000);
    let life = Life::in_state(State::Pending).then(verdict(Verdict::Throttle(until)));
    let life = life.is(State::Pending).because(ReasonCode::Throttled);
    assert_eq!((life.job.eligible_at, life.used()), (until, (0, 0)));
    life.then(verdict(Verdict::Allow)).is(State::Scheduled);
}

/// A policy whose clock is behind, or a clock that went back: a job's own time counts all the same.
#[test]
fn a_throttle_never_brings_a_job_forward() {
    let life = Life::in_state(State::Blocked).then(Event::Due);
    let own_time = life.job.eligible_at;
    let life = life.then(verdict(Verdict::Throttle(Millis(5))));
    assert_eq!(life.job.eligible_at, own_time);
}

/// Never more than the job asked for itself, and what an earlier policy forbade is over.
#[test]
fn the_newest_word_of_the_policy_constrains() {
    let narrow = Constraints { max_runtime: Some(Millis(10)), max_retries: Some(1), ..Constraints::default() };
    let wide = Constraints { max_runtime: Some(Millis(1_000)), max_retries: Some(100), ..Constraints::default() };
    let life = Life::in_state(State::Pending).then(verdict(Verdict::AllowWith(narrow)));
    assert_eq!((life.job.runtime_limit(), life.job.retry_limit()), (Some(Millis(10)), 1));
    let life = life.is(State::Scheduled).then(dispatch(1)).then(started(1)).then(ended(1, End::Fatal));
    let life = life.then(Event::Reschedule).then(verdict(Verdict::AllowWith(wide))).is(State::Scheduled);
    assert_eq!((life.job.runtime_limit(), life.job.retry_limit()), (Some(Millis(1_000)), life.job.max_retries));
}

#[test]
fn decisions_are_kept_up_to_their_limit() {
    let mut life = Life::in_state(State::Pending);
    for _ in 0..=limits::HISTORY_ENTRIES_MAX {
        life = life.then(verdict(Verdict::Throttle(Millis(0))));
    }
    assert_eq!(life.job.decisions.len(), limits::HISTORY_ENTRIES_MAX);
}

#[test]
fn a_held_result_is_shown_when_it_is_clean() {
    let life = Life::in_state(State::Scanning).ignores(Event::DeadlinePassed, Ignored::OutOfOrder);
    let life = life.then(scanned(true)).is(State::Succeeded);
    assert_eq!(life.job.output_decisions().len(), 1, "every look at it is on record");
    life.ignores(scanned(true), Ignored::Terminal);
}

#[test]
fn a_bad_result_is_quarantined_before_and_after_it_was_shown() {
    for state in [State::Scanning, State::Succeeded] {
        let life = Life::in_state(state).then(scanned(false)).is(State::Quarantined);
        let life = life.because(ReasonCode::OutputQuarantined).ignores(scanned(false), Ignored::Terminal);
        let life = life.then(Event::Release).is(State::Succeeded).because(ReasonCode::Released);
        assert!(life.job.result.is_some(), "what was quarantined is still there");
    }
}

#[test]
fn only_a_quarantined_result_can_be_released() {
    for state in State::ALL.into_iter().filter(|state| *state != State::Quarantined) {
        let why = if state.is_terminal() { Ignored::Terminal } else { Ignored::OutOfOrder };
        Life::in_state(state).ignores(Event::Release, why);
    }
}
