//! Order of dispatch.

use model::id::{JobId, QueueId};
use model::job::End;
use model::queue::QueueRef;
use model::spec::{JobSpec, Priority};
use model::state::State;

use crate::support::{Fixture, RUNNER, SECOND, at, config_of, echo, job, process, room};

fn of(priority: Priority) -> JobSpec {
    job(|spec| spec.priority = priority)
}

fn by(tenant: &str) -> JobSpec {
    job(|spec| spec.tenant = tenant.to_owned())
}

fn into(queue: QueueId) -> JobSpec {
    job(|spec| spec.queue = Some(QueueRef::Id(queue)))
}

/// Runs the jobs one at a time; returns them in order of dispatch.
fn order(shard: &mut Fixture) -> Vec<JobId> {
    shard.runs.clear();
    shard.runner(RUNNER, room(1));
    shard.finish_all();
    shard.take_runs()
}

#[test]
fn critical_before_interactive_before_batch() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut shard = Fixture::with(config_of(number, shards));
        let batch = shard.submit(&of(Priority::Batch));
        let interactive = shard.submit(&of(Priority::Interactive));
        let critical = shard.submit(&of(Priority::Critical));
        assert_eq!(order(&mut shard), [critical, interactive, batch]);
    }
}

#[test]
fn first_in_first_out_within_a_queue() {
    let mut shard = Fixture::new();
    let jobs = shard.submit_some(20);
    assert_eq!(order(&mut shard), jobs);
}

#[test]
fn after_a_restart_the_order_is_the_same() {
    let mut shard = Fixture::new();
    let jobs = shard.submit_some(20);
    shard.crash();
    assert_eq!(order(&mut shard), jobs);
}

#[test]
fn long_waiting_jobs_are_promoted_to_critical() {
    let mut shard = Fixture::new();
    let batch = shard.submit(&of(Priority::Batch));
    shard.advance(shard.config.batch_ages_after.0 - 1);
    let critical = shard.submit(&of(Priority::Critical));
    shard.advance(1);
    let late = shard.submit(&of(Priority::Critical));
    assert_eq!(order(&mut shard), [batch, critical, late], "the oldest critical job first");
}

#[test]
fn a_job_is_not_promoted_before_its_time() {
    let mut shard = Fixture::new();
    let interactive = shard.submit(&of(Priority::Interactive));
    shard.advance(shard.config.interactive_ages_after.0 - 1);
    let critical = shard.submit(&of(Priority::Critical));
    assert_eq!(order(&mut shard), [critical, interactive]);
}

/// Time on a runner does not count: a long first attempt does not promote the retry.
#[test]
fn only_waiting_time_counts_for_promotion() {
    let mut shard = Fixture::with_runner(1);
    let retried = shard.submit(&of(Priority::Batch));
    let attempt_ref = shard.current(retried);
    shard.start(attempt_ref);
    shard.advance(2 * shard.config.batch_ages_after.0);
    let blocker = shard.submit(&echo());
    shard.end(attempt_ref, End::Error);
    assert_eq!(shard.state(blocker), State::Dispatched);
    shard.advance(2 * SECOND);
    let critical = shard.submit(&of(Priority::Critical));
    shard.run_attempt(blocker, End::Succeeded);
    assert_eq!(shard.state(critical), State::Dispatched);
    assert_eq!(shard.state(retried), State::Scheduled);
}

#[test]
fn tenants_take_turns() {
    let mut shard = Fixture::new();
    let a: Vec<_> = (0..3).map(|_| shard.submit(&by("a"))).collect();
    let b: Vec<_> = (0..2).map(|_| shard.submit(&by("b"))).collect();
    let c = shard.submit(&by("c"));
    assert_eq!(order(&mut shard), [a[0], b[0], c, a[1], b[1], a[2]]);
}

#[test]
fn queues_of_a_tenant_take_turns_within_its_share() {
    let mut shard = Fixture::new();
    let (one, two) = (shard.create_queue(|_| {}).id, shard.create_queue(|_| {}).id);
    let ones: Vec<_> = (0..2).map(|_| shard.submit(&into(one))).collect();
    let twos: Vec<_> = (0..2).map(|_| shard.submit(&into(two))).collect();
    let other: Vec<_> = (0..4).map(|_| shard.submit(&by("other"))).collect();
    let expected = [ones[0], other[0], twos[0], other[1], ones[1], other[2], twos[1], other[3]];
    assert_eq!(order(&mut shard), expected);
}

#[test]
fn a_blocked_job_does_not_hold_up_other_jobs() {
    let mut shard = Fixture::new();
    let delayed = shard.submit(&job(|spec| spec.not_before = at(10 * SECOND)));
    let ready = shard.submit_some(2);
    assert_eq!(order(&mut shard), [ready[0], ready[1], delayed]);
}

#[test]
fn a_delayed_job_begins_to_wait_when_it_is_due() {
    let mut shard = Fixture::new();
    let delayed = shard.submit(&job(|spec| spec.not_before = at(5 * SECOND)));
    let before = shard.submit(&echo());
    shard.advance(5 * SECOND);
    shard.advance(1);
    let after = shard.submit(&echo());
    assert_eq!(order(&mut shard), [before, delayed, after]);
}

#[test]
fn echo_jobs_do_not_wait_behind_processes() {
    let mut shard = Fixture::with_runner(1);
    let processes = [shard.submit(&process()), shard.submit(&process())];
    let echo = shard.submit(&echo());
    assert_eq!(shard.state(processes[1]), State::Scheduled);
    assert_eq!(shard.state(echo), State::Dispatched);
}

/// A tenant with more distinct requirements gets no larger share.
#[test]
fn tenants_that_wait_for_the_same_runners_never_differ_by_more_than_a_round() {
    let mut shard = Fixture::new();
    let tenants = ["a", "b", "c"];
    let of = |number: usize, topic: usize| {
        job(|spec| {
            spec.tenant = tenants[number].to_owned();
            spec.topic = format!("topic {topic}");
        })
    };
    let mut owner = std::collections::BTreeMap::new();
    for round in 0..30 {
        for number in 0..tenants.len() {
            // The first tenant has one topic, the second two, the third three.
            owner.insert(shard.submit(&of(number, round % (number + 1))), number);
        }
    }
    let mut got = [0u32; 3];
    for id in order(&mut shard) {
        got[owner[&id]] += 1;
        let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
        assert!(most - least <= 1, "{got:?}");
    }
    assert_eq!(got, [30; 3]);
}

/// An idle tenant accumulates no share.
#[test]
fn a_tenant_that_starts_late_gets_no_credit_for_idle_time() {
    let mut shard = Fixture::with_runner(1);
    let early: Vec<_> = (0..20).map(|_| shard.submit(&by("early"))).collect();
    for id in &early[..10] {
        shard.run_attempt(*id, End::Succeeded);
    }
    shard.runs.clear();
    let late: Vec<_> = (0..4).map(|_| shard.submit(&by("late"))).collect();
    for _ in 0..6 {
        let running = early.iter().chain(&late).find(|id| shard.state(**id).is_on_runner()).copied().unwrap();
        shard.run_attempt(running, End::Succeeded);
    }
    let ran = shard.take_runs();
    assert_eq!(ran.iter().filter(|id| late.contains(id)).count(), 3, "{ran:?}");
}

#[test]
fn a_job_without_an_eligible_runner_does_not_hold_up_other_jobs() {
    let mut shard = Fixture::new();
    let elsewhere = shard.submit(&job(|spec| {
        spec.labels.insert("placement.zone".to_owned(), "moon".to_owned());
    }));
    let jobs = shard.submit_some(3);
    shard.runner(RUNNER, room(3));
    assert!(jobs.iter().all(|id| shard.state(*id) == State::Dispatched));
    assert_eq!(shard.state(elsewhere), State::Scheduled);
}
