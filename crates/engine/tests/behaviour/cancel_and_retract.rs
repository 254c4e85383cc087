//! Cancelling and retracting jobs.

use engine::{Answer, Input, Refusal};
use model::id::RunnerId;
use model::job::End;
use model::reason::ReasonCode;
use model::state::State;

use crate::support::{Fixture, RUNNER, SECOND, echo, job, process, room};

// FEATURES: C3
#[test]
fn a_waiting_job_is_cancelled_immediately() {
    let mut shard = Fixture::new();
    let id = shard.submit(&echo());
    assert_eq!(shard.cancel(id), State::Cancelled);
    assert_eq!(shard.cancel(id), State::Cancelled, "cancelling is idempotent");
    shard.runner(RUNNER, room(1));
    assert_eq!(shard.runs, []);
}

// FEATURES: C3
#[test]
fn a_running_job_is_cancelled_when_its_runner_confirms() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    let attempt_ref = shard.current(id);
    shard.start(attempt_ref);
    assert_eq!(shard.cancel(id), State::Cancelling);
    assert_eq!(shard.cancel(id), State::Cancelling);
    assert_eq!(shard.stops, [attempt_ref], "one stop message");
    shard.end(attempt_ref, End::Error);
    assert_eq!((shard.state(id), shard.reason(id)), (State::Cancelled, Some(ReasonCode::CancelRequested)));
    shard.advance(60_000);
    assert_eq!(shard.runs.len(), 1, "never retried");
}

#[test]
fn a_job_that_ended_otherwise_cannot_be_cancelled() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.run_attempt(id, End::Succeeded);
    let answer = shard.request(|request| Input::Cancel { request, job: id, by: None });
    assert!(matches!(answer, Answer::Refused(Refusal::WrongState { state: State::Succeeded, .. })));
}

// FEATURES: D4
#[test]
fn a_runner_that_never_confirms_a_stop_does_not_hold_up_the_cancel() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    let attempt_ref = shard.current(id);
    shard.start(attempt_ref);
    shard.cancel(id);
    shard.advance(shard.config.stop_timeout.0 - 1);
    assert_eq!(shard.state(id), State::Cancelling);
    shard.advance(1);
    assert_eq!((shard.state(id), shard.reason(id)), (State::Cancelled, Some(ReasonCode::StopOverdue)));
    let next = shard.submit(&echo());
    assert_eq!(shard.state(next), State::Scheduled, "the slot is taken until the runner confirms the stop");
    shard.end(attempt_ref, End::Stopped);
    assert_eq!(shard.state(next), State::Dispatched);
}

#[test]
fn a_cancelled_job_of_a_lost_runner_is_cancelled() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&process());
    shard.start(shard.current(id));
    shard.cancel(id);
    shard.lose(RUNNER, 1);
    assert_eq!(shard.state(id), State::Cancelled);
}

// FEATURES: C3
#[test]
fn a_retracted_job_moves_to_another_runner_once_the_first_has_stopped_it() {
    let (first, second) = (RunnerId(1), RunnerId(2));
    let mut shard = Fixture::new();
    shard.runner(first, room(2));
    let id = shard.submit(&process());
    shard.runner(second, room(1));
    let attempt_ref = shard.current(id);
    shard.start(attempt_ref);
    assert_eq!(shard.retract(id), State::Running);
    assert_eq!(shard.retract(id), State::Running, "idempotent");
    assert_eq!((shard.stops.as_slice(), shard.runs.len()), (&[attempt_ref][..], 1));
    shard.end(attempt_ref, End::Stopped);
    let record = shard.job(id);
    assert_eq!((record.state, record.attempt.0), (State::Dispatched, 2));
    assert_eq!(record.runner().unwrap().0, second);
    assert_eq!((record.retries, record.infrastructure_failures), (0, 0));
}

#[test]
fn a_waiting_job_cannot_be_retracted() {
    let mut shard = Fixture::new();
    let id = shard.submit(&echo());
    assert_eq!(shard.retract(id), State::Scheduled);
    let done = shard.submit(&echo());
    shard.cancel(done);
    let answer = shard.request(|request| Input::Retract { request, job: done, by: None });
    assert!(matches!(answer, Answer::Refused(Refusal::WrongState { .. })));
}

#[test]
fn the_messages_of_a_retracted_attempt_that_were_lost_are_retransmitted() {
    let mut shard = Fixture::with_runner(1);
    shard.drop_runner_messages = true;
    let id = shard.submit(&echo());
    assert_eq!(shard.retract(id), State::Dispatched);
    shard.drop_runner_messages = false;
    shard.advance(SECOND);
    shard.end(shard.current(id), End::Stopped);
    let record = shard.job(id);
    assert_eq!((record.state, record.attempt.0), (State::Dispatched, 2));
    assert_eq!((record.retries, record.infrastructure_failures), (0, 0));
    assert_eq!(shard.stops.len(), 1);
}

/// A retracted job waits for its runner without a limit, so the stop message is repeated until it arrives.
#[test]
fn the_stop_message_of_a_retraction_is_retransmitted() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&process());
    let current = shard.current(id);
    shard.start(current);
    shard.drop_runner_messages = true;
    shard.retract(id);
    shard.advance(3 * shard.config.stop_timeout.0);
    assert_eq!((shard.stops.as_slice(), shard.shard.stats().retransmitted), (&[current][..], 9));
    shard.crash();
    shard.drop_runner_messages = false;
    shard.advance(shard.config.stop_timeout.0);
    assert_eq!(shard.stops, [current; 2], "the inventory lists the attempt, and the next owner stops it");
    shard.end(current, End::Stopped);
    assert_eq!((shard.state(id), shard.job(id).attempt.0), (State::Dispatched, 2));
    shard.stops.clear();
    shard.advance(shard.config.stop_timeout.0);
    assert!(!shard.stops.contains(&current));
}

/// The stop message was lost; the inventory reveals that.
#[test]
fn a_lost_stop_message_is_repeated_when_the_inventory_shows_the_attempt() {
    let mut shard = Fixture::with_runner(2);
    let (cancelled, retracted) = (shard.submit(&echo()), shard.submit(&echo()));
    let attempt_refs = [shard.current(cancelled), shard.current(retracted)];
    for attempt_ref in attempt_refs {
        shard.start(attempt_ref);
    }
    shard.drop_runner_messages = true;
    shard.cancel(cancelled);
    shard.retract(retracted);
    shard.drop_runner_messages = false;
    shard.stops.clear();
    shard.resize(RUNNER, room(2));
    assert_eq!(shard.stops, attempt_refs);
}

#[test]
fn a_job_that_ends_by_itself_while_being_retracted_has_ended() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&job(|spec| spec.max_retries = Some(0)));
    let attempt_ref = shard.current(id);
    shard.start(attempt_ref);
    shard.retract(id);
    shard.end(attempt_ref, End::Succeeded);
    assert_eq!(shard.state(id), State::Succeeded);
}
