//! Number of shards of a store, fixed when it is created.

use model::batch::Keyspace;
use model::id::{ShardId, Shards};
use store::{Store, Version};

use crate::error::Error;

/// The document with the number.
const DOCUMENT: &str = "shards";
/// The record with it in data directories of earlier versions.
const META_SHARDS: &[u8] = b"shards";

/// Number of shards of a store. A new one gets `requested`, or 1 for 0. For an existing one `requested` must be 0 or
/// match.
pub(crate) fn shard_count(store: &dyn Store, requested: u16) -> Result<Shards, Error> {
    let new = requested.max(1);
    if Shards::new(new).is_none() {
        return Err(Error::ShardCount { shards: requested });
    }
    let found = match find(store)? {
        Some(found) => found,
        None => match store.put_document(DOCUMENT, Version::NONE, Some(&new.to_be_bytes())) {
            Ok(_) => new,
            // Another node was first.
            Err(store::Error::DocumentChanged { .. }) => find(store)?.unwrap_or(new),
            Err(error) => return Err(error.into()),
        },
    };
    if requested != 0 && found != requested {
        return Err(Error::ShardsDiffer { found, requested });
    }
    Shards::new(found).ok_or(Error::ShardCount { shards: found })
}

fn find(store: &dyn Store) -> Result<Option<u16>, Error> {
    let value = match store.document(DOCUMENT)? {
        Some(document) => Some(document.value),
        None => store.get(ShardId(0), Keyspace::Meta, META_SHARDS)?,
    };
    Ok(value.and_then(|value| Some(u16::from_be_bytes(value.as_ref().try_into().ok()?))))
}
