//! Echo executor: returns a value after an optional delay, or fails on request. For tests and demonstrations.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use model::id::ShardId;
use model::job::{End, Outcome};
use model::message::AttemptRef;
use model::spec::{EchoFailure, EchoRun, Run, decode_run};
use tokio::time::Instant;

/// Delays handled at once, to limit the time the runner's state is locked.
const DUE_MAX: usize = 4096;

/// Outcome of an echo job.
pub(crate) fn outcome(echo: EchoRun) -> Outcome {
    match echo.fail {
        None => Outcome { result: Some(echo.value), ..Outcome::of(End::Succeeded) },
        Some(EchoFailure::Error) => failed(End::Error),
        Some(EchoFailure::Fatal) => failed(End::Fatal),
    }
}

fn failed(end: End) -> Outcome {
    Outcome { message: Some("the echo job failed as requested".to_owned()), ..Outcome::of(end) }
}

/// Delayed echo jobs, earliest first: hundreds of thousands need one timer.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    /// With the encoded spec: the shard shares these bytes, a decoded value would be a copy.
    waiting: BTreeMap<(Instant, ShardId, AttemptRef), Bytes>,
}

impl Delays {
    /// Returns the end of the delay.
    pub fn insert(&mut self, shard: ShardId, attempt_ref: AttemptRef, delay: Duration, spec: Bytes) -> Instant {
        let due = Instant::now() + delay;
        self.waiting.insert((due, shard, attempt_ref), spec);
        due
    }

    pub fn remove(&mut self, due: Instant, shard: ShardId, attempt_ref: AttemptRef) {
        self.waiting.remove(&(due, shard, attempt_ref));
    }

    pub fn next(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((due, ..), _)| *due)
    }

    /// Removes due jobs and returns their outcomes by shard.
    pub fn take_due(&mut self, now: Instant) -> BTreeMap<ShardId, Vec<(AttemptRef, Outcome)>> {
        let mut due: BTreeMap<ShardId, Vec<(AttemptRef, Outcome)>> = BTreeMap::new();
        for _ in 0..DUE_MAX {
            let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) else { break };
            let ((_, shard, attempt_ref), spec) = first.remove_entry();
            let outcome = match decode_run(&spec) {
                Ok(Run::Echo(echo)) => outcome(echo),
                // Cannot happen: it was decoded as an echo job when it started.
                Ok(Run::Process(_) | Run::Wasm(_)) | Err(_) => Outcome::of(End::Infrastructure),
            };
            due.entry(shard).or_default().push((attempt_ref, outcome));
        }
        due
    }
}
