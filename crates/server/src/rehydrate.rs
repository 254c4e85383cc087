//! Rehydration of a shard from its records. The time is proportional to live work, not to history.

use std::sync::Arc;

use engine::{Config, Settings, Shard};
use model::batch::{Batch, Keyspace};
use model::codec::{self, DecodeError};
use model::id::{Epoch, NodeId, QueueId, RunnerId, ShardId, Shards, WorkflowId};
use model::key;
use model::workflow::{Schedule, Workflow};
use store::{Order, Range, Store};
use workflow::cron::Cron;

use crate::clock;
use crate::error::Error;
use crate::plans::Plans;
use crate::reads::{self, workflows};

/// Records per page of a scan.
const PAGE: usize = 10_000;
const META_SHARDS: &[u8] = b"shards";

/// Takes ownership of a shard and rebuilds its memory from records.
pub(crate) fn rehydrate(
    store: &dyn Store,
    node: NodeId,
    config: Config,
    settings: Arc<Settings>,
    plans: &Plans,
) -> Result<Shard, Error> {
    let id = config.shard;
    let epoch = store.open_shard(id, node)?;
    let now = clock::read();
    let mut shard = Shard::new(config, settings, epoch, now);
    for_each_record(store, id, Keyspace::Queues, |_, value| {
        shard.restore_queue(codec::decode(value)?);
        Ok(())
    })?;
    for_each_record(store, id, Keyspace::Runners, |key, value| {
        let runner = RunnerId::from_key(key).ok_or(DecodeError::Truncated)?;
        shard.restore_runner(runner, codec::decode(value)?);
        Ok(())
    })?;
    restore_workflows(store, plans, id, &mut shard)?;
    let mut without_spec = Vec::new();
    for_each_record(store, id, Keyspace::Live, |_, value| {
        let job = model::job::Job::decode(value)?;
        if job.lacks_spec() {
            without_spec.push(job);
        } else {
            shard.restore_job(job);
        }
        Ok(())
    })?;
    for job in without_spec {
        shard.restore_job(reads::complete(store, id, job)?);
    }
    for_each_record(store, id, Keyspace::Grants, |key, value| shard.restore_grant(key, value))?;
    for_each_record(store, id, Keyspace::Scans, |key, value| shard.restore_scan(key, value))?;
    for_each_record(store, id, Keyspace::LateUpdates, |key, _| {
        shard.restore_late_update(key);
        Ok(())
    })?;
    for_each_record(store, id, Keyspace::RejectedMessages, |key, _| {
        shard.restore_rejected(key);
        Ok(())
    })?;
    if let Some(head) = store.get(id, Keyspace::Meta, key::META_AUDIT)? {
        let head = codec::decode(&head).map_err(|source| Error::Record { shard: id.0, source })?;
        shard.restore_audit(head);
    }
    shard.reserve_ids_up_to(last_id(store, id)?);
    Ok(shard)
}

/// Restores live workflows with their tasks and signals, and schedules. Ended workflows are not read.
fn restore_workflows(store: &dyn Store, plans: &Plans, id: ShardId, shard: &mut Shard) -> Result<(), Error> {
    let mut workflows: Vec<Workflow> = Vec::new();
    for_each_record(store, id, Keyspace::Workflows, |key, value| {
        match codec::decode(value) {
            Ok(workflow) => workflows.push(workflow),
            Err(error) => {
                let workflow = WorkflowId::from_key(key).ok_or(DecodeError::Truncated)?;
                tracing::error!(%workflow, %error, "unreadable workflow; it is suspended until a version that can read it starts");
                shard.suspend_workflow(workflow);
            }
        }
        Ok(())
    })?;
    for workflow in workflows {
        restore_workflow(store, plans, id, shard, workflow)?;
    }
    let mut schedules: Vec<Schedule> = Vec::new();
    for_each_record(store, id, Keyspace::Schedules, |_, value| {
        schedules.push(codec::decode(value)?);
        Ok(())
    })?;
    for schedule in schedules {
        let cron = Cron::parse(&schedule.spec.cron, &schedule.spec.zone).map_err(|error| error.to_string());
        let plan = plans.of_schedule(store, id, &schedule)?.map_err(|error| error.to_string());
        match (cron, plan) {
            (Ok(cron), Ok(plan)) => shard.restore_schedule(schedule, plan, Arc::new(cron)),
            // The record stays as it is: the version that wrote it, or a later one, can continue it.
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(schedule = %schedule.id, name = schedule.name, error, "unreadable schedule; it starts nothing until it is created again or a newer version can read it");
            }
        }
    }
    Ok(())
}

fn restore_workflow(
    store: &dyn Store,
    plans: &Plans,
    id: ShardId,
    shard: &mut Shard,
    workflow: Workflow,
) -> Result<(), Error> {
    let workflow_id = workflow.id;
    if workflow.removing {
        // Its rows are removed without being read.
        shard.restore_unreadable_workflow(workflow);
        return Ok(());
    }
    let stored = match workflows::live(store, plans, id, workflow_id) {
        Ok(stored) => stored,
        Err(error @ Error::Record { .. }) => {
            tracing::error!(workflow = %workflow_id, %error, "unreadable workflow; it is suspended until a version that can read it starts");
            shard.restore_unreadable_workflow(workflow);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let workflows::Live { spec, plan, tasks, signals } = stored;
    shard.restore_workflow(workflow, &spec, plan);
    for (task_key, record) in tasks {
        shard.restore_task(workflow_id, task_key, record);
    }
    for (number, signal) in signals {
        shard.restore_signal(workflow_id, number, signal);
    }
    Ok(())
}

/// Reads a whole keyspace page by page.
fn for_each_record(
    store: &dyn Store,
    shard: ShardId,
    keyspace: Keyspace,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), DecodeError>,
) -> Result<(), Error> {
    let mut range = Range::all();
    loop {
        let page = store.scan(shard, keyspace, range, Order::Ascending, PAGE)?;
        for (key, value) in &page {
            visit(key, value).map_err(|source| Error::Record { shard: shard.0, source })?;
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => range = Range::all().after(last),
            Some(_) | None => return Ok(()),
        }
    }
}

/// Largest id of any record of the shard, including removed ones.
fn last_id(store: &dyn Store, shard: ShardId) -> Result<u64, Error> {
    let mut newest = 0;
    for keyspace in [Keyspace::Done, Keyspace::WorkflowsDone] {
        let last = store.scan(shard, keyspace, Range::all(), Order::Descending, 1)?;
        newest = last.first().and_then(|(key, _)| QueueId::from_key(key)).map_or(0, |id| id.0).max(newest);
    }
    let removed = store.get(shard, Keyspace::Meta, key::META_LAST_ID)?;
    let removed = removed.and_then(|value| QueueId::from_key(&value)).map_or(0, |id| id.0);
    Ok(newest.max(removed))
}

/// Number of shards of the data directory. A new one gets `requested`, or 1 for 0. For an existing one `requested` must
/// be 0 or match.
pub(crate) fn shard_count(store: &dyn Store, node: NodeId, requested: u16) -> Result<Shards, Error> {
    if Shards::new(requested.max(1)).is_none() {
        return Err(Error::ShardCount { shards: requested });
    }
    let first = ShardId(0);
    let found = store.get(first, Keyspace::Meta, META_SHARDS)?;
    let found = found.and_then(|value| Some(u16::from_be_bytes(value.as_ref().try_into().ok()?)));
    let count = match (found, requested) {
        (Some(found), 0) => found,
        (Some(found), requested) if found == requested => found,
        (Some(found), requested) => return Err(Error::ShardsDiffer { found, requested }),
        (None, requested) => {
            let count = requested.max(1);
            let mut batch = Batch::new();
            batch.put(Keyspace::Meta, META_SHARDS, &count.to_be_bytes());
            let epoch: Epoch = store.open_shard(first, node)?;
            store.commit(first, epoch, &batch)?;
            count
        }
    };
    Shards::new(count).ok_or(Error::ShardCount { shards: count })
}
