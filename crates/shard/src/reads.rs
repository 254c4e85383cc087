//! Reads of records from the store, never from a shard's memory: for the API as for owners.

pub mod workflows;

use model::batch::Keyspace;
use model::id::{JobId, ShardId};
use model::job::Job;
use store::{Key, Store};

use crate::Error;

pub fn decode(shard: ShardId, value: &[u8]) -> Result<Job, Error> {
    Job::decode(value).map_err(|source| Error::record(shard, source))
}

/// Adds the spec to a job whose large spec is stored separately.
pub fn complete(store: &dyn Store, shard: ShardId, mut job: Job) -> Result<Job, Error> {
    if job.lacks_spec()
        && let Some(spec) = store.get(shard, Keyspace::Spec, &job.id.key())?
    {
        job.spec = spec;
    }
    Ok(job)
}

/// Adds the specs to jobs whose large specs are stored separately.
pub(crate) fn complete_all(store: &dyn Store, shard: ShardId, jobs: &mut [Job]) -> Result<(), Error> {
    let keys: Vec<Key> = jobs.iter().map(|job| Key::new(&job.id.key())).collect();
    for (job, spec) in jobs.iter_mut().zip(store.get_many(shard, Keyspace::Spec, &keys)?) {
        job.spec = spec.unwrap_or_default();
    }
    Ok(())
}

fn read(store: &dyn Store, shard: ShardId, keyspace: Keyspace, id: JobId) -> Result<Option<Job>, Error> {
    match store.get(shard, keyspace, &id.key())? {
        Some(value) => Ok(Some(complete(store, shard, decode(shard, &value)?)?)),
        None => Ok(None),
    }
}

/// A terminal job.
pub fn done(store: &dyn Store, shard: ShardId, id: JobId) -> Result<Option<Job>, Error> {
    read(store, shard, Keyspace::Done, id)
}

/// A job, live or terminal. Both keyspaces are read twice: the job may end or be retried between the reads.
pub fn job(store: &dyn Store, shard: ShardId, id: JobId) -> Result<Option<Job>, Error> {
    for keyspace in [Keyspace::Live, Keyspace::Done, Keyspace::Live, Keyspace::Done] {
        if let Some(job) = read(store, shard, keyspace, id)? {
            return Ok(Some(job));
        }
    }
    Ok(None)
}
