//! Runners that are gone are forgotten, in memory and on record.

use model::batch::Keyspace;
use model::id::RunnerId;
use model::job::End;
use model::state::State;

use crate::support::{Fixture, RUNNER, SECOND, config_of, echo, process, room};

fn with_expiry(seconds: u64) -> Fixture {
    let mut config = config_of(0, 1);
    config.runner_expiry = model::time::Millis(seconds * SECOND);
    Fixture::with(config)
}

#[test]
fn lost_runners_are_forgotten_and_their_places_used_again() {
    let mut shard = with_expiry(60);
    for round in 0..3 {
        for number in 1..=5 {
            shard.runner(RunnerId(100 * round + number), room(1));
        }
        for number in 1..=5 {
            shard.lose(RunnerId(100 * round + number), 1);
        }
        shard.advance(50 * SECOND);
        assert_eq!(shard.records.len(Keyspace::Runners), 5, "round {round}");
        shard.advance(20 * SECOND);
        assert_eq!(shard.records.len(Keyspace::Runners), 0, "round {round}");
    }
    shard.runner(RUNNER, room(1));
    let job = shard.submit(&echo());
    shard.run_attempt(job, End::Succeeded);
    assert_eq!(shard.state(job), State::Succeeded);
}

#[test]
fn a_forgotten_runner_may_come_back() {
    let mut shard = with_expiry(60);
    shard.runner(RUNNER, room(1));
    shard.lose(RUNNER, 1);
    shard.advance(100 * SECOND);
    assert_eq!(shard.records.len(Keyspace::Runners), 0);
    shard.restart(RUNNER, room(1), &[]);
    let job = shard.submit(&echo());
    shard.run_attempt(job, End::Succeeded);
    assert_eq!(shard.state(job), State::Succeeded);
    assert_eq!(shard.records.len(Keyspace::Runners), 1);
}

#[test]
fn a_silent_runner_with_an_attempt_is_waited_for() {
    let mut shard = with_expiry(60);
    shard.runner(RUNNER, room(1));
    let job = shard.submit(&process());
    shard.advance(SECOND);
    let attempt_ref = shard.current(job);
    shard.start(attempt_ref);
    shard.drop_runner_messages = true;
    shard.crash();
    shard.advance(100 * SECOND);
    assert_eq!((shard.state(job), shard.records.len(Keyspace::Runners)), (State::Running, 1));
    shard.drop_runner_messages = false;
    shard.advance(10 * SECOND);
    shard.end(attempt_ref, End::Succeeded);
    assert_eq!((shard.state(job), shard.job(job).attempt.0), (State::Succeeded, 1));
}

/// The time until a runner is forgotten may be shorter than the time for it to register with the next owner of the shard.
#[test]
fn a_silent_runner_is_lost_after_the_grace_period_although_it_expires_sooner() {
    let mut shard = with_expiry(60);
    shard.runner(RUNNER, room(1));
    let job = shard.submit(&process());
    shard.advance(SECOND);
    let attempt_ref = shard.current(job);
    shard.start(attempt_ref);
    shard.runners.remove(&RUNNER);
    shard.crash();
    let grace = shard.config.runner_grace.0;
    shard.advance(grace + 10 * SECOND);
    assert_eq!(shard.state(job), State::Scheduled);
    shard.advance(70 * SECOND);
    assert_eq!(shard.records.len(Keyspace::Runners), 0, "then it is forgotten");
}
