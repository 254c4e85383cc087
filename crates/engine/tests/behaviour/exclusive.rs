//! Exclusive jobs: no second attempt starts while the first may still run.

use std::sync::Arc;

use engine::{Answer, Input, RunnerVerdict, WaitsFor, Why};
use model::id::{Epoch, Incarnation, JobId, RunnerId};
use model::job::End;
use model::message::{Profile, RunnerHeader, Session};
use model::reason::ReasonCode;
use model::spec::JobSpec;
use model::state::State;
use model::time::Millis;

use crate::support::{Fixture, job, process, room};

const FIRST: RunnerId = RunnerId(1);
const SECOND: RunnerId = RunnerId(2);

/// Lease of 15 s, a tenth of it for drifting clocks, 5 s to kill the attempt.
const WAIT: u64 = 21_500;

fn exclusive() -> JobSpec {
    JobSpec { exclusive: true, ..process() }
}

/// Two runners; an exclusive job runs on the first one.
fn running() -> (Fixture, JobId) {
    let mut shard = Fixture::new();
    shard.runner(FIRST, room(2));
    let id = shard.submit(&exclusive());
    shard.start(shard.current(id));
    shard.runner(SECOND, room(2));
    hear(&mut shard, FIRST);
    assert_eq!(shard.job(id).last_attempt().and_then(|last| last.lease()), Some(Millis(15_000)));
    (shard, id)
}

/// A heartbeat of a runner.
fn hear(shard: &mut Fixture, runner: RunnerId) {
    let incarnation = shard.runners[&runner].incarnation;
    let session = Session { epoch: Epoch(0), number: 0 };
    shard.input(Input::RunnerHeader(RunnerHeader { runner, incarnation, session, received: 0, at: shard.now }));
}

fn why(shard: &mut Fixture, job: JobId) -> Why {
    match shard.request(|request| Input::Explain { request, job }) {
        Answer::Why(why) => *why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_next_attempt_waits_until_the_lease_of_a_lost_one_has_run_out() {
    let (mut shard, id) = running();
    shard.advance(1_000);
    shard.lose(FIRST, 1);
    assert_eq!((shard.state(id), shard.reason(id)), (State::Scheduled, Some(ReasonCode::RunnerLost)));
    let message = shard.job(id).reason.unwrap().message.unwrap();
    assert!(message.contains("exclusive") && message.contains("15000 ms"), "{message}");
    let WaitsFor::Lease { runner, until } = why(&mut shard, id).waits_for else { panic!("it waits for the lease") };
    assert_eq!((runner, until), (FIRST, shard.now + Millis(WAIT - 1_000)), "it counts from the last heartbeat");
    shard.advance(WAIT - 1_001);
    assert_eq!(shard.state(id), State::Scheduled);
    shard.advance(1);
    assert_eq!(shard.job(id).runner().map(|(runner, _)| runner), Some(SECOND));
}

#[test]
fn the_confirmed_end_of_a_lost_attempt_ends_the_wait() {
    let (mut shard, id) = running();
    shard.lose(FIRST, 1);
    shard.end(model::message::AttemptRef { job: id, attempt: model::id::Attempt(1) }, End::LeaseExpired);
    assert_eq!(shard.job(id).runner().map(|(runner, _)| runner), Some(SECOND));
}

#[test]
fn a_restarted_runner_without_the_attempt_ends_the_wait() {
    let (mut shard, id) = running();
    shard.lose(FIRST, 1);
    shard.restart(FIRST, room(2), &[]);
    assert_eq!(shard.state(id), State::Dispatched);
}

#[test]
fn an_attempt_that_its_restarted_runner_does_not_have_is_not_waited_for() {
    let (mut shard, id) = running();
    shard.restart(FIRST, room(2), &[]);
    assert_eq!((shard.state(id), shard.job(id).attempt.0), (State::Dispatched, 2));
}

#[test]
fn a_new_owner_assumes_that_the_lease_was_renewed_until_it_began() {
    let (mut shard, id) = running();
    shard.lose(FIRST, 1);
    shard.advance(20_000);
    shard.runners.remove(&FIRST);
    shard.crash();
    shard.advance(WAIT - 1);
    assert_eq!(shard.state(id), State::Scheduled);
    shard.advance(1);
    assert_eq!(shard.state(id), State::Dispatched);
}

#[test]
fn a_runner_that_is_heard_again_may_have_renewed_the_attempt() {
    let (mut shard, id) = running();
    shard.lose(FIRST, 1);
    shard.advance(20_000);
    // It answers nothing but heartbeats.
    shard.runners.get_mut(&FIRST).unwrap().incarnation = Incarnation(1);
    let silent = shard.runners.remove(&FIRST).unwrap();
    let session = Session { epoch: Epoch(0), number: 0 };
    let (incarnation, at) = (silent.incarnation, shard.now);
    shard.input(Input::RunnerHeader(RunnerHeader { runner: FIRST, incarnation, session, received: 0, at }));
    shard.advance(WAIT - 1);
    assert_eq!(shard.state(id), State::Scheduled);
    shard.advance(1);
    assert_eq!(shard.state(id), State::Dispatched);
}

#[test]
fn leases_are_renewed_with_each_heartbeat_of_a_runner_with_exclusive_attempts() {
    let (mut shard, id) = running();
    let before = shard.runners[&FIRST].renewals;
    for _ in 0..3 {
        shard.advance(1_000);
        hear(&mut shard, FIRST);
        hear(&mut shard, SECOND);
    }
    assert_eq!(shard.runners[&FIRST].renewals, before + 3);
    assert_eq!(shard.runners[&SECOND].renewals, 0, "it has none");
    shard.end(shard.current(id), End::Succeeded);
    shard.advance(1_000);
    hear(&mut shard, FIRST);
    assert_eq!(shard.runners[&FIRST].renewals, before + 3);
}

#[test]
fn a_lost_runner_gets_no_renewal() {
    let (mut shard, _) = running();
    let before = shard.runners[&FIRST].renewals;
    let register = shard.messages(FIRST, |runner| runner.register(0));
    shard.advance(1_000);
    shard.lose(FIRST, 1);
    shard.deliver(register);
    assert_eq!(shard.runners[&FIRST].renewals, before);
}

#[test]
fn a_job_that_was_stopped_without_confirmation_is_not_retried_beside_its_old_attempt() {
    let mut shard = Fixture::new();
    shard.runner(FIRST, room(1));
    let spec = JobSpec { timeout_ms: Some(1_000), max_retries: Some(3), ..exclusive() };
    let id = shard.submit(&spec);
    shard.start(shard.current(id));
    shard.runner(SECOND, room(1));
    shard.advance(1_000);
    assert_eq!(shard.state(id), State::Cancelling);
    shard.advance(59_000);
    hear(&mut shard, FIRST);
    shard.advance(1_000);
    assert_eq!(shard.state(id), State::TimedOut, "the runner has not confirmed the stop");
    assert_eq!(shard.retry(id), Ok(State::Scheduled));
    shard.advance(WAIT - 1_001);
    assert_eq!(shard.state(id), State::Scheduled);
    shard.end(model::message::AttemptRef { job: id, attempt: model::id::Attempt(1) }, End::Stopped);
    assert_eq!(shard.state(id), State::Dispatched);
}

#[test]
fn an_expired_lease_uses_the_infrastructure_budget_of_processes() {
    let (mut shard, id) = running();
    shard.end(shard.current(id), End::LeaseExpired);
    let record = shard.job(id);
    assert_eq!((record.infrastructure_failures, record.attempt.0), (1, 2), "the end is known: no wait");
    assert_eq!(record.attempts[0].end, Some(End::LeaseExpired));
}

#[test]
fn a_runner_that_keeps_no_leases_gets_no_exclusive_jobs() {
    let mut shard = Fixture::new();
    shard.runner(FIRST, room(0));
    // Neither its configuration nor that of its pool makes it keep leases.
    let capabilities = ["exclusive".to_owned()].into();
    let older = Arc::new(Profile { capabilities, ..Profile::default() });
    shard.messages(FIRST, |runner| runner.profile = older);
    shard.resize(FIRST, room(1));
    let (ordinary, id) = (shard.submit(&job(|_| {})), shard.submit(&exclusive()));
    assert_eq!((shard.state(ordinary), shard.state(id)), (State::Dispatched, State::Scheduled));
    let why = why(&mut shard, id);
    assert_eq!(why.runners[0].verdict, RunnerVerdict::LackCapability { missing: vec!["exclusive".to_owned()] });
}
