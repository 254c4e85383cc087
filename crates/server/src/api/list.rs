//! Lists: newest first, filtered, page by page.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use model::batch::Keyspace;
use model::id::{JobId, QueueId, ShardId};
use model::job::Job;
use model::key;
use model::queue::QueueRef;
use model::spec::JobSpec;
use model::state::State;
use model::time::Millis;
use model::view::{JobView, Page};
use store::{Key, Order, Range, Store};

use super::problem::{Fault, Refused};
use super::workflows::view::complete_origin;
use super::{Core, docs, jobs};
use crate::error::Error;
use crate::reads;

/// The longest wait that a request may ask for.
const WAIT_MAX: Millis = Millis::from_secs(300);
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;
/// How many records one request looks at; a page may be short for it, and says where to go on.
const LOOKED_AT_MAX: usize = 20_000;
const CHUNK: usize = 500;

/// The query of a request. What the route does not know is refused: a misspelt filter must not list everything.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    values: BTreeMap<String, String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Parameters {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let query = parts.uri.query().unwrap_or_default();
        if query.is_empty() {
            return Ok(Self::default());
        }
        expect_known(parts)?;
        let axum::extract::Query(values) =
            axum::extract::Query::<BTreeMap<String, String>>::try_from_uri(&parts.uri)
                .map_err(|error| Refused::saying(Fault::InvalidParameter, error.to_string()))?;
        Ok(Self { values })
    }
}

fn expect_known(parts: &Parts) -> Result<(), Refused> {
    let Some(path) = parts.extensions.get::<MatchedPath>() else { return Ok(()) };
    let pairs = parts.uri.query().unwrap_or_default().split('&');
    for name in pairs.filter_map(|pair| pair.split('=').next()).filter(|name| !name.is_empty()) {
        if !docs::has_parameter(path.as_str(), parts.method.as_str(), name) {
            let detail = format!("`{name}` is not a parameter of this route; /docs lists them");
            return Err(Refused::saying(Fault::InvalidParameter, detail).at(name));
        }
    }
    Ok(())
}

impl Parameters {
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    pub fn flag(&self, name: &'static str) -> Result<bool, Refused> {
        match self.text(name) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(other) => Err(bad(name, format!("`{other}` is neither true nor false"))),
        }
    }

    pub fn number(&self, name: &'static str, max: u64) -> Result<Option<u64>, Refused> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse::<u64>() {
            Ok(number) if number <= max => Ok(Some(number)),
            Ok(_) => Err(bad(name, format!("{text} is too much: at most {max}"))),
            Err(_) => Err(bad(name, format!("`{text}` is not a whole number of at least 0"))),
        }
    }

    /// How long the client wants to wait.
    pub fn wait(&self) -> Result<Option<Duration>, Refused> {
        Ok(self.number("wait_ms", WAIT_MAX.0)?.map(Duration::from_millis))
    }

    pub fn limit(&self) -> Result<usize, Refused> {
        match self.number("limit", LIMIT_MAX as u64)? {
            Some(0) => Err(bad("limit", "0 lists nothing".to_owned())),
            Some(limit) => Ok(limit as usize),
            None => Ok(LIMIT_DEFAULT),
        }
    }

    pub fn queue(&self) -> Result<Option<QueueRef>, Refused> {
        self.text("queue").map(super::queues::parse_ref).transpose()
    }

    pub fn job(&self) -> Result<Option<JobId>, Refused> {
        self.text("job").map(super::jobs::parse_id).transpose()
    }

    fn states(&self) -> Result<Option<Vec<State>>, Refused> {
        let Some(text) = self.text("state") else { return Ok(None) };
        let states: Result<Vec<State>, _> = text.split(',').map(str::parse).collect();
        states.map(Some).map_err(|error| bad("state", error.to_string()))
    }
}

pub(crate) fn bad(name: &'static str, detail: String) -> Refused {
    Refused::saying(Fault::InvalidParameter, detail).at(name)
}

/// Which jobs are wanted.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub states: Option<Vec<State>>,
    pub queue: Option<QueueId>,
    pub topic: Option<String>,
    pub tenant: Option<String>,
}

impl Filter {
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

    /// Leaves only states that `wanted` accepts, of those that were asked for.
    pub fn narrow(&mut self, wanted: impl Fn(State) -> bool) {
        let states = self.states.take().unwrap_or_else(|| State::ALL.to_vec());
        self.states = Some(states.into_iter().filter(|state| wanted(*state)).collect());
    }

    fn wants_state(&self, state: State) -> bool {
        self.states.as_ref().is_none_or(|states| states.contains(&state))
    }

    fn wants(&self, spec: &JobSpec) -> bool {
        self.topic.as_ref().is_none_or(|topic| *topic == spec.topic)
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == spec.tenant)
    }

    /// The indexes that together hold all wanted jobs, live ones first.
    fn sources(&self) -> Vec<Source> {
        if let Some(queue) = self.queue {
            return vec![Source::Queue(queue)];
        }
        let states = self.states.clone().unwrap_or_else(|| State::ALL.to_vec());
        let mut sources = Vec::new();
        if states.iter().any(|state| !state.is_terminal()) {
            sources.push(Source::Live);
        }
        if states.contains(&State::Succeeded) {
            // Most jobs succeed: no index is narrower than the records themselves.
            sources.push(Source::Done);
        } else {
            sources.extend(states.iter().filter(|state| state.is_terminal()).map(|state| Source::State(*state)));
        }
        sources
    }
}

/// Where ids of jobs are found in their order.
#[derive(Debug, Clone, Copy)]
enum Source {
    Live,
    Done,
    State(State),
    Queue(QueueId),
}

impl Source {
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

/// The jobs of one shard, read ahead a chunk at a time, newest first.
struct Strand {
    shard: ShardId,
    sources: Vec<Source>,
    ahead: std::vec::IntoIter<JobId>,
    head: Option<JobId>,
    exhausted: bool,
}

impl Strand {
    fn new(shard: ShardId, sources: Vec<Source>) -> Self {
        Self { shard, sources, ahead: Vec::new().into_iter(), head: None, exhausted: false }
    }

    fn advance(&mut self, store: &dyn Store, before: Option<JobId>) -> Result<(), store::Error> {
        self.head = self.ahead.next();
        if self.head.is_none() && !self.exhausted {
            self.ahead = self.read(store, before)?.into_iter();
            self.head = self.ahead.next();
        }
        Ok(())
    }

    /// Reads on in all sources, and always in all of them, live jobs first: one that ends meanwhile is then met
    /// among those that have ended, at the worst in both.
    fn read(&mut self, store: &dyn Store, before: Option<JobId>) -> Result<Vec<JobId>, store::Error> {
        let mut ids = Vec::new();
        let mut oldest = JobId(0);
        self.exhausted = true;
        for source in &self.sources {
            let chunk = source.read(store, self.shard, before)?;
            if let Some(last) = chunk.last().filter(|_| chunk.len() == CHUNK) {
                // It has more, older ones: what lies beyond is left for the next time.
                oldest = oldest.max(*last);
                self.exhausted = false;
            }
            ids.extend(chunk);
        }
        ids.retain(|id| *id >= oldest);
        ids.sort_unstable_by_key(|id| std::cmp::Reverse(*id));
        ids.dedup();
        Ok(ids)
    }
}

/// One page of jobs. Blocking: it reads the store.
pub(crate) fn page(core: &Core, filter: &Filter, parameters: &Parameters) -> Result<Page<JobView>, Refused> {
    let limit = parameters.limit()?;
    let mut before = parameters.text("cursor").map(parse_cursor).transpose()?;
    let store: &dyn Store = core.store.as_ref();
    let shards: Vec<ShardId> = match filter.queue {
        Some(queue) => vec![core.shard_of(queue.slot())],
        None => core.shards.all().collect(),
    };
    let mut strands = Vec::new();
    for shard in shards {
        let mut strand = Strand::new(shard, filter.sources());
        strand.advance(store, before)?;
        strands.push(strand);
    }
    let mut items = Vec::new();
    for _ in 0..LOOKED_AT_MAX {
        let newest = strands.iter_mut().filter(|strand| strand.head.is_some()).max_by_key(|strand| strand.head);
        let Some((strand, id)) = newest.and_then(|strand| strand.head.map(|id| (strand, id))) else {
            return Ok(Page { items, next_cursor: None });
        };
        let shard = strand.shard;
        strand.advance(store, Some(id))?;
        before = Some(id);
        if let Some(job) = reads::job(store, shard, id)? {
            items.extend(wanted(core, filter, shard, &job)?);
        }
        if items.len() == limit {
            break;
        }
    }
    Ok(Page { items, next_cursor: before.map(cursor) })
}

fn wanted(core: &Core, filter: &Filter, shard: ShardId, job: &Job) -> Result<Option<JobView>, Refused> {
    if !filter.wants_state(job.state) {
        return Ok(None);
    }
    let spec = job.decode_spec().map_err(|source| Error::Record { shard: shard.0, source })?;
    if !filter.wants(&spec) {
        return Ok(None);
    }
    let mut shown = JobView::new(job, spec);
    jobs::add_usage(core, job, &mut shown);
    complete_origin(core, job.origin.as_deref(), shown.origin.as_mut())?;
    Ok(Some(shown))
}

/// Cursors are opaque to clients: the last job that was shown.
pub(crate) fn cursor(id: JobId) -> String {
    format!("c{}", &id.to_string()[JobId::PREFIX.len()..])
}

pub(crate) fn parse_cursor(text: &str) -> Result<JobId, Refused> {
    let id = text.strip_prefix('c').and_then(|rest| format!("{}{rest}", JobId::PREFIX).parse().ok());
    id.ok_or_else(|| Refused::saying(Fault::InvalidCursor, format!("`{text}` is not a cursor of a list")).at("cursor"))
}
