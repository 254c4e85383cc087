//! Cache of compiled definitions: compiling a large one takes as long as many rounds.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::spec::Digest;
use parking_lot::Mutex;
use shard::PlanCache;
use workflow::Plan;

#[derive(Debug, Default)]
pub struct Plans {
    known: Mutex<BTreeMap<[u8; 16], Arc<Plan>>>,
}

impl PlanCache for Plans {
    fn find(&self, digest: Digest) -> Option<Arc<Plan>> {
        self.known.lock().get(&digest.0).cloned()
    }

    fn insert(&self, digest: Digest, plan: Arc<Plan>) -> Arc<Plan> {
        assert_eq!(plan.digest, digest, "the definition of {} is stored under another digest", plan.name);
        self.known.lock().entry(digest.0).or_insert(plan).clone()
    }
}
