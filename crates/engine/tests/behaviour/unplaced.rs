//! Jobs that no runner there is can take: why, how often they are looked at, and what is no fault of theirs.

use std::sync::Arc;

use engine::{Gate, Input, Pool, Setup, TenantLimits, Topic};
use model::id::{Incarnation, JobId, RunnerId};
use model::job::End;
use model::message::{Load, Profile};
use model::reason::ReasonCode;
use model::spec::JobSpec;
use model::state::State;
use model::time::Millis;
use model::verdict::{Constraints, Verdict};

use crate::common::{Fixture, HOUR, POLICY, RUNNER, SECOND, config_of, echo, job, room};

/// As long as the first try takes at the most, and the second at the least.
const FIRST_TRY: u64 = 1_500;
/// As long as two tries are apart at the most.
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

fn governed(change: impl FnOnce(&mut Setup)) -> Fixture {
    let mut setup = Setup::default();
    change(&mut setup);
    Fixture::governed(config_of(0, 1), setup)
}

fn with_tries(tries: u32) -> Fixture {
    governed(|setup| setup.other_topics = Some(Topic { dispatch_tries_max: tries, ..Topic::default() }))
}

fn set_up(shard: &mut Fixture, change: impl FnOnce(&mut Setup)) {
    let mut setup = (*shard.setup).clone();
    change(&mut setup);
    shard.setup = Arc::new(setup);
    shard.give(Input::Setup(shard.setup.clone()));
}

fn be(shard: &mut Fixture, runner: RunnerId, slots: u32, profile: Profile) {
    shard.runner(runner, room(0));
    shard.words(runner, |runner| runner.profile = Arc::new(profile));
    shard.resize(runner, room(slots));
}

fn zone(name: &str) -> Profile {
    Profile { labels: [("zone".to_owned(), name.to_owned())].into(), ..Profile::default() }
}

fn load(shard: &mut Fixture, runner: RunnerId, cpu_percent: u8) {
    let incarnation = Incarnation(1);
    shard.give(Input::Load { runner, incarnation, load: Load { cpu_percent, gpu_percent: 0 } });
}

// FEATURES: D7
#[test]
fn a_job_without_a_fit_runner_says_so_and_goes_to_the_first_that_comes() {
    let mut shard = Fixture::with_runner(10);
    let id = shard.submit(&in_zone("north"));
    assert_eq!(tries(&shard, id), (State::Scheduled, 0), "not at once: runners may be about to come");
    shard.pass(FIRST_TRY);
    assert_eq!(tries(&shard, id), (State::Scheduled, 1));
    let reason = shard.job(id).reason.unwrap();
    assert_eq!(reason.code, ReasonCode::NoWorkers);
    let message = "it asks for a runner of pool default with zone=north; of 1 runners there are 1 with other labels";
    assert_eq!(reason.message.as_deref(), Some(message));
    be(&mut shard, RunnerId(2), 1, zone("north"));
    let placed = shard.job(id);
    assert_eq!((placed.state, placed.dispatch_tries), (State::Dispatched, 0), "at once, whenever its next look is");
    assert_eq!(placed.runner().unwrap().0, RunnerId(2));
    assert_eq!(placed.reason, None);
}

// FEATURES: D7
#[test]
fn after_fifty_tries_it_has_failed() {
    let mut shard = Fixture::new();
    let id = shard.submit(&echo());
    shard.pass(1 + 2 * SECOND + 4 * SECOND + 8 * SECOND + 16 * SECOND + 44 * LONGEST);
    let (state, used) = tries(&shard, id);
    assert!(state == State::Scheduled && (45..50).contains(&used), "{used} tries");
    shard.pass(5 * LONGEST);
    assert_eq!(tries(&shard, id), (State::Failed, 50));
    assert_eq!(shard.reason(id), Some(ReasonCode::NoWorkers));
    shard.runner(RUNNER, room(1));
    assert_eq!(shard.runs, []);
}

#[test]
fn a_topic_says_how_many_tries_its_jobs_have() {
    let mut shard = with_tries(2);
    let id = shard.submit(&echo());
    shard.pass(FIRST_TRY);
    assert_eq!(tries(&shard, id), (State::Scheduled, 1));
    shard.pass(2 * SECOND + 500);
    assert_eq!(tries(&shard, id), (State::Failed, 2));
}

#[test]
fn zero_tries_are_without_end() {
    let mut shard = with_tries(0);
    let id = shard.submit(&echo());
    shard.pass(HOUR);
    let (state, used) = tries(&shard, id);
    assert_eq!(state, State::Scheduled);
    assert!(used >= 110, "every half a minute: {used}");
    shard.runner(RUNNER, room(1));
    assert_eq!(shard.state(id), State::Dispatched);
}

// FEATURES: D7
#[test]
fn a_topic_without_a_pool_is_named_until_it_has_one() {
    let mut shard = governed(|setup| setup.other_topics = None);
    shard.runner(RUNNER, room(10));
    let id = shard.submit(&of_topic("mail"));
    shard.pass(FIRST_TRY);
    assert_eq!(shard.reason(id), Some(ReasonCode::NoPoolMapping));
    set_up(&mut shard, |setup| {
        setup.topics.insert("mail".to_owned(), Topic::default());
    });
    assert_eq!(shard.state(id), State::Dispatched);
}

#[test]
fn a_preferred_pool_that_the_topic_is_not_given_to_is_no_pool() {
    let mut shard = Fixture::with_runner(10);
    let id = shard.submit(&job(|spec| {
        spec.labels.insert("preferred_pool".to_owned(), "fast".to_owned());
    }));
    shard.pass(FIRST_TRY);
    assert_eq!(shard.reason(id), Some(ReasonCode::NoPoolMapping));
}

// FEATURES: D7
#[test]
fn a_pool_that_spares_its_overloaded_runners_lets_jobs_wait() {
    let spare = Pool { spare_overloaded: true, ..Pool::default() };
    let mut shard = governed(|setup| {
        setup.pools.insert("default".to_owned(), spare);
    });
    shard.runner(RUNNER, room(10));
    load(&mut shard, RUNNER, 90);
    let id = shard.submit(&echo());
    shard.pass(FIRST_TRY);
    assert_eq!((shard.state(id), shard.reason(id)), (State::Scheduled, Some(ReasonCode::PoolOverloaded)));
    load(&mut shard, RUNNER, 89);
    assert_eq!(shard.state(id), State::Dispatched);
    // Nine of ten slots are overload as well.
    let rest = shard.submit_some(9);
    assert_eq!(shard.shard.load(model::spec::Lane::Echo), (1, 9));
    set_up(&mut shard, |setup| setup.pools.clear());
    assert_eq!(shard.state(rest[8]), State::Dispatched, "it is not spared any more");
}

#[test]
fn an_overloaded_runner_gets_what_nobody_else_can_take() {
    let mut shard = Fixture::with_runner(10);
    load(&mut shard, RUNNER, 100);
    let id = shard.submit(&echo());
    assert_eq!(shard.state(id), State::Dispatched);
}

// FEATURES: D7
#[test]
fn to_be_in_line_or_at_a_limit_is_no_try() {
    let mut shard = governed(|setup| {
        setup.tenants.insert("small".to_owned(), TenantLimits { max_running: Some(1), ..TenantLimits::default() });
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
    shard.pass(HOUR);
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
fn a_tenant_at_its_limit_holds_up_nobody_and_goes_on_when_one_has_ended() {
    let mut shard = governed(|setup| setup.other_tenants.max_running = Some(2));
    shard.runner(RUNNER, room(10));
    let by = |tenant: &str| job(|spec| spec.tenant = tenant.to_owned());
    let jobs: Vec<JobId> = (0..4).map(|_| shard.submit(&by("greedy"))).collect();
    let other = shard.submit(&by("other"));
    let running = |shard: &Fixture| jobs.iter().filter(|id| shard.state(**id).is_on_runner()).count();
    assert_eq!((running(&shard), shard.state(other)), (2, State::Dispatched));
    shard.crash();
    assert_eq!(running(&shard), 2);
    shard.play(jobs[0], End::Succeeded);
    assert_eq!(shard.state(jobs[2]), State::Dispatched);
    assert_eq!(shard.state(jobs[3]), State::Scheduled);
    set_up(&mut shard, |setup| setup.other_tenants.max_running = None);
    assert_eq!(shard.state(jobs[3]), State::Dispatched);
}

#[test]
fn a_rule_lets_so_many_of_its_jobs_run_at_once() {
    for restart in [false, true] {
        let mut shard = governed(|setup| setup.gate = Gate::Policy(POLICY));
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
        shard.pass(30 * SECOND);
        assert_eq!(tries(&shard, jobs[2]), (State::Scheduled, 0));
        shard.play(jobs[1], End::Succeeded);
        assert_eq!(states(&shard), [now, State::Succeeded, now, now]);
    }
}

// FEATURES: D7
#[test]
fn tries_outlive_a_crash() {
    let mut shard = Fixture::new();
    let id = shard.submit(&echo());
    shard.pass(10 * SECOND);
    let before = shard.job(id);
    assert!(before.dispatch_tries >= 3, "{} tries", before.dispatch_tries);
    shard.crash();
    assert_eq!(shard.job(id), before);
    let left = before.eligible_at - shard.now;
    shard.pass(left.0 - 1);
    assert_eq!(shard.job(id).dispatch_tries, before.dispatch_tries, "and so does the time of the next");
    shard.pass(1);
    assert_eq!(shard.job(id).dispatch_tries, before.dispatch_tries + 1);
    shard.crash();
    shard.runner(RUNNER, room(1));
    assert_eq!(shard.state(id), State::Dispatched, "it is in line after a crash, too");
}

/// Those who had someone to wait for begin to look when he has gone, a few at a time.
#[test]
fn jobs_that_lose_their_last_runner_are_looked_at_from_then_on() {
    let mut shard = Fixture::with_runner(1);
    let first = shard.submit(&echo());
    shard.start(shard.current(first));
    // More than one step tells of it.
    let jobs = shard.submit_some(1_200);
    shard.lose(RUNNER, 1);
    shard.pass(2 * SECOND);
    assert!(jobs.iter().all(|id| tries(&shard, *id) == (State::Scheduled, 1)));
    // One that comes has everything at once, and whoever is still in line is not looked at any more.
    shard.runner(RUNNER, room(1_000));
    shard.pass(3 * SECOND);
    assert_eq!(shard.state(first), State::Dispatched);
    let in_line: Vec<u32> = jobs[999..].iter().map(|id| shard.job(*id).dispatch_tries).collect();
    assert_eq!(in_line, vec![1; 201]);
}

#[test]
fn a_retry_that_waits_for_its_time_is_not_in_line() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.play(id, End::Error);
    shard.lose(RUNNER, 1);
    let due = shard.job(id).eligible_at;
    assert!(due > shard.now);
    shard.pass((due - shard.now - Millis(1)).0);
    assert_eq!(tries(&shard, id), (State::Scheduled, 0));
    shard.pass(1 + FIRST_TRY);
    assert_eq!(tries(&shard, id), (State::Scheduled, 1));
}
