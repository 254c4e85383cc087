//! Leases of exclusive attempts.

use std::collections::BTreeMap;

use model::message::AttemptRef;
use model::time::Millis;

/// Permission to run an attempt until a time of the runner's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// How long it lasts after the newest time that the shard has heard.
    pub duration: Millis,
    pub until: Millis,
}

impl Lease {
    /// A lease granted by a shard that has heard the runner's clock at `heard`.
    pub fn granted(heard: Millis, duration: Millis) -> Self {
        Self { duration, until: heard + duration }
    }
}

/// The leases of one runner's end. Few attempts have one.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    running: BTreeMap<AttemptRef, Lease>,
}

impl Leases {
    pub fn insert(&mut self, attempt_ref: AttemptRef, lease: Lease) {
        self.running.insert(attempt_ref, lease);
    }

    pub fn remove(&mut self, attempt_ref: AttemptRef) {
        self.running.remove(&attempt_ref);
    }

    /// The shard has heard the runner's clock at `heard`. Returns the leases that last longer now.
    pub fn renew(&mut self, heard: Millis) -> Vec<(AttemptRef, Lease)> {
        let mut renewed = Vec::new();
        for (attempt_ref, lease) in &mut self.running {
            let until = heard + lease.duration;
            if until > lease.until {
                lease.until = until;
                renewed.push((*attempt_ref, *lease));
            }
        }
        renewed
    }

    pub fn get(&self, attempt_ref: AttemptRef) -> Option<Lease> {
        self.running.get(&attempt_ref).copied()
    }

    pub fn next_expiry(&self) -> Option<Millis> {
        self.running.values().map(|lease| lease.until).min()
    }

    /// Removes the leases that have run out.
    pub fn take_expired(&mut self, now: Millis) -> Vec<AttemptRef> {
        let expired = self.running.extract_if(.., |_, lease| lease.until <= now);
        expired.map(|(attempt_ref, _)| attempt_ref).collect()
    }
}
