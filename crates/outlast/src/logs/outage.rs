//! Tolerance of short server outages.

use std::time::{Duration, Instant};

use anyhow::Result;
use client::Error;
use tokio::time::sleep;

/// Longest tolerated outage.
pub const OUTAGE_MAX: Duration = Duration::from_secs(60);
const OUTAGE_PAUSE: Duration = Duration::from_millis(300);

/// Tracks the start of an outage.
#[derive(Debug, Default)]
pub struct Outage {
    since: Option<Instant>,
}

impl Outage {
    pub fn end(&mut self) {
        self.since = None;
    }

    /// Waits before the next retry, or returns the error if it is final.
    pub async fn wait_or_fail(&mut self, error: Error) -> Result<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if !is_outage(&error) || since.elapsed() > OUTAGE_MAX {
            return Err(error.into());
        }
        sleep(OUTAGE_PAUSE).await;
        Ok(())
    }
}

/// Whether the server is unavailable and may come back.
pub fn is_outage(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        // The server is starting.
        Error::Refused(problem) => problem.status == 503,
        Error::Protocol(_) | Error::Address(_) | Error::File { .. } => false,
    }
}
