//! Stopping jobs for good, and taking them back from their runner.

use engine::{Answer, Input, Refusal};
use model::id::RunnerId;
use model::job::End;
use model::reason::ReasonCode;
use model::state::State;

use crate::common::{Fixture, RUNNER, echo, job, process, room};

// FEATURES: C3
#[test]
fn a_waiting_job_is_cancelled_at_once() {
    let mut shard = Fixture::new();
    let id = shard.submit(&echo());
    assert_eq!(shard.cancel(id), State::Cancelled);
    assert_eq!(shard.cancel(id), State::Cancelled, "asking again is no mistake");
    shard.runner(RUNNER, room(1));
    assert_eq!(shard.runs, []);
}

// FEATURES: C3
#[test]
fn a_running_job_is_cancelled_when_its_runner_says_so() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    let ticket = shard.current(id);
    shard.start(ticket);
    assert_eq!(shard.cancel(id), State::Cancelling);
    assert_eq!(shard.cancel(id), State::Cancelling);
    assert_eq!(shard.stops, [ticket], "told once");
    shard.end(ticket, End::Error);
    assert_eq!((shard.state(id), shard.reason(id)), (State::Cancelled, Some(ReasonCode::CancelRequested)));
    shard.pass(60_000);
    assert_eq!(shard.runs.len(), 1, "never retried");
}

#[test]
fn what_has_ended_otherwise_cannot_be_cancelled() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.play(id, End::Succeeded);
    let answer = shard.ask(|request| Input::Cancel { request, job: id, by: None });
    assert!(matches!(answer, Answer::Refused(Refusal::WrongState { state: State::Succeeded, .. })));
}

// FEATURES: D4
#[test]
fn a_runner_that_never_confirms_a_stop_does_not_hold_up_the_cancel() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    let ticket = shard.current(id);
    shard.start(ticket);
    shard.cancel(id);
    shard.pass(shard.config.stop_timeout.0 - 1);
    assert_eq!(shard.state(id), State::Cancelling);
    shard.pass(1);
    assert_eq!((shard.state(id), shard.reason(id)), (State::Cancelled, Some(ReasonCode::StopOverdue)));
    let next = shard.submit(&echo());
    assert_eq!(shard.state(next), State::Scheduled, "its slot is taken until it says that it has stopped");
    shard.end(ticket, End::Stopped);
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
fn a_retracted_job_moves_to_another_runner_once_the_first_has_let_go() {
    let (first, second) = (RunnerId(1), RunnerId(2));
    let mut shard = Fixture::new();
    shard.runner(first, room(2));
    let id = shard.submit(&process());
    shard.runner(second, room(1));
    let ticket = shard.current(id);
    shard.start(ticket);
    assert_eq!(shard.retract(id), State::Running);
    assert_eq!(shard.retract(id), State::Running, "idempotent");
    assert_eq!((shard.stops.as_slice(), shard.runs.len()), (&[ticket][..], 1));
    shard.end(ticket, End::Stopped);
    let record = shard.job(id);
    assert_eq!((record.state, record.attempt.0), (State::Dispatched, 2));
    assert_eq!(record.runner().unwrap().0, second);
    assert_eq!((record.retries, record.infrastructure_failures), (0, 0));
}

#[test]
fn there_is_nothing_to_retract_from_a_waiting_job() {
    let mut shard = Fixture::new();
    let id = shard.submit(&echo());
    assert_eq!(shard.retract(id), State::Scheduled);
    let done = shard.submit(&echo());
    shard.cancel(done);
    let answer = shard.ask(|request| Input::Retract { request, job: done, by: None });
    assert!(matches!(answer, Answer::Refused(Refusal::WrongState { .. })));
}

/// Both the order to run and the order to stop are lost on the way: nobody would ever speak of it again.
#[test]
fn a_retracted_attempt_that_its_runner_never_saw_is_asked_about_again() {
    let mut shard = Fixture::with_runner(1);
    shard.deaf_runners = true;
    let id = shard.submit(&echo());
    assert_eq!(shard.retract(id), State::Dispatched);
    shard.deaf_runners = false;
    shard.pass(shard.config.dispatch_timeout.0 + 1);
    let record = shard.job(id);
    assert_eq!((record.state, record.attempt.0), (State::Dispatched, 2));
    assert_eq!((record.retries, record.infrastructure_failures), (0, 0));
    assert_eq!(shard.stops.len(), 2);
}

/// A retracted job waits for its runner to let go of it, however long that takes: so it is asked more than once.
#[test]
fn the_order_to_give_back_a_running_job_is_repeated() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&process());
    let current = shard.current(id);
    shard.start(current);
    shard.deaf_runners = true;
    shard.retract(id);
    shard.pass(3 * shard.config.stop_timeout.0);
    assert_eq!(shard.stops, [current; 4]);
    shard.crash();
    shard.stops.clear();
    shard.deaf_runners = false;
    shard.pass(shard.config.stop_timeout.0);
    assert!(shard.stops.contains(&current));
    shard.end(current, End::Stopped);
    assert_eq!((shard.state(id), shard.job(id).attempt.0), (State::Dispatched, 2));
    shard.stops.clear();
    shard.pass(shard.config.stop_timeout.0);
    assert!(!shard.stops.contains(&current));
}

/// The order to stop was lost; what the runner says it has in hand shows it.
#[test]
fn a_lost_stop_is_said_again_when_the_runner_says_what_it_has() {
    let mut shard = Fixture::with_runner(2);
    let (cancelled, retracted) = (shard.submit(&echo()), shard.submit(&echo()));
    let tickets = [shard.current(cancelled), shard.current(retracted)];
    for ticket in tickets {
        shard.start(ticket);
    }
    shard.deaf_runners = true;
    shard.cancel(cancelled);
    shard.retract(retracted);
    shard.deaf_runners = false;
    shard.stops.clear();
    shard.resize(RUNNER, room(2));
    assert_eq!(shard.stops, tickets);
}

#[test]
fn a_job_ending_on_its_own_while_it_is_retracted_has_ended() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&job(|spec| spec.max_retries = Some(0)));
    let ticket = shard.current(id);
    shard.start(ticket);
    shard.retract(id);
    shard.end(ticket, End::Succeeded);
    assert_eq!(shard.state(id), State::Succeeded);
}
