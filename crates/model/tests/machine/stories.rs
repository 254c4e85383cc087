//! Each transition between scheduling and the end, as a story.

use model::blob::BlobId;
use model::id::{Attempt, Incarnation, RunnerId};
use model::job::{Artifact, End, LogRef, Outcome};
use model::json::Json;
use model::limits;
use model::machine::{Backoff, Event, Fault, Ignored};
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;

use crate::fixture::{BACKOFF, Life, adopted, cancel, dispatch, ended, lost, started};

// FEATURES: C1
#[test]
fn a_job_passes_its_states_one_after_the_other_each_with_its_time() {
    let life = Life::in_state(State::Blocked).then(Event::Due).is(State::Pending);
    let life = life.then(crate::fixture::verdict(model::verdict::Verdict::Allow)).is(State::Scheduled);
    let life = life.then(dispatch(4)).is(State::Dispatched).then(started(1)).is(State::Running);
    let life = life.then(ended(1, End::Succeeded)).is(State::Succeeded);
    let states: Vec<State> = life.job.states.iter().map(|entry| entry.state).collect();
    let all = [State::Blocked, State::Pending, State::Scheduled, State::Dispatched, State::Running, State::Succeeded];
    assert_eq!(states, all);
    assert!(life.job.states.is_sorted_by(|a, b| a.at < b.at));
    assert_eq!(life.job.result, Some(Json::of(&1)));
    assert_eq!(life.job.last_attempt().unwrap().runner, RunnerId(4));
    assert_eq!(life.job.reason, None);
}

// FEATURES: C3
#[test]
fn an_error_is_retried_later_and_later_until_the_limit() {
    let mut life = Life::with_retries(2).then(crate::fixture::verdict(model::verdict::Verdict::Allow));
    let mut delays = Vec::new();
    for attempt in 1..=2 {
        life = life.then(dispatch(1)).then(started(attempt)).then(ended(attempt, End::Error));
        life = life.is(State::Scheduled).because(ReasonCode::RetryLater);
        assert_eq!(life.used(), (attempt, 0));
        delays.push(life.job.eligible_at - life.now);
    }
    assert!(delays[0] >= BACKOFF.first && delays[1] >= Millis(2 * BACKOFF.first.0), "{delays:?}");
    let life = life.then(dispatch(1)).then(started(3)).then(ended(3, End::Error));
    life.is(State::Failed).because(ReasonCode::RetriesExhausted);
}

#[test]
fn no_retries_means_none() {
    let life = Life::with_retries(0).then(crate::fixture::verdict(model::verdict::Verdict::Allow));
    let life = life.then(dispatch(1)).then(started(1)).then(ended(1, End::Error)).is(State::Failed);
    life.ignores(Event::Reschedule, Ignored::BudgetExhausted);
}

#[test]
fn a_fatal_end_is_never_retried() {
    let life = Life::in_state(State::Running).then(ended(1, End::Fatal));
    let life = life.is(State::Failed).because(ReasonCode::Fatal);
    assert_eq!(life.used(), (0, 0));
}

#[test]
fn losing_its_runner_again_and_again_makes_the_job_the_suspect() {
    let mut life = Life::in_state(State::Running);
    for failures in 1..=limits::INFRASTRUCTURE_RETRIES_DEFAULT {
        let attempt = life.job.attempt.0;
        life = life.then(lost(attempt, Fault::Unknown)).because(ReasonCode::RunnerLost);
        assert_eq!(life.used(), (0, failures));
        life = life.runs_again(1);
    }
    let attempt = life.job.attempt.0;
    let life = life.then(ended(attempt, End::Infrastructure)).is(State::Failed);
    life.because(ReasonCode::InfrastructureExhausted);
}

#[test]
fn a_loss_that_cannot_be_the_jobs_doing_uses_no_budget() {
    let mut life = Life::in_state(State::Running);
    for _ in 0..20 {
        let attempt = life.job.attempt.0;
        life = life.then(lost(attempt, Fault::NotTheJobs)).runs_again(1);
    }
    assert_eq!(life.used(), (0, 0));
}

// FEATURES: C3
#[test]
fn an_adopted_attempt_goes_on_as_the_same_one() {
    for life in [Life::in_state(State::Dispatched), Life::in_state(State::Running), Life::in_state(State::Cancelling)] {
        let state = life.job.state;
        let (since, reason) = (life.job.since(), life.job.reason.clone());
        let life = life.then(adopted(1, 2)).is(state);
        assert_eq!((life.job.since(), &life.job.reason), (since, &reason), "its time-outs go on as before");
        assert_eq!(life.job.runner(), Some((RunnerId(1), Incarnation(2))));
        assert_eq!((life.job.attempt, life.used()), (Attempt(1), (0, 0)));
        let life = life.ignores(adopted(1, 2), Ignored::Duplicate).ignores(adopted(1, 1), Ignored::Duplicate);
        let ended = life.then(ended(1, End::Succeeded));
        assert_eq!(ended.job.result, Some(Json::of(&1)));
    }
    let retracting = Life::in_state(State::Running).then(Event::Retract).then(adopted(1, 3));
    assert!(retracting.job.retracting);
}

#[test]
fn what_no_runner_has_in_hand_cannot_be_adopted() {
    for state in State::ALL.into_iter().filter(|state| !state.is_on_runner()) {
        let why = if state.is_terminal() { Ignored::Terminal } else { Ignored::StaleAttempt };
        Life::in_state(state).ignores(adopted(1, 2), why);
    }
    Life::in_state(State::Running).ignores(adopted(2, 2), Ignored::StaleAttempt);
}

#[test]
fn an_end_brings_files_and_output_and_a_reschedule_forgets_the_files() {
    let log = LogRef { blob: BlobId::of(b"log"), bytes: 3 };
    let file = Artifact { path: "out".to_owned(), blob: BlobId::of(b"out"), bytes: 3, executable: true };
    let outcome = Outcome { log: Some(log), artifacts: vec![file.clone()], ..Outcome::of(End::Fatal) };
    let life = Life::in_state(State::Running).then(Event::Ended { attempt: Attempt(1), outcome: Box::new(outcome) });
    assert_eq!(
        (life.job.artifacts(), life.job.last_attempt().unwrap().log.as_deref().copied()),
        (&[file][..], Some(log))
    );
    let life = life.then(Event::Reschedule);
    assert_eq!((life.job.artifacts().len(), life.job.last_attempt().unwrap().log.as_deref().copied()), (0, Some(log)));
}

#[test]
fn a_record_stays_readable_whatever_a_runner_says() {
    let file = Artifact { path: "out".to_owned(), blob: BlobId::of(b"out"), bytes: 3, executable: true };
    let artifacts = vec![file; limits::ARTIFACTS_MAX + 5];
    let outcome = Box::new(Outcome { artifacts, ..Outcome::of(End::Succeeded) });
    let life = Life::in_state(State::Running).then(Event::Ended { attempt: Attempt(1), outcome });
    assert_eq!(life.job.artifacts().len(), limits::ARTIFACTS_MAX);
}

#[test]
fn a_retract_waits_for_the_confirmed_stop_and_uses_no_budget() {
    for end in [End::Stopped, End::Error, End::Infrastructure] {
        let life = Life::in_state(State::Running).then(Event::Retract).is(State::Running);
        let life = life.ignores(Event::Retract, Ignored::Duplicate).ignores(dispatch(2), Ignored::OutOfOrder);
        let life = life.then(ended(1, end)).is(State::Scheduled).because(ReasonCode::Retracted);
        assert_eq!(life.used(), (0, 0), "{end:?}");
        assert!(life.job.failed_on(RunnerId(1)), "another runner is tried first");
        assert!(!life.runs_again(2).job.retracting);
    }
}

#[test]
fn a_retracted_job_that_is_done_already_is_done() {
    let life = Life::in_state(State::Running).then(Event::Retract).then(ended(1, End::Succeeded));
    life.is(State::Succeeded);
}

#[test]
fn a_retracted_attempt_that_never_started_is_waited_for_too() {
    let life = Life::in_state(State::Dispatched).then(Event::Retract);
    let life = life.ignores(Event::DispatchTimedOut { attempt: Attempt(1) }, Ignored::OutOfOrder);
    let life = life.then(lost(1, Fault::Unknown)).is(State::Scheduled).because(ReasonCode::Retracted);
    assert_eq!(life.used(), (0, 0));
}

#[test]
fn there_is_nothing_to_take_back_where_no_runner_has_it() {
    for state in [State::Pending, State::Blocked, State::ApprovalRequired, State::Scheduled] {
        Life::in_state(state).ignores(Event::Retract, Ignored::Duplicate);
    }
    for state in [State::Cancelling, State::Scanning] {
        Life::in_state(state).ignores(Event::Retract, Ignored::OutOfOrder);
    }
}

#[test]
fn a_drained_node_gives_its_jobs_back_at_no_cost() {
    let life = Life::in_state(State::Running).then(ended(1, End::Stopped));
    let life = life.is(State::Scheduled).because(ReasonCode::NodeDrained);
    assert_eq!(life.used(), (0, 0));
    life.runs_again(2);
}

/// At no cost, but not at once: else shard and runner would throw the job at each other as fast as they can.
#[test]
fn a_busy_runner_costs_nothing_but_a_moment() {
    let life = Life::in_state(State::Dispatched).then(ended(1, End::Busy));
    let life = life.is(State::Scheduled).because(ReasonCode::RunnerBusy);
    assert_eq!(life.used(), (0, 0));
    assert!(life.job.eligible_at >= life.now + BACKOFF.first);
}

// FEATURES: C3
#[test]
fn a_cancel_ends_a_job_in_every_state() {
    for state in [State::Pending, State::Blocked, State::ApprovalRequired, State::Scheduled, State::Scanning] {
        let life = Life::in_state(state).then(cancel()).is(State::Cancelled).because(ReasonCode::CancelRequested);
        life.ignores(cancel(), Ignored::Duplicate).ignores(Event::Reschedule, Ignored::Terminal);
    }
    for state in [State::Dispatched, State::Running] {
        for end in [End::Stopped, End::Succeeded, End::Error, End::Fatal, End::Infrastructure, End::Busy] {
            let life = Life::in_state(state).then(Event::Cancel(ReasonCode::QueueCancelled)).is(State::Cancelling);
            let life = life.ignores(cancel(), Ignored::Duplicate);
            let life = life.then(ended(1, end)).is(State::Cancelled).because(ReasonCode::QueueCancelled);
            assert_eq!(life.used(), (0, 0));
        }
        Life::in_state(state).then(cancel()).then(lost(1, Fault::Unknown)).is(State::Cancelled);
        let overdue = Event::StopOverdue { attempt: Attempt(1) };
        Life::in_state(state).then(cancel()).then(overdue).is(State::Cancelled).because(ReasonCode::StopOverdue);
    }
    for state in [State::Succeeded, State::Failed, State::TimedOut, State::Denied, State::Quarantined, State::Abandoned]
    {
        Life::in_state(state).ignores(cancel(), Ignored::Terminal);
    }
}

// FEATURES: D4
#[test]
fn a_passed_deadline_ends_what_is_not_done() {
    let waiting = [State::Pending, State::Blocked, State::ApprovalRequired, State::Scheduled];
    for state in waiting.into_iter().chain([State::Dispatched, State::Running]) {
        let life = Life::in_state(state);
        let transition = model::machine::step(&life.job, &Event::DeadlinePassed).unwrap();
        assert_eq!(transition.stop, state.is_on_runner(), "{state}: a runner is told to stop");
        let life = life.then(Event::DeadlinePassed).because(ReasonCode::DeadlinePassed);
        // Who has it in hand must let go first, so that nothing runs beside a retry.
        let life = if state.is_on_runner() { life.is(State::Cancelling).then(ended(1, End::Stopped)) } else { life };
        life.is(State::TimedOut).because(ReasonCode::DeadlinePassed);
    }
    for state in [State::Cancelling, State::Scanning] {
        Life::in_state(state).ignores(Event::DeadlinePassed, Ignored::OutOfOrder);
    }
}

// FEATURES: D4
#[test]
fn an_attempt_that_runs_too_long_ends_the_job() {
    let overdue = || Event::AttemptTimedOut { attempt: Attempt(1) };
    let life = Life::in_state(State::Running).then(overdue()).is(State::Cancelling);
    let life = life.then(ended(1, End::Succeeded)).is(State::TimedOut);
    life.because(ReasonCode::AttemptTimedOut).ignores(ended(1, End::Succeeded), Ignored::Terminal);
    Life::in_state(State::Dispatched).ignores(overdue(), Ignored::OutOfOrder);
    let next = Life::in_state(State::Running).then(lost(1, Fault::NotTheJobs)).runs_again(1);
    next.ignores(overdue(), Ignored::StaleAttempt);
}

// FEATURES: D4
#[test]
fn an_attempt_that_never_starts_is_given_to_another_runner_a_few_times() {
    let mut life = Life::in_state(State::Scheduled);
    for failures in 1..=limits::INFRASTRUCTURE_RETRIES_DEFAULT {
        life = life.then(dispatch(1)).then(Event::DispatchTimedOut { attempt: Attempt(failures) });
        life = life.is(State::Scheduled).because(ReasonCode::DispatchTimedOut);
        assert_eq!(life.used(), (0, failures));
    }
    let last = Attempt(limits::INFRASTRUCTURE_RETRIES_DEFAULT + 1);
    let life = life.then(dispatch(1)).then(Event::DispatchTimedOut { attempt: last });
    life.is(State::TimedOut).because(ReasonCode::DispatchTimedOut);
}

// FEATURES: C3
#[test]
fn a_reschedule_is_one_of_the_retries_and_asks_the_policy_again() {
    for state in [State::Failed, State::TimedOut, State::Abandoned, State::Quarantined] {
        let life = Life::in_state(state).then(Event::Reschedule).is(State::Pending);
        assert_eq!((life.used(), life.job.result.as_ref()), ((1, 0), None), "from {state}");
        let mut life = Life::in_state(state);
        life.job.retries = life.job.max_retries;
        life.ignores(Event::Reschedule, Ignored::BudgetExhausted);
    }
    for state in [State::Succeeded, State::Cancelled, State::Denied] {
        Life::in_state(state).ignores(Event::Reschedule, Ignored::Terminal);
    }
    for state in State::ALL.into_iter().filter(|state| !state.is_terminal()) {
        Life::in_state(state).ignores(Event::Reschedule, Ignored::OutOfOrder);
    }
}

/// Its deadline passed before its time had come; asked for again, it still waits for its time.
#[test]
fn a_reschedule_does_not_start_a_job_before_its_time() {
    let life = Life::in_state(State::Blocked);
    let not_before = life.job.eligible_at;
    let life = life.then(Event::DeadlinePassed).then(Event::Reschedule).is(State::Pending);
    assert!(life.now < not_before);
    assert_eq!(life.job.eligible_at, not_before);
}

#[test]
fn an_abandoned_node_takes_its_jobs_with_it() {
    for state in State::ALL {
        let life = Life::in_state(state);
        match state.is_terminal() {
            true => life.ignores(Event::Abandon, Ignored::Terminal),
            false => life.then(Event::Abandon).is(State::Abandoned).because(ReasonCode::NodeAbandoned),
        };
    }
}

// FEATURES: B4, D16
#[test]
fn words_of_an_older_attempt_change_nothing() {
    let life = Life::in_state(State::Running).then(lost(1, Fault::Unknown));
    let life = life.ignores(ended(1, End::Succeeded), Ignored::StaleAttempt).runs_again(2);
    let life = life.ignores(started(1), Ignored::StaleAttempt).ignores(started(2), Ignored::Duplicate);
    let life = life.ignores(ended(1, End::Succeeded), Ignored::StaleAttempt);
    let life = life.then(ended(2, End::Succeeded)).is(State::Succeeded);
    assert_eq!(life.job.result, Some(Json::of(&2)));
    life.ignores(ended(2, End::Error), Ignored::Terminal).ignores(ended(1, End::Succeeded), Ignored::Terminal);
}

#[test]
fn an_end_without_a_start_is_believed() {
    Life::in_state(State::Dispatched).then(ended(1, End::Succeeded)).is(State::Succeeded);
}

#[test]
fn delays_double_up_to_the_longest_and_spread_by_a_quarter() {
    let backoff = Backoff { first: Millis(1_000), longest: Millis(8_000) };
    for (tries, base) in [(0, 1_000), (1, 2_000), (2, 4_000), (3, 8_000), (4, 8_000), (400, 8_000)] {
        assert_eq!(backoff.delay(tries, 0), Millis(base));
        for spread in [1, 77, u64::MAX] {
            let delay = backoff.delay(tries, spread).0;
            assert!((base..=base + base / 4).contains(&delay), "{tries} tries: {delay}");
        }
    }
}
