//! Events until they are taken.

use std::collections::VecDeque;

use crate::limits::EVENTS_MAX;
use crate::view::Event;

#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
    dropped: u64,
}

impl Events {
    pub fn push(&mut self, event: Event) {
        if self.queue.len() >= EVENTS_MAX {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(event);
    }

    pub fn pop(&mut self) -> Option<Event> {
        if self.dropped > 0 {
            return Some(Event::Dropped { count: std::mem::take(&mut self.dropped) });
        }
        self.queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::time::Millis;

    #[test]
    fn the_oldest_events_are_dropped_and_counted() {
        let mut events = Events::default();
        for at in 0..=EVENTS_MAX as u64 + 1 {
            events.push(Event::SelfSuspected { at: Millis(at) });
        }
        assert_eq!(events.pop(), Some(Event::Dropped { count: 2 }));
        assert_eq!(events.pop(), Some(Event::SelfSuspected { at: Millis(2) }));
        assert_eq!(std::iter::from_fn(|| events.pop()).count(), EVENTS_MAX - 1);
    }
}
