//! One at a time per key: who comes second waits, and then finds what the first has done.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

#[derive(Debug)]
pub(crate) struct Turns<K> {
    keys: Mutex<HashMap<K, Arc<AsyncMutex<()>>>>,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self { keys: Mutex::new(HashMap::new()) }
    }
}

impl<K: Copy + Eq + Hash> Turns<K> {
    pub async fn wait(self: &Arc<Self>, key: K) -> Turn<K> {
        let mutex = Arc::clone(self.keys.lock().entry(key).or_default());
        // Made before the wait: a caller that gives up while waiting leaves nothing in the map either.
        let mut turn = Turn { turns: Arc::clone(self), key, guard: None };
        turn.guard = Some(mutex.lock_owned().await);
        turn
    }
}

/// Ends when dropped.
#[derive(Debug)]
pub(crate) struct Turn<K: Copy + Eq + Hash> {
    turns: Arc<Turns<K>>,
    key: K,
    guard: Option<OwnedMutexGuard<()>>,
}

impl<K: Copy + Eq + Hash> Drop for Turn<K> {
    fn drop(&mut self) {
        let mut keys = self.turns.keys.lock();
        self.guard = None;
        // Whoever waits holds a clone; only the map's own is left when nobody does.
        if keys.get(&self.key).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_waits_for_the_first_and_nothing_is_left() {
        let turns = Arc::new(Turns::default());
        let first = turns.wait(1).await;
        let other_key = turns.wait(2).await;
        let mut second = Box::pin(turns.wait(1));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        let second = second.await;
        drop((second, other_key));
        assert!(turns.keys.lock().is_empty());
    }

    #[tokio::test]
    async fn who_gives_up_waiting_leaves_nothing() {
        let turns = Arc::new(Turns::default());
        let first = turns.wait(1).await;
        let mut second = Box::pin(turns.wait(1));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        drop(second);
        assert!(turns.keys.lock().is_empty());
    }
}
