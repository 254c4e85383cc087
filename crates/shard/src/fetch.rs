//! Reads of records that a shard does not have in memory.

use engine::{Fetch, Fetched};
use model::batch::Keyspace;
use model::codec;
use model::id::{JobId, ShardId, WorkflowId};
use model::key::{self, Day, KeyEntry};
use model::spec::{Digest, KeyHash};
use store::{Order, Range, Store};

use crate::reads::{self, workflows};
use crate::{Error, PlanCache};

/// Answers a read request of an owner. A single damaged record is reported as unreadable; an error is for the whole
/// request.
pub fn answer(store: &dyn Store, plans: &dyn PlanCache, shard: ShardId, fetch: Fetch) -> Result<Vec<Fetched>, Error> {
    match fetch {
        Fetch::Job { id } => {
            let job = unless_damaged(reads::done(store, shard, id))?;
            Ok(vec![match job {
                Some(job) => Fetched::Job { id, job: job.map(Box::new) },
                None => Fetched::UnreadableJob { id },
            }])
        }
        Fetch::Keys { keys, days } => {
            let (mut entries, mut unreadable) = (Vec::with_capacity(keys.len()), Vec::new());
            for key in keys {
                match unless_damaged(find_key(store, shard, key, days))? {
                    Some(entry) => entries.push((key, entry)),
                    None => unreadable.push(key),
                }
            }
            let mut answers = vec![Fetched::Keys { entries }];
            if !unreadable.is_empty() {
                answers.push(Fetched::UnreadableKeys { keys: unreadable });
            }
            Ok(answers)
        }
        Fetch::Finished { after, limit } => {
            // A damaged record stops the retention sweep at its position until it is repaired. All else continues.
            let none = Fetched::Finished { jobs: Vec::new(), more: false };
            Ok(vec![unless_damaged(finished(store, shard, after, limit))?.unwrap_or(none)])
        }
        Fetch::OldKeys { before, limit } => {
            let end = store::Key::new(&before.0.to_be_bytes());
            let range = Range::all().before(&end);
            let found = store.scan(shard, Keyspace::Keys, range, Order::Ascending, limit).map_err(Error::from);
            let found = unless_damaged(found)?.unwrap_or_default();
            let more = found.len() == limit;
            Ok(vec![Fetched::OldKeys { keys: found.into_iter().map(|(key, _)| key.to_vec()).collect(), more }])
        }
        Fetch::Workflow { id } => {
            let found = unless_damaged(workflows::stored(store, plans, shard, id))?;
            Ok(vec![match found {
                Some(found) => Fetched::Workflow { id, found: found.map(Box::new) },
                None => Fetched::UnreadableWorkflow { id },
            }])
        }
        Fetch::FinishedWorkflows { after, limit } => {
            let none = Fetched::FinishedWorkflows { workflows: Vec::new(), more: false };
            Ok(vec![unless_damaged(finished_workflows(store, shard, after, limit))?.unwrap_or(none)])
        }
        Fetch::WorkflowRows { id, limit } => Ok(vec![workflow_rows(store, shard, id, limit)?]),
        Fetch::UnusedDefinitions { after, limit } => Ok(vec![unused_definitions(store, shard, after, limit)?]),
    }
}

/// `None` for a damaged record, which is logged.
fn unless_damaged<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error @ (Error::Record { .. } | Error::Store(store::Error::DamagedRecord { .. }))) => {
            tracing::error!(%error, "damaged record");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn find_key(store: &dyn Store, shard: ShardId, key: KeyHash, days: [Day; 2]) -> Result<Option<KeyEntry>, Error> {
    for day in days {
        if let Some(value) = store.get(shard, Keyspace::Keys, &key::idempotency(day, key))? {
            let entry = codec::decode(&value).map_err(|source| Error::record(shard, source))?;
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

fn finished(store: &dyn Store, shard: ShardId, after: JobId, limit: usize) -> Result<Fetched, Error> {
    let range = Range::all().after(&store::Key::new(&after.key()));
    let found = store.scan(shard, Keyspace::Done, range, Order::Ascending, limit)?;
    let more = found.len() == limit;
    let jobs = found.iter().map(|(_, value)| reads::decode(shard, value)).collect::<Result<_, _>>()?;
    Ok(Fetched::Finished { jobs, more })
}

fn finished_workflows(store: &dyn Store, shard: ShardId, after: WorkflowId, limit: usize) -> Result<Fetched, Error> {
    let range = Range::all().after(&store::Key::new(&after.key()));
    let found = store.scan(shard, Keyspace::WorkflowsDone, range, Order::Ascending, limit)?;
    let more = found.len() == limit;
    let workflows = found.iter().map(|(_, value)| workflows::decode(shard, value)).collect::<Result<_, _>>()?;
    Ok(Fetched::FinishedWorkflows { workflows, more })
}

/// Keys only: rows to be removed need not be readable.
fn workflow_rows(store: &dyn Store, shard: ShardId, id: WorkflowId, limit: usize) -> Result<Fetched, Error> {
    let mut rows = Vec::new();
    for keyspace in [Keyspace::Tasks, Keyspace::Signals] {
        let found = store.scan(shard, keyspace, Range::prefix(&id.key()), Order::Ascending, limit - rows.len())?;
        rows.extend(found.into_iter().map(|(key, _)| (keyspace, key.to_vec())));
    }
    let more = rows.len() == limit;
    Ok(Fetched::WorkflowRows { id, rows, more })
}

fn unused_definitions(
    store: &dyn Store,
    shard: ShardId,
    after: Option<Digest>,
    limit: usize,
) -> Result<Fetched, Error> {
    engine::find_unused_definitions(after, limit, |last| {
        let range = last.map_or(Range::all(), |last| Range::all().after(&store::Key::new(&last)));
        let found = store.scan(shard, Keyspace::ByDefinition, range, Order::Ascending, 2)?;
        Ok(found.into_iter().map(|(key, _)| key.to_vec()).collect())
    })
}
