//! Examples of the transitions from scheduled to terminal.

use model::blob::BlobId;
use model::id::{Attempt, Incarnation, RunnerId};
use model::job::{Artifact, End, LogRef, Outcome};
use model::json::Json;
use model::limits;
use model::machine::{Backoff, Event, Fault, Ignored};
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;

use crate::support::{BACKOFF, Case, adopted, cancel, dispatch, ended, lost, started};

// FEATURES: C1
#[test]
fn a_successful_job_records_each_state_with_its_time() {
    let case = Case::in_state(State::Blocked).then(Event::Due).is(State::Pending);
    let case = case.then(crate::support::verdict(model::verdict::Verdict::Allow)).is(State::Scheduled);
    let case = case.then(dispatch(4)).is(State::Dispatched).then(started(1)).is(State::Running);
    let case = case.then(ended(1, End::Succeeded)).is(State::Succeeded);
    let states: Vec<State> = case.job.states.iter().map(|entry| entry.state).collect();
    let all = [State::Blocked, State::Pending, State::Scheduled, State::Dispatched, State::Running, State::Succeeded];
    assert_eq!(states, all);
    assert!(case.job.states.is_sorted_by(|a, b| a.at < b.at));
    assert_eq!(case.job.result, Some(Json::of(&1)));
    assert_eq!(case.job.last_attempt().unwrap().runner, RunnerId(4));
    assert_eq!(case.job.reason, None);
}

// FEATURES: C3
#[test]
fn an_error_is_retried_with_growing_backoff_up_to_the_limit() {
    let mut case = Case::with_retries(2).then(crate::support::verdict(model::verdict::Verdict::Allow));
    let mut delays = Vec::new();
    for attempt in 1..=2 {
        case = case.then(dispatch(1)).then(started(attempt)).then(ended(attempt, End::Error));
        case = case.is(State::Scheduled).because(ReasonCode::RetryLater);
        assert_eq!(case.used(), (attempt, 0));
        delays.push(case.job.eligible_at - case.now);
    }
    assert!(delays[0] >= BACKOFF.first && delays[1] >= Millis(2 * BACKOFF.first.0), "{delays:?}");
    let case = case.then(dispatch(1)).then(started(3)).then(ended(3, End::Error));
    case.is(State::Failed).because(ReasonCode::RetriesExhausted);
}

#[test]
fn a_job_with_zero_retries_is_never_retried() {
    let case = Case::with_retries(0).then(crate::support::verdict(model::verdict::Verdict::Allow));
    let case = case.then(dispatch(1)).then(started(1)).then(ended(1, End::Error)).is(State::Failed);
    case.ignores(Event::Reschedule, Ignored::BudgetExhausted);
}

#[test]
fn a_fatal_end_is_never_retried() {
    let case = Case::in_state(State::Running).then(ended(1, End::Fatal));
    let case = case.is(State::Failed).because(ReasonCode::Fatal);
    assert_eq!(case.used(), (0, 0));
}

#[test]
fn infrastructure_failures_beyond_their_budget_fail_the_job() {
    let mut case = Case::in_state(State::Running);
    for failures in 1..=limits::INFRASTRUCTURE_RETRIES_DEFAULT {
        let attempt = case.job.attempt.0;
        case = case.then(lost(attempt, Fault::Unknown)).because(ReasonCode::RunnerLost);
        assert_eq!(case.used(), (0, failures));
        case = case.runs_again(1);
    }
    let attempt = case.job.attempt.0;
    let case = case.then(ended(attempt, End::Infrastructure)).is(State::Failed);
    case.because(ReasonCode::InfrastructureExhausted);
}

#[test]
fn a_lost_attempt_that_is_not_the_jobs_fault_uses_no_budget() {
    let mut case = Case::in_state(State::Running);
    for _ in 0..20 {
        let attempt = case.job.attempt.0;
        case = case.then(lost(attempt, Fault::NotTheJob)).runs_again(1);
    }
    assert_eq!(case.used(), (0, 0));
}

// FEATURES: C3
#[test]
fn an_adopted_attempt_continues_as_the_same_attempt() {
    for case in [Case::in_state(State::Dispatched), Case::in_state(State::Running), Case::in_state(State::Cancelling)] {
        let state = case.job.state;
        let (since, reason) = (case.job.since(), case.job.reason.clone());
        let case = case.then(adopted(1, 2)).is(state);
        assert_eq!((case.job.since(), &case.job.reason), (since, &reason), "timeouts are unaffected");
        assert_eq!(case.job.runner(), Some((RunnerId(1), Incarnation(2))));
        assert_eq!((case.job.attempt, case.used()), (Attempt(1), (0, 0)));
        let case = case.ignores(adopted(1, 2), Ignored::Duplicate).ignores(adopted(1, 1), Ignored::Duplicate);
        let ended = case.then(ended(1, End::Succeeded));
        assert_eq!(ended.job.result, Some(Json::of(&1)));
    }
    let retracting = Case::in_state(State::Running).then(Event::Retract).then(adopted(1, 3));
    assert!(retracting.job.retracting);
}

#[test]
fn only_an_attempt_in_flight_can_be_adopted() {
    for state in State::ALL.into_iter().filter(|state| !state.is_on_runner()) {
        let why = if state.is_terminal() { Ignored::Terminal } else { Ignored::StaleAttempt };
        Case::in_state(state).ignores(adopted(1, 2), why);
    }
    Case::in_state(State::Running).ignores(adopted(2, 2), Ignored::StaleAttempt);
}

#[test]
fn an_outcome_sets_artifacts_and_log_and_a_reschedule_drops_the_artifacts() {
    let log = LogRef { blob: BlobId::of(b"log"), bytes: 3 };
    let file = Artifact { path: "out".to_owned(), blob: BlobId::of(b"out"), bytes: 3, executable: true };
    let outcome = Outcome { log: Some(log), artifacts: vec![file.clone()], ..Outcome::of(End::Fatal) };
    let case = Case::in_state(State::Running).then(Event::Ended { attempt: Attempt(1), outcome: Box::new(outcome) });
    assert_eq!(
        (case.job.artifacts(), case.job.last_attempt().unwrap().log.as_deref().copied()),
        (&[file][..], Some(log))
    );
    let case = case.then(Event::Reschedule);
    assert_eq!((case.job.artifacts().len(), case.job.last_attempt().unwrap().log.as_deref().copied()), (0, Some(log)));
}

#[test]
fn too_many_artifacts_of_a_runner_are_truncated() {
    let file = Artifact { path: "out".to_owned(), blob: BlobId::of(b"out"), bytes: 3, executable: true };
    let artifacts = vec![file; limits::ARTIFACTS_MAX + 5];
    let outcome = Box::new(Outcome { artifacts, ..Outcome::of(End::Succeeded) });
    let case = Case::in_state(State::Running).then(Event::Ended { attempt: Attempt(1), outcome });
    assert_eq!(case.job.artifacts().len(), limits::ARTIFACTS_MAX);
}

#[test]
fn a_retract_waits_for_the_confirmed_stop_and_uses_no_budget() {
    for end in [End::Stopped, End::Error, End::Infrastructure] {
        let case = Case::in_state(State::Running).then(Event::Retract).is(State::Running);
        let case = case.ignores(Event::Retract, Ignored::Duplicate).ignores(dispatch(2), Ignored::OutOfOrder);
        let case = case.then(ended(1, end)).is(State::Scheduled).because(ReasonCode::Retracted);
        assert_eq!(case.used(), (0, 0), "{end:?}");
        assert!(case.job.failed_on(RunnerId(1)), "the next attempt prefers another runner");
        assert!(!case.runs_again(2).job.retracting);
    }
}

#[test]
fn a_retracted_attempt_that_succeeds_ends_the_job() {
    let case = Case::in_state(State::Running).then(Event::Retract).then(ended(1, End::Succeeded));
    case.is(State::Succeeded);
}

#[test]
fn a_retract_of_a_dispatched_attempt_waits_for_the_runner_too() {
    let case = Case::in_state(State::Dispatched).then(Event::Retract);
    let case = case.ignores(Event::DispatchTimedOut { attempt: Attempt(1) }, Ignored::OutOfOrder);
    let case = case.then(lost(1, Fault::Unknown)).is(State::Scheduled).because(ReasonCode::Retracted);
    assert_eq!(case.used(), (0, 0));
}

#[test]
fn a_retract_without_an_attempt_in_flight_is_ignored() {
    for state in [State::Pending, State::Blocked, State::ApprovalRequired, State::Scheduled] {
        Case::in_state(state).ignores(Event::Retract, Ignored::Duplicate);
    }
    for state in [State::Cancelling, State::Scanning] {
        Case::in_state(state).ignores(Event::Retract, Ignored::OutOfOrder);
    }
}

#[test]
fn an_attempt_stopped_by_a_drain_uses_no_budget() {
    let case = Case::in_state(State::Running).then(ended(1, End::Stopped));
    let case = case.is(State::Scheduled).because(ReasonCode::NodeDrained);
    assert_eq!(case.used(), (0, 0));
    case.runs_again(2);
}

/// The backoff prevents a tight loop of dispatch and rejection between shard and runner.
#[test]
fn a_busy_runner_causes_a_backoff_and_uses_no_budget() {
    let case = Case::in_state(State::Dispatched).then(ended(1, End::Busy));
    let case = case.is(State::Scheduled).because(ReasonCode::RunnerBusy);
    assert_eq!(case.used(), (0, 0));
    assert!(case.job.eligible_at >= case.now + BACKOFF.first);
}

// FEATURES: C3
#[test]
fn a_cancel_ends_a_job_in_every_non_terminal_state() {
    for state in [State::Pending, State::Blocked, State::ApprovalRequired, State::Scheduled, State::Scanning] {
        let case = Case::in_state(state).then(cancel()).is(State::Cancelled).because(ReasonCode::CancelRequested);
        case.ignores(cancel(), Ignored::Duplicate).ignores(Event::Reschedule, Ignored::Terminal);
    }
    for state in [State::Dispatched, State::Running] {
        for end in
            [End::Stopped, End::Succeeded, End::Error, End::Fatal, End::Infrastructure, End::Busy, End::LeaseExpired]
        {
            let case = Case::in_state(state).then(Event::Cancel(ReasonCode::QueueCancelled)).is(State::Cancelling);
            let case = case.ignores(cancel(), Ignored::Duplicate);
            let case = case.then(ended(1, end)).is(State::Cancelled).because(ReasonCode::QueueCancelled);
            assert_eq!(case.used(), (0, 0));
        }
        Case::in_state(state).then(cancel()).then(lost(1, Fault::Unknown)).is(State::Cancelled);
        let overdue = Event::StopOverdue { attempt: Attempt(1) };
        Case::in_state(state).then(cancel()).then(overdue).is(State::Cancelled).because(ReasonCode::StopOverdue);
    }
    for state in [State::Succeeded, State::Failed, State::TimedOut, State::Denied, State::Quarantined, State::Abandoned]
    {
        Case::in_state(state).ignores(cancel(), Ignored::Terminal);
    }
}

// FEATURES: D4
#[test]
fn a_passed_deadline_times_out_every_unfinished_job() {
    let waiting = [State::Pending, State::Blocked, State::ApprovalRequired, State::Scheduled];
    for state in waiting.into_iter().chain([State::Dispatched, State::Running]) {
        let case = Case::in_state(state);
        let transition = model::machine::step(&case.job, &Event::DeadlinePassed).unwrap();
        assert_eq!(transition.stop, state.is_on_runner(), "{state}: the runner must be sent a stop");
        let case = case.then(Event::DeadlinePassed).because(ReasonCode::DeadlinePassed);
        // The runner must confirm the stop first, so that no retry runs in parallel.
        let case = if state.is_on_runner() { case.is(State::Cancelling).then(ended(1, End::Stopped)) } else { case };
        case.is(State::TimedOut).because(ReasonCode::DeadlinePassed);
    }
    for state in [State::Cancelling, State::Scanning] {
        Case::in_state(state).ignores(Event::DeadlinePassed, Ignored::OutOfOrder);
    }
}

// FEATURES: D4
#[test]
fn an_attempt_timeout_ends_the_job() {
    let overdue = || Event::AttemptTimedOut { attempt: Attempt(1) };
    let case = Case::in_state(State::Running).then(overdue()).is(State::Cancelling);
    let case = case.then(ended(1, End::Succeeded)).is(State::TimedOut);
    case.because(ReasonCode::AttemptTimedOut).ignores(ended(1, End::Succeeded), Ignored::Terminal);
    Case::in_state(State::Dispatched).ignores(overdue(), Ignored::OutOfOrder);
    let next = Case::in_state(State::Running).then(lost(1, Fault::NotTheJob)).runs_again(1);
    next.ignores(overdue(), Ignored::StaleAttempt);
}

// FEATURES: D4
#[test]
fn a_dispatch_timeout_uses_the_infrastructure_budget() {
    let mut case = Case::in_state(State::Scheduled);
    for failures in 1..=limits::INFRASTRUCTURE_RETRIES_DEFAULT {
        case = case.then(dispatch(1)).then(Event::DispatchTimedOut { attempt: Attempt(failures) });
        case = case.is(State::Scheduled).because(ReasonCode::DispatchTimedOut);
        assert_eq!(case.used(), (0, failures));
    }
    let last = Attempt(limits::INFRASTRUCTURE_RETRIES_DEFAULT + 1);
    let case = case.then(dispatch(1)).then(Event::DispatchTimedOut { attempt: last });
    case.is(State::TimedOut).because(ReasonCode::DispatchTimedOut);
}

// FEATURES: C3
#[test]
fn a_reschedule_uses_a_retry_and_evaluates_the_policy_again() {
    for state in [State::Failed, State::TimedOut, State::Abandoned, State::Quarantined] {
        let case = Case::in_state(state).then(Event::Reschedule).is(State::Pending);
        assert_eq!((case.used(), case.job.result.as_ref()), ((1, 0), None), "from {state}");
        let mut case = Case::in_state(state);
        case.job.retries = case.job.max_retries;
        case.ignores(Event::Reschedule, Ignored::BudgetExhausted);
    }
    for state in [State::Succeeded, State::Cancelled, State::Denied] {
        Case::in_state(state).ignores(Event::Reschedule, Ignored::Terminal);
    }
    for state in State::ALL.into_iter().filter(|state| !state.is_terminal()) {
        Case::in_state(state).ignores(Event::Reschedule, Ignored::OutOfOrder);
    }
}

/// The deadline passed before `not_before`. A rescheduled job still waits for `not_before`.
#[test]
fn a_rescheduled_job_waits_for_its_not_before() {
    let case = Case::in_state(State::Blocked);
    let not_before = case.job.eligible_at;
    let case = case.then(Event::DeadlinePassed).then(Event::Reschedule).is(State::Pending);
    assert!(case.now < not_before);
    assert_eq!(case.job.eligible_at, not_before);
}

#[test]
fn an_abandoned_node_abandons_its_non_terminal_jobs() {
    for state in State::ALL {
        let case = Case::in_state(state);
        match state.is_terminal() {
            true => case.ignores(Event::Abandon, Ignored::Terminal),
            false => case.then(Event::Abandon).is(State::Abandoned).because(ReasonCode::NodeAbandoned),
        };
    }
}

#[test]
fn the_success_of_a_lost_attempt_is_taken_until_another_one_is_dispatched() {
    let lost = || Case::in_state(State::Running).then(lost(1, Fault::Unknown)).is(State::Scheduled);
    let case = lost().then(ended(1, End::Succeeded)).is(State::Succeeded);
    assert_eq!(case.job.result, Some(Json::of(&1)));
    lost().ignores(ended(1, End::Stopped), Ignored::StaleAttempt).ignores(started(1), Ignored::StaleAttempt);
    let failed = Case::in_state(State::Running).then(ended(1, End::Error)).is(State::Scheduled);
    failed.ignores(ended(1, End::Succeeded), Ignored::StaleAttempt);
}

// FEATURES: B4, D16
#[test]
fn events_of_an_older_attempt_are_ignored() {
    let case = Case::in_state(State::Running).then(lost(1, Fault::Unknown));
    let case = case.ignores(ended(1, End::Error), Ignored::StaleAttempt).runs_again(2);
    let case = case.ignores(started(1), Ignored::StaleAttempt).ignores(started(2), Ignored::Duplicate);
    let case = case.ignores(ended(1, End::Succeeded), Ignored::StaleAttempt);
    let case = case.then(ended(2, End::Succeeded)).is(State::Succeeded);
    assert_eq!(case.job.result, Some(Json::of(&2)));
    case.ignores(ended(2, End::Error), Ignored::Terminal).ignores(ended(1, End::Succeeded), Ignored::Terminal);
}

#[test]
fn an_end_without_a_start_is_accepted() {
    Case::in_state(State::Dispatched).then(ended(1, End::Succeeded)).is(State::Succeeded);
}

#[test]
fn backoff_doubles_up_to_the_longest_with_a_quarter_of_jitter() {
    let backoff = Backoff { first: Millis(1_000), longest: Millis(8_000) };
    for (tries, base) in [(0, 1_000), (1, 2_000), (2, 4_000), (3, 8_000), (4, 8_000), (400, 8_000)] {
        assert_eq!(backoff.delay(tries, 0), Millis(base));
        for spread in [1, 77, u64::MAX] {
            let delay = backoff.delay(tries, spread).0;
            assert!((base..=base + base / 4).contains(&delay), "{tries} tries: {delay}");
        }
    }
}
