//! A shard's memory made from its records, and answers to what it asks for: what a shell does with its store.

mod flows;

use std::sync::Arc;

use engine::{Config, Fetch, Fetched, Setup, Shard, Step};
use model::batch::Keyspace;
use model::codec::{self, DecodeError};
use model::id::{JobId, NodeId, RunnerId, ShardId};
use model::job::Job;
use model::key;
use model::time::Millis;
use store::{Key, Order, Range, Store};

pub use flows::Plans;

fn unreadable(error: &dyn std::fmt::Display) -> String {
    error.to_string()
}

/// Takes ownership of a shard and brings it back. The step is what coming back asks for.
pub fn rehydrate(
    store: &dyn Store,
    plans: &Plans,
    owner: NodeId,
    config: Config,
    setup: Arc<Setup>,
    now: Millis,
) -> Result<(Shard, Step), String> {
    let id = config.shard;
    let epoch = store.open_shard(id, owner).map_err(|error| unreadable(&error))?;
    let mut shard = Shard::new(config, setup, epoch, now);
    for (_, value) in scan(store, id, Keyspace::Queues)? {
        shard.restore_queue(codec::decode(&value).map_err(|error| unreadable(&error))?);
    }
    for (key, value) in scan(store, id, Keyspace::Runners)? {
        let runner = RunnerId::from_key(&key).ok_or("a runner's key")?;
        shard.restore_runner(runner, codec::decode(&value).map_err(|error| unreadable(&error))?);
    }
    flows::restore(store, plans, id, &mut shard)?;
    for (_, value) in scan(store, id, Keyspace::Live)? {
        shard.restore_job(job(store, id, &value)?);
    }
    for (key, value) in scan(store, id, Keyspace::Scans)? {
        shard.restore_scan(&key, &value).map_err(|error| unreadable(&error))?;
    }
    for (key, _) in scan(store, id, Keyspace::LateWords)? {
        shard.restore_late_word(&key);
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
        shard.see_id(newest.first().and_then(|(key, _)| JobId::from_key(key)).map_or(0, |id| id.0));
    }
    let removed = store.get(id, Keyspace::Meta, key::META_LAST_ID).map_err(|error| unreadable(&error))?;
    shard.see_id(removed.and_then(|value| JobId::from_key(&value)).map_or(0, |id| id.0));
    let mut step = Step::new();
    shard.resume(now, &mut step);
    Ok((shard, step))
}

fn scan(store: &dyn Store, shard: ShardId, keyspace: Keyspace) -> Result<Vec<(Key, bytes::Bytes)>, String> {
    store.scan(shard, keyspace, Range::all(), Order::Ascending, usize::MAX).map_err(|error| unreadable(&error))
}

fn job(store: &dyn Store, shard: ShardId, value: &[u8]) -> Result<Job, String> {
    let mut job = Job::decode(value).map_err(|error| unreadable(&error))?;
    if job.lacks_spec() {
        let spec = store.get(shard, Keyspace::Spec, &job.id.key()).map_err(|error| unreadable(&error))?;
        job.spec = spec.ok_or_else(|| format!("{} has lost its spec", job.id))?;
    }
    Ok(job)
}

/// The answer to what an engine asks for.
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
        Fetch::Workflow { id } => flows::ended(store, plans, shard, *id),
        Fetch::FinishedWorkflows { after, limit } => flows::finished(store, shard, *after, *limit),
        Fetch::WorkflowRows { id, limit } => flows::rows(store, shard, *id, *limit),
    }
}
