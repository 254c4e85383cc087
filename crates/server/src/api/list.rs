//! Lists of jobs: newest first, filtered, in pages.

use ::api::{JobView, Page};
use model::batch::Keyspace;
use model::id::{JobId, QueueId, ShardId};
use model::job::Job;
use model::key;
use model::spec::JobSpec;
use model::state::State;
use shard::reads;
use store::{Key, Order, Range, Store};

use super::merge::{CHUNK, Chunk, CursorForm, MergeReader, READ_MAX, Source, combine, rank};
use super::parameters::Parameters;
use super::problem::Refused;
use super::workflows::view::complete_origin;
use super::{Core, jobs};
use crate::error::Error;

/// Filter of a list of jobs.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub states: Option<Vec<State>>,
    pub queue: Option<QueueId>,
    pub topic: Option<String>,
    pub tenant: Option<String>,
}

impl Filter {
    /// Blocks on the store if a queue is given.
    pub fn from(core: &Core, parameters: &Parameters) -> Result<Self, Refused> {
        let queue = match parameters.queue()? {
            Some(reference) => Some(super::queues::load(core, reference)?.id),
            None => None,
        };
        Ok(Self {
            states: parameters.states()?,
            queue,
            topic: parameters.text("topic").map(str::to_owned),
            tenant: parameters.text("tenant").map(str::to_owned),
        })
    }

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

    /// The indexes that together have all jobs of the list, live ones first.
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
    fn read(self, store: &dyn Store, shard: ShardId, before: Option<JobId>) -> Result<Vec<JobId>, store::Error> {
        let (keyspace, prefix): (Keyspace, Vec<u8>) = match self {
            Self::Live => (Keyspace::Live, Vec::new()),
            Self::Done => (Keyspace::Done, Vec::new()),
            Self::State(state) => (Keyspace::ByState, vec![state.code()]),
            Self::Queue(queue) => (Keyspace::ByQueue, queue.key().to_vec()),
        };
        let mut range = if prefix.is_empty() { Range::all() } else { Range::prefix(&prefix) };
        if let Some(before) = before {
            let mut end = prefix.clone();
            end.extend_from_slice(&before.key());
            range = range.before(&Key::new(&end));
        }
        let found = store.scan(shard, keyspace, range, Order::Descending, CHUNK)?;
        Ok(found.iter().filter_map(|(key, _)| self.id(key)).collect())
    }

    fn id(self, key: &[u8]) -> Option<JobId> {
        match self {
            Self::Live | Self::Done => JobId::from_key(key),
            Self::State(_) => key::job_of_by_state(key),
            Self::Queue(_) => key::job_of_by_queue(key),
        }
    }
}
/// Ids of jobs in several indexes, newest first. Every read covers all indexes, live jobs first: a job that ends
/// meanwhile is found among the ended ones, at worst in both.
struct JobIds<'a> {
    store: &'a dyn Store,
    indexes: Vec<Index>,
}

impl Source for JobIds<'_> {
    type Item = JobId;
    type Position = JobId;

    fn read(&self, shard: ShardId, after: Option<JobId>) -> Result<Chunk<JobId>, Refused> {
        let chunks: Result<Vec<_>, _> = self.indexes.iter().map(|index| index.read(self.store, shard, after)).collect();
        Ok(combine(chunks?, CHUNK, |id| self.rank(id)))
    }

    fn rank(&self, id: &JobId) -> u64 {
        rank(Order::Descending, id.0)
    }

    fn position(&self, id: &JobId) -> JobId {
        *id
    }
}

/// A page of jobs. Blocks on the store.
pub(crate) fn page(core: &Core, filter: &Filter, parameters: &Parameters) -> Result<Page<JobView>, Refused> {
    let limit = parameters.limit()?;
    let cursor = CursorForm::Short;
    let before = parameters.text("cursor").map(|text| cursor.parse(text)).transpose()?;
    let store = core.store();
    let source = JobIds { store, indexes: filter.indexes() };
    let shards: Vec<ShardId> = match filter.queue {
        Some(queue) => vec![core.shard_of(queue.slot())],
        None => core.shards.all().collect(),
    };
    let mut reader = MergeReader::new(source, shards.into_iter().map(|shard| (shard, before)));
    let (items, more) = reader.take(limit, READ_MAX, |shard, id| match reads::job(store, shard, id)? {
        Some(job) => view_if_accepted(core, filter, shard, &job),
        None => Ok(None),
    })?;
    Ok(Page { items, next_cursor: reader.last().filter(|_| more).map(|id| cursor.text(id)) })
}

fn view_if_accepted(core: &Core, filter: &Filter, shard: ShardId, job: &Job) -> Result<Option<JobView>, Refused> {
    if !filter.accepts_state(job.state) {
        return Ok(None);
    }
    let spec = job.decode_spec().map_err(|source| Error::record(shard, source))?;
    if !filter.accepts(&spec) {
        return Ok(None);
    }
    let mut shown = JobView::new(job, spec);
    jobs::add_usage(core, job, &mut shown);
    complete_origin(core, job.origin.as_deref(), shown.origin.as_mut())?;
    Ok(Some(shown))
}
