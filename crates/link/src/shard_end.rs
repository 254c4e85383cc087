//! The shard's end of the conversation with one runner.

use model::message::{RunnerHeader, Session, ShardMessage, ToRunner};
use model::time::Millis;

use crate::outbox::Outbox;

/// Most messages of one retransmission. The rest follows when these are acknowledged.
const RETRANSMITTED_MAX: usize = 1_024;

#[derive(Debug)]
pub struct ShardEnd {
    session: Session,
    outbox: Outbox<Sent>,
    /// Newest time of the runner's clock that it has sent. 0 until then.
    heard: Millis,
    /// When that arrived, or when this end began: on the shard's clock.
    heard_at: Millis,
}

#[derive(Debug)]
struct Sent {
    heard: Millis,
    message: ShardMessage,
}

impl ShardEnd {
    pub fn new(now: Millis, session: Session) -> Self {
        Self { session, outbox: Outbox::default(), heard: Millis(0), heard_at: now }
    }

    /// Numbers a message and keeps it until the runner has received it.
    pub fn send(&mut self, now: Millis, message: ShardMessage) -> ToRunner {
        let sequence = self.outbox.push(now, Sent { heard: self.heard, message: message.clone() });
        ToRunner::Message { session: self.session, sequence, heard: self.heard, message }
    }

    /// Acknowledges the runner's messages up to `sequence`: they are committed. May be lost: the next one covers it.
    pub fn acknowledge(&self, sequence: u64) -> ToRunner {
        ToRunner::Committed { session: self.session, sequence }
    }

    /// Takes what a frame says of the runner and of this end's messages.
    pub fn receive(&mut self, now: Millis, header: &RunnerHeader) {
        if header.at > self.heard {
            (self.heard, self.heard_at) = (header.at, now);
        }
        if header.session == self.session {
            self.outbox.acknowledge(now, header.received, drop);
        }
    }

    /// Begins a new session: the messages of the old one are given up, and the runner ignores them from now on.
    pub fn restart(&mut self, session: Session) {
        debug_assert!(session > self.session, "a runner follows the newest session");
        *self = Self { heard: self.heard, ..Self::new(self.heard_at, session) };
    }

    /// When the newest time of the runner's clock arrived. Every lease counts from then or earlier.
    pub fn heard_at(&self) -> Millis {
        self.heard_at
    }

    /// Renews the leases of the runner's attempts. Absent if nothing was heard yet.
    pub fn renew(&self) -> Option<ToRunner> {
        (self.heard > Millis(0)).then_some(ToRunner::Renewed { session: self.session, heard: self.heard })
    }

    pub fn retransmit_at(&self) -> Option<Millis> {
        self.outbox.retransmit_at()
    }

    /// The messages that are due to be sent again.
    pub fn retransmit(&mut self, now: Millis) -> Vec<ToRunner> {
        if !self.outbox.take_retransmission(now) {
            return Vec::new();
        }
        let envelope = |(sequence, sent): (u64, &Sent)| ToRunner::Message {
            session: self.session,
            sequence,
            heard: sent.heard,
            message: sent.message.clone(),
        };
        self.outbox.after(0).take(RETRANSMITTED_MAX).map(envelope).collect()
    }

    /// Number of messages that the runner has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.outbox.len()
    }
}
