//! Reads of clients: the API's own code, with commits of shards between its single reads. Every answer must be one that a
//! read in an instant between request and answer could have given.

use model::batch::Keyspace;
use model::id::JobId;
use model::job::Job;
use store::ModelStore;

use crate::invariants::{self, Checked, Violation};
use crate::scenario::SECOND;
use crate::world::{Event, World};

/// Limit of single reads of a read of a job.
const READS_MAX: u64 = 6;

/// The record of a job after a commit, without its spec.
fn record_after(store: &ModelStore, commit: u64, shard: model::id::ShardId, id: JobId) -> Option<Job> {
    let read = |keyspace| store.get_after(commit, shard, keyspace, &id.key());
    let record = read(Keyspace::Live).or_else(|| read(Keyspace::Done))?;
    Job::decode(&record).ok().map(without_spec)
}

fn without_spec(job: Job) -> Job {
    Job { spec: bytes::Bytes::new(), ..job }
}

impl World {
    /// A client begins to read a job.
    pub(crate) fn begin_read(&mut self, job: JobId) {
        let delay = if self.rng.one_in(4) { self.rng.below(5 * SECOND) } else { self.rng.below(200) };
        let since = self.store.commits();
        self.after(delay, Event::ReadEnds { job, since });
    }

    /// A client gets the answer to its read.
    pub(crate) fn read_ends(&mut self, id: JobId, since: u64) -> Checked {
        let shard = self.scenario.shards.owner(id.slot());
        let now = self.store.commits();
        let mut commits: Vec<u64> = (0..READS_MAX).map(|_| self.rng.between(since, now)).collect();
        commits.sort_unstable();
        let read = self.store.read_between(commits, || shard::reads::job(&self.store, shard, id));
        let read = read.map_err(|error| Violation { invariant: "records_can_be_read", detail: error.to_string() })?;
        self.coverage.count(if read.is_some() { "jobs read" } else { "jobs read: unknown" });
        let read = read.map(without_spec);
        let is_possible = (since..=now).any(|commit| record_after(&self.store, commit, shard, id) == read);
        invariants::invariant_reads_are_linearizable(id, since, read.as_ref(), is_possible)
    }

    /// Checks the job in an answer to a request that was sent after `since` commits. It may have moved on in the commit
    /// that is answered, so that only its states are compared.
    pub(crate) fn check_answered(&self, job: &Job, since: u64) -> Checked {
        let shard = self.scenario.shards.owner(job.id.slot());
        let states_after = |commit| record_after(&self.store, commit, shard, job.id).map(|record| record.states);
        let is_new = states_after(since).is_none_or(|before| job.states.starts_with(&before));
        let passed = |commit| states_after(commit).is_some_and(|states| states.starts_with(&job.states));
        let is_possible = is_new && (since..=self.store.commits()).any(passed);
        invariants::invariant_reads_are_linearizable(job.id, since, Some(job), is_possible)
    }
}
