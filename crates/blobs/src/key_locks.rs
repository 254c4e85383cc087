//! Asynchronous mutexes by key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

#[derive(Debug)]
pub(crate) struct KeyLocks<K> {
    mutexes: Mutex<HashMap<K, Arc<AsyncMutex<()>>>>,
}

impl<K> Default for KeyLocks<K> {
    fn default() -> Self {
        Self { mutexes: Mutex::new(HashMap::new()) }
    }
}

impl<K: Copy + Eq + Hash> KeyLocks<K> {
    pub async fn lock(self: &Arc<Self>, key: K) -> KeyLockGuard<K> {
        let mutex = Arc::clone(self.mutexes.lock().entry(key).or_default());
        // Created before the wait, so that a caller dropped while waiting cleans up the map too.
        let mut guard = KeyLockGuard { locks: Arc::clone(self), key, guard: None };
        guard.guard = Some(mutex.lock_owned().await);
        guard
    }
}

/// Unlocks on drop.
#[derive(Debug)]
pub(crate) struct KeyLockGuard<K: Copy + Eq + Hash> {
    locks: Arc<KeyLocks<K>>,
    key: K,
    guard: Option<OwnedMutexGuard<()>>,
}

impl<K: Copy + Eq + Hash> Drop for KeyLockGuard<K> {
    fn drop(&mut self) {
        let mut mutexes = self.locks.mutexes.lock();
        self.guard = None;
        // Every waiter holds a clone. A count of 1 is the map's own.
        if mutexes.get(&self.key).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            mutexes.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_caller_waits_and_the_map_is_empty_afterwards() {
        let locks = Arc::new(KeyLocks::default());
        let first = locks.lock(1).await;
        let other_key = locks.lock(2).await;
        let mut second = Box::pin(locks.lock(1));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        let second = second.await;
        drop((second, other_key));
        assert!(locks.mutexes.lock().is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_no_entry() {
        let locks = Arc::new(KeyLocks::default());
        let first = locks.lock(1).await;
        let mut second = Box::pin(locks.lock(1));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        drop(second);
        assert!(locks.mutexes.lock().is_empty());
    }
}
