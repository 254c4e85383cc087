//! Pauses between attempts: each is twice as long as the one before, up to a limit, less a random part.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::error::Error;
use crate::random;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// The next pause. The random part keeps clients from returning all at once after a restart.
    pub(crate) fn pause(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(LONGEST);
        full.mul_f64(1.0 - random::fraction() / 2.0)
    }
}

/// Consecutive failures of a stream or an upload that resumes where it was.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<Instant>,
    backoff: Backoff,
}

impl Outage {
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Waits before the next attempt. Returns the error if the outage has lasted for `limit`.
    pub(crate) async fn wait_or_fail(&mut self, error: Error, limit: Duration) -> Result<(), Error> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let pause = self.backoff.pause();
        if since.elapsed() + pause > limit {
            return Err(error);
        }
        sleep(pause).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit_and_vary() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..20).map(|_| backoff.pause()).collect();
        assert!(pauses[0] > FIRST / 3 && pauses[0] <= FIRST, "{pauses:?}");
        assert!(pauses[10..].iter().all(|pause| *pause >= LONGEST / 2 && *pause <= LONGEST), "{pauses:?}");
        assert!(pauses[10..].iter().any(|pause| *pause != pauses[10]), "{pauses:?}");
    }
}
