//! Retention: expired jobs and keys are removed, others are not.

use engine::{Answer, Config, Fetch, Input};
use model::batch::Keyspace;
use model::change::Change;
use model::id::JobId;
use model::job::End;
use model::state::State;
use model::time::Millis;

use crate::support::{DAY, Fixture, HOUR, RUNNER, config_of, echo, keyed, room};

/// A shard with a short retention.
fn keeping_for(retention: u64, config: Config) -> Fixture {
    Fixture::with(Config { retention: Millis(retention), dead_letter_retention: Millis(0), ..config })
}

fn with_runner() -> Fixture {
    let mut shard = keeping_for(2 * HOUR, config_of(0, 1));
    shard.runner(RUNNER, room(1));
    shard
}

fn removed(shard: &Fixture) -> Vec<JobId> {
    let of_job = |change: &Change| match change {
        Change::JobRemoved { id, .. } => Some(*id),
        _ => None,
    };
    shard.changes.iter().filter_map(of_job).collect()
}

#[test]
fn finished_jobs_are_removed_after_their_retention_and_not_before() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut shard = keeping_for(2 * HOUR, config_of(number, shards));
        shard.runner(RUNNER, room(3));
        shard.exact_counters = false;
        let jobs = shard.submit_some(3);
        shard.run_attempt(jobs[0], End::Succeeded);
        shard.run_attempt(jobs[1], End::Fatal);
        shard.advance(shard.config.retention.0);
        assert_eq!(removed(&shard), []);
        shard.advance(2 * shard.config.sweep_interval.0);
        assert_eq!(removed(&shard), jobs[..2]);
        assert_eq!(shard.records.len(Keyspace::Done), 0);
        assert_eq!(shard.records.len(Keyspace::ByState), 0);
        assert!(shard.records.job(jobs[2]).is_some_and(|job| !job.state.is_terminal()), "live jobs never expire");
        let refused = shard.retry(jobs[1]);
        assert!(refused.is_err());
    }
}

#[test]
fn many_old_jobs_are_removed_in_chunks() {
    let mut config = config_of(0, 1);
    config.sweep_chunk = 10;
    let mut shard = keeping_for(2 * HOUR, config);
    shard.exact_counters = false;
    shard.runner(RUNNER, room(100));
    shard.submit_some(55);
    shard.finish_all();
    shard.advance(shard.config.retention.0);
    let young = shard.submit(&echo());
    shard.finish_all();
    let before = shard.records.len(Keyspace::Done);
    assert_eq!(before, 56);
    shard.advance(2 * config.sweep_interval.0);
    assert_eq!(shard.records.len(Keyspace::Done), 1);
    assert_eq!(shard.state(young), State::Succeeded);
}

#[test]
fn a_retried_job_gets_a_new_retention_period() {
    let mut shard = with_runner();
    shard.exact_counters = false;
    let id = shard.submit(&echo());
    shard.run_attempt(id, End::Fatal);
    shard.advance(shard.config.retention.0 - HOUR);
    shard.retry(id).unwrap();
    shard.run_attempt(id, End::Fatal);
    shard.advance(2 * HOUR);
    assert_eq!(shard.state(id), State::Failed, "its retention begins anew");
}

/// The sweep's records are outdated by the retry.
#[test]
fn a_job_retried_during_a_sweep_is_not_removed() {
    for ended_again in [false, true] {
        let mut shard = with_runner();
        shard.exact_counters = false;
        let id = shard.submit(&echo());
        shard.run_attempt(id, End::Fatal);
        shard.advance(shard.config.retention.0 - HOUR);
        shard.hold_fetches = true;
        shard.now = shard.now + Millis(2 * HOUR);
        shard.input(Input::Tick);
        let finished = shard.fetches.iter().find(|fetch| matches!(fetch, Fetch::Finished { .. })).cloned();
        let snapshot = shard.records.answer(&finished.expect("a sweep is in progress"));
        shard.fetches.clear();
        shard.hold_fetches = false;
        shard.retry(id).unwrap();
        if ended_again {
            shard.run_attempt(id, End::Fatal);
        }
        shard.input(Input::Fetched(snapshot));
        assert!(shard.records.job(id).is_some(), "ended again: {ended_again}");
        assert_eq!(removed(&shard), []);
    }
}

#[test]
fn a_job_removed_by_an_operator_during_a_sweep_is_removed_once() {
    let mut shard = with_runner();
    shard.exact_counters = false;
    let id = shard.submit(&echo());
    shard.run_attempt(id, End::Fatal);
    shard.hold_fetches = true;
    shard.now = shard.now + shard.config.retention + Millis(HOUR);
    shard.input(Input::Tick);
    let finished = shard.fetches.iter().find(|fetch| matches!(fetch, Fetch::Finished { .. })).cloned();
    let snapshot = shard.records.answer(&finished.expect("a sweep is in progress"));
    shard.fetches.clear();
    shard.hold_fetches = false;
    assert_eq!(shard.request(|request| Input::Remove { request, job: id, by: None }), Answer::Removed);
    shard.input(Input::Fetched(snapshot));
    assert_eq!(removed(&shard), [id]);
}

#[test]
fn expired_keys_are_deleted_by_day() {
    let mut config = config_of(0, 1);
    config.sweep_chunk = 5;
    let mut shard = Fixture::with(config);
    for number in 0..12 {
        shard.submit(&keyed(&format!("key {number}")));
    }
    shard.advance(DAY + HOUR);
    assert_eq!(shard.records.len(Keyspace::Keys), 12, "the day is not over in every time zone");
    shard.advance(DAY);
    assert_eq!(shard.records.len(Keyspace::Keys), 0);
}
