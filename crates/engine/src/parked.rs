//! Words of runners that cannot be taken: counted, kept for an operator, and the stream goes on.

use std::collections::VecDeque;

use model::batch::Keyspace;
use model::codec;
use model::job::{End, Outcome};
use model::message::Ticket;
use model::parked::ParkedWord;

use crate::shard::Shard;
use crate::step::Step;

/// The numbers of the words that are kept, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    numbers: VecDeque<u64>,
}

impl Shard {
    /// Puts back the number of a word that is kept, oldest first. Before the shard is resumed.
    pub fn restore_parked(&mut self, key: &[u8]) {
        if let Ok(number) = key.try_into() {
            self.parked.numbers.push_back(u64::from_be_bytes(number));
        }
    }

    /// Looks whether the end of an attempt can be taken. One that breaks a limit is parked, and what is left of it is
    /// that the attempt failed: trying again would give the same.
    pub(crate) fn take_or_park(
        &mut self,
        ticket: Ticket,
        outcome: Box<Outcome>,
        word: ParkedWord,
        step: &mut Step,
    ) -> Box<Outcome> {
        let Some(why) = outcome.beyond_limits() else { return outcome };
        self.stats.parked_words += 1;
        let number = self.parked.numbers.back().map_or(1, |last| last + 1);
        self.parked.numbers.push_back(number);
        let message = format!("its end could not be taken: {why}");
        let word = ParkedWord { at: self.now, job: ticket.job, attempt: ticket.attempt, why, ..word };
        step.batch.put_with(Keyspace::Parked, &number.to_be_bytes(), |buffer| codec::encode_into(&word, buffer));
        while self.parked.numbers.len() > self.config.parked_words_max
            && let Some(oldest) = self.parked.numbers.pop_front()
        {
            step.batch.delete(Keyspace::Parked, &oldest.to_be_bytes());
        }
        Box::new(Outcome {
            end: End::Fatal,
            message: Some(message),
            result: None,
            artifacts: Vec::new(),
            policy: None,
            ..*outcome
        })
    }
}
