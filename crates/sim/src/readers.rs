//! Reads of clients: the API's own code, with commits of shards between its single reads. Every answer must be one that a
//! read in an instant between request and answer could have given.

mod history;
mod lists;

pub use lists::Listing;

use model::id::JobId;
use model::job::Job;
use store::ModelStore;

use crate::invariants::{self, Checked, Violation};
use crate::rng::{Rng, mix};
use crate::scenario::{SECOND, Time};
use crate::world::{Event, World};
use history::{History, PastStore};

/// What clients read from. Reads change nothing, so that they have a sequence of random numbers of their own.
pub struct Readers {
    rng: Rng,
    history: History,
}

impl Readers {
    pub fn new(seed: u64, store: &ModelStore) -> Self {
        Self { rng: Rng::new(mix(!seed)), history: History::new(store) }
    }

    /// Before and after a failover of the store.
    pub fn fail_over<T>(&mut self, fail_over: impl FnOnce() -> T) -> T {
        self.history.follow();
        let result = fail_over();
        self.history.fail_over();
        result
    }

    /// A read may fail if the store has failed over since then; the client is told to try again.
    fn or_failed_over<T>(&self, read: Result<T, shard::Error>, since: u64) -> Result<Option<T>, Violation> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(shard::Error::Read { .. }) if self.history.has_failed_over(since) => Ok(None),
            Err(error) => Err(Violation { invariant: "records_can_be_read", detail: error.to_string() }),
        }
    }

    /// Time from a request to its answer.
    fn delay(&mut self) -> Time {
        if self.rng.one_in(4) { self.rng.below(5 * SECOND) } else { self.rng.below(200) }
    }
}

/// Commits whose states the single reads of a request see, from `since` to `until`. One of `pace` reads sees a later one.
/// Many reads see the states before and after the retry or the removal of a job.
fn interleaving<'a>(
    rng: &mut Rng,
    history: &'a History,
    (since, until): (u64, u64),
    pace: u64,
) -> impl FnMut() -> u64 + Send + use<'a> {
    let mut rng = Rng::new(rng.next());
    let mut commit = if rng.one_in(2) { since } else { rng.between(since, until) };
    move || {
        if rng.one_in(pace) {
            let before_removal = history.next_removal(commit + 1).map(|removal| removal - 1);
            commit = match rng.below(4) {
                0 => rng.between(commit, until),
                1 => commit + 1,
                _ => before_removal.unwrap_or(commit + 1),
            };
            commit = commit.min(until);
        }
        commit
    }
}

impl World {
    /// Some clients read while others operate on `job`, or on any.
    pub(crate) fn begin_reads(&mut self, job: Option<JobId>) {
        let rng = &mut self.readers.rng;
        let job = job.or_else(|| rng.pick(&self.clients.jobs).copied());
        if let Some(job) = job.filter(|_| rng.one_in(4)) {
            self.begin_read(job);
        }
        if self.readers.rng.one_in(16) {
            self.begin_list();
        }
    }

    /// A client begins to read a job.
    fn begin_read(&mut self, job: JobId) {
        let since = self.readers.history.follow();
        let delay = self.readers.delay();
        self.after(delay, Event::ReadEnds { job, since });
    }

    /// A client gets the answer to its read.
    pub(crate) fn read_ends(&mut self, id: JobId, since: u64) -> Checked {
        let shard = self.scenario.shards.owner(id.slot());
        let Readers { rng, history } = &mut self.readers;
        let until = history.follow();
        let read = {
            let store = PastStore::new(history, interleaving(rng, history, (since, until), 1));
            shard::reads::job(&store, shard, id)
        };
        let Some(read) = self.readers.or_failed_over(read, since)? else {
            self.coverage.count("reads broken by a failover");
            return Ok(());
        };
        let history = &self.readers.history;
        self.coverage.count(if read.is_some() { "jobs read" } else { "jobs read: unknown" });
        let is_possible = history.jobs_between((since, until), shard, id).any(|state| state == read);
        invariants::invariant_reads_are_linearizable(id, since, read.as_ref(), is_possible)
    }

    /// Checks the job in an answer to a request that was sent after `since` commits. It may have moved on in the commit
    /// that is answered, so that only its states are compared.
    pub(crate) fn check_answered(&mut self, job: &Job, since: u64) -> Checked {
        let shard = self.scenario.shards.owner(job.id.slot());
        let history = &mut self.readers.history;
        let until = history.follow();
        let is_new = history.job(since, shard, job.id).is_none_or(|before| job.states.starts_with(&before.states));
        let passed = |state: Option<Job>| state.is_some_and(|state| state.states.starts_with(&job.states));
        let is_possible = is_new && history.jobs_between((since, until), shard, job.id).any(passed);
        invariants::invariant_reads_are_linearizable(job.id, since, Some(job), is_possible)
    }
}
