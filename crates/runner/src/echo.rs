//! The echo executor: returns its value, after a delay, or fails as it is told. For tests and demonstrations.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use model::id::ShardId;
use model::job::{End, Outcome};
use model::message::Ticket;
use model::spec::{EchoFailure, EchoRun, Run, decode_run};
use tokio::time::Instant;

/// How many delays end in one go, so that nobody waits for long behind them.
const DUE_MAX: usize = 4096;

/// What an echo job comes to.
pub(crate) fn outcome(echo: EchoRun) -> Outcome {
    match echo.fail {
        None => Outcome { result: Some(echo.value), ..Outcome::of(End::Succeeded) },
        Some(EchoFailure::Error) => failed(End::Error),
        Some(EchoFailure::Fatal) => failed(End::Fatal),
    }
}

fn failed(end: End) -> Outcome {
    Outcome { message: Some("the echo job was told to fail".to_owned()), ..Outcome::of(end) }
}

/// Echo jobs that wait out their delay, soonest first: hundreds of thousands cost one timer.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    /// Each with its whole spec: the shard has the same bytes in memory, a decoded value would be a copy.
    waiting: BTreeMap<(Instant, ShardId, Ticket), Bytes>,
}

impl Delays {
    /// Returns when it is due.
    pub fn insert(&mut self, shard: ShardId, ticket: Ticket, delay: Duration, spec: Bytes) -> Instant {
        let due = Instant::now() + delay;
        self.waiting.insert((due, shard, ticket), spec);
        due
    }

    pub fn remove(&mut self, due: Instant, shard: ShardId, ticket: Ticket) {
        self.waiting.remove(&(due, shard, ticket));
    }

    pub fn next(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((due, ..), _)| *due)
    }

    /// Takes out what is due, by shard.
    pub fn take_due(&mut self, now: Instant) -> BTreeMap<ShardId, Vec<(Ticket, Outcome)>> {
        let mut due: BTreeMap<ShardId, Vec<(Ticket, Outcome)>> = BTreeMap::new();
        for _ in 0..DUE_MAX {
            let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) else { break };
            let ((_, shard, ticket), spec) = first.remove_entry();
            let outcome = match decode_run(&spec) {
                Ok(Run::Echo(echo)) => outcome(echo),
                // It was read as an echo job when it began.
                Ok(Run::Process(_) | Run::Wasm(_)) | Err(_) => Outcome::of(End::Infrastructure),
            };
            due.entry(shard).or_default().push((ticket, outcome));
        }
        due
    }
}
