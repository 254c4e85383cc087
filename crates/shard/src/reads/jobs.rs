//! Lists of jobs: newest first, filtered, in pages.
//!
//! Each job of a page is as it was at some time while the page was read. A job that matches the filter during the whole
//! listing is on exactly one page, even if it changes or moves meanwhile.

use model::batch::Keyspace;
use model::id::{JobId, QueueId, ShardId, Shards};
use model::job::Job;
use model::key;
use model::spec::JobSpec;
use model::state::State;
use store::{Key, Order, Range, Store};

use super::merge::{CHUNK, Chunk, MergeReader, READ_MAX, Source, combine, later, rank};
use super::moves::written_since;
use crate::Error;

/// Filter of a list of jobs.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub states: Option<Vec<State>>,
    pub queue: Option<QueueId>,
    pub topic: Option<String>,
    pub tenant: Option<String>,
}

impl Filter {
    /// Keeps only the requested states that `wanted` accepts.
    pub fn narrow(&mut self, wanted: impl Fn(State) -> bool) {
        let states = self.states.take().unwrap_or_else(|| State::ALL.to_vec());
        self.states = Some(states.into_iter().filter(|state| wanted(*state)).collect());
    }

    fn accepts_state(&self, state: State) -> bool {
        self.states.as_ref().is_none_or(|states| states.contains(&state))
    }

    fn accepts(&self, spec: &JobSpec) -> bool {
        self.topic.as_ref().is_none_or(|topic| *topic == spec.topic)
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == spec.tenant)
    }

    /// The indexes that together have all jobs of the list.
    fn indexes(&self) -> Vec<Index> {
        if let Some(queue) = self.queue {
            return vec![Index::Queue(queue)];
        }
        let states = self.states.clone().unwrap_or_else(|| State::ALL.to_vec());
        let mut indexes = Vec::new();
        if states.iter().any(|state| !state.is_terminal()) {
            indexes.push(Index::Live);
        }
        if states.contains(&State::Succeeded) {
            // Most jobs succeed: no index is narrower than the records themselves.
            indexes.push(Index::Done);
        } else {
            indexes.extend(states.iter().filter(|state| state.is_terminal()).map(|state| Index::State(*state)));
        }
        indexes
    }
}

/// An index of jobs by id.
#[derive(Debug, Clone, Copy)]
enum Index {
    Live,
    Done,
    State(State),
    Queue(QueueId),
}

impl Index {
    fn keyspace(self) -> Keyspace {
        match self {
            Self::Live => Keyspace::Live,
            Self::Done => Keyspace::Done,
            Self::State(_) => Keyspace::ByState,
            Self::Queue(_) => Keyspace::ByQueue,
        }
    }

    fn prefix(self) -> Vec<u8> {
        match self {
            Self::Live | Self::Done => Vec::new(),
            Self::State(state) => vec![state.code()],
            Self::Queue(queue) => queue.key().to_vec(),
        }
    }

    fn id(self, key: &[u8]) -> Option<JobId> {
        match self {
            Self::Live | Self::Done => JobId::from_key(key),
            Self::State(_) => key::job_of_by_state(key),
            Self::Queue(_) => key::job_of_by_queue(key),
        }
    }

    fn range(self, before: Option<JobId>) -> Range {
        let prefix = self.prefix();
        let range = if prefix.is_empty() { Range::all() } else { Range::prefix(&prefix) };
        match before {
            Some(before) => range.before(&Key::new(&[&prefix[..], &before.key()].concat())),
            None => range,
        }
    }
}

/// Ids of the jobs in several indexes, newest first. A job that moves between the indexes meanwhile is not missed.
struct JobIds<'a> {
    store: &'a dyn Store,
    indexes: Vec<Index>,
    chunk_max: usize,
}

impl JobIds<'_> {
    fn scan(&self, shard: ShardId, index: Index, before: Option<JobId>) -> Result<Chunk<JobId>, Error> {
        let range = index.range(before);
        let found = self.store.scan(shard, index.keyspace(), range, Order::Descending, self.chunk_max)?;
        let items = found.iter().filter_map(|(key, _)| index.id(key)).collect();
        Ok(Chunk { items, is_last: found.len() < self.chunk_max })
    }

    /// Jobs that were written since the indexes were read.
    fn written(&self, shard: ShardId, before: Option<JobId>, since: &store::Cursor) -> Result<Chunk<JobId>, Error> {
        let written = written_since(self.store, shard, &[Keyspace::Live, Keyspace::Done], since)?;
        let ids = written.iter().filter_map(|(key, _)| Some((JobId::from_key(key)?, ())));
        let Chunk { items, is_last } = later(ids, before, Order::Descending);
        Ok(Chunk { items: items.into_iter().map(|(id, ())| id).collect(), is_last })
    }
}

impl Source for JobIds<'_> {
    type Item = JobId;
    type Position = JobId;

    fn read(&self, shard: ShardId, before: Option<JobId>) -> Result<Chunk<JobId>, Error> {
        if let [index] = self.indexes[..] {
            return self.scan(shard, index, before);
        }
        let since = self.store.newest_cursor()?;
        let chunks: Result<Vec<_>, Error> = self.indexes.iter().map(|index| self.scan(shard, *index, before)).collect();
        let mut chunks = chunks?;
        chunks.push(self.written(shard, before, &since)?);
        Ok(combine(chunks, |id| self.rank(id)))
    }

    fn rank(&self, id: &JobId) -> u64 {
        rank(Order::Descending, id.0)
    }

    fn position(&self, id: &JobId) -> JobId {
        *id
    }
}

/// A job of a page.
#[derive(Debug)]
pub struct Listed {
    pub job: Job,
    pub spec: JobSpec,
}

/// A page of a list of jobs.
#[derive(Debug)]
pub struct Page {
    pub jobs: Vec<Listed>,
    /// The next page starts before this job. `None`: this page is the last one.
    pub next: Option<JobId>,
}

/// Reads a list of jobs.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    store: &'a dyn Store,
    shards: Shards,
    filter: &'a Filter,
    chunk_max: usize,
    read_max: usize,
}

impl<'a> Reader<'a> {
    pub fn new(store: &'a dyn Store, shards: Shards, filter: &'a Filter) -> Self {
        Self { store, shards, filter, chunk_max: CHUNK, read_max: READ_MAX }
    }

    /// Reads at most `chunk_max` entries of an index at once, and `read_max` jobs for a page.
    pub fn with_limits(self, chunk_max: usize, read_max: usize) -> Self {
        Self { chunk_max, read_max, ..self }
    }

    /// A page of up to `limit` jobs, all of them older than `before`. Blocks on the store.
    pub fn page(&self, before: Option<JobId>, limit: usize) -> Result<Page, Error> {
        let shards: Vec<ShardId> = match self.filter.queue {
            Some(queue) => vec![self.shards.owner(queue.slot())],
            None => self.shards.all().collect(),
        };
        let ids = JobIds { store: self.store, indexes: self.filter.indexes(), chunk_max: self.chunk_max };
        let mut reader = MergeReader::new(ids, shards.into_iter().map(|shard| (shard, before)));
        let (jobs, next) = reader.take(limit, self.read_max, |shard, id| self.read(shard, id))?;
        Ok(Page { jobs, next })
    }

    /// A job, if the filter accepts it.
    fn read(&self, shard: ShardId, id: JobId) -> Result<Option<Listed>, Error> {
        let Some(job) = super::job(self.store, shard, id)? else { return Ok(None) };
        if !self.filter.accepts_state(job.state) {
            return Ok(None);
        }
        let spec = job.decode_spec().map_err(|source| Error::record(shard, source))?;
        Ok(self.filter.accepts(&spec).then_some(Listed { job, spec }))
    }
}

#[cfg(test)]
mod tests;
