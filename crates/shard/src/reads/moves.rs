//! Records that move while they are read.
//!
//! A job or workflow is in one keyspace while it is live and in another one after its end; one commit moves it. Two reads
//! see the store after different commits, so that a moving record may be in neither keyspace when that one is read. It is
//! found among the commits between the reads.

use bytes::Bytes;
use model::batch::{Keyspace, Op, ops};
use model::id::ShardId;
use store::{Cursor, Key, Store};

use crate::Error;

/// The record of a key that is in one of two keyspaces. A live record takes one read, an ended one two.
pub(super) fn find(
    store: &dyn Store,
    shard: ShardId,
    [live, done]: [Keyspace; 2],
    key: &[u8],
) -> Result<Option<Bytes>, Error> {
    if let Some(value) = store.get(shard, live, key)? {
        return Ok(Some(value));
    }
    let since = store.newest_cursor()?;
    for keyspace in [done, live] {
        if let Some(value) = store.get(shard, keyspace, key)? {
            return Ok(Some(value));
        }
    }
    // Unless it was written since then, the record was in neither keyspace.
    let written = written_since(store, shard, &[live, done], &since)?;
    Ok(written.into_iter().rev().find(|(written, _)| **written == *key).map(|(_, value)| value))
}

/// The records of some keyspaces that were written to a shard since then, oldest first.
pub(super) fn written_since(
    store: &dyn Store,
    shard: ShardId,
    keyspaces: &[Keyspace],
    since: &Cursor,
) -> Result<Vec<(Key, Bytes)>, Error> {
    let newest = store.newest_cursor()?;
    let mut written = Vec::new();
    if newest == *since {
        return Ok(written);
    }
    let failed_over = |error| match error {
        store::Error::ForeignCursor => {
            Error::Read { shard: shard.0, reason: "it failed over during the read".to_owned() }
        }
        other => Error::Store(other),
    };
    let mut commits = store.events(since).map_err(failed_over)?;
    while !has_reached(&commits.cursor(), &newest)
        && let Some(committed) = commits.next().map_err(failed_over)?
    {
        if committed.shard != shard {
            continue;
        }
        for op in ops(&committed.batch) {
            match op.map_err(|source| Error::record(shard, source))? {
                Op::Put { keyspace, key, value } if keyspaces.contains(&keyspace) => {
                    written.push((Key::new(key), committed.batch.slice_ref(value)));
                }
                Op::Put { .. } | Op::Delete { .. } | Op::Event { .. } => {}
            }
        }
    }
    Ok(written)
}

/// Whether a reader of events at `cursor` has read everything up to `until`.
pub fn has_reached(cursor: &Cursor, until: &Cursor) -> bool {
    let positions = cursor.positions();
    until.positions().iter().enumerate().all(|(index, until)| positions.get(index).is_some_and(|at| at >= until))
}
