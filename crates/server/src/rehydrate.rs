//! A shard's memory, made from its records. It takes time in proportion to live work, not to history.

use std::sync::Arc;

use engine::{Config, Setup, Shard, Step};
use model::batch::{Batch, Keyspace};
use model::codec::{self, DecodeError};
use model::id::{Epoch, NodeId, QueueId, RunnerId, ShardId, Shards};
use model::key;
use model::workflow::{Schedule, Workflow};
use store::{Order, Range, Store};
use workflow::cron::Cron;

use crate::clock;
use crate::error::Error;
use crate::plans::Plans;
use crate::reads::{self, flows};

/// How many records are read at once.
const PAGE: usize = 10_000;
const META_SHARDS: &[u8] = b"shards";

/// Takes ownership of a shard and brings it back as its records say.
pub(crate) fn rehydrate(
    store: &dyn Store,
    node: NodeId,
    config: Config,
    setup: Arc<Setup>,
    plans: &Plans,
) -> Result<(Shard, Step), Error> {
    let id = config.shard;
    let epoch = store.open_shard(id, node)?;
    let now = clock::now();
    let mut shard = Shard::new(config, setup, epoch, now);
    each(store, id, Keyspace::Queues, |_, value| {
        shard.restore_queue(codec::decode(value)?);
        Ok(())
    })?;
    each(store, id, Keyspace::Runners, |key, value| {
        let runner = RunnerId::from_key(key).ok_or(DecodeError::Truncated)?;
        shard.restore_runner(runner, codec::decode(value)?);
        Ok(())
    })?;
    restore_workflows(store, plans, id, &mut shard)?;
    let mut bare = Vec::new();
    each(store, id, Keyspace::Live, |_, value| {
        let job = model::job::Job::decode(value)?;
        if job.lacks_spec() {
            bare.push(job);
        } else {
            shard.restore_job(job);
        }
        Ok(())
    })?;
    for job in bare {
        shard.restore_job(reads::complete(store, id, job)?);
    }
    each(store, id, Keyspace::Grants, |key, value| shard.restore_grant(key, value))?;
    each(store, id, Keyspace::Scans, |key, value| shard.restore_scan(key, value))?;
    each(store, id, Keyspace::LateWords, |key, _| {
        shard.restore_late_word(key);
        Ok(())
    })?;
    each(store, id, Keyspace::Parked, |key, _| {
        shard.restore_parked(key);
        Ok(())
    })?;
    if let Some(head) = store.get(id, Keyspace::Meta, key::META_AUDIT)? {
        let head = codec::decode(&head).map_err(|source| Error::Record { shard: id.0, source })?;
        shard.restore_audit(head);
    }
    shard.see_id(last_id(store, id)?);
    let mut step = Step::new();
    shard.resume(now, &mut step);
    Ok((shard, step))
}

/// Workflows that have not ended, with their tasks and signals, and schedules. What has ended is not looked at.
fn restore_workflows(store: &dyn Store, plans: &Plans, id: ShardId, shard: &mut Shard) -> Result<(), Error> {
    let mut workflows: Vec<Workflow> = Vec::new();
    each(store, id, Keyspace::Workflows, |_, value| {
        workflows.push(codec::decode(value)?);
        Ok(())
    })?;
    for workflow in workflows {
        restore_workflow(store, plans, id, shard, workflow)?;
    }
    let mut schedules: Vec<Schedule> = Vec::new();
    each(store, id, Keyspace::Schedules, |_, value| {
        schedules.push(codec::decode(value)?);
        Ok(())
    })?;
    for schedule in schedules {
        let cron = Cron::parse(&schedule.spec.cron, &schedule.spec.zone).map_err(|error| error.to_string());
        let plan = plans.of_schedule(&schedule).map_err(|error| error.to_string());
        match (cron, plan) {
            (Ok(cron), Ok(plan)) => shard.restore_schedule(schedule, plan, Arc::new(cron)),
            // Its record stays as it is: the version that made it, or a later one, goes on with it.
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(schedule = %schedule.id, name = schedule.name, error, "a schedule cannot be read: it starts nothing until it can, or is made anew");
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
    let flow = workflow.id;
    let (spec, plan) = match flows::spec(store, id, flow)? {
        Some(spec) => match plans.load(&spec) {
            Ok(plan) => (spec, plan),
            Err(diagnostics) => {
                tracing::error!(workflow = %flow, %diagnostics, "the definition of a workflow cannot be read: it fails");
                shard.restore_unreadable_workflow(workflow);
                return Ok(());
            }
        },
        None => {
            tracing::error!(workflow = %flow, "the definition of a workflow is gone: it fails");
            shard.restore_unreadable_workflow(workflow);
            return Ok(());
        }
    };
    let (has_signals, is_going) = (workflow.next_signal > 0, workflow.removing);
    shard.restore_workflow(workflow, &spec, plan);
    if is_going {
        // What is left of it is removed without being read.
        return Ok(());
    }
    let mut rows = flows::Rows::new(store, id, flow);
    while let Some((place, record)) = rows.next()? {
        shard.restore_task(flow, place, record);
    }
    if has_signals {
        for (number, signal) in flows::signals(store, id, flow)? {
            shard.restore_signal(flow, number, signal);
        }
    }
    Ok(())
}

/// Reads a whole keyspace page by page.
fn each(
    store: &dyn Store,
    shard: ShardId,
    keyspace: Keyspace,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<(), DecodeError>,
) -> Result<(), Error> {
    let mut range = Range::all();
    loop {
        let page = store.scan(shard, keyspace, range, Order::Ascending, PAGE)?;
        for (key, value) in &page {
            take(key, value).map_err(|source| Error::Record { shard: shard.0, source })?;
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => range = Range::all().after(last),
            Some(_) | None => return Ok(()),
        }
    }
}

/// The largest id that a record of the shard has, or had when it was removed.
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

/// How many shards the data was made with: `asked` for new data, and where nothing else is asked for.
pub(crate) fn shard_count(store: &dyn Store, node: NodeId, asked: u16) -> Result<Shards, Error> {
    if Shards::new(asked.max(1)).is_none() {
        return Err(Error::ShardCount { shards: asked });
    }
    let first = ShardId(0);
    let found = store.get(first, Keyspace::Meta, META_SHARDS)?;
    let found = found.and_then(|value| Some(u16::from_be_bytes(value.as_ref().try_into().ok()?)));
    let count = match (found, asked) {
        (Some(found), 0) => found,
        (Some(found), asked) if found == asked => found,
        (Some(found), asked) => return Err(Error::ShardsDiffer { found, asked }),
        (None, asked) => {
            let count = asked.max(1);
            let mut batch = Batch::new();
            batch.put(Keyspace::Meta, META_SHARDS, &count.to_be_bytes());
            let epoch: Epoch = store.open_shard(first, node)?;
            store.commit(first, epoch, &batch)?;
            count
        }
    };
    Shards::new(count).ok_or(Error::ShardCount { shards: count })
}
