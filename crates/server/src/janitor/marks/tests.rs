//! Marks against a mark of all records, with changes between and during collections.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use model::batch::Batch;
use model::blob::named_in;
use model::id::{JobId, NodeId, QueueId};
use model::job::{Artifact, Job, NewJob};
use model::spec::{EchoRun, JobSpec, Run};
use model::time::Millis;
use parking_lot::Mutex;
use proptest::prelude::*;
use store::{Embedded, FencingToken, ModelStore, Observed, ShardOwner};

use super::*;

const SHARDS: u16 = 2;
const OWNER: ShardOwner = ShardOwner { node: NodeId(1), nonce: 1 };

fn shards() -> Shards {
    Shards::new(SHARDS).unwrap()
}

fn blob(number: u64) -> BlobId {
    BlobId::of(&number.to_be_bytes())
}

/// A job with these inputs. Many inputs make a large spec, which has a record of its own.
fn job(id: u64, inputs: impl Iterator<Item = u64>) -> Job {
    let mut spec = JobSpec::new(Run::Echo(EchoRun::default()));
    spec.inputs = inputs.map(|number| (format!("input-{number}"), blob(number))).collect();
    let (id, queue, now) = (JobId(id), QueueId(1), Millis(1));
    Job::new(NewJob { id, queue, seq: 1, now, queue_max_retries: 1, runtime_max: None }, spec.pack())
}

fn put_job(batch: &mut Batch, keyspace: Keyspace, job: &Job) {
    batch.put_with(keyspace, &job.id.key(), |buffer| job.encode_into(buffer));
}

/// A change of the records of one shard.
#[derive(Debug, Clone, Copy)]
enum Change {
    Submit {
        job: u64,
        input: u64,
        has_large_spec: bool,
    },
    /// From `Live` to `Done`, with an artifact.
    End {
        job: u64,
        artifact: u64,
    },
    Retry {
        job: u64,
    },
    Remove {
        job: u64,
    },
    /// A record of a workflow, definition or schedule.
    PutRow {
        keyspace: Keyspace,
        key: u64,
        names: u64,
    },
    DeleteRow {
        keyspace: Keyspace,
        key: u64,
    },
}

fn changes() -> impl Strategy<Value = (u16, Change)> {
    let job = || 0_u64..600;
    let keyspace = || prop::sample::select(&MARKED[2..]);
    let change = prop_oneof![
        4 => (job(), 0_u64..900, prop::bool::weighted(0.2))
            .prop_map(|(job, input, has_large_spec)| Change::Submit { job, input, has_large_spec }),
        4 => (job(), 0_u64..900).prop_map(|(job, artifact)| Change::End { job, artifact }),
        3 => job().prop_map(|job| Change::Retry { job }),
        2 => job().prop_map(|job| Change::Remove { job }),
        2 => (keyspace(), 0_u64..50, 0_u64..900).prop_map(|(keyspace, key, names)| Change::PutRow { keyspace, key, names }),
        1 => (keyspace(), 0_u64..50).prop_map(|(keyspace, key)| Change::DeleteRow { keyspace, key }),
    ];
    (0..SHARDS, change)
}

/// Writes changes as the engine does: a job is in one keyspace, and moves in one commit.
struct Writer {
    store: ModelStore,
    tokens: Vec<FencingToken>,
    /// Each with whether it is live.
    jobs: BTreeMap<(u16, u64), (Job, bool)>,
    /// Blobs that any written record has ever referred to.
    written: BTreeSet<BlobPrefix>,
}

impl Writer {
    fn new(store: ModelStore) -> Self {
        let tokens = shards().all().map(|shard| store.take_over(shard, OWNER).unwrap()).collect();
        Self { store, tokens, jobs: BTreeMap::new(), written: BTreeSet::new() }
    }

    fn commit(&mut self, shard: u16, write: impl FnOnce(&mut Batch)) {
        let mut batch = Batch::new();
        write(&mut batch);
        self.store.commit(&mut self.tokens[usize::from(shard)], &batch).unwrap();
        self.written.extend(named_in(batch.as_bytes()).map(|blob| BlobPrefix::of(&blob)));
    }

    fn put(&mut self, shard: u16, job: Job, is_live: bool) {
        let (to, from) = if is_live { (Keyspace::Live, Keyspace::Done) } else { (Keyspace::Done, Keyspace::Live) };
        self.commit(shard, |batch| {
            put_job(batch, to, &job);
            batch.delete(from, &job.id.key());
        });
        self.written.extend(job.blobs().unwrap().iter().map(BlobPrefix::of));
        self.jobs.insert((shard, job.id.0), (job, is_live));
    }

    fn submit(&mut self, shard: u16, job: Job) {
        self.commit(shard, |batch| {
            put_job(batch, Keyspace::Live, &job);
            if job.has_large_spec() {
                batch.put(Keyspace::Spec, &job.id.key(), &job.spec);
            }
        });
        self.written.extend(job.blobs().unwrap().iter().map(BlobPrefix::of));
        self.jobs.insert((shard, job.id.0), (job, true));
    }

    fn apply(&mut self, (shard, change): (u16, Change)) {
        match change {
            Change::Submit { job: id, input, has_large_spec } => {
                if !self.jobs.contains_key(&(shard, id)) {
                    let inputs = if has_large_spec { input..input + 60 } else { input..input + 1 };
                    self.submit(shard, job(id, inputs));
                }
            }
            Change::End { job, artifact } => {
                let Some((mut job, true)) = self.jobs.get(&(shard, job)).cloned() else { return };
                let artifact = Artifact { path: "a".to_owned(), blob: blob(artifact), bytes: 1, executable: false };
                job.artifacts = Some(Box::new(vec![artifact]));
                self.put(shard, job, false);
            }
            Change::Retry { job } => {
                let Some((mut job, false)) = self.jobs.get(&(shard, job)).cloned() else { return };
                job.artifacts = None;
                self.put(shard, job, true);
            }
            Change::Remove { job: id } => {
                if let Some((job, false)) = self.jobs.get(&(shard, id)).cloned() {
                    self.commit(shard, |batch| {
                        batch.delete(Keyspace::Done, &job.id.key());
                        batch.delete(Keyspace::Spec, &job.id.key());
                    });
                    self.jobs.remove(&(shard, id));
                }
            }
            Change::PutRow { keyspace, key, names } => {
                let value = format!("a text with {} in it", blob(names));
                self.commit(shard, |batch| batch.put(keyspace, &key.to_be_bytes(), value.as_bytes()));
            }
            Change::DeleteRow { keyspace, key } => {
                self.commit(shard, |batch| batch.delete(keyspace, &key.to_be_bytes()));
            }
        }
    }
}

/// The blobs in use, from a scan of all records.
fn full_mark(store: &dyn Store) -> BTreeSet<BlobPrefix> {
    let mut found = BTreeSet::new();
    for shard in shards().all() {
        for keyspace in MARKED {
            for (_, value) in store.scan(shard, keyspace, store::Range::all(), Order::Ascending, usize::MAX).unwrap() {
                found.extend(blobs_of(store, shard, keyspace, &value).unwrap().iter().map(BlobPrefix::of));
            }
        }
    }
    found
}

fn marked(in_use: &InUse) -> BTreeSet<BlobPrefix> {
    in_use.sorted.iter().chain(&in_use.others).copied().collect()
}

fn mark(marker: &mut Marker, store: &Weak<dyn Store>) -> BTreeSet<BlobPrefix> {
    marked(&marker.mark(store).unwrap().expect("the store is open"))
}

fn weak(store: &Arc<Observed>) -> Weak<dyn Store> {
    Arc::downgrade(&(Arc::clone(store) as Arc<dyn Store>))
}

/// A store with ended jobs 0 to `count` in its first shard, each with an input of its own.
fn with_ended_jobs(count: u64) -> (Writer, Arc<Observed>) {
    let mut writer = Writer::new(ModelStore::new());
    for id in 0..count {
        writer.submit(0, job(id, id..id + 1));
        writer.apply((0, Change::End { job: id, artifact: 100_000 + id }));
    }
    let store = Arc::new(Observed::new(writer.store.clone()));
    (writer, store)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn marks_equal_those_of_a_full_mark(
        count in 0_u64..1_200,
        rounds in prop::collection::vec((prop::collection::vec(changes(), 0..120), any::<[bool; 2]>()), 1..6),
    ) {
        let (mut writer, store) = with_ended_jobs(count);
        let mut marker = Marker::new(shards());
        for (changes, [is_followed, is_expired]) in rounds {
            changes.into_iter().for_each(|change| writer.apply(change));
            if is_followed {
                prop_assert!(marker.follow(&weak(&store)));
            }
            if is_expired {
                writer.store.expire_events();
            }
            prop_assert_eq!(mark(&mut marker, &weak(&store)), full_mark(&writer.store));
        }
    }

    /// Changes during a collection: at its end nothing in use is missing, and nothing is marked without a reason.
    #[test]
    fn no_mark_is_missed_while_records_change(
        count in 0_u64..1_200,
        rounds in prop::collection::vec(prop::collection::vec(changes(), 0..300), 1..5),
        changes_per_read in 1_usize..40,
    ) {
        let (writer, store) = with_ended_jobs(count);
        let records = writer.store.clone();
        let writer = Arc::new(Mutex::new(writer));
        let mut marker = Marker::new(shards());
        for changes in rounds {
            writer.lock().written = full_mark(&records);
            let (mut changes, concurrent) = (changes.into_iter(), Arc::clone(&writer));
            store.before_each_read(move || {
                changes.by_ref().take(changes_per_read).for_each(|change| concurrent.lock().apply(change));
            });
            let marked = mark(&mut marker, &weak(&store));
            prop_assert!(full_mark(&records).is_subset(&marked));
            prop_assert!(marked.is_subset(&writer.lock().written));
        }
    }
}

#[test]
fn a_job_that_keeps_moving_is_never_missed() {
    for inputs in [5_000..5_001, 5_000..5_100] {
        let (mut writer, store) = with_ended_jobs(1_000);
        let id = 2_000;
        writer.submit(0, job(id, inputs.clone()));
        let mut is_live = true;
        store.before_each_read(move || {
            let change = if is_live { Change::End { job: id, artifact: 7_000 } } else { Change::Retry { job: id } };
            writer.apply((0, change));
            is_live = !is_live;
        });
        let mut marker = Marker::new(shards());
        for _ in 0..5 {
            let in_use = marker.mark(&weak(&store)).unwrap().unwrap();
            assert!(inputs.clone().all(|input| in_use.contains(&blob(input))));
        }
    }
}

#[test]
fn a_collection_without_changes_reads_no_record() {
    let (mut writer, store) = with_ended_jobs(5_000);
    let mut marker = Marker::new(shards());
    let first = mark(&mut marker, &weak(&store));
    assert!(store.take_reads() > 0 && store.take_records_read() >= 5_000, "the first one reads all records");
    assert_eq!(mark(&mut marker, &weak(&store)), first);
    assert_eq!((store.take_reads(), store.take_records_read()), (0, 0));
    writer.apply((0, Change::Retry { job: 2_500 }));
    writer.apply((0, Change::Submit { job: 9_999, input: 77_777, has_large_spec: true }));
    assert_eq!(mark(&mut marker, &weak(&store)), full_mark(&writer.store));
    let (_, read) = (store.take_reads(), store.take_records_read());
    assert!((1..500).contains(&read), "{read} records were read for two changes");
    // Commits without references cost no read either.
    writer.commit(0, |batch| batch.put(Keyspace::Meta, b"key", b"value"));
    mark(&mut marker, &weak(&store));
    assert_eq!(store.take_reads(), 0);
}

#[test]
fn after_expired_commits_all_records_are_read() {
    let (mut writer, store) = with_ended_jobs(2_000);
    let mut marker = Marker::new(shards());
    mark(&mut marker, &weak(&store));
    store.take_records_read();
    writer.apply((0, Change::Remove { job: 10 }));
    writer.store.expire_events();
    assert_eq!(mark(&mut marker, &weak(&store)), full_mark(&writer.store));
    assert!(store.take_records_read() >= 1_999);
    // The next one is incremental again.
    writer.apply((0, Change::Remove { job: 11 }));
    assert!(marker.follow(&weak(&store)));
    writer.apply((1, Change::Submit { job: 1, input: 77_777, has_large_spec: false }));
    assert_eq!(mark(&mut marker, &weak(&store)), full_mark(&writer.store));
    assert!(store.take_records_read() < 500);
    // Commits that were followed in time may expire, those that were not discard the marks.
    writer.apply((0, Change::Remove { job: 12 }));
    writer.store.expire_events();
    assert!(marker.follow(&weak(&store)) && marker.marks.is_none());
}

#[test]
fn an_unreadable_record_ends_the_collection() {
    let (mut writer, store) = with_ended_jobs(700);
    let mut marker = Marker::new(shards());
    mark(&mut marker, &weak(&store));
    writer.commit(0, |batch| batch.put(Keyspace::Done, &5_u64.to_be_bytes(), b"damaged"));
    for _ in 0..2 {
        assert!(marker.mark(&weak(&store)).is_err());
    }
    writer.apply((0, Change::Remove { job: 5 }));
    // A job without its spec is unreadable, too.
    writer.submit(0, job(800, 0..100));
    writer.commit(0, |batch| batch.delete(Keyspace::Spec, &800_u64.to_be_bytes()));
    assert!(marker.mark(&weak(&store)).is_err());
    writer.apply((0, Change::End { job: 800, artifact: 1 }));
    writer.apply((0, Change::Remove { job: 800 }));
    store.take_records_read();
    assert_eq!(mark(&mut marker, &weak(&store)), full_mark(&writer.store));
    assert!(store.take_records_read() >= 699, "errors discard the marks");
    writer.store.plan_read_faults(|| true);
    writer.apply((0, Change::Remove { job: 6 }));
    assert!(marker.mark(&weak(&store)).is_err() && marker.marks.is_none());
}

#[test]
fn too_many_references_are_not_kept() {
    let (mut writer, store) = with_ended_jobs(1_500);
    let mut marker = Marker { references_max: 3_000, ..Marker::new(shards()) };
    assert_eq!(mark(&mut marker, &weak(&store)).len(), 3_000);
    assert!(marker.marks.is_some(), "at the limit");
    writer.apply((1, Change::Submit { job: 1, input: 77_777, has_large_spec: false }));
    for _ in 0..2 {
        assert_eq!(mark(&mut marker, &weak(&store)), full_mark(&writer.store));
        assert!(marker.marks.is_none() && !marker.keeps_marks, "beyond the limit");
        assert!(marker.follow(&weak(&store)));
        writer.apply((0, Change::Remove { job: 700 }));
    }
}

#[test]
fn marking_ends_with_the_store() {
    let (_, store) = with_ended_jobs(10);
    let mut marker = Marker::new(shards());
    mark(&mut marker, &weak(&store));
    let closed = weak(&store);
    drop(store);
    assert!(!marker.follow(&closed));
    assert!(marker.mark(&closed).unwrap().is_none());
}

/// Prints the times of a full and of an incremental mark.
#[test]
fn marks_follow_the_embedded_store() {
    const JOBS: u64 = 20_000;
    const CHANGED: u64 = 1_000;
    let directory = tempfile::tempdir().unwrap();
    let embedded = Arc::new(Embedded::open(directory.path(), store::Options::default()).unwrap());
    let mut token = embedded.take_over(ShardId(0), OWNER).unwrap();
    let mut put = |mut ids: std::ops::Range<u64>| {
        while !ids.is_empty() {
            let mut batch = Batch::new();
            ids.by_ref().take(500).for_each(|id| put_job(&mut batch, Keyspace::Done, &job(id, id..id + 1)));
            embedded.commit(&mut token, &batch).unwrap();
        }
    };
    let shared: Arc<dyn Store> = embedded.clone();
    let store = Arc::downgrade(&shared);
    let mut marker = Marker::new(shards());
    let mut timed_mark = |what: &str| {
        let begun = Instant::now();
        let in_use = marker.mark(&store).unwrap().unwrap();
        println!("{what}: {:?}", begun.elapsed());
        assert_eq!(marked(&in_use), full_mark(&*shared));
    };
    put(0..JOBS);
    embedded.flush().unwrap();
    timed_mark("full mark");
    put(JOBS..JOBS + CHANGED);
    timed_mark("mark after 1,000 new jobs");
    timed_mark("mark without changes");
}
