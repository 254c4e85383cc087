//! Rehydration of a shard from its records. The time is proportional to live work, not to history.

use std::sync::Arc;

use engine::{Config, Settings, Shard};
use model::batch::Keyspace;
use model::codec::{self, DecodeError};
use model::id::{QueueId, RunnerId, ShardId, WorkflowId};
use model::key::{self, Day};
use model::time::Now;
use model::workflow::{Schedule, Workflow};
use store::{FencingToken, Order, Range, Store};
use workflow::cron::Cron;

use crate::reads::{self, workflows};
use crate::{Error, PlanCache, load_plan};

/// Records per page of a scan.
const PAGE: usize = 10_000;
/// Large specs per read.
const SPECS_PAGE: usize = 500;

/// A rebuilt shard that has not been resumed.
pub(crate) struct Rehydrated {
    pub shard: Shard,
    /// Number of workflows and schedules that could not be read.
    pub unreadable: u32,
}

/// Rebuilds the memory of an opened shard from its records.
pub(crate) fn rehydrate(
    store: &dyn Store,
    plans: &dyn PlanCache,
    token: &FencingToken,
    config: Config,
    settings: Arc<Settings>,
    now: Now,
) -> Result<Rehydrated, Error> {
    let id = token.shard;
    let mut shard = Shard::new(config, settings, token.epoch, now);
    for_each_record(store, id, Keyspace::Queues, |_, value| {
        shard.restore_queue(codec::decode(value)?);
        Ok(())
    })?;
    for_each_record(store, id, Keyspace::Runners, |key, value| {
        let runner = RunnerId::from_key(key).ok_or(DecodeError::Truncated)?;
        shard.restore_runner(runner, codec::decode(value)?);
        Ok(())
    })?;
    let unreadable = restore_workflows(store, plans, id, &mut shard)?;
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
    for jobs in without_spec.chunks_mut(SPECS_PAGE) {
        reads::complete_all(store, id, jobs)?;
    }
    without_spec.into_iter().for_each(|job| shard.restore_job(job));
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
    let newest_key = store.scan(id, Keyspace::Keys, Range::all(), Order::Descending, 1)?;
    if let Some(day) = newest_key.first().and_then(|(key, _)| Day::of_key(key)) {
        shard.restore_newest_key_day(day);
    }
    if store.get(id, Keyspace::Meta, key::META_NAMES_INDEXED)?.is_some() {
        shard.restore_names_indexed();
    }
    if let Some(head) = store.get(id, Keyspace::Meta, key::META_AUDIT)? {
        shard.restore_audit(codec::decode(&head).map_err(|source| Error::record(id, source))?);
    }
    if let Some(start) = store.get(id, Keyspace::Meta, key::META_AUDIT_START)? {
        shard.restore_audit_start(codec::decode(&start).map_err(|source| Error::record(id, source))?);
    }
    shard.reserve_ids_up_to(last_id(store, id)?);
    Ok(Rehydrated { shard, unreadable })
}

/// Restores live workflows with their tasks and signals, and schedules. Ended workflows are not read. Returns the number
/// of those that could not be read.
fn restore_workflows(store: &dyn Store, plans: &dyn PlanCache, id: ShardId, shard: &mut Shard) -> Result<u32, Error> {
    let mut unreadable = 0;
    let mut workflows: Vec<Workflow> = Vec::new();
    for_each_record(store, id, Keyspace::Workflows, |key, value| {
        match codec::decode(value) {
            Ok(workflow) => workflows.push(workflow),
            Err(error) => {
                let workflow = WorkflowId::from_key(key).ok_or(DecodeError::Truncated)?;
                tracing::error!(%workflow, %error, "unreadable workflow; it is suspended until a version that can read it starts");
                shard.suspend_workflow(workflow);
                unreadable += 1;
            }
        }
        Ok(())
    })?;
    for workflow in workflows {
        unreadable += u32::from(!restore_workflow(store, plans, id, shard, workflow)?);
    }
    let mut schedules: Vec<Schedule> = Vec::new();
    for_each_record(store, id, Keyspace::Schedules, |_, value| {
        schedules.push(codec::decode(value)?);
        Ok(())
    })?;
    for schedule in schedules {
        let cron = Cron::parse(&schedule.spec.cron, &schedule.spec.zone).map_err(|error| error.to_string());
        let plan = load_plan(store, plans, id, schedule.spec.digest, &schedule.spec.definition)?;
        let plan = plan.map_err(|error| error.to_string());
        match (cron, plan) {
            (Ok(cron), Ok(plan)) => shard.restore_schedule(schedule, plan, Arc::new(cron)),
            // The record stays as it is: the version that wrote it, or a later one, can continue it.
            (Err(error), _) | (_, Err(error)) => {
                unreadable += 1;
                tracing::error!(schedule = %schedule.id, name = schedule.name, error, "unreadable schedule; it starts nothing until it is created again or a newer version can read it");
            }
        }
    }
    Ok(unreadable)
}

/// Restores a workflow with its tasks and signals. False if it could not be read: it is suspended.
fn restore_workflow(
    store: &dyn Store,
    plans: &dyn PlanCache,
    id: ShardId,
    shard: &mut Shard,
    workflow: Workflow,
) -> Result<bool, Error> {
    let workflow_id = workflow.id;
    if workflow.removing {
        // Its rows are removed without being read.
        shard.restore_unreadable_workflow(workflow);
        return Ok(true);
    }
    let stored = match workflows::live(store, plans, id, workflow_id) {
        Ok(stored) => stored,
        Err(error @ Error::Record { .. }) => {
            tracing::error!(workflow = %workflow_id, %error, "unreadable workflow; it is suspended until a version that can read it starts");
            shard.restore_unreadable_workflow(workflow);
            return Ok(false);
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
    Ok(true)
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
            visit(key, value).map_err(|source| Error::record(shard, source))?;
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
