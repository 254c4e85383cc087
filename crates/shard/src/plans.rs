//! Compiled definitions of workflows.

use std::sync::Arc;

use model::id::ShardId;
use model::spec::Digest;
use store::Store;
use workflow::{Diagnostics, Plan};

use crate::Error;
use crate::reads::workflows;

/// Cache of compiled definitions by digest.
pub trait PlanCache {
    fn find(&self, digest: Digest) -> Option<Arc<Plan>>;

    /// Adds a plan and returns the cached one: of two concurrent compilations the first stays.
    fn insert(&self, digest: Digest, plan: Arc<Plan>) -> Arc<Plan>;
}

/// Why a stored definition has no plan.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("it is missing")]
    Missing,
    /// Written by another version.
    #[error("{0}")]
    Invalid(Diagnostics),
}

/// The plan of a definition. Reads the store if the plan is not cached. `inline`: the definition, if it is part of its
/// user's record.
pub fn load_plan(
    store: &dyn Store,
    plans: &dyn PlanCache,
    shard: ShardId,
    digest: Digest,
    inline: &[u8],
) -> Result<Result<Arc<Plan>, Unreadable>, Error> {
    if let Some(plan) = plans.find(digest) {
        return Ok(Ok(plan));
    }
    let loaded = if inline.is_empty() {
        match workflows::definition(store, shard, digest)? {
            Some(definition) => Plan::load(&definition),
            None => return Ok(Err(Unreadable::Missing)),
        }
    } else {
        Plan::load(inline)
    };
    Ok(loaded.map(|plan| plans.insert(digest, plan)).map_err(Unreadable::Invalid))
}
