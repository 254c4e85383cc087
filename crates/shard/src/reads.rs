//! Reads of records from the store, never from a shard's memory: for the API as for owners.

pub mod jobs;
pub mod merge;
mod moves;
pub mod workflows;

use bytes::Bytes;
use model::batch::Keyspace;
use model::id::{JobId, ShardId};
use model::job::Job;
use store::{Key, Store};

pub use moves::has_reached;

use crate::Error;

/// Keyspaces of live and terminal jobs.
const JOBS: [Keyspace; 2] = [Keyspace::Live, Keyspace::Done];

pub fn decode(shard: ShardId, value: &[u8]) -> Result<Job, Error> {
    Job::decode(value).map_err(|source| Error::record(shard, source))
}

/// Adds the spec to a job whose large spec is stored separately. `None`: the job was removed meanwhile.
pub fn complete(store: &dyn Store, shard: ShardId, mut job: Job) -> Result<Option<Job>, Error> {
    if !job.lacks_spec() {
        return Ok(Some(job));
    }
    let key = job.id.key();
    match store.get(shard, Keyspace::Spec, &key)? {
        Some(spec) => job.spec = spec,
        None if moves::find(store, shard, JOBS, &key)?.is_none() => return Ok(None),
        // The record is damaged: its spec cannot be decoded.
        None => {}
    }
    Ok(Some(job))
}

/// Adds the specs to jobs whose large specs are stored separately.
pub(crate) fn complete_all(store: &dyn Store, shard: ShardId, jobs: &mut [Job]) -> Result<(), Error> {
    let keys: Vec<Key> = jobs.iter().map(|job| Key::new(&job.id.key())).collect();
    for (job, spec) in jobs.iter_mut().zip(store.get_many(shard, Keyspace::Spec, &keys)?) {
        job.spec = spec.unwrap_or_default();
    }
    Ok(())
}

fn read(store: &dyn Store, shard: ShardId, record: Option<Bytes>) -> Result<Option<Job>, Error> {
    match record {
        Some(record) => complete(store, shard, decode(shard, &record)?),
        None => Ok(None),
    }
}

/// A terminal job.
pub fn done(store: &dyn Store, shard: ShardId, id: JobId) -> Result<Option<Job>, Error> {
    read(store, shard, store.get(shard, Keyspace::Done, &id.key())?)
}

/// A job, live or terminal.
pub fn job(store: &dyn Store, shard: ShardId, id: JobId) -> Result<Option<Job>, Error> {
    read(store, shard, moves::find(store, shard, JOBS, &id.key())?)
}

#[cfg(test)]
mod tests;
