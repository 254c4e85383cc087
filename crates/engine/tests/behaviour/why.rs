//! Explanations of why a job waits.

use std::sync::Arc;

use engine::{
    Answer, Input, RUNNERS_EXPLAINED_MAX, Refusal, RunnerVerdict, Settings, TenantLimits, Topic, WaitsFor, Why,
    WhyCounts,
};
use model::id::{Incarnation, JobId, RunnerId};
use model::job::End;
use model::message::{Load, Profile};
use model::reason::ReasonCode;
use model::state::State;

use crate::support::{Fixture, RUNNER, SECOND, config_of, echo, job, room};

#[track_caller]
fn why(shard: &mut Fixture, job: JobId) -> Why {
    match shard.request(|request| Input::Explain { request, job }) {
        Answer::Why(why) => *why,
        other => panic!("expected an explanation: {other:?}"),
    }
}

fn be(shard: &mut Fixture, runner: u64, slots: u32, change: impl FnOnce(&mut Profile)) {
    let mut profile = Profile::default();
    change(&mut profile);
    shard.runner(RunnerId(runner), room(0));
    shard.messages(RunnerId(runner), |runner| runner.profile = Arc::new(profile));
    shard.resize(RunnerId(runner), room(slots));
}

// FEATURES: D6
#[test]
fn the_explanation_names_for_every_runner_why_it_is_not_chosen() {
    let mut shard = Fixture::new();
    let zone = |value: &str| [("zone".to_owned(), value.to_owned())].into();
    be(&mut shard, 1, 5, |profile| profile.pools = ["other".to_owned()].into());
    be(&mut shard, 2, 5, |profile| profile.labels = zone("north"));
    be(&mut shard, 3, 5, |profile| profile.capabilities = ["gpu".to_owned()].into());
    be(&mut shard, 4, 0, |profile| {
        profile.capabilities = ["gpu".to_owned()].into();
        profile.labels = zone("north");
    });
    let id = shard.submit(&job(|spec| {
        spec.requires = vec!["gpu".to_owned()];
        spec.labels.insert("node.zone".to_owned(), "north".to_owned());
    }));
    let why = why(&mut shard, id);
    let verdicts: Vec<RunnerVerdict> = why.runners.into_iter().map(|runner| runner.verdict).collect();
    let lacking = RunnerVerdict::LackCapability { missing: vec!["gpu".to_owned()] };
    let elsewhere = RunnerVerdict::OtherLabel { label: "zone".to_owned(), wanted: "north".to_owned(), has: None };
    assert_eq!(verdicts, [RunnerVerdict::OtherPool, lacking, elsewhere, RunnerVerdict::Full]);
    let counts = WhyCounts { other_pool: 1, lack_capability: 1, other_label: 1, full: 1, ..WhyCounts::default() };
    assert_eq!(why.counts, counts);
    assert_eq!((why.waits_for, why.tries, why.tries_max), (WaitsFor::FreeSlot { ahead: 0 }, 0, 50));
}

#[test]
fn explanations_name_overload_and_earlier_failures() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.run_attempt(id, End::Error);
    let waiting = why(&mut shard, id);
    assert_eq!(waiting.waits_for, WaitsFor::Time(shard.job(id).eligible_at));
    assert_eq!(waiting.runners[0].verdict, RunnerVerdict::FailedBefore);
    let load = Load { cpu_percent: 95, gpu_percent: 7 };
    shard.input(Input::Load { runner: RUNNER, incarnation: Incarnation(1), load });
    let waiting = why(&mut shard, id);
    assert_eq!(waiting.runners[0].verdict, RunnerVerdict::Overloaded { excluded: false });
    assert_eq!(waiting.runners[0].score_milli, 1_020);
}

#[test]
fn the_explanation_names_the_cause_of_waiting() {
    let settings = Settings {
        tenants: [("small".to_owned(), TenantLimits { max_running: Some(0), ..TenantLimits::default() })].into(),
        topics: [("nowhere".to_owned(), Topic { pools: [].into(), ..Topic::default() })].into(),
        ..Settings::default()
    };
    let mut shard = Fixture::governed(config_of(0, 1), settings);
    shard.runner(RUNNER, room(1));
    let queue = shard.create_queue(|queue| queue.max_running = Some(0)).id;
    let running = shard.submit(&echo());
    let line = shard.submit_some(3);
    let small = shard.submit(&job(|spec| spec.tenant = "small".to_owned()));
    let nowhere = shard.submit(&job(|spec| spec.topic = "nowhere".to_owned()));
    let queued = shard.submit(&job(|spec| spec.queue = Some(model::queue::QueueRef::Id(queue))));
    let waits = |shard: &mut Fixture, id| why(shard, id).waits_for;
    assert_eq!(waits(&mut shard, running), WaitsFor::Nothing(State::Dispatched));
    assert_eq!(waits(&mut shard, line[2]), WaitsFor::FreeSlot { ahead: 2 });
    assert_eq!(waits(&mut shard, small), WaitsFor::TenantLimit { max_running: 0 });
    assert_eq!(waits(&mut shard, small).code(), Some(ReasonCode::TenantLimit));
    assert_eq!(waits(&mut shard, queued), WaitsFor::QueueLimit { max_running: Some(0) });
    assert_eq!(waits(&mut shard, nowhere).code(), Some(ReasonCode::NoPoolMapping));
    shard.lose(RUNNER, 1);
    shard.advance(2 * SECOND);
    let lost = why(&mut shard, line[0]);
    assert_eq!((lost.waits_for.code(), lost.tries), (Some(ReasonCode::NoWorkers), 1));
}

#[test]
fn an_explanation_names_the_first_runners_and_counts_all() {
    let mut shard = Fixture::new();
    for runner in 0..=RUNNERS_EXPLAINED_MAX as u64 {
        shard.runner(RunnerId(runner), room(0));
    }
    let id = shard.submit(&echo());
    let why = why(&mut shard, id);
    assert_eq!((why.runners.len(), why.counts.full), (RUNNERS_EXPLAINED_MAX, 101));
}

#[test]
fn an_unknown_job_cannot_be_explained() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.run_attempt(id, End::Succeeded);
    let answer = shard.request(|request| Input::Explain { request, job: id });
    assert_eq!(answer, Answer::Refused(Refusal::UnknownJob(id)));
}
