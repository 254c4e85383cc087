//! Choice of the runner: in proportion to free slots, never beyond them.

use std::sync::Arc;

use engine::{Input, Pool, Settings, Topic};
use model::id::{Incarnation, JobId, RunnerId};
use model::job::{End, Placement};
use model::message::{Load, Profile};
use model::spec::{ExecutorKind, JobSpec, Run, WasmRun};
use model::state::State;

use crate::support::{Fixture, RUNNER, config_of, echo, job, process, room};

fn wasm() -> JobSpec {
    let component = model::blob::BlobId::of(b"component");
    job(|spec| spec.run = Run::Wasm(WasmRun { component, args: vec![], env: [].into(), stdin: String::new() }))
}

/// Attempts dispatched to each runner since the last call.
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
    // The slots free now count.
    shard.submit_some(5);
    assert_eq!(given(&mut shard, &runners), [3, 0, 2]);
    shard.submit_some(10);
    assert_eq!(given(&mut shard, &runners), [2, 1, 2], "all free slots are used");
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

/// Retries avoid the runner that failed the job, regardless of its share.
#[test]
fn a_runner_that_failed_a_job_gets_it_only_if_there_is_no_other() {
    let (first, second) = (RunnerId(1), RunnerId(2));
    let mut shard = Fixture::new();
    shard.runner(first, room(8));
    let id = shard.submit(&process());
    shard.runner(second, room(1));
    shard.run_attempt(id, End::Error);
    shard.advance(2_000);
    assert_eq!(shard.job(id).runner().unwrap().0, second);
    shard.run_attempt(id, End::Error);
    shard.advance(4_000);
    assert_eq!(shard.job(id).runner().unwrap().0, first, "both have failed it: more free slots win");
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
    shard.advance(500);
    assert_eq!(given(&mut shard, &runners), [90, 30]);
}

#[test]
fn each_executor_has_its_own_slots() {
    let mut shard = Fixture::new();
    shard.runner(RUNNER, model::message::Capacity { process: 1, echo: 0, wasm: 2 });
    let jobs = [wasm(), wasm(), wasm(), echo(), process()].map(|spec| shard.submit(&spec));
    let states = jobs.map(|id| shard.state(id));
    let (now, later) = (State::Dispatched, State::Scheduled);
    assert_eq!(states, [now, now, later, later, now]);
    assert_eq!(shard.shard.load(ExecutorKind::Wasm), (1, 2));
}

/// A node under memory pressure reports a capacity below its attempts in flight.
#[test]
fn a_runner_over_its_capacity_gets_no_jobs_until_it_has_room() {
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
        shard.run_attempt(*job, End::Succeeded);
    }
    assert_eq!(shard.state(next[2]), State::Dispatched);
    shard.resize(pressed, room(0));
    let last = shard.submit(&process());
    shard.run_attempt(next[1], End::Succeeded);
    assert_eq!(shard.state(last), State::Scheduled);
    shard.resize(pressed, room(2));
    assert_eq!(shard.state(last), State::Dispatched);
}

fn be(shard: &mut Fixture, runner: u64, slots: u32, change: impl FnOnce(&mut Profile)) {
    let mut profile = Profile::default();
    change(&mut profile);
    shard.runner(RunnerId(runner), room(0));
    shard.messages(RunnerId(runner), |runner| runner.profile = Arc::new(profile));
    shard.resize(RunnerId(runner), room(slots));
}

fn load(shard: &mut Fixture, runner: u64, cpu_percent: u8, gpu_percent: u8) {
    let load = Load { cpu_percent, gpu_percent };
    shard.input(Input::Load { runner: RunnerId(runner), incarnation: Incarnation(1), load });
}

fn runner_of(shard: &Fixture, job: JobId) -> Option<u64> {
    shard.job(job).runner().map(|(runner, _)| runner.0)
}

// FEATURES: D6
#[test]
fn a_topic_goes_to_its_pools_and_a_preferred_pool_narrows_them() {
    let topic = Topic { pools: ["slow".to_owned(), "fast".to_owned()].into(), ..Topic::default() };
    let settings = Settings { topics: [("mail".to_owned(), topic)].into(), ..Settings::default() };
    let mut shard = Fixture::governed(config_of(0, 1), settings);
    shard.runner(RunnerId(1), room(9));
    be(&mut shard, 2, 1, |profile| profile.pools = ["slow".to_owned()].into());
    be(&mut shard, 3, 9, |profile| profile.pools = ["fast".to_owned(), "other".to_owned()].into());
    let mail = job(|spec| spec.topic = "mail".to_owned());
    let mut narrowed = mail.clone();
    narrowed.labels.insert("preferred_pool".to_owned(), "slow".to_owned());
    let jobs = [&mail, &narrowed, &mail, &echo()].map(|spec| shard.submit(spec));
    // The first job took the only slot eligible for the second.
    assert_eq!(jobs.map(|id| runner_of(&shard, id)), [Some(2), None, Some(3), Some(1)]);
}

// FEATURES: D6
#[test]
fn required_capabilities_come_from_the_runner_or_its_pools() {
    let pool = Pool { capabilities: ["gpu".to_owned()].into(), ..Pool::default() };
    let settings = Settings { pools: [("default".to_owned(), pool)].into(), ..Settings::default() };
    let mut shard = Fixture::governed(config_of(0, 1), settings);
    shard.runner(RunnerId(1), room(9));
    be(&mut shard, 2, 9, |profile| profile.capabilities = ["avx".to_owned()].into());
    let requiring = |names: &[&str]| job(|spec| spec.requires = names.iter().map(|name| (*name).to_owned()).collect());
    let jobs = [&["gpu"][..], &["avx", "gpu"], &["avx", "tpu"]].map(|names| shard.submit(&requiring(names)));
    assert_eq!(jobs.map(|id| runner_of(&shard, id)), [Some(1), Some(2), None]);
    // A pool gains a capability.
    let pool = Pool { capabilities: ["tpu".to_owned()].into(), ..Pool::default() };
    let settings = Settings { pools: [("default".to_owned(), pool)].into(), ..Settings::default() };
    shard.input(Input::Settings(Arc::new(settings)));
    assert_eq!(runner_of(&shard, jobs[2]), Some(2));
}

// FEATURES: D6
#[test]
fn a_preferred_runner_gets_its_job_while_it_has_room_and_is_not_overloaded() {
    let mut shard = Fixture::new();
    shard.runner(RunnerId(1), room(10));
    shard.runner(RunnerId(2), room(2));
    let second = RunnerId(2).to_string();
    let preferring = job(|spec| {
        spec.labels.insert("preferred_worker_id".to_owned(), second.clone());
    });
    let jobs = [(); 3].map(|()| shard.submit(&preferring));
    assert_eq!(jobs.map(|id| runner_of(&shard, id)), [Some(2), Some(2), Some(1)], "the preferred runner is full");
    let record = |id| *shard.job(id).attempts[0].placement.clone().expect("there were two");
    assert!(record(jobs[0]).preferred && !record(jobs[2]).preferred);
    shard.run_attempt(jobs[0], End::Succeeded);
    load(&mut shard, 2, 90, 0);
    let avoiding = shard.submit(&preferring);
    assert_eq!(runner_of(&shard, avoiding), Some(1), "overloaded");
}

// FEATURES: D6
#[test]
fn the_least_loaded_runner_gets_the_next_job() {
    let mut shard = Fixture::new();
    for runner in 1..=3 {
        shard.runner(RunnerId(runner), room(20));
    }
    load(&mut shard, 1, 80, 50);
    load(&mut shard, 2, 30, 0);
    load(&mut shard, 3, 0, 90);
    let jobs = [(); 3].map(|()| shard.submit(&echo()));
    let first = jobs.map(|id| runner_of(&shard, id).unwrap());
    // 0.3 + 0 attempts before 1.3 + 0, before and after the first; the third is overloaded.
    assert_eq!(first, [2, 1, 2]);
    let id = shard.submit(&echo());
    let placement = *shard.job(id).attempts[0].placement.clone().unwrap();
    let (score_milli, available, busy) = (2_300, 2, 1);
    assert_eq!(placement, Placement { score_milli, available, busy, ..Placement::default() });
}

/// A small batch over very many runners is not spread by proportion.
#[test]
fn a_few_jobs_for_very_many_runners_go_to_the_least_loaded() {
    let mut shard = Fixture::new();
    for runner in 1..=65 {
        shard.runner(RunnerId(runner), room(10));
    }
    for runner in 1..=60 {
        load(&mut shard, runner, 50, 0);
    }
    shard.submit_some(5);
    let mut given: Vec<u64> = shard.runs.iter().map(|(runner, _)| runner.0).collect();
    given.sort_unstable();
    assert_eq!(given, [61, 62, 63, 64, 65]);
}
