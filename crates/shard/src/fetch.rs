//! Reads of records that a shard does not have in memory.

use engine::{Fetch, Fetched, OldAuditEntry};
use model::audit::Head;
use model::batch::Keyspace;
use model::codec;
use model::id::{JobId, ShardId, WorkflowId};
use model::key::{self, Day, KeyEntry};
use model::spec::{Digest, KeyHash};
use model::time::Millis;
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
        Fetch::OldAudit { after, before, limit } => {
            let none = Fetched::OldAudit { entries: Vec::new(), more: false };
            Ok(vec![unless_damaged(old_audit(store, shard, after, before, limit))?.unwrap_or(none)])
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

/// A changed entry stays on record, and so does everything after it: the removal must not hide the change.
fn old_audit(store: &dyn Store, shard: ShardId, after: Head, before: Millis, limit: usize) -> Result<Fetched, Error> {
    let range = Range::all().after(&store::Key::new(&key::audit(after.number)));
    let found = store.scan(shard, Keyspace::Audit, range, Order::Ascending, limit)?;
    let mut head = after;
    let mut entries = Vec::new();
    for (_, stored) in &found {
        match head.follow(stored) {
            Ok(entry) if entry.at < before => {
                let (number, link) = (head.number, head.link);
                entries.push(OldAuditEntry { number, link, at: entry.at, action: entry.action });
            }
            Ok(_) => break,
            Err(broken) => {
                tracing::error!(%shard, %broken, "the audit log is broken; nothing from there on is removed");
                break;
            }
        }
    }
    let more = entries.len() == limit;
    Ok(Fetched::OldAudit { entries, more })
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

#[cfg(test)]
mod tests {
    use model::audit::{Action, AuditEntry};
    use model::batch::Batch;
    use model::id::NodeId;
    use store::{ModelStore, ShardOwner};

    use super::*;

    const SHARD: ShardId = ShardId(0);

    /// A store with a log of four entries at the times 1 to 4, changed by `change`, and the head after its first entry.
    fn logged(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> (ModelStore, Head) {
        let (mut head, mut entries) = (Head::START, Vec::new());
        let mut first = head;
        for at in 1..=4 {
            let mut stored = Vec::new();
            head.append(&mut AuditEntry { at: Millis(at), ..AuditEntry::of(Action::Allowed) }, &mut stored);
            entries.push(stored);
            if at == 1 {
                first = head;
            }
        }
        change(&mut entries);
        let store = ModelStore::new();
        let mut token = store.take_over(SHARD, ShardOwner { node: NodeId(1), nonce: 1 }).unwrap();
        let mut batch = Batch::new();
        for (number, stored) in (1..).zip(&entries) {
            batch.put(Keyspace::Audit, &key::audit(number), stored);
        }
        store.commit(&mut token, &batch).unwrap();
        (store, first)
    }

    fn old(store: &ModelStore, after: Head, before: u64, limit: usize) -> (Vec<u64>, bool) {
        match old_audit(store, SHARD, after, Millis(before), limit).unwrap() {
            Fetched::OldAudit { entries, more } => (entries.iter().map(|entry| entry.number).collect(), more),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn old_entries_are_the_oldest_ones_up_to_the_first_younger_one() {
        let (store, first) = logged(|_| {});
        assert_eq!(old(&store, Head::START, 3, 10), (vec![1, 2], false));
        assert_eq!(old(&store, Head::START, 9, 2), (vec![1, 2], true));
        assert_eq!(old(&store, first, 9, 10), (vec![2, 3, 4], false));
        assert_eq!(old(&store, Head::START, 1, 10), (vec![], false));
    }

    #[test]
    fn nothing_from_a_changed_entry_on_is_old() {
        let (store, first) = logged(|entries| *entries[2].last_mut().unwrap() ^= 1);
        assert_eq!(old(&store, Head::START, 9, 10), (vec![1, 2], false));
        let other = Head { link: model::audit::Link([7; 32]), ..first };
        assert_eq!(old(&store, other, 9, 10), (vec![], false), "the first entry does not follow the checkpoint");
        let (store, _) = logged(|entries| entries.swap(1, 2));
        assert_eq!(old(&store, Head::START, 9, 10), (vec![1], false));
    }
}
