//! Submission of jobs, single and in batches, up to the limits.

use engine::{Answer, Input, Refusal};
use model::batch::Keyspace;
use model::change::Change;
use model::id::JobId;
use model::job::End;
use model::json::Json;
use model::limits;
use model::queue::QueueRef;
use model::spec::{EchoRun, Run};
use model::state::State;

use crate::support::{Fixture, RUNNER, config_of, echo, job, room, submission};

// FEATURES: B2
#[test]
fn a_job_is_on_disk_before_its_answer_and_runs_to_its_end() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    assert_eq!(shard.state(id), State::Dispatched);
    shard.run_attempt(id, End::Succeeded);
    let record = shard.job(id);
    assert_eq!((record.state, record.result), (State::Succeeded, Some(Json::of(&1))));
    assert_eq!((shard.ended.as_slice(), shard.shard.live_jobs()), (&[id][..], 0));
    assert_eq!(shard.records.len(Keyspace::Live), 0);
}

#[test]
fn every_state_is_announced_to_subscribers() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    shard.run_attempt(id, End::Succeeded);
    let of_job = |change: &Change| match change {
        Change::Job { id: of, state, .. } if *of == id => Some(*state),
        _ => None,
    };
    let recorded: Vec<State> = shard.changes.iter().filter_map(of_job).collect();
    let record: Vec<State> = shard.job(id).states.iter().map(|entry| entry.state).collect();
    assert_eq!(recorded, record);
}

#[test]
fn without_a_runner_jobs_wait() {
    let mut shard = Fixture::new();
    let id = shard.submit(&echo());
    assert_eq!(shard.state(id), State::Scheduled);
    shard.runner(RUNNER, room(1));
    assert_eq!(shard.state(id), State::Dispatched);
}

#[test]
fn a_batch_is_answered_job_by_job_in_its_order() {
    let mut shard = Fixture::with_runner(4);
    let queue = shard.create_queue(|_| {});
    shard.drain_queue(queue.id);
    let closed = job(|spec| spec.queue = Some(QueueRef::Id(queue.id)));
    let results = shard.try_submit(&[echo(), closed, echo()]);
    assert!(results[0].is_ok() && results[2].is_ok());
    assert!(matches!(results[1], Err(Refusal::QueueClosed(_))));
    let seqs: Vec<u64> = results.iter().flatten().map(|accepted| accepted.seq).collect();
    assert_eq!(seqs, [1, 2]);
    assert_eq!(shard.try_submit(&[]), []);
}

#[test]
fn ids_belong_to_the_shard_and_grow() {
    for (number, shards) in [(0, 1), (0, 4), (3, 4)] {
        let config = config_of(number, shards);
        let mut shard = Fixture::with(config);
        let ids = shard.submit_some(50);
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert!(ids.iter().all(|id| config.shards.owner(id.slot()) == config.shard));
        let queue = shard.create_queue(|_| {});
        assert_eq!(config.shards.owner(queue.id.slot()), config.shard);
        let queued = shard.submit(&job(|spec| spec.queue = Some(QueueRef::Id(queue.id))));
        assert_eq!(queued.slot(), queue.id.slot());
        shard.crash();
        assert!(shard.submit(&echo()) > queued, "ids grow across a restart");
    }
}

/// The newest id may belong to a finished or removed job.
#[test]
fn an_id_is_never_handed_out_twice() {
    let mut shard = Fixture::with_runner(10);
    let done = shard.submit(&echo());
    shard.finish_all();
    shard.crash();
    let next = shard.submit(&echo());
    assert!(next > done);
    shard.finish_all();
    shard.exact_counters = false;
    assert_eq!(shard.request(|request| Input::Remove { request, job: next, by: None }), Answer::Removed);
    shard.crash();
    assert!(shard.submit(&echo()) > next);
}

#[test]
fn a_full_shard_refuses_jobs_and_changes_nothing() {
    for (number, shards) in [(0, 1), (3, 4)] {
        let mut config = config_of(number, shards);
        config.live_jobs_max = 3;
        let mut shard = Fixture::with(config);
        let results = shard.try_submit(&vec![echo(); 5]);
        let full = Refusal::Full { retry_after: config.retry_after };
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 3);
        assert_eq!(results[3].as_ref().unwrap_err(), &full);
        assert_eq!((shard.shard.live_jobs(), shard.records.len(Keyspace::Live)), (3, 3));
        let first = results[0].as_ref().unwrap().id;
        shard.cancel(first);
        assert!(shard.try_submit(&[echo()])[0].is_ok(), "one ended, one more fits");
        assert_eq!(shard.try_submit(&[echo()])[0].as_ref().unwrap_err(), &full);
    }
}

/// Retried jobs count towards the limit like new ones.
#[test]
fn a_full_shard_refuses_retries() {
    let mut config = config_of(0, 1);
    config.live_jobs_max = 1;
    let mut shard = Fixture::with(config);
    shard.runner(RUNNER, room(1));
    let failed = shard.submit(&echo());
    shard.run_attempt(failed, End::Fatal);
    let other = shard.submit(&echo());
    assert_eq!(shard.retry(failed), Err(Refusal::Full { retry_after: config.retry_after }));
    assert_eq!(shard.state(failed), State::Failed);
    shard.run_attempt(other, End::Succeeded);
    assert!(shard.retry(failed).is_ok());
}

#[test]
fn a_large_spec_is_written_once_and_comes_back() {
    let value = Json::of(&"x".repeat(limits::INLINE_SPEC_BYTES_MAX));
    let spec = job(|spec| spec.run = Run::Echo(EchoRun { value, ..EchoRun::default() }));
    let mut shard = Fixture::new();
    let id = shard.submit(&spec);
    assert_eq!(shard.records.len(Keyspace::Spec), 1);
    shard.crash();
    assert_eq!(shard.shard.job(id).unwrap().decode_spec().unwrap(), spec);
    shard.runner(RUNNER, room(1));
    shard.finish_all();
    shard.exact_counters = false;
    assert_eq!(shard.request(|request| Input::Remove { request, job: id, by: None }), Answer::Removed);
    for keyspace in [Keyspace::Spec, Keyspace::Done, Keyspace::ByQueue, Keyspace::ByState] {
        assert_eq!(shard.records.len(keyspace), 0, "{}", keyspace.name());
    }
}

#[test]
fn a_job_is_removed_only_when_it_has_ended() {
    let mut shard = Fixture::with_runner(1);
    let id = shard.submit(&echo());
    let remove = |shard: &mut Fixture| shard.request(|request| Input::Remove { request, job: id, by: None });
    assert!(matches!(remove(&mut shard), Answer::Refused(Refusal::WrongState { state: State::Dispatched, .. })));
    shard.run_attempt(id, End::Fatal);
    shard.exact_counters = false;
    assert_eq!(remove(&mut shard), Answer::Removed);
    assert_eq!(remove(&mut shard), Answer::Refused(Refusal::UnknownJob(id)));
    let nowhere = JobId(99);
    assert_eq!(shard.retry(nowhere), Err(Refusal::UnknownJob(nowhere)));
}

/// The end is committed with the same step.
#[test]
fn a_job_can_be_removed_in_the_step_that_ends_it() {
    let mut shard = Fixture::new();
    let id = shard.submit(&echo());
    let (cancel, remove) = (shard.next_request(), shard.next_request());
    shard.exact_counters = false;
    shard.input_together(vec![
        Input::Cancel { request: cancel, job: id, by: None },
        Input::Remove { request: remove, job: id, by: None },
    ]);
    assert_eq!(shard.answer(remove), Some(Answer::Removed));
    assert_eq!(shard.records.job(id), None);
}

#[test]
fn changes_within_one_step_are_written_once() {
    let mut shard = Fixture::new();
    let (submit, other) = (shard.next_request(), shard.next_request());
    shard.input_together(vec![
        Input::Submit { request: submit, jobs: vec![submission(&echo())] },
        Input::Submit { request: other, jobs: vec![submission(&echo())] },
    ]);
    assert_eq!(shard.records.len(Keyspace::Live), 2);
    let Some(Answer::Submitted(results)) = shard.answer(submit) else { panic!("an answer") };
    let id = results[0].as_ref().unwrap().id;
    let (cancel, retry) = (shard.next_request(), shard.next_request());
    shard.input_together(vec![
        Input::Cancel { request: cancel, job: id, by: None },
        Input::Retry { request: retry, job: id, by: None },
    ]);
    assert!(matches!(shard.answer(retry), Some(Answer::Refused(Refusal::WrongState { .. }))));
    assert_eq!(shard.state(id), State::Cancelled);
}
