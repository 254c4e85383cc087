//! Retries: automatic, by an operator, on another runner.

use engine::Refusal;
use model::id::RunnerId;
use model::job::End;
use model::limits;
use model::reason::ReasonCode;
use model::state::State;
use model::time::Millis;

use crate::support::{Fixture, RUNNER, config_of, echo, job, process, room};

// FEATURES: C3
#[test]
fn errors_are_retried_after_a_growing_wait_until_the_limit() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&job(|spec| spec.max_retries = Some(2)));
    let mut waits = Vec::new();
    for retries in 1..=2 {
        shard.run_attempt(id, End::Error);
        let record = shard.job(id);
        assert_eq!((record.state, record.retries), (State::Scheduled, retries));
        let wait = record.eligible_at - shard.now;
        waits.push(wait);
        shard.advance(wait.0 - 1);
        assert_eq!(shard.state(id), State::Scheduled, "not before its time");
        shard.advance(1);
        assert_eq!(shard.state(id), State::Dispatched, "at its time");
    }
    assert!(waits[1] >= Millis(2 * shard.config.retry_backoff.first.0), "{waits:?}");
    shard.run_attempt(id, End::Error);
    assert_eq!((shard.state(id), shard.reason(id)), (State::Failed, Some(ReasonCode::RetriesExhausted)));
    assert_eq!(shard.job(id).attempts.len(), 3);
}

// FEATURES: C3
#[test]
fn a_retry_by_an_operator_uses_the_same_retry_budget() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut shard = Fixture::with(config_of(number, shards));
        shard.runner(RUNNER, room(1));
        let id = shard.submit(&job(|spec| spec.max_retries = Some(1)));
        assert!(matches!(shard.retry(id), Err(Refusal::WrongState { state: State::Dispatched, .. })));
        shard.run_attempt(id, End::Fatal);
        assert_eq!(shard.retry(id), Ok(State::Dispatched));
        assert_eq!(shard.job(id).retries, 1);
        shard.run_attempt(id, End::Error);
        assert_eq!(shard.state(id), State::Failed, "the operator's retry used the budget");
        assert_eq!(shard.retry(id), Err(Refusal::RetriesUsedUp { max: 1 }));
        assert_eq!(shard.state(id), State::Failed);
    }
}

// FEATURES: C3
#[test]
fn cancelled_and_succeeded_jobs_are_never_retried() {
    let mut shard = Fixture::with_runner(1);
    let cancelled = shard.submit(&echo());
    shard.cancel(cancelled);
    shard.end(shard.current(cancelled), End::Stopped);
    assert!(matches!(shard.retry(cancelled), Err(Refusal::WrongState { state: State::Cancelled, .. })));
    let succeeded = shard.submit(&echo());
    shard.run_attempt(succeeded, End::Succeeded);
    assert!(matches!(shard.retry(succeeded), Err(Refusal::WrongState { state: State::Succeeded, .. })));
}

#[test]
fn a_retry_avoids_the_runner_that_failed_it_while_there_is_another() {
    let (first, second) = (RunnerId(1), RunnerId(2));
    let mut shard = Fixture::new();
    shard.runner(first, room(5));
    let id = shard.submit(&echo());
    shard.runner(second, room(1));
    shard.run_attempt(id, End::Error);
    shard.advance(2_000);
    assert_eq!(shard.job(id).runner().unwrap().0, second, "although the first has more room");
    shard.run_attempt(id, End::Error);
    shard.advance(3_000);
    let third = shard.job(id).runner().unwrap().0;
    assert_eq!(third, first, "both have failed it: either is allowed");
}

#[test]
fn a_retry_goes_back_to_the_only_runner_there_is() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.run_attempt(id, End::Error);
    shard.advance(2_000);
    assert_eq!(shard.state(id), State::Dispatched);
}

#[test]
fn lost_runners_use_the_retry_budget_of_processes_not_of_echo_jobs() {
    let mut shard = Fixture::with_runner(2);
    let (echo, process) = (shard.submit(&echo()), shard.submit(&process()));
    for lost in 1..=limits::INFRASTRUCTURE_RETRIES_DEFAULT {
        for id in [echo, process] {
            shard.start(shard.current(id));
        }
        shard.runner(RUNNER, room(2));
        assert_eq!(shard.job(echo).infrastructure_failures, 0);
        assert_eq!(shard.job(process).infrastructure_failures, lost);
        shard.advance(40_000);
    }
    shard.start(shard.current(process));
    shard.runner(RUNNER, room(2));
    assert_eq!(shard.reason(process), Some(ReasonCode::InfrastructureExhausted));
    assert_eq!(shard.state(echo), State::Dispatched);
}

#[test]
fn a_busy_runner_gets_the_attempt_again_after_a_short_delay() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.end(shard.current(id), End::Busy);
    assert_eq!((shard.state(id), shard.runs.len()), (State::Scheduled, 1));
    shard.advance(2_000);
    assert_eq!((shard.state(id), shard.runs.len()), (State::Dispatched, 2));
    assert_eq!((shard.job(id).retries, shard.job(id).infrastructure_failures), (0, 0));
}

/// A refused retry must not restore its expired queue.
#[test]
fn a_refused_retry_leaves_everything_as_it_was() {
    let mut shard = Fixture::with_runner(1);
    let queue = shard.create_queue(|new| new.max_retries = 0);
    let id = shard.submit(&job(|spec| spec.queue = Some(model::queue::QueueRef::Id(queue.id))));
    shard.run_attempt(id, End::Error);
    shard.advance(shard.config.queue_idle_expiry.0 + 1);
    assert!(shard.shard.queue(queue.id).is_none());
    assert_eq!(shard.retry(id), Err(Refusal::RetriesUsedUp { max: 0 }));
    assert!(shard.shard.queue(queue.id).is_none());
}

/// The first retry restores the expired queue for all of them. It accepts no new jobs.
#[test]
fn jobs_of_an_expired_queue_can_be_retried() {
    let mut shard = Fixture::with_runner(3);
    let queue = shard.create_queue(|_| {});
    let spec = job(|spec| spec.queue = Some(model::queue::QueueRef::Id(queue.id)));
    let ids = [shard.submit(&spec), shard.submit(&spec), shard.submit(&spec)];
    for id in ids {
        shard.run_attempt(id, End::Fatal);
    }
    shard.exact_counters = false;
    shard.advance(shard.config.queue_idle_expiry.0 + 1);
    assert_eq!(shard.retry(ids[0]), Ok(State::Dispatched));
    shard.run_attempt(ids[0], End::Fatal);
    assert_eq!(shard.retry(ids[1]), Ok(State::Dispatched));
    let counters = shard.queue(queue.id).counters;
    assert_eq!((counters.active, counters.failed), (1, 1), "only restored jobs are counted");
    assert!(matches!(shard.try_submit(&[spec])[0], Err(Refusal::QueueClosed(_))));
    shard.crash();
    shard.finish_all();
    assert_eq!(shard.state(ids[1]), State::Succeeded);
    shard.advance(shard.config.queue_idle_expiry.0 + 1);
    assert!(shard.records.queue(queue.id).is_none(), "the queue expires again");
}
