//! Rehydration of shards from the store, and answers to their fetches, as in the server's shell.

mod workflows;

use std::sync::Arc;

use engine::{Config, Fetch, Fetched, Settings, Shard};
use model::batch::Keyspace;
use model::codec::{self, DecodeError};
use model::id::{JobId, NodeId, RunnerId, ShardId};
use model::job::Job;
use model::key;
use model::time::Now;
use store::{Key, Order, Range, Store};

pub use workflows::Plans;

fn unreadable(error: &dyn std::fmt::Display) -> String {
    error.to_string()
}

/// Opens a shard and rehydrates it. Returns the step with the effects of that.
pub fn rehydrate(
    store: &dyn Store,
    plans: &Plans,
    owner: NodeId,
    config: Config,
    settings: Arc<Settings>,
    now: Now,
) -> Result<Shard, String> {
    let id = config.shard;
    let epoch = store.open_shard(id, owner).map_err(|error| unreadable(&error))?;
    let mut shard = Shard::new(config, settings, epoch, now);
    for (_, value) in scan(store, id, Keyspace::Queues)? {
        shard.restore_queue(codec::decode(&value).map_err(|error| unreadable(&error))?);
    }
    for (key, value) in scan(store, id, Keyspace::Runners)? {
        let runner = RunnerId::from_key(&key).ok_or("a key of the runners keyspace is invalid")?;
        shard.restore_runner(runner, codec::decode(&value).map_err(|error| unreadable(&error))?);
    }
    workflows::restore(store, plans, id, &mut shard)?;
    for (_, value) in scan(store, id, Keyspace::Live)? {
        shard.restore_job(job(store, id, &value)?);
    }
    for (key, value) in scan(store, id, Keyspace::Scans)? {
        shard.restore_scan(&key, &value).map_err(|error| unreadable(&error))?;
    }
    for (key, _) in scan(store, id, Keyspace::LateUpdates)? {
        shard.restore_late_update(&key);
    }
    for (key, value) in scan(store, id, Keyspace::Grants)? {
        shard.restore_grant(&key, &value).map_err(|error| unreadable(&error))?;
    }
    if let Some(head) = store.get(id, Keyspace::Meta, key::META_AUDIT).map_err(|error| unreadable(&error))? {
        shard.restore_audit(codec::decode(&head).map_err(|error| unreadable(&error))?);
    }
    for keyspace in [Keyspace::Done, Keyspace::WorkflowsDone] {
        let newest =
            store.scan(id, keyspace, Range::all(), Order::Descending, 1).map_err(|error| unreadable(&error))?;
        shard.reserve_ids_up_to(newest.first().and_then(|(key, _)| JobId::from_key(key)).map_or(0, |id| id.0));
    }
    let removed = store.get(id, Keyspace::Meta, key::META_LAST_ID).map_err(|error| unreadable(&error))?;
    shard.reserve_ids_up_to(removed.and_then(|value| JobId::from_key(&value)).map_or(0, |id| id.0));
    Ok(shard)
}

fn scan(store: &dyn Store, shard: ShardId, keyspace: Keyspace) -> Result<Vec<(Key, bytes::Bytes)>, String> {
    store.scan(shard, keyspace, Range::all(), Order::Ascending, usize::MAX).map_err(|error| unreadable(&error))
}

fn job(store: &dyn Store, shard: ShardId, value: &[u8]) -> Result<Job, String> {
    let mut job = Job::decode(value).map_err(|error| unreadable(&error))?;
    if job.lacks_spec() {
        let spec = store.get(shard, Keyspace::Spec, &job.id.key()).map_err(|error| unreadable(&error))?;
        job.spec = spec.ok_or_else(|| format!("the spec of {} is missing", job.id))?;
    }
    Ok(job)
}

/// Answers a fetch of the engine.
pub fn answer(store: &dyn Store, plans: &Plans, shard: ShardId, fetch: &Fetch) -> Result<Fetched, String> {
    match fetch {
        Fetch::Job { id } => {
            let found = store.get(shard, Keyspace::Done, &id.key()).map_err(|error| unreadable(&error))?;
            let job = found.map(|value| job(store, shard, &value)).transpose()?.map(Box::new);
            Ok(Fetched::Job { id: *id, job })
        }
        Fetch::Keys { keys, days } => {
            let find = |hash| {
                let mut found = days
                    .iter()
                    .filter_map(|day| store.get(shard, Keyspace::Keys, &key::idempotency(*day, hash)).ok().flatten());
                found.next().map(|value| codec::decode(&value)).transpose()
            };
            let entries: Result<Vec<_>, DecodeError> = keys.iter().map(|hash| Ok((*hash, find(*hash)?))).collect();
            Ok(Fetched::Keys { entries: entries.map_err(|error| unreadable(&error))? })
        }
        Fetch::Finished { after, limit } => {
            let range = Range::all().after(&Key::new(&after.key()));
            let found = store.scan(shard, Keyspace::Done, range, Order::Ascending, *limit);
            let found = found.map_err(|error| unreadable(&error))?;
            let more = found.len() == *limit;
            let jobs = found.iter().map(|(_, value)| Job::decode(value)).collect::<Result<_, _>>();
            Ok(Fetched::Finished { jobs: jobs.map_err(|error| unreadable(&error))?, more })
        }
        Fetch::OldKeys { before, limit } => {
            let range = Range::all().before(&Key::new(&before.0.to_be_bytes()));
            let found = store.scan(shard, Keyspace::Keys, range, Order::Ascending, *limit);
            let found = found.map_err(|error| unreadable(&error))?;
            let more = found.len() == *limit;
            Ok(Fetched::OldKeys { keys: found.into_iter().map(|(key, _)| key.to_vec()).collect(), more })
        }
        Fetch::Workflow { id } => workflows::ended(store, plans, shard, *id),
        Fetch::FinishedWorkflows { after, limit } => workflows::finished(store, shard, *after, *limit),
        Fetch::WorkflowRows { id, limit } => workflows::rows(store, shard, *id, *limit),
        Fetch::UnusedDefinitions { after, limit } => workflows::unused_definitions(store, shard, *after, *limit),
    }
}
