//! Patience with a server that is away for a while.

use std::time::{Duration, Instant};

use anyhow::Result;
use client::Error;
use tokio::time::sleep;

/// How long a server may be away while something is waited for.
pub const ABSENCE_MAX: Duration = Duration::from_secs(60);
const ABSENCE_PAUSE: Duration = Duration::from_millis(300);

/// Remembers since when the server has been away, and when that is too long.
#[derive(Debug, Default)]
pub struct Absence {
    since: Option<Instant>,
}

impl Absence {
    pub fn end(&mut self) {
        self.since = None;
    }

    /// Waits a little, or gives the error back if it is final.
    pub async fn bear(&mut self, error: Error) -> Result<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if !is_absence(&error) || since.elapsed() > ABSENCE_MAX {
            return Err(error.into());
        }
        sleep(ABSENCE_PAUSE).await;
        Ok(())
    }
}

/// Whether it says that the server is away, and may come back.
pub fn is_absence(error: &Error) -> bool {
    match error {
        Error::Unreachable { .. } => true,
        // It is back, but has not taken up its work yet.
        Error::Refused(problem) => problem.status == 503,
        Error::Protocol(_) | Error::Address(_) | Error::File { .. } => false,
    }
}
