//! Leases of a store that one process uses alone: they live in memory, because their holders end with the process.

use std::collections::HashMap;
use std::time::Duration;

#[derive(Debug, Clone, Default)]
pub(crate) struct Leases {
    /// Holder and expiry of each lease.
    held: HashMap<String, (u64, Duration)>,
}

impl Leases {
    /// `now` counts on any clock that does not go back.
    pub fn acquire(&mut self, name: &str, holder: u64, now: Duration, time: Duration) -> bool {
        // Expired leases of other names would accumulate.
        self.held.retain(|_, (_, expiry)| *expiry > now);
        if self.held.get(name).is_some_and(|(current, _)| *current != holder) {
            return false;
        }
        self.held.insert(name.to_owned(), (holder, now + time));
        true
    }

    pub fn release(&mut self, name: &str, holder: u64) {
        if self.held.get(name).is_some_and(|(current, _)| *current == holder) {
            self.held.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_one_holder_until_it_expires_or_is_released() {
        let second = Duration::from_secs(1);
        let mut leases = Leases::default();
        assert!(leases.acquire("leader", 1, second, 5 * second));
        assert!(!leases.acquire("leader", 2, 5 * second, 5 * second), "held");
        assert!(leases.acquire("other", 2, 5 * second, 5 * second), "another lease");
        assert!(leases.acquire("leader", 1, 5 * second, 5 * second), "extended to 10 s");
        assert!(!leases.acquire("leader", 2, 9 * second, 5 * second));
        assert!(leases.acquire("leader", 2, 10 * second, 5 * second), "expired");
        leases.release("leader", 1);
        assert!(!leases.acquire("leader", 1, 11 * second, second), "only its holder releases it");
        leases.release("leader", 2);
        assert!(leases.acquire("leader", 1, 11 * second, second));
        assert_eq!(leases.held.len(), 1, "expired leases are forgotten");
    }
}
