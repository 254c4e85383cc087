//! Nodes that fail distinct jobs through their own fault: found from what all shards have seen, and not paid for by the jobs.

use engine::{FailingRule, RunnerHealth, failing_runners};
use model::id::{JobId, RunnerId};
use model::job::{NodeFailure, Outcome};
use model::spec::JobSpec;
use model::state::State;
use model::time::Millis;

use crate::support::{Fixture, process, room};

const SICK: RunnerId = RunnerId(1);
const HEALTHY: RunnerId = RunnerId(2);
const RULE: FailingRule = FailingRule { jobs_min: 3, window: Millis(600_000) };

fn node_failure() -> Outcome {
    Outcome::of_node_failure("the disk is full".to_owned())
}

/// Fails the current attempt of a job through the node's fault.
fn fail(shard: &mut Fixture, job: JobId) {
    shard.end_with(shard.current(job), node_failure());
}

/// Jobs that run on the sick runner, the only one so far.
fn on_sick(count: usize) -> (Fixture, Vec<JobId>) {
    let mut shard = Fixture::new();
    shard.runner(SICK, room(10));
    let spec = JobSpec { max_retries: Some(5), ..process() };
    let jobs = (0..count).map(|_| shard.submit(&spec)).collect();
    (shard, jobs)
}

fn found(shard: &Fixture) -> Vec<(RunnerId, usize, bool)> {
    let reports = shard.shard.runner_health();
    let found = failing_runners(&reports, &shard.shard.settings().cordoned, RULE, shard.now);
    found.into_iter().map(|failing| (failing.runner, failing.jobs.len(), failing.is_last)).collect()
}

fn cordon(shard: &mut Fixture, since: Millis) {
    shard.change_settings(|settings| {
        settings.cordoned.insert(SICK);
        settings.failing.insert(SICK, since);
    });
}

#[test]
fn distinct_jobs_that_fail_on_a_node_show_that_it_is_at_fault() {
    let (mut shard, jobs) = on_sick(3);
    shard.runner(HEALTHY, room(10));
    for job in &jobs[..2] {
        fail(&mut shard, *job);
    }
    shard.advance(3_000);
    assert_eq!(found(&shard), [], "two are not enough");
    fail(&mut shard, jobs[2]);
    assert_eq!(found(&shard), [], "a success on another shard may not be known yet");
    shard.advance(2_000);
    assert_eq!(found(&shard), [(SICK, 3, false)]);
    shard.advance(RULE.window.0);
    assert_eq!(found(&shard), [], "too long ago");
}

#[test]
fn one_job_that_fails_again_and_again_says_nothing_about_the_node() {
    let (mut shard, jobs) = on_sick(1);
    for _ in 0..3 {
        fail(&mut shard, jobs[0]);
        shard.advance(40_000);
    }
    assert_eq!(found(&shard), []);
}

#[test]
fn a_success_in_between_clears_the_node() {
    let (mut shard, jobs) = on_sick(4);
    shard.runner(HEALTHY, room(10));
    for job in &jobs[..2] {
        fail(&mut shard, *job);
    }
    shard.run_attempt(jobs[3], model::job::End::Succeeded);
    fail(&mut shard, jobs[2]);
    shard.advance(3_000);
    assert_eq!(found(&shard), []);
}

#[test]
fn failures_that_are_not_the_fault_of_the_node_do_not_count() {
    let (mut shard, jobs) = on_sick(3);
    for job in &jobs {
        shard.end(shard.current(*job), model::job::End::Infrastructure);
    }
    shard.advance(3_000);
    assert_eq!(found(&shard), []);
}

#[test]
fn what_several_shards_have_seen_counts_together() {
    let report = |failures: &[(u64, u64)], succeeded_at: Option<u64>| RunnerHealth {
        runner: SICK,
        is_usable: true,
        pools: ["default".to_owned()].into(),
        failures: failures.iter().map(|(job, at)| (JobId(*job), Millis(*at))).collect(),
        succeeded_at: succeeded_at.map(Millis),
    };
    let other = RunnerHealth { runner: HEALTHY, ..report(&[], None) };
    let judge = |reports: &[RunnerHealth]| failing_runners(reports, &[].into(), RULE, Millis(20_000));
    let shards = [report(&[(1, 10_000), (2, 11_000)], None), report(&[(3, 12_000)], Some(9_000)), other.clone()];
    let failing = judge(&shards);
    assert_eq!((failing.len(), failing[0].since, failing[0].is_last), (1, Millis(10_000), false));
    let succeeded_elsewhere = [report(&[(1, 10_000), (2, 11_000)], None), report(&[(3, 12_000)], Some(10_500)), other];
    assert_eq!(judge(&succeeded_elsewhere), []);
}

#[test]
fn the_last_node_of_a_pool_is_named_as_such() {
    let (mut shard, jobs) = on_sick(3);
    for job in &jobs {
        fail(&mut shard, *job);
    }
    shard.advance(3_000);
    assert_eq!(found(&shard), [(SICK, 3, true)]);
    shard.runner(HEALTHY, room(1));
    assert_eq!(found(&shard), [(SICK, 3, false)], "there is another one now");
}

#[test]
fn the_failures_of_a_failing_node_are_refunded() {
    let (mut shard, jobs) = on_sick(4);
    shard.runner(HEALTHY, room(10));
    let since = shard.now;
    for job in &jobs[..3] {
        fail(&mut shard, *job);
        assert_eq!(shard.job(*job).infrastructure_failures, 1);
    }
    cordon(&mut shard, since);
    for job in &jobs[..3] {
        let record = shard.job(*job);
        assert_eq!(record.infrastructure_failures, 0);
        assert_eq!(record.attempts[0].node_failure, Some(NodeFailure::Refunded));
    }
    fail(&mut shard, jobs[3]);
    assert_eq!(shard.job(jobs[3]).infrastructure_failures, 0, "it began before the cordon");
    shard.advance(40_000);
    for job in jobs {
        assert_eq!(shard.job(job).runner().map(|(runner, _)| runner), Some(HEALTHY));
    }
}

#[test]
fn a_refund_that_a_crash_prevented_is_made_by_the_next_owner() {
    let (mut shard, jobs) = on_sick(3);
    shard.runner(HEALTHY, room(10));
    let since = shard.now;
    for job in &jobs {
        fail(&mut shard, *job);
    }
    // The shard crashes before it gets the settings, and starts with them.
    let settings = std::sync::Arc::make_mut(&mut shard.settings);
    settings.cordoned.insert(SICK);
    settings.failing.insert(SICK, since);
    shard.crash();
    for job in &jobs {
        assert_eq!(shard.job(*job).infrastructure_failures, 0);
    }
    shard.crash();
    assert!(jobs.iter().all(|job| shard.job(*job).infrastructure_failures == 0), "once");
}

#[test]
fn earlier_failures_and_ended_jobs_are_not_refunded() {
    let (mut shard, jobs) = on_sick(2);
    shard.runner(HEALTHY, room(10));
    fail(&mut shard, jobs[0]);
    shard.advance(100);
    let since = shard.now;
    fail(&mut shard, jobs[1]);
    shard.cancel(jobs[1]);
    assert_eq!(shard.state(jobs[1]), State::Cancelled);
    cordon(&mut shard, since);
    assert_eq!(shard.job(jobs[0]).infrastructure_failures, 1);
    assert_eq!(shard.job(jobs[1]).attempts[0].node_failure, Some(NodeFailure::Charged));
}
