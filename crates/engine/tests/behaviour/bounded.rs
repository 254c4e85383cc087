//! No step gets giant: what follows from much at once is worked off in many.

use engine::{Answer, Input};
use model::state::State;

use crate::common::{Fixture, RUNNER, config_of, echo, keyed, room, submission};

const STEP_BYTES: usize = 4_000;
/// A step stops after the one that fills it.
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
fn a_runner_that_comes_back_empty_handed_loses_its_jobs_a_few_at_a_time() {
    let mut shard = fixture();
    let jobs = shard.submit_some(JOBS);
    shard.largest_commit = 0;
    shard.runner(RUNNER, room(1_000));
    shard.pass(500);
    expect_small_steps(&shard);
    assert!(jobs.iter().all(|job| shard.state(*job) == State::Dispatched));
    shard.runner(RUNNER, room(1_000));
    let still_lost = jobs.iter().filter(|job| shard.records.job(**job).unwrap().attempt.0 == 1).count();
    assert!(still_lost > 0, "all of them were lost in one step");
    shard.pass(500);
    expect_small_steps(&shard);
    assert!(jobs.iter().all(|job| shard.records.job(*job).unwrap().attempt.0 == 2));
    shard.finish_all();
}

#[test]
fn a_crash_while_they_are_being_lost_loses_none_for_good() {
    let mut shard = fixture();
    let jobs = shard.submit_some(JOBS);
    shard.runner(RUNNER, room(1_000));
    shard.pass(500);
    shard.runner(RUNNER, room(1_000));
    shard.crash();
    shard.pass(60_000);
    shard.finish_all();
    assert!(jobs.iter().all(|job| shard.state(*job) == State::Succeeded));
}

#[test]
fn a_runner_that_is_gone_loses_its_jobs_a_few_at_a_time() {
    let mut shard = fixture();
    shard.runner(RUNNER, room(1_000));
    let jobs = shard.submit_some(JOBS);
    shard.pass(500);
    shard.largest_commit = 0;
    shard.lose(RUNNER, 1);
    let lost = |shard: &Fixture| jobs.iter().filter(|job| shard.state(**job) == State::Scheduled).count();
    assert!(lost(&shard) < JOBS / 2, "all of them were lost in one step");
    shard.pass(500);
    assert_eq!(lost(&shard), JOBS);
    expect_small_steps(&shard);
}

#[test]
fn what_an_inventory_lacks_is_lost_a_few_at_a_time() {
    let mut shard = fixture();
    shard.runner(RUNNER, room(1_000));
    let jobs = shard.submit_some(JOBS);
    shard.pass(500);
    shard.words(RUNNER, |runner| runner.in_hand.clear());
    shard.largest_commit = 0;
    // A gap makes the shard ask.
    let _lost = shard.words(RUNNER, |runner| runner.here(0));
    let after_gap = shard.words(RUNNER, |runner| runner.here(0));
    shard.say(after_gap);
    let again = |shard: &Fixture| jobs.iter().filter(|job| shard.records.job(**job).unwrap().attempt.0 == 2).count();
    assert!(again(&shard) < JOBS / 2, "all of them were lost in one step");
    shard.pass(500);
    assert_eq!(again(&shard), JOBS);
    expect_small_steps(&shard);
}

#[test]
fn many_keys_that_are_answered_at_once_are_accepted_a_few_at_a_time() {
    let mut shard = fixture();
    let request = shard.next_request();
    let specs: Vec<_> = (0..JOBS).map(|number| keyed(&format!("key {number}"))).collect();
    shard.give(Input::Submit { request, jobs: specs.iter().map(submission).collect() });
    assert!(shard.answer(request).is_none(), "all of them were accepted in one step");
    shard.pass(500);
    expect_small_steps(&shard);
    let Some(Answer::Submitted(results)) = shard.answer(request) else { panic!("no answer") };
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), JOBS);
    shard.submit(&echo());
}
