//! Tests of the checks themselves, and of reads with a forced interleaving.

use bytes::Bytes;
use model::batch::{Batch, Keyspace};
use model::id::{NodeId, QueueId, ShardId};
use model::job::NewJob;
use model::spec::{EchoRun, JobSpec, Run};
use model::time::Millis;
use shard::reads::jobs::Listed;
use store::{ModelStore, ShardOwner, Store};

use super::*;

const SHARD: ShardId = ShardId(0);

fn shards() -> Shards {
    Shards::new(1).unwrap()
}

fn job(id: u64, state: State) -> Job {
    let queue = QueueId(1);
    let new = NewJob { id: JobId(id), queue, seq: 1, now: Millis(1), queue_max_retries: 1, runtime_max: None };
    Job { state, ..Job::new(new, JobSpec::new(Run::Echo(EchoRun::default())).pack()) }
}

/// The history of a shard: one commit for each of these jobs.
fn history(jobs: &[Job]) -> History {
    let store = ModelStore::new();
    let mut history = History::new(&store);
    let mut token = store.take_over(SHARD, ShardOwner { node: NodeId(1), nonce: 1 }).unwrap();
    for job in jobs {
        let mut batch = Batch::new();
        let (to, from) = match job.state.is_terminal() {
            true => (Keyspace::Done, Keyspace::Live),
            false => (Keyspace::Live, Keyspace::Done),
        };
        batch.put_with(to, &job.id.key(), |buffer| job.encode_into(buffer));
        batch.delete(from, &job.id.key());
        store.commit(&mut token, &batch).unwrap();
    }
    assert_eq!(history.follow(), jobs.len() as u64);
    history
}

fn listing(began: u64) -> Listing {
    Listing { limit: 10, chunk_max: 10, read_max: 100, ..Listing::new(&mut Rng::new(1), Filter::default(), began) }
}

fn page(jobs: &[Job], next: Option<u64>) -> Page {
    let listed = |job: &Job| Listed { job: job.clone(), spec: job.decode_spec().unwrap() };
    Page { jobs: jobs.iter().map(listed).collect(), next: next.map(JobId) }
}

fn missing(listing: &Listing, history: &History, until: u64) -> Option<JobId> {
    listing.missing(history, shards(), until, &mut Coverage::default())
}

#[test]
fn a_job_that_is_missing_is_detected_unless_it_came_later() {
    let history = history(&[job(1, State::Pending), job(2, State::Pending), job(1, State::Failed)]);
    let mut listing = listing(1);
    assert_eq!(listing.add(&history, shards(), 3, &page(&[], None)), None);
    assert_eq!(missing(&listing, &history, 3), Some(JobId(1)));
    assert_eq!(listing.add(&history, shards(), 3, &page(&[job(1, State::Failed)], None)), None);
    assert_eq!(missing(&listing, &history, 3), None);
}

#[test]
fn a_job_that_does_not_match_all_the_time_may_be_missing() {
    let history = history(&[job(1, State::Pending), job(1, State::Failed)]);
    let mut listing = listing(1);
    listing.filter.states = Some(vec![State::Failed]);
    assert_eq!(missing(&listing, &history, 2), None);
    listing.began = 2;
    assert_eq!(missing(&listing, &history, 2), Some(JobId(1)));
}

#[test]
fn a_job_that_is_listed_twice_or_too_late_is_detected() {
    let jobs = [job(1, State::Pending), job(2, State::Pending)];
    let history = history(&jobs);
    let [first, second] = jobs;
    assert!(listing(2).add(&history, shards(), 2, &page(&[first.clone(), second.clone()], None)).is_some());
    let mut listing = listing(2);
    assert_eq!(listing.add(&history, shards(), 2, &page(std::slice::from_ref(&second), Some(2))), None);
    assert!(listing.add(&history, shards(), 2, &page(&[second], None)).is_some());
    assert_eq!(listing.add(&history, shards(), 2, &page(&[first], None)), None);
}

#[test]
fn a_job_as_it_was_before_the_request_or_beside_the_filter_is_detected() {
    let history = history(&[job(1, State::Pending), job(1, State::Running), job(1, State::Failed)]);
    let defect = |filter: &[State], state| {
        let mut listing = listing(2);
        listing.filter.states = Some(filter.to_vec());
        listing.add(&history, shards(), 3, &page(&[job(1, state)], None))
    };
    assert!(defect(&State::ALL, State::Pending).is_some());
    assert_eq!(defect(&State::ALL, State::Running), None);
    assert_eq!(defect(&State::ALL, State::Failed), None);
    assert!(defect(&[State::Failed], State::Running).is_some());
    let mut changed = job(1, State::Failed);
    changed.spec = Bytes::from_static(b"other");
    let page = Page { jobs: page(&[job(1, State::Failed)], None).jobs, next: None };
    let jobs = page.jobs.into_iter().map(|listed| Listed { job: changed.clone(), ..listed }).collect();
    assert!(listing(2).add(&history, shards(), 3, &Page { jobs, next: None }).is_some());
}

#[test]
fn a_cursor_that_does_not_advance_is_detected() {
    let history = history(&[job(1, State::Pending)]);
    let mut listing = listing(1);
    assert_eq!(listing.add(&history, shards(), 1, &page(&[], Some(1))), None);
    assert!(listing.add(&history, shards(), 1, &page(&[], Some(1))).is_some());
}

/// A job that is retried and ends, again and again, between the single reads of it.
#[test]
fn reads_find_a_job_that_moves_before_each_of_them() {
    let states = [State::Pending, State::Failed].into_iter().cycle().take(100);
    let history = history(&states.map(|state| job(1, state)).collect::<Vec<_>>());
    for first in 1..=2 {
        for step in 1..=4 {
            let commits = || {
                let mut commit = first;
                move || {
                    commit += step;
                    commit.min(100)
                }
            };
            let store = PastStore::new(&history, commits());
            assert!(shard::reads::job(&store, SHARD, JobId(1)).unwrap().is_some());
            let page = listing(first).read(&history, shards(), commits()).unwrap();
            assert_eq!(page.jobs.len(), 1);
        }
    }
}
