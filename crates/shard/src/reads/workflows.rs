//! Reads of workflows, their tasks and signals, and of schedules.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use engine::StoredWorkflow;
use minicbor::Decode;
use model::batch::Keyspace;
use model::codec;
use model::id::{ScheduleId, ShardId, WorkflowId};
use model::key;
use model::spec::Digest;
use model::workflow::{Schedule, Signal, TaskKey, TaskRecord, Workflow, WorkflowSpec};
use store::{Key, Order, Range, Store};
use workflow::Plan;

use super::moves;
use crate::{Error, PlanCache, load_plan};

/// Rows per page of a scan.
const PAGE: usize = 500;

pub fn decode<'b, T: Decode<'b, ()>>(shard: ShardId, value: &'b [u8]) -> Result<T, Error> {
    codec::decode(value).map_err(|source| Error::record(shard, source))
}

fn read(shard: ShardId, record: Option<Bytes>) -> Result<Option<Workflow>, Error> {
    let Some(record) = record else { return Ok(None) };
    let found: Workflow = decode(shard, &record)?;
    // A workflow that is being removed counts as deleted, though some rows remain.
    Ok(Some(found).filter(|found| !found.removing))
}

/// A workflow, live or ended.
pub fn workflow(store: &dyn Store, shard: ShardId, id: WorkflowId) -> Result<Option<Workflow>, Error> {
    let keyspaces = [Keyspace::Workflows, Keyspace::WorkflowsDone];
    read(shard, moves::find(store, shard, keyspaces, &id.key())?)
}

/// Inputs of a workflow, and its definition or the digest of it.
pub fn spec(store: &dyn Store, shard: ShardId, id: WorkflowId) -> Result<Option<WorkflowSpec>, Error> {
    let value = store.get(shard, Keyspace::WorkflowSpecs, &id.key())?;
    value.map(|value| decode(shard, &value)).transpose()
}

/// A definition stored by its digest. None: there is no such definition.
pub fn definition(store: &dyn Store, shard: ShardId, digest: Digest) -> Result<Option<Bytes>, Error> {
    Ok(store.get(shard, Keyspace::Definitions, &digest.0)?)
}

pub fn schedule(store: &dyn Store, shard: ShardId, id: ScheduleId) -> Result<Option<Schedule>, Error> {
    let value = store.get(shard, Keyspace::Schedules, &id.key())?;
    value.map(|value| decode(shard, &value)).transpose()
}

/// Everything of a workflow but its record.
pub struct Live {
    pub spec: WorkflowSpec,
    pub plan: Arc<Plan>,
    pub tasks: Vec<(TaskKey, TaskRecord)>,
    pub signals: Vec<(u32, Signal)>,
}

/// Everything of a workflow but its record. An unreadable definition is the same error as a damaged record.
pub fn live(store: &dyn Store, plans: &dyn PlanCache, shard: ShardId, id: WorkflowId) -> Result<Live, Error> {
    let damaged = |message: String| Error::record(shard, codec::DecodeError::Malformed(message));
    let Some(spec) = spec(store, shard, id)? else {
        return Err(damaged(format!("the definition of {id} is missing")));
    };
    let plan = load_plan(store, plans, shard, spec.digest, &spec.definition)?;
    let plan = plan.map_err(|error| damaged(format!("cannot read the definition of {id}: {error}")))?;
    let mut tasks = Vec::new();
    let mut rows = Rows::new(store, shard, id);
    while let Some(row) = rows.next_row()? {
        tasks.push(row);
    }
    let signals = signals(store, shard, id)?;
    Ok(Live { spec, plan, tasks, signals })
}

/// All records of an ended workflow.
pub fn stored(
    store: &dyn Store,
    plans: &dyn PlanCache,
    shard: ShardId,
    id: WorkflowId,
) -> Result<Option<StoredWorkflow>, Error> {
    let record = store.get(shard, Keyspace::WorkflowsDone, &id.key())?;
    let Some(record) = read(shard, record)? else { return Ok(None) };
    let Live { spec, plan, tasks, signals } = live(store, plans, shard, id)?;
    Ok(Some(StoredWorkflow { record, spec, plan, tasks, signals }))
}

/// Signals that no task of a workflow has received yet.
pub fn signals(store: &dyn Store, shard: ShardId, id: WorkflowId) -> Result<Vec<(u32, Signal)>, Error> {
    // The limit of signals is a few pages.
    let limit = model::limits::SIGNALS_MAX + 1;
    let found = store.scan(shard, Keyspace::Signals, Range::prefix(&id.key()), Order::Ascending, limit)?;
    let known = found.iter().filter_map(|(key, value)| Some((key::number_of_signal(key)?.1, value)));
    known.map(|(number, value)| Ok((number, decode(shard, value)?))).collect()
}

/// Started tasks of a workflow in the order of the definition, each before its items.
pub struct Rows<'a> {
    store: &'a dyn Store,
    shard: ShardId,
    range: Range,
    ahead: std::vec::IntoIter<(TaskKey, TaskRecord)>,
    exhausted: bool,
}

impl<'a> Rows<'a> {
    pub fn new(store: &'a dyn Store, shard: ShardId, workflow: WorkflowId) -> Self {
        let range = Range::prefix(&workflow.key());
        Self { store, shard, range, ahead: Vec::new().into_iter(), exhausted: false }
    }

    /// Continues at `task_key`, or at the first row after it.
    pub fn skip_to(&mut self, workflow: WorkflowId, task_key: TaskKey) {
        let rest: Vec<_> = std::mem::take(&mut self.ahead).skip_while(|(at, _)| *at < task_key).collect();
        if rest.is_empty() && !self.exhausted {
            self.range.start = Bound::Included(Key::new(&key::task(workflow, task_key)));
        }
        self.ahead = rest.into_iter();
    }

    pub fn next_row(&mut self) -> Result<Option<(TaskKey, TaskRecord)>, Error> {
        if let Some(row) = self.ahead.next() {
            return Ok(Some(row));
        }
        if self.exhausted {
            return Ok(None);
        }
        let found = self.store.scan(self.shard, Keyspace::Tasks, self.range, Order::Ascending, PAGE)?;
        self.exhausted = found.len() < PAGE;
        if let Some((last, _)) = found.last() {
            self.range = self.range.after(last);
        }
        let known = found.iter().filter_map(|(key, value)| Some((key::key_of_task(key)?.1, value)));
        let rows: Result<Vec<_>, Error> =
            known.map(|(task_key, value)| Ok((task_key, decode(self.shard, value)?))).collect();
        self.ahead = rows?.into_iter();
        Ok(self.ahead.next())
    }
}

/// One task of a workflow.
pub fn task(
    store: &dyn Store,
    shard: ShardId,
    workflow: WorkflowId,
    task_key: TaskKey,
) -> Result<Option<TaskRecord>, Error> {
    let value = store.get(shard, Keyspace::Tasks, &key::task(workflow, task_key))?;
    value.map(|value| decode(shard, &value)).transpose()
}
