//! Rejected messages of runners: counted and kept for operators. The message stream continues.

use std::collections::VecDeque;

use model::batch::Keyspace;
use model::codec;
use model::job::{End, Outcome};
use model::rejected::RejectedMessage;

use crate::shard::Shard;
use crate::step::Step;

/// Numbers of the stored rejected messages, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RejectedMessages {
    numbers: VecDeque<u64>,
}

impl Shard {
    /// Restores the number of a stored message, oldest first. Call it before [`Shard::resume`].
    pub fn restore_rejected(&mut self, key: &[u8]) {
        if let Ok(number) = key.try_into() {
            self.rejected.numbers.push_back(u64::from_be_bytes(number));
        }
    }

    /// Stores an outcome beyond the limits as a rejected message. Its attempt counts as fatally failed: a retry would
    /// give the same outcome.
    pub(crate) fn reject_outcome(
        &mut self,
        outcome: Outcome,
        message: RejectedMessage,
        step: &mut Step,
    ) -> Box<Outcome> {
        self.stats.rejected_messages += 1;
        let number = self.rejected.numbers.back().map_or(1, |last| last + 1);
        self.rejected.numbers.push_back(number);
        let reason = format!("its outcome was rejected: {}", message.why);
        step.batch
            .put_with(Keyspace::RejectedMessages, &number.to_be_bytes(), |buffer| codec::encode_into(&message, buffer));
        while self.rejected.numbers.len() > self.config.rejected_messages_max
            && let Some(oldest) = self.rejected.numbers.pop_front()
        {
            step.batch.delete(Keyspace::RejectedMessages, &oldest.to_be_bytes());
        }
        Box::new(Outcome {
            end: End::Fatal,
            message: Some(reason),
            result: None,
            artifacts: Vec::new(),
            policy: None,
            ..outcome
        })
    }
}
