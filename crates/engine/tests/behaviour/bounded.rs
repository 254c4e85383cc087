//! Bounded steps: the consequences of large inputs are spread over many steps.

use std::sync::Arc;

use engine::{Answer, Input, PolicyMode, Settings};
use model::state::State;

use crate::support::{Fixture, POLICY, RUNNER, config_of, echo, keyed, room, submission};

const STEP_BYTES: usize = 4_000;
/// A step ends after the change that fills it.
const ONE_MORE: usize = 1_500;
const JOBS: usize = 200;

fn fixture() -> Fixture {
    let mut config = config_of(0, 1);
    config.step_bytes_max = STEP_BYTES;
    Fixture::with(config)
}

#[track_caller]
fn expect_small_steps(shard: &Fixture) {
    assert!(shard.largest_commit <= STEP_BYTES + ONE_MORE, "{} bytes in one commit", shard.largest_commit);
}

#[test]
fn a_runner_that_registers_without_its_attempts_loses_them_a_few_per_step() {
    let mut shard = fixture();
    let jobs = shard.submit_some(JOBS);
    shard.largest_commit = 0;
    shard.runner(RUNNER, room(1_000));
    shard.advance(500);
    expect_small_steps(&shard);
    assert!(jobs.iter().all(|job| shard.state(*job) == State::Dispatched));
    let commits = shard.commits;
    shard.runner(RUNNER, room(1_000));
    shard.advance(500);
    assert!(shard.commits > commits + 10, "they were lost in {} steps", shard.commits - commits);
    expect_small_steps(&shard);
    assert!(jobs.iter().all(|job| shard.records.job(*job).unwrap().attempt.0 == 2));
    shard.finish_all();
}

#[test]
fn a_crash_while_attempts_are_being_lost_loses_no_job() {
    let mut shard = fixture();
    let jobs = shard.submit_some(JOBS);
    shard.runner(RUNNER, room(1_000));
    shard.advance(500);
    shard.runner(RUNNER, room(1_000));
    shard.crash();
    shard.advance(60_000);
    shard.finish_all();
    assert!(jobs.iter().all(|job| shard.state(*job) == State::Succeeded));
}

#[test]
fn a_lost_runner_loses_its_attempts_a_few_per_step() {
    let mut shard = fixture();
    shard.runner(RUNNER, room(1_000));
    let jobs = shard.submit_some(JOBS);
    shard.advance(500);
    shard.largest_commit = 0;
    shard.lose(RUNNER, 1);
    let lost = |shard: &Fixture| jobs.iter().filter(|job| shard.state(**job) == State::Scheduled).count();
    assert!(lost(&shard) < JOBS / 2, "all of them were lost in one step");
    shard.advance(500);
    assert_eq!(lost(&shard), JOBS);
    expect_small_steps(&shard);
}

#[test]
fn attempts_missing_from_an_inventory_are_lost_a_few_per_step() {
    let mut shard = fixture();
    shard.runner(RUNNER, room(1_000));
    let jobs = shard.submit_some(JOBS);
    shard.advance(500);
    shard.messages(RUNNER, |runner| runner.in_flight.clear());
    shard.largest_commit = 0;
    // A gap makes the shard request an inventory.
    let _lost = shard.messages(RUNNER, |runner| runner.register(0));
    let after_gap = shard.messages(RUNNER, |runner| runner.register(0));
    let commits = shard.commits;
    shard.deliver(after_gap);
    shard.advance(500);
    assert!(shard.commits > commits + 10, "they were lost in {} steps", shard.commits - commits);
    assert!(jobs.iter().all(|job| shard.records.job(*job).unwrap().attempt.0 == 2));
    expect_small_steps(&shard);
}

#[test]
fn many_key_lookups_answered_together_are_accepted_a_few_per_step() {
    let mut shard = fixture();
    let request = shard.next_request();
    let specs: Vec<_> = (0..JOBS).map(|number| keyed(&format!("key {number}"))).collect();
    shard.input(Input::Submit { request, jobs: specs.iter().map(submission).collect() });
    assert!(shard.answer(request).is_none(), "all of them were accepted in one step");
    shard.advance(500);
    expect_small_steps(&shard);
    let Some(Answer::Submitted(results)) = shard.answer(request) else { panic!("no answer") };
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), JOBS);
    shard.submit(&echo());
}

/// A policy that was removed while the server was down allows all pending jobs at once.
#[test]
fn pending_jobs_are_allowed_a_few_per_step_after_a_restart_without_a_policy() {
    let mut config = config_of(0, 1);
    config.step_bytes_max = STEP_BYTES;
    let policy = PolicyMode::Enforced(POLICY);
    let mut shard = Fixture::governed(config, Settings { policy, ..Settings::default() });
    let jobs = shard.submit_some(JOBS);
    assert!(jobs.iter().all(|job| shard.state(*job) == State::Pending));
    shard.largest_commit = 0;
    shard.settings = Arc::default();
    shard.crash();
    expect_small_steps(&shard);
    assert!(jobs.iter().all(|job| shard.state(*job) == State::Scheduled));
}
