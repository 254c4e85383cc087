//! Supervision of a module's container: when a failed one is started again, and when it is given up.
//!
//! Part of the container's record, so that the count of failures and the next attempt survive restarts.

use minicbor::{Decode, Encode};

use crate::time::Millis;

/// How failures are answered. Each module may set its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct RestartPolicy {
    /// Backoff after the first failure; it doubles with every further one.
    #[n(0)]
    pub backoff: Millis,
    #[n(1)]
    pub backoff_max: Millis,
    /// Failures after waits of the longest backoff, in a row, before the container is poisoned.
    #[n(2)]
    pub failures_at_max: u32,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self { backoff: Millis(1_000), backoff_max: Millis(300_000), failures_at_max: 3 }
    }
}

impl RestartPolicy {
    /// Wait after this many failures in a row.
    pub fn backoff_after(&self, failures: u32) -> Millis {
        let doublings = failures.saturating_sub(1);
        let backoff = 1_u64.checked_shl(doublings).and_then(|factor| self.backoff.0.checked_mul(factor));
        Millis(backoff.unwrap_or(u64::MAX).min(self.backoff_max.0))
    }
}

/// State of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Health {
    #[n(0)]
    Ready,
    /// Failed. A fresh instance is started at this time; its events wait.
    #[n(1)]
    BackingOff(#[n(0)] Millis),
    /// Its first `init` failed: the module never worked. It gets nothing until a new version or an operator's restart.
    #[n(2)]
    Dead,
    /// Failed too often. Its events wait until an operator clears it.
    #[n(3)]
    Poisoned,
}

/// Health of a container with the failures that led to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Supervision {
    #[n(0)]
    health: Health,
    /// Failures in a row.
    #[n(1)]
    failures: u32,
    /// Failures in a row after a wait of the longest backoff.
    #[n(2)]
    failures_at_max: u32,
    /// Fresh instances after failures, ever.
    #[n(3)]
    restarts: u64,
}

impl Supervision {
    /// Of a container that has not failed.
    pub const NEW: Self = Self { health: Health::Ready, failures: 0, failures_at_max: 0, restarts: 0 };

    pub fn health(&self) -> Health {
        self.health
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Whether an event may be delivered now. A container whose backoff is over is started by its next event.
    pub fn is_deliverable(&self, now: Millis) -> bool {
        match self.health {
            Health::Ready => true,
            Health::BackingOff(until) => until <= now,
            Health::Dead | Health::Poisoned => false,
        }
    }

    /// A fresh instance replaces a failed one.
    pub fn restarted(&mut self) {
        self.restarts += 1;
    }

    /// An event or call succeeded.
    pub fn succeeded(&mut self) {
        *self = Self { restarts: self.restarts, ..Self::NEW };
    }

    /// An invocation failed, or the `init` of a fresh instance.
    pub fn failed(&mut self, now: Millis, policy: &RestartPolicy) {
        let waited = policy.backoff_after(self.failures);
        if self.failures > 0 && waited >= policy.backoff_max {
            self.failures_at_max = self.failures_at_max.saturating_add(1);
        }
        self.failures = self.failures.saturating_add(1);
        self.health = if self.failures_at_max >= policy.failures_at_max.max(1) {
            Health::Poisoned
        } else {
            Health::BackingOff(Millis(now.0.saturating_add(policy.backoff_after(self.failures).0)))
        };
    }

    /// The very first `init` failed.
    pub fn failed_at_start(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.health = Health::Dead;
    }

    /// An operator clears or restarts the container, or a new version is deployed.
    pub fn cleared(&mut self) {
        self.succeeded();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RestartPolicy =
        RestartPolicy { backoff: Millis(1_000), backoff_max: Millis(300_000), failures_at_max: 3 };

    #[test]
    fn the_backoff_doubles_from_one_second_to_five_minutes() {
        let seconds: Vec<u64> = (1..=11).map(|failures| POLICY.backoff_after(failures).0 / 1_000).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(POLICY.backoff_after(u32::MAX), POLICY.backoff_max);
    }

    #[test]
    fn the_first_success_resets_the_failures() {
        let mut supervision = Supervision::NEW;
        supervision.failed(Millis(500), &POLICY);
        supervision.failed(Millis(2_000), &POLICY);
        assert_eq!(supervision.health(), Health::BackingOff(Millis(4_000)));
        assert!(!supervision.is_deliverable(Millis(3_999)));
        assert!(supervision.is_deliverable(Millis(4_000)));
        supervision.restarted();
        supervision.succeeded();
        assert_eq!((supervision.health(), supervision.failures(), supervision.restarts()), (Health::Ready, 0, 1));
        supervision.failed(Millis(10_000), &POLICY);
        assert_eq!(supervision.health(), Health::BackingOff(Millis(11_000)));
    }

    #[test]
    fn three_failures_at_the_longest_backoff_poison_it_until_it_is_cleared() {
        let mut supervision = Supervision::NEW;
        let mut failures = 0;
        while supervision.health() != Health::Poisoned {
            failures += 1;
            supervision.failed(Millis(0), &POLICY);
        }
        // Ten failures until the longest backoff is waited for, then three after it.
        assert_eq!(failures, 13);
        assert!(!supervision.is_deliverable(Millis(u64::MAX)));
        supervision.cleared();
        assert!(supervision.is_deliverable(Millis(0)));
    }

    #[test]
    fn a_failing_init_at_the_start_is_not_tried_again() {
        let mut supervision = Supervision::NEW;
        supervision.failed_at_start();
        assert_eq!(supervision.health(), Health::Dead);
        assert!(!supervision.is_deliverable(Millis(u64::MAX)));
    }

    #[test]
    fn failures_and_the_next_attempt_are_stored() {
        let mut supervision = Supervision::NEW;
        supervision.failed(Millis(1), &POLICY);
        let stored = crate::codec::encode(&supervision);
        assert_eq!(crate::codec::decode::<Supervision>(&stored), Ok(supervision));
    }
}
