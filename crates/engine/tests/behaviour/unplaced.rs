//! Jobs without an eligible runner: reasons, placement tries, and waits that do not count as tries.

use std::sync::Arc;

use engine::{Input, PolicyMode, Pool, Settings, TenantLimits, Topic};
use model::id::{Incarnation, JobId, RunnerId};
use model::job::End;
use model::message::{Load, Profile};
use model::reason::ReasonCode;
use model::spec::JobSpec;
use model::state::State;
use model::time::Millis;
use model::verdict::{Constraints, Verdict};

use crate::support::{Fixture, HOUR, POLICY, RUNNER, SECOND, config_of, echo, job, room};

/// Upper bound of the first try, lower bound of the second.
const FIRST_TRY: u64 = 1_500;
/// Longest interval between two tries.
const LONGEST: u64 = 30 * SECOND;

fn in_zone(zone: &str) -> JobSpec {
    job(|spec| {
        spec.labels.insert("placement.zone".to_owned(), zone.to_owned());
    })
}

fn of_topic(topic: &str) -> JobSpec {
    job(|spec| spec.topic = topic.to_owned())
}

fn tries(shard: &Fixture, job: JobId) -> (State, u32) {
    (shard.state(job), shard.job(job).dispatch_tries)
}

fn governed(change: impl FnOnce(&mut Settings)) -> Fixture {
    let mut settings = Settings::default();
    change(&mut settings);
    Fixture::governed(config_of(0, 1), settings)
}

fn with_tries(tries: u32) -> Fixture {
    governed(|settings| settings.other_topics = Some(Topic { dispatch_tries_max: tries, ..Topic::default() }))
}

fn apply_settings(shard: &mut Fixture, change: impl FnOnce(&mut Settings)) {
    let mut settings = (*shard.settings).clone();
    change(&mut settings);
    shard.settings = Arc::new(settings);
    shard.input(Input::Settings(shard.settings.clone()));
}

fn be(shard: &mut Fixture, runner: RunnerId, slots: u32, profile: Profile) {
    shard.runner(runner, room(0));
    shard.messages(runner, |runner| runner.profile = Arc::new(profile));
    shard.resize(runner, room(slots));
}

fn zone(name: &str) -> Profile {
    Profile { labels: [("zone".to_owned(), name.to_owned())].into(), ..Profile::default() }
}

fn load(shard: &mut Fixture, runner: RunnerId, cpu_percent: u8) {
    let incarnation = Incarnation(1);
    shard.input(Input::Load { runner, incarnation, load: Load { cpu_percent, gpu_percent: 0 } });
}

// FEATURES: D7
#[test]
fn a_job_without_an_eligible_runner_says_so_and_goes_to_the_first_that_registers() {
    let mut shard = Fixture::with_runner(10);
    let id = shard.submit(&in_zone("north"));
    assert_eq!(tries(&shard, id), (State::Scheduled, 0), "not at once: runners may be about to register");
    shard.advance(FIRST_TRY);
    assert_eq!(tries(&shard, id), (State::Scheduled, 1));
    let reason = shard.job(id).reason.unwrap();
    assert_eq!(reason.code, ReasonCode::NoWorkers);
    let message = "it needs a runner of pool default labelled zone=north; the only runner has other labels";
    assert_eq!(reason.message.as_deref(), Some(message));
    be(&mut shard, RunnerId(2), 1, zone("north"));
    let placed = shard.job(id);
    assert_eq!((placed.state, placed.dispatch_tries), (State::Dispatched, 0), "at once, before its next try");
    assert_eq!(placed.runner().unwrap().0, RunnerId(2));
    assert_eq!(placed.reason, None);
}

// FEATURES: D7
#[test]
fn a_job_fails_after_fifty_placement_tries() {
    let mut shard = Fixture::new();
    let id = shard.submit(&echo());
    shard.advance(1 + 2 * SECOND + 4 * SECOND + 8 * SECOND + 16 * SECOND + 44 * LONGEST);
    let (state, used) = tries(&shard, id);
    assert!(state == State::Scheduled && (45..50).contains(&used), "{used} tries");
    shard.advance(5 * LONGEST);
    assert_eq!(tries(&shard, id), (State::Failed, 50));
    assert_eq!(shard.reason(id), Some(ReasonCode::NoWorkers));
    shard.runner(RUNNER, room(1));
    assert_eq!(shard.runs, []);
}

#[test]
fn a_topic_sets_the_number_of_placement_tries() {
    let mut shard = with_tries(2);
    let id = shard.submit(&echo());
    shard.advance(FIRST_TRY);
    assert_eq!(tries(&shard, id), (State::Scheduled, 1));
    shard.advance(2 * SECOND + 500);
    assert_eq!(tries(&shard, id), (State::Failed, 2));
}

#[test]
fn zero_placement_tries_means_no_limit() {
    let mut shard = with_tries(0);
    let id = shard.submit(&echo());
    shard.advance(HOUR);
    let (state, used) = tries(&shard, id);
    assert_eq!(state, State::Scheduled);
    assert!(used >= 110, "every half a minute: {used}");
    shard.runner(RUNNER, room(1));
    assert_eq!(shard.state(id), State::Dispatched);
}

// FEATURES: D7
#[test]
fn a_topic_without_a_pool_is_named_until_it_has_one() {
    let mut shard = governed(|settings| settings.other_topics = None);
    shard.runner(RUNNER, room(10));
    let id = shard.submit(&of_topic("mail"));
    shard.advance(FIRST_TRY);
    assert_eq!(shard.reason(id), Some(ReasonCode::NoPoolMapping));
    apply_settings(&mut shard, |settings| {
        settings.topics.insert("mail".to_owned(), Topic::default());
    });
    assert_eq!(shard.state(id), State::Dispatched);
}

#[test]
fn a_preferred_pool_that_the_topic_does_not_map_to_is_no_pool() {
    let mut shard = Fixture::with_runner(10);
    let id = shard.submit(&job(|spec| {
        spec.labels.insert("preferred_pool".to_owned(), "fast".to_owned());
    }));
    shard.advance(FIRST_TRY);
    assert_eq!(shard.reason(id), Some(ReasonCode::NoPoolMapping));
}

// FEATURES: D7
#[test]
fn jobs_wait_when_a_pool_spares_its_overloaded_runners() {
    let spare = Pool { spare_overloaded: true, ..Pool::default() };
    let mut shard = governed(|settings| {
        settings.pools.insert("default".to_owned(), spare);
    });
    shard.runner(RUNNER, room(10));
    load(&mut shard, RUNNER, 90);
    let id = shard.submit(&echo());
    shard.advance(FIRST_TRY);
    assert_eq!((shard.state(id), shard.reason(id)), (State::Scheduled, Some(ReasonCode::PoolOverloaded)));
    load(&mut shard, RUNNER, 89);
    assert_eq!(shard.state(id), State::Dispatched);
    // Nine of ten slots in use also count as overload.
    let rest = shard.submit_some(9);
    assert_eq!(shard.shard.load(model::spec::ExecutorKind::Echo), (1, 9));
    apply_settings(&mut shard, |settings| settings.pools.clear());
    assert_eq!(shard.state(rest[8]), State::Dispatched, "the runner is no longer spared");
}

#[test]
fn an_overloaded_runner_gets_jobs_that_no_other_can_run() {
    let mut shard = Fixture::with_runner(10);
    load(&mut shard, RUNNER, 100);
    let id = shard.submit(&echo());
    assert_eq!(shard.state(id), State::Dispatched);
}

// FEATURES: D7
#[test]
fn waiting_for_a_slot_or_a_limit_is_not_a_placement_try() {
    let mut shard = governed(|settings| {
        settings.tenants.insert("small".to_owned(), TenantLimits { max_running: Some(1), ..TenantLimits::default() });
    });
    shard.runner(RUNNER, room(3));
    let queue = shard.create_queue(|queue| queue.max_running = Some(1)).id;
    let by_small = job(|spec| spec.tenant = "small".to_owned());
    let in_queue = job(|spec| spec.queue = Some(model::queue::QueueRef::Id(queue)));
    let running = [&by_small, &in_queue, &echo()].map(|spec| shard.submit(spec));
    for id in running {
        shard.start(shard.current(id));
    }
    let waiting = [&by_small, &in_queue, &echo()].map(|spec| shard.submit(spec));
    shard.advance(HOUR);
    for id in waiting {
        assert_eq!(tries(&shard, id), (State::Scheduled, 0));
    }
    for id in running {
        shard.end(shard.current(id), End::Succeeded);
    }
    assert!(waiting.iter().all(|id| shard.state(*id) == State::Dispatched));
}

// FEATURES: D13
#[test]
fn a_tenant_at_its_limit_does_not_hold_up_others_and_continues_when_a_job_ends() {
    let mut shard = governed(|settings| settings.other_tenants.max_running = Some(2));
    shard.runner(RUNNER, room(10));
    let by = |tenant: &str| job(|spec| spec.tenant = tenant.to_owned());
    let jobs: Vec<JobId> = (0..4).map(|_| shard.submit(&by("greedy"))).collect();
    let other = shard.submit(&by("other"));
    let running = |shard: &Fixture| jobs.iter().filter(|id| shard.state(**id).is_on_runner()).count();
    assert_eq!((running(&shard), shard.state(other)), (2, State::Dispatched));
    shard.crash();
    assert_eq!(running(&shard), 2);
    shard.run_attempt(jobs[0], End::Succeeded);
    assert_eq!(shard.state(jobs[2]), State::Dispatched);
    assert_eq!(shard.state(jobs[3]), State::Scheduled);
    apply_settings(&mut shard, |settings| settings.other_tenants.max_running = None);
    assert_eq!(shard.state(jobs[3]), State::Dispatched);
}

#[test]
fn a_rule_limits_how_many_of_its_jobs_run_at_once() {
    for restart in [false, true] {
        let mut shard = governed(|settings| settings.policy = PolicyMode::Enforced(POLICY));
        shard.runner(RUNNER, room(10));
        let jobs = shard.submit_some(4);
        let constraints = Constraints { max_concurrent: Some(2), ..Constraints::default() };
        for id in &jobs[..3] {
            shard.verdict(*id, Verdict::AllowWith(constraints.clone()));
        }
        shard.verdict(jobs[3], Verdict::Allow);
        if restart {
            shard.crash();
        }
        let states = |shard: &Fixture| jobs.iter().map(|id| shard.state(*id)).collect::<Vec<_>>();
        let (now, later) = (State::Dispatched, State::Scheduled);
        assert_eq!(states(&shard), [now, now, later, now]);
        shard.advance(30 * SECOND);
        assert_eq!(tries(&shard, jobs[2]), (State::Scheduled, 0));
        shard.run_attempt(jobs[1], End::Succeeded);
        assert_eq!(states(&shard), [now, State::Succeeded, now, now]);
    }
}

// FEATURES: D7
#[test]
fn placement_tries_survive_a_crash() {
    let mut shard = Fixture::new();
    let id = shard.submit(&echo());
    shard.advance(10 * SECOND);
    let before = shard.job(id);
    assert!(before.dispatch_tries >= 3, "{} tries", before.dispatch_tries);
    shard.crash();
    assert_eq!(shard.job(id), before);
    let left = before.eligible_at - shard.now;
    shard.advance(left.0 - 1);
    assert_eq!(shard.job(id).dispatch_tries, before.dispatch_tries, "the time of the next try survives too");
    shard.advance(1);
    assert_eq!(shard.job(id).dispatch_tries, before.dispatch_tries + 1);
    shard.crash();
    shard.runner(RUNNER, room(1));
    assert_eq!(shard.state(id), State::Dispatched, "it is in the wait queue after a crash");
}

/// Waiting jobs begin placement tries when their last runner is lost, a few per step.
#[test]
fn jobs_that_lose_their_last_runner_begin_placement_tries() {
    let mut shard = Fixture::with_runner(1);
    let first = shard.submit(&echo());
    shard.start(shard.current(first));
    // This takes more than one step.
    let jobs = shard.submit_some(1_200);
    shard.lose(RUNNER, 1);
    shard.advance(2 * SECOND);
    assert!(jobs.iter().all(|id| tries(&shard, *id) == (State::Scheduled, 1)));
    // A new runner gets the jobs at once; those still waiting stop their tries.
    shard.runner(RUNNER, room(1_000));
    shard.advance(3 * SECOND);
    assert_eq!(shard.state(first), State::Dispatched);
    let in_line: Vec<u32> = jobs[999..].iter().map(|id| shard.job(*id).dispatch_tries).collect();
    assert_eq!(in_line, vec![1; 201]);
}

#[test]
fn a_retry_in_backoff_is_not_in_the_wait_queue() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.run_attempt(id, End::Error);
    shard.lose(RUNNER, 1);
    let due = shard.job(id).eligible_at;
    assert!(due > shard.now);
    shard.advance((due - shard.now - Millis(1)).0);
    assert_eq!(tries(&shard, id), (State::Scheduled, 0));
    shard.advance(1 + FIRST_TRY);
    assert_eq!(tries(&shard, id), (State::Scheduled, 1));
}
