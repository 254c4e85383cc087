//! Which runner gets a job: in proportion to free room, never more than there is.

use model::id::RunnerId;
use model::job::End;
use model::spec::{JobSpec, Lane, Run, WasmRun};
use model::state::State;

use crate::common::{Fixture, RUNNER, config_of, echo, job, process, room};

fn wasm() -> JobSpec {
    let component = model::blob::BlobId::of(b"component");
    job(|spec| spec.run = Run::Wasm(WasmRun { component, args: vec![], env: [].into(), stdin: String::new() }))
}

/// How many attempts each runner was given since the last look.
fn given(shard: &mut Fixture, runners: &[RunnerId]) -> Vec<usize> {
    let runs = std::mem::take(&mut shard.runs);
    runners.iter().map(|id| runs.iter().filter(|(runner, _)| runner == id).count()).collect()
}

// FEATURES: C9
#[test]
fn a_batch_is_spread_in_proportion_to_free_room() {
    let runners = [RunnerId(1), RunnerId(2), RunnerId(3)];
    let mut shard = Fixture::new();
    for (id, free) in runners.into_iter().zip([10, 2, 8]) {
        shard.runner(id, room(free));
    }
    shard.submit_some(10);
    assert_eq!(given(&mut shard, &runners), [5, 1, 4]);
    // What is free now counts, not what once was.
    shard.submit_some(5);
    assert_eq!(given(&mut shard, &runners), [3, 0, 2]);
    shard.submit_some(10);
    assert_eq!(given(&mut shard, &runners), [2, 1, 2], "all that there is room for");
}

#[test]
fn a_batch_that_waited_for_room_is_spread_when_there_is_some() {
    let runners = [RunnerId(1), RunnerId(2)];
    let mut shard = Fixture::new();
    shard.submit_some(12);
    shard.runner(runners[0], room(0));
    shard.runner(runners[1], room(0));
    shard.resize(runners[0], room(4));
    assert_eq!(given(&mut shard, &runners), [4, 0]);
}

/// Its retries avoid the one that failed it, whatever its share.
#[test]
fn a_runner_that_failed_a_job_gets_it_only_if_there_is_no_other() {
    let (first, second) = (RunnerId(1), RunnerId(2));
    let mut shard = Fixture::new();
    shard.runner(first, room(8));
    let id = shard.submit(&process());
    shard.runner(second, room(1));
    shard.play(id, End::Error);
    shard.pass(2_000);
    assert_eq!(shard.job(id).runner().unwrap().0, second);
    shard.play(id, End::Error);
    shard.pass(4_000);
    assert_eq!(shard.job(id).runner().unwrap().0, first, "both have failed it: the one with more room");
}

#[test]
fn a_batch_too_large_for_one_step_is_still_spread() {
    let mut config = config_of(0, 1);
    config.step_bytes_max = 4_000;
    let runners = [RunnerId(1), RunnerId(2)];
    let mut shard = Fixture::with(config);
    shard.runner(runners[0], room(90));
    shard.runner(runners[1], room(30));
    shard.submit_some(120);
    shard.pass(500);
    assert_eq!(given(&mut shard, &runners), [90, 30]);
}

#[test]
fn each_kind_has_its_own_room() {
    let mut shard = Fixture::new();
    shard.runner(RUNNER, model::message::Capacity { process: 1, echo: 0, wasm: 2 });
    let jobs = [wasm(), wasm(), wasm(), echo(), process()].map(|spec| shard.submit(&spec));
    let states = jobs.map(|id| shard.state(id));
    let (now, later) = (State::Dispatched, State::Scheduled);
    assert_eq!(states, [now, now, later, later, now]);
    assert_eq!(shard.shard.load(Lane::Wasm), (1, 2));
}

/// A node under memory pressure says that it has less room than it has given away.
#[test]
fn less_room_than_is_taken_means_nothing_more_until_there_is_some() {
    let (pressed, other) = (RunnerId(1), RunnerId(2));
    let mut shard = Fixture::new();
    shard.runner(pressed, room(4));
    let jobs: Vec<_> = (0..4).map(|_| shard.submit(&process())).collect();
    shard.resize(pressed, room(2));
    shard.runner(other, room(1));
    let next: Vec<_> = (0..3).map(|_| shard.submit(&process())).collect();
    assert_eq!(shard.job(next[0]).runner().unwrap().0, other);
    for (ended, job) in jobs.iter().enumerate() {
        assert_eq!(shard.state(next[1]), if ended < 3 { State::Scheduled } else { State::Dispatched });
        shard.play(*job, End::Succeeded);
    }
    assert_eq!(shard.state(next[2]), State::Dispatched);
    shard.resize(pressed, room(0));
    let last = shard.submit(&process());
    shard.play(next[1], End::Succeeded);
    assert_eq!(shard.state(last), State::Scheduled);
    shard.resize(pressed, room(2));
    assert_eq!(shard.state(last), State::Dispatched);
}
