//! The link of a runner node to its control node. Frames that cannot be sent are dropped: the runner sends them again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use model::codec;
use model::envelope::FromNode;
use model::id::{Incarnation, ShardId};
use model::message::{AttemptRef, Load, RunnerFrame};
use parking_lot::RwLock;
use transport::limits::ENVELOPE_BYTES_MAX;
use transport::{Requests, Sender};

/// The current link, if there is one. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ControlLink(Arc<RwLock<Option<Current>>>);

struct Current {
    /// Tells links apart.
    number: u64,
    sender: Sender,
    requests: Requests,
}

impl ControlLink {
    pub fn set(&self, sender: Sender, requests: Requests) {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        *self.0.write() = Some(Current { number, sender, requests });
    }

    /// A different number for each link. Absent while the control node is not connected.
    pub fn number(&self) -> Option<u64> {
        self.0.read().as_ref().map(|current| current.number)
    }

    pub fn clear(&self) {
        *self.0.write() = None;
    }

    /// Requests to the control node. Absent while it is not connected.
    pub fn requests(&self) -> Option<Requests> {
        self.0.read().as_ref().map(|current| current.requests.clone())
    }

    /// Sends an envelope, if the control node is connected and keeps up.
    pub fn send(&self, envelope: &FromNode) -> bool {
        self.send_bytes(codec::encode(envelope))
    }

    fn send_bytes(&self, envelope: Vec<u8>) -> bool {
        let sender = self.0.read().as_ref().map(|current| current.sender.clone());
        sender.is_some_and(|sender| sender.try_send(Bytes::from(envelope)).is_ok())
    }

    /// Closes the link after everything queued was sent.
    pub fn close(&self) -> Option<Sender> {
        let current = self.0.write().take()?;
        current.sender.close();
        Some(current.sender)
    }

    /// Sends a frame, in parts if it is too large for one envelope.
    fn send_frame(&self, shard: ShardId, frame: RunnerFrame) {
        for envelope in encode(shard, frame) {
            if !self.send_bytes(envelope) {
                return;
            }
        }
    }
}

/// The envelopes of a frame. One that is too large is halved; a single message always fits.
fn encode(shard: ShardId, frame: RunnerFrame) -> Vec<Vec<u8>> {
    let envelope = FromNode::Frame { shard, frame };
    let encoded = codec::encode(&envelope);
    let FromNode::Frame { mut frame, .. } = envelope else { return vec![encoded] };
    if encoded.len() <= ENVELOPE_BYTES_MAX || frame.messages.len() < 2 {
        return vec![encoded];
    }
    let second = frame.messages.split_off(frame.messages.len() / 2);
    let mut parts = encode(shard, RunnerFrame { header: frame.header, messages: frame.messages });
    parts.extend(encode(shard, RunnerFrame { header: frame.header, messages: second }));
    parts
}

impl runner::Uplink for ControlLink {
    fn deliver(&self, shard: ShardId, frame: RunnerFrame) {
        self.send_frame(shard, frame);
    }

    fn load(&self, _: Incarnation, load: Load) {
        self.send(&FromNode::Load { load });
    }

    fn progress(&self, attempt_ref: AttemptRef, report: runner::ProgressReport) {
        let runner::ProgressReport { percent, message } = report;
        self.send(&FromNode::Progress { attempt_ref, percent, message });
    }
}

#[cfg(test)]
mod tests {
    use model::id::{Attempt, Epoch, JobId, RunnerId};
    use model::job::{End, Outcome};
    use model::json::Json;
    use model::limits::RESULT_BYTES_MAX;
    use model::message::{FromRunner, RunnerHeader, RunnerMessage, Session};
    use model::time::Millis;

    use super::*;

    #[test]
    fn a_frame_of_large_results_is_sent_in_parts_in_order() {
        let (runner, incarnation) = (RunnerId(1), Incarnation(1));
        let session = Session { epoch: Epoch(1), number: 1 };
        let header = RunnerHeader { runner, incarnation, session, received: 0, at: Millis(0) };
        let result = Json::of(&"x".repeat(RESULT_BYTES_MAX - 2));
        let ended = |sequence| {
            let attempt_ref = AttemptRef { job: JobId(sequence), attempt: Attempt(1) };
            let outcome = Outcome { result: Some(result.clone()), ..Outcome::of(End::Succeeded) };
            let message = RunnerMessage::Ended { attempt_ref, outcome: Box::new(outcome) };
            FromRunner { runner, incarnation, sequence, message }
        };
        let frame = RunnerFrame { header, messages: (1..=5).map(ended).collect() };
        let parts = encode(ShardId(3), frame.clone());
        assert!(parts.iter().all(|part| part.len() <= ENVELOPE_BYTES_MAX));
        let mut messages = Vec::new();
        for part in parts {
            let decoded = codec::decode::<FromNode>(&part).unwrap();
            let FromNode::Frame { shard: ShardId(3), frame } = decoded else { panic!("another envelope") };
            messages.extend(frame.messages);
        }
        assert_eq!(messages, frame.messages);
    }
}
