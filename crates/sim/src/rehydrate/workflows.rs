//! Rehydration of workflows and schedules.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{Fetched, Shard, StoredWorkflow};
use model::batch::Keyspace;
use model::codec;
use model::id::{ShardId, WorkflowId};
use model::key;
use model::spec::Digest;
use model::workflow::{Schedule, Signal, TaskKey, TaskRecord, Workflow, WorkflowSpec};
use parking_lot::Mutex;
use store::{Key, Order, Range, Store};
use workflow::Plan;
use workflow::cron::Cron;

use super::{scan, unreadable};

/// Cache of compiled definitions by digest: compiling a large one takes as long as many rounds.
#[derive(Debug, Default)]
pub struct Plans {
    known: Mutex<BTreeMap<[u8; 16], Arc<Plan>>>,
}

impl Plans {
    /// Loads a definition stored by its digest.
    pub fn load(&self, store: &dyn Store, shard: ShardId, digest: Digest) -> Result<Arc<Plan>, String> {
        let definition = store.get(shard, Keyspace::Definitions, &digest.0).map_err(|error| unreadable(&error))?;
        let definition = definition.ok_or_else(|| format!("the definition {digest:?} is missing"))?;
        let mut known = self.known.lock();
        if let Some(plan) = known.get(&digest.0) {
            return Ok(plan.clone());
        }
        let plan = Plan::load(&definition).map_err(|error| unreadable(&error))?;
        if plan.digest != digest {
            return Err(format!("the digest of the definition of {} differs from its record", plan.name));
        }
        known.insert(digest.0, plan.clone());
        Ok(plan)
    }
}

/// All rows of one workflow in a keyspace.
fn rows_of(
    store: &dyn Store,
    shard: ShardId,
    keyspace: Keyspace,
    id: WorkflowId,
) -> Result<Vec<(Key, bytes::Bytes)>, String> {
    let found = store.scan(shard, keyspace, Range::prefix(&id.key()), Order::Ascending, usize::MAX);
    found.map_err(|error| unreadable(&error))
}

fn tasks_of(store: &dyn Store, shard: ShardId, id: WorkflowId) -> Result<Vec<(TaskKey, TaskRecord)>, String> {
    let rows = rows_of(store, shard, Keyspace::Tasks, id)?;
    let read = |(key, value): (Key, bytes::Bytes)| {
        let (_, task_key) = key::key_of_task(&key).ok_or("a key of the tasks keyspace is invalid")?;
        Ok((task_key, codec::decode(&value).map_err(|error| unreadable(&error))?))
    };
    rows.into_iter().map(read).collect()
}

fn signals_of(store: &dyn Store, shard: ShardId, id: WorkflowId) -> Result<Vec<(u32, Signal)>, String> {
    let rows = rows_of(store, shard, Keyspace::Signals, id)?;
    let read = |(key, value): (Key, bytes::Bytes)| {
        let (_, number) = key::number_of_signal(&key).ok_or("a key of the signals keyspace is invalid")?;
        Ok((number, codec::decode(&value).map_err(|error| unreadable(&error))?))
    };
    rows.into_iter().map(read).collect()
}

fn spec_of(store: &dyn Store, shard: ShardId, id: WorkflowId) -> Result<WorkflowSpec, String> {
    let found = store.get(shard, Keyspace::WorkflowSpecs, &id.key()).map_err(|error| unreadable(&error))?;
    let found = found.ok_or_else(|| format!("the definition of {id} is missing"))?;
    codec::decode(&found).map_err(|error| unreadable(&error))
}

/// Restores live workflows with their tasks and signals, and schedules.
pub fn restore(store: &dyn Store, plans: &Plans, id: ShardId, shard: &mut Shard) -> Result<(), String> {
    for (_, value) in scan(store, id, Keyspace::Workflows)? {
        let record: Workflow = codec::decode(&value).map_err(|error| unreadable(&error))?;
        let workflow = record.id;
        if record.removing {
            // Its rows are removed without being read.
            shard.restore_unreadable_workflow(record);
            continue;
        }
        let spec = spec_of(store, id, workflow)?;
        let plan = plans.load(store, id, spec.digest)?;
        shard.restore_workflow(record, &spec, plan);
        for (task_key, row) in tasks_of(store, id, workflow)? {
            shard.restore_task(workflow, task_key, row);
        }
        for (number, signal) in signals_of(store, id, workflow)? {
            shard.restore_signal(workflow, number, signal);
        }
    }
    for (_, value) in scan(store, id, Keyspace::Schedules)? {
        let schedule: Schedule = codec::decode(&value).map_err(|error| unreadable(&error))?;
        let plan = plans.load(store, id, schedule.spec.digest)?;
        let cron = Cron::parse(&schedule.spec.cron, &schedule.spec.zone).map_err(|error| unreadable(&error))?;
        shard.restore_schedule(schedule, plan, Arc::new(cron));
    }
    Ok(())
}

/// An ended workflow with its tasks and signals.
pub fn ended(store: &dyn Store, plans: &Plans, shard: ShardId, id: WorkflowId) -> Result<Fetched, String> {
    let found = store.get(shard, Keyspace::WorkflowsDone, &id.key()).map_err(|error| unreadable(&error))?;
    let Some(value) = found else { return Ok(Fetched::Workflow { id, found: None }) };
    let spec = spec_of(store, shard, id)?;
    let stored = StoredWorkflow {
        record: codec::decode(&value).map_err(|error| unreadable(&error))?,
        plan: plans.load(store, shard, spec.digest)?,
        spec,
        tasks: tasks_of(store, shard, id)?,
        signals: signals_of(store, shard, id)?,
    };
    Ok(Fetched::Workflow { id, found: Some(Box::new(stored)) })
}

pub fn finished(store: &dyn Store, shard: ShardId, after: WorkflowId, limit: usize) -> Result<Fetched, String> {
    let range = Range::all().after(&Key::new(&after.key()));
    let found = store.scan(shard, Keyspace::WorkflowsDone, range, Order::Ascending, limit);
    let found = found.map_err(|error| unreadable(&error))?;
    let more = found.len() == limit;
    let workflows = found.iter().map(|(_, value)| codec::decode(value)).collect::<Result<_, _>>();
    Ok(Fetched::FinishedWorkflows { workflows: workflows.map_err(|error| unreadable(&error))?, more })
}

/// Up to `limit` keys of the tasks and signals of a workflow.
pub fn rows(store: &dyn Store, shard: ShardId, id: WorkflowId, limit: usize) -> Result<Fetched, String> {
    let mut rows = Vec::new();
    for keyspace in [Keyspace::Tasks, Keyspace::Signals] {
        rows.extend(rows_of(store, shard, keyspace, id)?.into_iter().map(|(key, _)| (keyspace, key.to_vec())));
    }
    rows.truncate(limit);
    Ok(Fetched::WorkflowRows { id, more: rows.len() == limit, rows })
}

/// The definitions without users among the next `limit` ones.
pub fn unused_definitions(
    store: &dyn Store,
    shard: ShardId,
    after: Option<Digest>,
    limit: usize,
) -> Result<Fetched, String> {
    engine::find_unused_definitions(after, limit, |last| {
        let range = last.map_or(Range::all(), |last| Range::all().after(&Key::new(&last)));
        let found = store.scan(shard, Keyspace::ByDefinition, range, Order::Ascending, 2);
        Ok(found.map_err(|error| unreadable(&error))?.into_iter().map(|(key, _)| key.to_vec()).collect())
    })
}
