//! Ids of jobs, queues and workflows: never handed out twice, not even after the record with the newest id is gone.

use model::id::{Epoch, IdSource, Slot, first_at, span};
use model::time::Millis;

/// Clocks of different nodes differ by at most this.
const CLOCK_SKEW_MAX: Millis = Millis::from_secs(10);

/// After a failover of the store, ids begin at a place within this time that depends on the epoch.
const SPREAD: Millis = Millis::from_secs(10);

/// Hands out ids.
#[derive(Debug)]
pub(crate) struct Ids {
    source: IdSource,
    last: u64,
    /// Id slot of objects without a slot of their own.
    home: Slot,
}

impl Ids {
    pub fn new(home: Slot) -> Self {
        Self { source: IdSource::default(), last: 0, home }
    }

    pub fn next(&mut self, now: Millis, slot: Slot) -> u64 {
        self.last = self.source.next(now, slot);
        self.last
    }

    pub fn last(&self) -> u64 {
        self.last
    }

    pub fn home(&self) -> Slot {
        self.home
    }

    /// Does not hand out ids again that a failover of the store has lost. They came from the clock of another node, or
    /// followed the newest id on record, as those of this epoch would. Therefore each epoch begins at a place of its own.
    pub fn skip_lost(&mut self, now: Millis, epoch: Epoch) {
        let hash = blake3::hash(&epoch.0.to_be_bytes());
        let mut place = [0; 8];
        place.copy_from_slice(&hash.as_bytes()[..8]);
        let begin = self.last.max(first_at(now + CLOCK_SKEW_MAX));
        self.reserve_up_to(begin + u64::from_be_bytes(place) % span(SPREAD));
    }

    /// No id up to this one is handed out again.
    pub fn reserve_up_to(&mut self, id: u64) {
        if id > self.last {
            self.last = id;
            self.source = IdSource::after(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::id::time_of;

    use super::*;

    /// The clock may be ahead of the newest id on record or behind it.
    #[test]
    fn epochs_after_a_failover_begin_with_different_ids() {
        let kept = first_at(Millis(1_800_000_000_000));
        for now in [Millis(1_700_000_000_000), Millis(1_800_000_000_001), Millis(1_900_000_000_000)] {
            let mut begun: Vec<u64> = (1..100)
                .map(|generation| {
                    let mut ids = Ids::new(Slot::of(3));
                    ids.reserve_up_to(kept);
                    ids.skip_lost(now, Epoch(0).next(generation));
                    let id = ids.next(now, Slot::of(3));
                    assert!(id > kept && time_of(id) <= time_of(kept).max(now + CLOCK_SKEW_MAX) + SPREAD);
                    id
                })
                .collect();
            begun.sort_unstable();
            begun.dedup();
            assert_eq!(begun.len(), 99);
        }
    }
}
