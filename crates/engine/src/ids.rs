//! Ids of jobs, queues and workflows: never handed out twice, not even after the record with the newest id is gone.

use model::id::{IdSource, Slot};
use model::time::Millis;

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

    /// No id up to this one is handed out again.
    pub fn reserve_up_to(&mut self, id: u64) {
        if id > self.last {
            self.last = id;
            self.source = IdSource::after(id);
        }
    }
}
