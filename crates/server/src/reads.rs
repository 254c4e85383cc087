//! Reads of records from the store, never from a shard's memory.

pub(crate) mod workflows;

use model::batch::Keyspace;
use model::id::{JobId, ShardId};
use model::job::Job;
use store::Store;

use crate::error::Error;

pub(crate) fn decode(shard: ShardId, value: &[u8]) -> Result<Job, Error> {
    Job::decode(value).map_err(|source| Error::Record { shard: shard.0, source })
}

/// Adds the spec to a job whose large spec is stored separately.
pub(crate) fn complete(store: &dyn Store, shard: ShardId, mut job: Job) -> Result<Job, Error> {
    if job.lacks_spec()
        && let Some(spec) = store.get(shard, Keyspace::Spec, &job.id.key())?
    {
        job.spec = spec;
    }
    Ok(job)
}

fn read(store: &dyn Store, shard: ShardId, keyspace: Keyspace, id: JobId) -> Result<Option<Job>, Error> {
    match store.get(shard, keyspace, &id.key())? {
        Some(value) => Ok(Some(complete(store, shard, decode(shard, &value)?)?)),
        None => Ok(None),
    }
}

/// A terminal job.
pub(crate) fn done(store: &dyn Store, shard: ShardId, id: JobId) -> Result<Option<Job>, Error> {
    read(store, shard, Keyspace::Done, id)
}

/// A job, live or terminal. Both keyspaces are read twice: the job may end or be retried between the reads.
pub(crate) fn job(store: &dyn Store, shard: ShardId, id: JobId) -> Result<Option<Job>, Error> {
    for keyspace in [Keyspace::Live, Keyspace::Done, Keyspace::Live, Keyspace::Done] {
        if let Some(job) = read(store, shard, keyspace, id)? {
            return Ok(Some(job));
        }
    }
    Ok(None)
}
