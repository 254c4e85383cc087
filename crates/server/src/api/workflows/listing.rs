//! Lists of workflows: newest first, filtered, page by page.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::Json as JsonBody;
use axum::extract::State as Shared;
use bytes::Bytes;
use model::batch::Keyspace;
use model::id::{QueueId, ScheduleId, ShardId, WorkflowId};
use model::view::{Page, WorkflowView};
use model::workflow::{Workflow, WorkflowState};
use store::{Key, Order, Range, Store};

use super::blocking;
use crate::api::list::{Parameters, bad};
use crate::api::problem::{Fault, Refused};
use crate::api::{App, Core, queues};
use crate::clock;
use crate::reads::flows;

/// How many records one request looks at; a page may be short for it, and says where to go on.
const LOOKED_AT_MAX: usize = 20_000;
const CHUNK: usize = 500;

pub(crate) async fn list(
    Shared(app): Shared<Arc<App>>,
    parameters: Parameters,
) -> Result<JsonBody<Page<WorkflowView>>, Refused> {
    let core = app.core()?;
    blocking(move || page(&core, &Filter::from(&core, &parameters)?, &parameters)).await.map(JsonBody)
}

/// Which workflows are wanted.
#[derive(Debug, Default)]
struct Filter {
    states: Option<Vec<WorkflowState>>,
    name: Option<String>,
    tenant: Option<String>,
    queue: Option<QueueId>,
    schedule: Option<ScheduleId>,
    /// Also those that are parts of others.
    children: bool,
}

impl Filter {
    fn from(core: &Core, parameters: &Parameters) -> Result<Self, Refused> {
        let states = match parameters.text("state") {
            Some(text) => {
                let states: Result<_, _> = text.split(',').map(str::parse).collect();
                Some(states.map_err(|error: model::workflow::UnknownState| bad("state", error.to_string()))?)
            }
            None => None,
        };
        let queue = match parameters.queue()? {
            Some(model::queue::QueueRef::Id(id)) => Some(id),
            Some(reference) => Some(queues::load(core, reference)?.id),
            None => None,
        };
        let schedule = parameters.text("schedule").map(|text| {
            let parsed: Result<ScheduleId, _> = text.parse();
            parsed.map_err(|error| Refused::saying(Fault::InvalidId, error.to_string()).at("schedule"))
        });
        Ok(Self {
            states,
            name: parameters.text("name").map(str::to_owned),
            tenant: parameters.text("tenant").map(str::to_owned),
            queue,
            schedule: schedule.transpose()?,
            children: parameters.flag("children")?,
        })
    }

    fn wants(&self, workflow: &Workflow) -> bool {
        !workflow.removing
            && (self.children || workflow.parent.is_none())
            && self.states.as_ref().is_none_or(|states| states.contains(&workflow.state))
            && self.name.as_ref().is_none_or(|name| *name == workflow.name)
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == workflow.tenant)
            && self.queue.is_none_or(|queue| queue == workflow.queue)
            && self.schedule.is_none_or(|schedule| workflow.schedule.is_some_and(|from| from.id == schedule))
    }
}

/// The workflows of one shard, read ahead a chunk at a time, newest first.
struct Strand {
    shard: ShardId,
    ahead: std::vec::IntoIter<(WorkflowId, Bytes)>,
    head: Option<(WorkflowId, Bytes)>,
    exhausted: bool,
}

impl Strand {
    fn advance(&mut self, store: &dyn Store, before: Option<WorkflowId>) -> Result<(), store::Error> {
        self.head = self.ahead.next();
        if self.head.is_none() && !self.exhausted {
            self.ahead = self.read(store, before)?.into_iter();
            self.head = self.ahead.next();
        }
        Ok(())
    }

    /// Reads on, live ones first: one that ends meanwhile is then met among those that have ended, at the worst in both.
    fn read(
        &mut self,
        store: &dyn Store,
        before: Option<WorkflowId>,
    ) -> Result<Vec<(WorkflowId, Bytes)>, store::Error> {
        let mut found: Vec<(WorkflowId, Bytes)> = Vec::new();
        let mut oldest = WorkflowId(0);
        self.exhausted = true;
        let range = before.map_or_else(Range::all, |id| Range::all().before(&Key::new(&id.key())));
        for keyspace in [Keyspace::Workflows, Keyspace::WorkflowsDone] {
            let chunk = store.scan(self.shard, keyspace, range, Order::Descending, CHUNK)?;
            let is_full = chunk.len() == CHUNK;
            let known = chunk.into_iter().filter_map(|(key, value)| Some((WorkflowId::from_key(&key)?, value)));
            found.extend(known);
            if let Some((last, _)) = found.last().filter(|_| is_full) {
                // It has more, older ones: what lies beyond is left for the next time.
                oldest = oldest.max(*last);
                self.exhausted = false;
            }
        }
        found.retain(|(id, _)| *id >= oldest);
        // Of one that was met in both the record that was read later, of its end, is the newer. Sorting keeps the order
        // of equals.
        found.reverse();
        found.sort_by_key(|(id, _)| Reverse(*id));
        found.dedup_by_key(|(id, _)| *id);
        Ok(found)
    }
}

fn page(core: &Core, filter: &Filter, parameters: &Parameters) -> Result<Page<WorkflowView>, Refused> {
    let limit = parameters.limit()?;
    let mut before = parameters.text("cursor").map(parse_cursor).transpose()?;
    let store: &dyn Store = core.store.as_ref();
    let shards: Vec<ShardId> = match filter.queue {
        Some(queue) => vec![core.shard_of(queue.slot())],
        None => core.shards.all().collect(),
    };
    let mut strands = Vec::new();
    for shard in shards {
        let mut strand = Strand { shard, ahead: Vec::new().into_iter(), head: None, exhausted: false };
        strand.advance(store, before)?;
        strands.push(strand);
    }
    let (mut items, now) = (Vec::new(), clock::now());
    for _ in 0..LOOKED_AT_MAX {
        let id_of = |strand: &Strand| strand.head.as_ref().map(|(id, _)| *id);
        let newest = strands.iter_mut().max_by_key(|strand| id_of(strand));
        let Some((strand, (id, value))) = newest.and_then(|strand| strand.head.take().map(|head| (strand, head)))
        else {
            return Ok(Page { items, next_cursor: None });
        };
        let shard = strand.shard;
        strand.advance(store, Some(id))?;
        before = Some(id);
        let workflow: Workflow = flows::decode(shard, &value)?;
        if filter.wants(&workflow) {
            items.push(WorkflowView::new(&workflow, now));
        }
        if items.len() == limit {
            break;
        }
    }
    Ok(Page { items, next_cursor: before.map(cursor) })
}

/// Cursors are opaque to clients: the last workflow that was looked at.
fn cursor(id: WorkflowId) -> String {
    format!("c{}", &id.to_string()[WorkflowId::PREFIX.len()..])
}

fn parse_cursor(text: &str) -> Result<WorkflowId, Refused> {
    let id = text.strip_prefix('c').and_then(|rest| format!("{}{rest}", WorkflowId::PREFIX).parse().ok());
    id.ok_or_else(|| Refused::saying(Fault::InvalidCursor, format!("`{text}` is not a cursor of a list")).at("cursor"))
}
