//! Protection of blobs without references from garbage collection.
//!
//! A client queries which blobs are missing, uploads them, and then submits the job that names them. A collection may
//! run in between. Therefore every put, read or query *touches* a blob: the blob is protected for a grace period, and
//! from every collection that is already running, however long that takes.
//!
//! A touch of a blob that is being deleted waits for the deletion. The caller then finds the blob missing, instead of
//! present and deleted a moment later.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use model::blob::BlobId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limits::PROTECTED_MAX;

#[derive(Debug)]
pub(crate) struct Protection {
    grace: Duration,
    state: Mutex<State>,
    deleted: Notify,
}

#[derive(Debug)]
struct State {
    touched: HashMap<BlobId, Touch>,
    /// No blob is collected before this time: touches before the start, or evicted from `touched`, are unknown.
    all_protected_until: SystemTime,
    /// Number of the current collection.
    round: u64,
    deleting: HashSet<BlobId>,
}

#[derive(Debug, Clone, Copy)]
struct Touch {
    at: SystemTime,
    round: u64,
}

impl Protection {
    pub fn new(grace: Duration, now: SystemTime) -> Self {
        let state =
            State { touched: HashMap::new(), all_protected_until: now + grace, round: 0, deleting: HashSet::new() };
        Self { grace, state: Mutex::new(state), deleted: Notify::new() }
    }

    /// Protects `id` from collection.
    pub async fn touch(&self, id: BlobId) {
        loop {
            let deleted = self.deleted.notified();
            if self.try_touch(id, SystemTime::now()) {
                return;
            }
            deleted.await;
        }
    }

    fn try_touch(&self, id: BlobId, now: SystemTime) -> bool {
        let mut state = self.state.lock();
        if state.deleting.contains(&id) {
            return false;
        }
        let round = state.round;
        state.touched.insert(id, Touch { at: now, round });
        if state.touched.len() > PROTECTED_MAX {
            state.evict(now, self.grace);
        }
        true
    }

    /// Begins a collection. Blobs touched from now on are protected from it.
    pub fn begin_collection(&self) -> u64 {
        let mut state = self.state.lock();
        state.round += 1;
        state.round
    }

    /// Selects the unprotected candidates for deletion. They cannot be touched until the guard is dropped.
    pub fn begin_deletion(
        self: &Arc<Self>,
        candidates: impl IntoIterator<Item = BlobId>,
        round: u64,
        now: SystemTime,
    ) -> Deletion {
        let mut state = self.state.lock();
        let mut ids = Vec::new();
        if now >= state.all_protected_until {
            let protected = |touch: &Touch| touch.round >= round || touch.at + self.grace > now;
            ids.extend(candidates.into_iter().filter(|id| !state.touched.get(id).is_some_and(protected)));
        }
        state.deleting.extend(&ids);
        Deletion { protection: Arc::clone(self), ids }
    }
}

impl State {
    /// Drops expired touches. If too many remain, drops all and protects every blob for a grace period.
    fn evict(&mut self, now: SystemTime, grace: Duration) {
        let round = self.round;
        self.touched.retain(|_, touch| touch.round >= round || touch.at + grace > now);
        if self.touched.len() > PROTECTED_MAX / 2 {
            self.touched.clear();
            self.all_protected_until = now + grace;
        }
    }
}

/// Blobs that are being deleted.
#[derive(Debug)]
pub(crate) struct Deletion {
    protection: Arc<Protection>,
    pub ids: Vec<BlobId>,
}

impl Drop for Deletion {
    fn drop(&mut self) {
        let mut state = self.protection.state.lock();
        for id in &self.ids {
            state.deleting.remove(id);
            state.touched.remove(id);
        }
        drop(state);
        self.protection.deleted.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(3600);

    fn id(number: usize) -> BlobId {
        BlobId::of(&number.to_le_bytes())
    }

    fn protection() -> (Arc<Protection>, SystemTime) {
        let start = SystemTime::now();
        (Arc::new(Protection::new(GRACE, start)), start)
    }

    #[test]
    fn a_touch_protects_for_the_grace_period() {
        let (protection, start) = protection();
        let later = start + 2 * GRACE;
        assert!(protection.try_touch(id(1), later));
        let round = protection.begin_collection();
        let almost = later + GRACE - Duration::from_millis(1);
        assert_eq!(protection.begin_deletion([id(1), id(2)], round, almost).ids, [id(2)]);
        assert_eq!(protection.begin_deletion([id(1)], round, later + GRACE).ids, [id(1)]);
    }

    #[test]
    fn a_touch_during_a_collection_protects_until_its_end() {
        let (protection, start) = protection();
        let round = protection.begin_collection();
        assert!(protection.try_touch(id(1), start));
        assert!(protection.begin_deletion([id(1)], round, start + 100 * GRACE).ids.is_empty());
        let next = protection.begin_collection();
        assert_eq!(protection.begin_deletion([id(1)], next, start + 100 * GRACE).ids, [id(1)]);
    }

    #[test]
    fn nothing_is_collected_within_the_grace_period_after_the_start() {
        let (protection, start) = protection();
        let round = protection.begin_collection();
        assert!(protection.begin_deletion([id(1)], round, start + GRACE - Duration::from_millis(1)).ids.is_empty());
        assert_eq!(protection.begin_deletion([id(1)], round, start + GRACE).ids, [id(1)]);
    }

    #[tokio::test]
    async fn a_touch_of_a_blob_being_deleted_waits_for_the_deletion() {
        let (protection, start) = protection();
        let round = protection.begin_collection();
        let deletion = protection.begin_deletion([id(1)], round, start + GRACE);
        let mut touch = Box::pin(protection.touch(id(1)));
        assert!(futures_util::poll!(&mut touch).is_pending());
        drop(deletion);
        touch.await;
        assert!(protection.begin_deletion([id(1)], round, start + GRACE).ids.is_empty());
    }

    #[test]
    fn beyond_the_limit_all_blobs_are_protected() {
        let (protection, start) = protection();
        let later = start + 2 * GRACE;
        for number in 0..=PROTECTED_MAX {
            assert!(protection.try_touch(id(number), later));
        }
        let round = protection.begin_collection();
        assert!(protection.state.lock().touched.len() <= PROTECTED_MAX);
        assert!(protection.begin_deletion([id(PROTECTED_MAX + 1)], round, later).ids.is_empty());
        assert_eq!(protection.begin_deletion([id(0)], round, later + GRACE).ids, [id(0)]);
    }
}
