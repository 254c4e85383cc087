//! Tolerance of short server outages.

use std::time::{Duration, Instant};

use anyhow::Result;
use client::{Client, Error};
use tokio::time::sleep;

const OUTAGE_PAUSE: Duration = Duration::from_millis(300);

/// Tracks the start of an outage.
#[derive(Debug)]
pub struct Outage {
    limit: Duration,
    since: Option<Instant>,
}

impl Outage {
    /// An outage may last as long as the client would repeat a request. Returns the client to use meanwhile: it repeats
    /// nothing, so that the caller notices outages and can report them.
    pub fn of(client: &Client) -> (Self, Client) {
        (Self { limit: client.options().resend_for, since: None }, client.resending_for(Duration::ZERO))
    }

    pub fn limit(&self) -> Duration {
        self.limit
    }

    pub fn end(&mut self) {
        self.since = None;
    }

    /// Waits before the next retry, or returns the error if it is final.
    pub async fn wait_or_fail(&mut self, error: Error) -> Result<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if !is_outage(&error) || since.elapsed() > self.limit {
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
        Error::OutcomeUnknown { .. } | Error::Protocol(_) | Error::Address(_) | Error::File { .. } => false,
    }
}
