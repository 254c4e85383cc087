//! Sent messages until they are acknowledged, and the time to send them again.

use std::collections::VecDeque;

use model::time::Millis;

/// Time until the first retransmission. Doubled with each one until an acknowledgement arrives.
const FIRST_RETRANSMISSION: Millis = Millis(1_000);
const LONGEST_RETRANSMISSION: Millis = Millis(30_000);

#[derive(Debug)]
pub(crate) struct Outbox<M> {
    /// Consecutive sequences; the last one is `last`.
    messages: VecDeque<M>,
    last: u64,
    interval: Millis,
    /// Absent while nothing waits for an acknowledgement.
    retransmit_at: Option<Millis>,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self { messages: VecDeque::new(), last: 0, interval: FIRST_RETRANSMISSION, retransmit_at: None }
    }
}

impl<M> Outbox<M> {
    /// Sequence of the oldest message, or of the next one if there is none.
    pub fn oldest(&self) -> u64 {
        self.last + 1 - self.messages.len() as u64
    }

    /// Sequence of the newest message ever added.
    pub fn last(&self) -> u64 {
        self.last
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// The newest message, if it is not acknowledged.
    pub fn newest_mut(&mut self) -> Option<&mut M> {
        self.messages.back_mut()
    }

    pub fn push(&mut self, now: Millis, message: M) -> u64 {
        if self.messages.is_empty() {
            self.interval = FIRST_RETRANSMISSION;
            self.retransmit_at = Some(now + self.interval);
        }
        self.last += 1;
        self.messages.push_back(message);
        self.last
    }

    /// Removes the messages up to `sequence` and passes them to `removed`. A sequence that was never sent removes
    /// nothing: the acknowledgement is not for this outbox.
    pub fn acknowledge(&mut self, now: Millis, sequence: u64, mut removed: impl FnMut(M)) {
        if sequence > self.last || sequence < self.oldest() {
            return;
        }
        for _ in self.oldest()..=sequence {
            if let Some(message) = self.messages.pop_front() {
                removed(message);
            }
        }
        self.interval = FIRST_RETRANSMISSION;
        self.retransmit_at = (!self.messages.is_empty()).then(|| now + self.interval);
    }

    /// Messages with their sequences, from the first one after `after`.
    pub fn after(&self, after: u64) -> impl Iterator<Item = (u64, &M)> {
        let oldest = self.oldest();
        let skip = (after + 1).saturating_sub(oldest);
        self.messages
            .iter()
            .enumerate()
            .skip(skip as usize)
            .map(move |(index, message)| (oldest + index as u64, message))
    }

    pub fn retransmit_at(&self) -> Option<Millis> {
        self.retransmit_at
    }

    /// Whether all messages are due to be sent again. If so, the next time is later.
    pub fn take_retransmission(&mut self, now: Millis) -> bool {
        if self.retransmit_at.is_none_or(|at| at > now) {
            return false;
        }
        self.interval = Millis(self.interval.0 * 2).min(LONGEST_RETRANSMISSION);
        self.retransmit_at = Some(now + self.interval);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequences(outbox: &Outbox<char>, after: u64) -> Vec<u64> {
        outbox.after(after).map(|(sequence, _)| sequence).collect()
    }

    #[test]
    fn messages_stay_until_they_are_acknowledged() {
        let mut outbox = Outbox::default();
        for message in ['a', 'b', 'c'] {
            outbox.push(Millis(0), message);
        }
        let mut removed = Vec::new();
        outbox.acknowledge(Millis(0), 2, |message| removed.push(message));
        assert_eq!((removed.as_slice(), sequences(&outbox, 0)), (['a', 'b'].as_slice(), vec![3]));
        outbox.acknowledge(Millis(0), 1, |_| panic!("acknowledged before"));
        outbox.acknowledge(Millis(0), 9, |_| panic!("never sent"));
        assert_eq!((outbox.oldest(), outbox.last(), outbox.len()), (3, 3, 1));
        assert!(sequences(&outbox, 3).is_empty());
    }

    #[test]
    fn retransmissions_back_off_until_something_is_acknowledged() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.retransmit_at(), None);
        outbox.push(Millis(0), 'a');
        outbox.push(Millis(10), 'b');
        let mut times = Vec::new();
        while times.len() < 8 {
            let at = outbox.retransmit_at().unwrap();
            assert!(outbox.take_retransmission(at) && !outbox.take_retransmission(at));
            times.push(at.0 / 1_000);
        }
        assert_eq!(times, [1, 3, 7, 15, 31, 61, 91, 121]);
        outbox.acknowledge(Millis(200_000), 1, drop);
        assert_eq!(outbox.retransmit_at(), Some(Millis(201_000)));
        outbox.acknowledge(Millis(200_000), 2, drop);
        assert_eq!(outbox.retransmit_at(), None);
    }
}
