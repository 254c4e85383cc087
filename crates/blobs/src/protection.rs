//! What must not be collected although nobody refers to it yet.
//!
//! A client asks what is missing, uploads that, and then submits the job that names it. In between a collection may
//! run. So every blob that is put, read or asked for is *touched*: it is safe for a grace period, and safe from every
//! collection that had begun by then, however long that one takes.
//!
//! A blob being deleted cannot be touched: who wants to waits for the deletion to end, and then finds the blob missing,
//! never there and gone a moment later.

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
    /// Until then nothing is collected: more was touched than is remembered, or it was touched before the start.
    everything_until: SystemTime,
    /// Counts collections.
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
            State { touched: HashMap::new(), everything_until: now + grace, round: 0, deleting: HashSet::new() };
        Self { grace, state: Mutex::new(state), deleted: Notify::new() }
    }

    /// From here on `id` stays, if it is there.
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
            state.forget(now, self.grace);
        }
        true
    }

    /// Begins a collection: what is touched from now on is safe from it.
    pub fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        state.round += 1;
        state.round
    }

    /// Of `candidates`, those that may go. Nobody can touch them until the guard is dropped.
    pub fn condemn(
        self: &Arc<Self>,
        candidates: impl IntoIterator<Item = BlobId>,
        round: u64,
        now: SystemTime,
    ) -> Condemned {
        let mut state = self.state.lock();
        let mut ids = Vec::new();
        if now >= state.everything_until {
            let safe = |touch: &Touch| touch.round >= round || touch.at + self.grace > now;
            ids.extend(candidates.into_iter().filter(|id| !state.touched.get(id).is_some_and(safe)));
        }
        state.deleting.extend(&ids);
        Condemned { protection: Arc::clone(self), ids }
    }
}

impl State {
    /// Makes room, without making anything less safe.
    fn forget(&mut self, now: SystemTime, grace: Duration) {
        let round = self.round;
        self.touched.retain(|_, touch| touch.round >= round || touch.at + grace > now);
        if self.touched.len() > PROTECTED_MAX / 2 {
            self.touched.clear();
            self.everything_until = now + grace;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Condemned {
    protection: Arc<Protection>,
    pub ids: Vec<BlobId>,
}

impl Drop for Condemned {
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
        let round = protection.begin();
        let almost = later + GRACE - Duration::from_millis(1);
        assert_eq!(protection.condemn([id(1), id(2)], round, almost).ids, [id(2)]);
        assert_eq!(protection.condemn([id(1)], round, later + GRACE).ids, [id(1)]);
    }

    #[test]
    fn a_touch_during_a_collection_protects_from_it_however_long_it_takes() {
        let (protection, start) = protection();
        let round = protection.begin();
        assert!(protection.try_touch(id(1), start));
        assert!(protection.condemn([id(1)], round, start + 100 * GRACE).ids.is_empty());
        let next = protection.begin();
        assert_eq!(protection.condemn([id(1)], next, start + 100 * GRACE).ids, [id(1)]);
    }

    #[test]
    fn nothing_goes_soon_after_the_start() {
        let (protection, start) = protection();
        let round = protection.begin();
        assert!(protection.condemn([id(1)], round, start + GRACE - Duration::from_millis(1)).ids.is_empty());
        assert_eq!(protection.condemn([id(1)], round, start + GRACE).ids, [id(1)]);
    }

    #[tokio::test]
    async fn who_touches_what_is_being_deleted_waits_for_the_end() {
        let (protection, start) = protection();
        let round = protection.begin();
        let condemned = protection.condemn([id(1)], round, start + GRACE);
        let mut touch = Box::pin(protection.touch(id(1)));
        assert!(futures_util::poll!(&mut touch).is_pending());
        drop(condemned);
        touch.await;
        assert!(protection.condemn([id(1)], round, start + GRACE).ids.is_empty());
    }

    #[test]
    fn beyond_the_limit_everything_is_protected() {
        let (protection, start) = protection();
        let later = start + 2 * GRACE;
        for number in 0..=PROTECTED_MAX {
            assert!(protection.try_touch(id(number), later));
        }
        let round = protection.begin();
        assert!(protection.state.lock().touched.len() <= PROTECTED_MAX);
        assert!(protection.condemn([id(PROTECTED_MAX + 1)], round, later).ids.is_empty());
        assert_eq!(protection.condemn([id(0)], round, later + GRACE).ids, [id(0)]);
    }
}
