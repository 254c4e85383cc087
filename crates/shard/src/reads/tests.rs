//! Reads on the model store, with commits between the single reads.

use std::sync::Arc;

use model::batch::Batch;
use model::id::{NodeId, QueueId};
use model::job::NewJob;
use model::key;
use model::limits;
use model::spec::{EchoRun, JobSpec, Run};
use model::state::State;
use model::time::Millis;
use store::{FencingToken, ModelStore, Observed, ShardOwner};

use super::*;

pub(super) const SHARD: ShardId = ShardId(0);
pub(super) const QUEUE: QueueId = QueueId(1);

/// Writes jobs to a shard, as its owner does.
pub(super) struct Writer {
    store: ModelStore,
    token: FencingToken,
}

pub(super) fn job_of(id: u64, state: State) -> Job {
    with_spec(id, state, JobSpec::new(Run::Echo(EchoRun::default())))
}

pub(super) fn with_spec(id: u64, state: State, spec: JobSpec) -> Job {
    let new = NewJob { id: JobId(id), queue: QUEUE, seq: 1, now: Millis(1), queue_max_retries: 1, runtime_max: None };
    Job { state, ..Job::new(new, spec.pack()) }
}

/// A spec with a record of its own.
fn large_spec() -> JobSpec {
    let mut spec = JobSpec::new(Run::Echo(EchoRun::default()));
    spec.labels.insert("large".to_owned(), "x".repeat(limits::INLINE_SPEC_BYTES_MAX));
    spec
}

impl Writer {
    /// A store with one shard, and its only writer.
    pub fn new() -> (Self, Arc<Observed>) {
        let store = ModelStore::new();
        let token = store.take_over(SHARD, ShardOwner { node: NodeId(1), nonce: 1 }).unwrap();
        (Self { store: store.clone(), token }, Arc::new(Observed::new(store)))
    }

    pub fn commit(&mut self, write: impl FnOnce(&mut Batch)) {
        let mut batch = Batch::new();
        write(&mut batch);
        self.store.commit(&mut self.token, &batch).unwrap();
    }

    /// Replaces all records of a job.
    pub fn put(&mut self, job: &Job) {
        self.commit(|batch| {
            delete_all(batch, job.id);
            let is_terminal = job.state.is_terminal();
            let keyspace = if is_terminal { Keyspace::Done } else { Keyspace::Live };
            batch.put_with(keyspace, &job.id.key(), |buffer| job.encode_into(buffer));
            batch.put(Keyspace::ByQueue, &key::by_queue(job.queue, job.id), &[]);
            if is_terminal && job.state != State::Succeeded {
                batch.put(Keyspace::ByState, &key::by_state(job.state, job.id), &[]);
            }
            if job.has_large_spec() {
                batch.put(Keyspace::Spec, &job.id.key(), &job.spec);
            }
        });
    }

    pub fn remove(&mut self, id: u64) {
        self.commit(|batch| delete_all(batch, JobId(id)));
    }
}

fn delete_all(batch: &mut Batch, id: JobId) {
    for keyspace in [Keyspace::Live, Keyspace::Done, Keyspace::Spec] {
        batch.delete(keyspace, &id.key());
    }
    batch.delete(Keyspace::ByQueue, &key::by_queue(QUEUE, id));
    for state in State::ALL {
        batch.delete(Keyspace::ByState, &key::by_state(state, id));
    }
}

#[test]
fn a_live_job_takes_one_read_an_ended_one_two_and_an_unknown_one_three() {
    let (mut writer, store) = Writer::new();
    writer.put(&job_of(1, State::Running));
    writer.put(&job_of(2, State::Failed));
    for (id, is_known, reads) in [(1, true, 1), (2, true, 2), (3, false, 3)] {
        assert_eq!(job(&*store, SHARD, JobId(id)).unwrap().is_some(), is_known);
        assert_eq!(store.take_reads(), reads, "job {id}");
    }
}

#[test]
fn a_job_that_is_retried_and_ends_again_and_again_is_found() {
    for first in [State::Failed, State::Pending] {
        let (mut writer, store) = Writer::new();
        writer.put(&job_of(1, first));
        let mut states = [State::Pending, State::Failed].into_iter().cycle();
        store.before_each_read(move || writer.put(&job_of(1, states.next().unwrap())));
        for _ in 0..5 {
            assert!(job(&*store, SHARD, JobId(1)).unwrap().is_some());
            // One more read, so that the moves meet the reads in the other order.
            store.get(SHARD, Keyspace::Meta, b"").unwrap();
        }
    }
}

#[test]
fn commits_of_other_jobs_do_not_make_an_unknown_job_known() {
    let (mut writer, store) = Writer::new();
    store.before_each_read(move || writer.put(&job_of(2, State::Pending)));
    assert_eq!(job(&*store, SHARD, JobId(1)).unwrap(), None);
    assert_eq!(store.take_reads(), 3);
}

#[test]
fn a_job_that_is_removed_before_its_large_spec_is_read_is_unknown() {
    let (mut writer, store) = Writer::new();
    writer.put(&with_spec(1, State::Failed, large_spec()));
    assert!(job(&*store, SHARD, JobId(1)).unwrap().unwrap().decode_spec().is_ok());
    let mut reads = 0;
    store.before_each_read(move || {
        reads += 1;
        if reads == 3 {
            writer.remove(1);
        }
    });
    assert_eq!(job(&*store, SHARD, JobId(1)).unwrap(), None);
}

#[test]
fn a_job_whose_large_spec_is_lost_is_not_unknown() {
    let (mut writer, store) = Writer::new();
    writer.put(&with_spec(1, State::Failed, large_spec()));
    writer.commit(|batch| batch.delete(Keyspace::Spec, &JobId(1).key()));
    assert!(job(&*store, SHARD, JobId(1)).unwrap().unwrap().decode_spec().is_err());
}
