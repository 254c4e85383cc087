//! Following a log to its end, even if the server goes away and comes back in between.

use std::io;
use std::time::{Duration, Instant};

use anyhow::Result;
use client::logs::{Request, Stream};
use client::{Client, Error};
use model::id::JobId;
use tokio::time::sleep;

/// How long a server may be away while something is waited for.
const ABSENCE_MAX: Duration = Duration::from_secs(60);
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
        let may_come_back = match &error {
            Error::Unreachable { .. } => true,
            // It is back, but has not taken up its work yet.
            Error::Refused(problem) => problem.status == 503,
            Error::Protocol(_) | Error::Address(_) => false,
        };
        if !may_come_back || since.elapsed() > ABSENCE_MAX {
            return Err(error.into());
        }
        sleep(ABSENCE_PAUSE).await;
        Ok(())
    }
}

/// Copies a stream of the job to `write` until the job is terminal and everything was copied.
pub async fn follow(
    client: &Client,
    id: JobId,
    stream: Stream,
    write: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<()> {
    let mut follower = Follower { client, id, stream, write, copied: 0, absence: Absence::default() };
    loop {
        let problem = match follower.copy_to_end().await? {
            // A server that stops ends its answers in good order: only the job's own state tells a log that is complete
            // from one that was cut short.
            Ok(()) => match client.job(id).await {
                Ok(job) if job.state.is_terminal() => return Ok(()),
                Ok(_) => {
                    sleep(ABSENCE_PAUSE).await;
                    continue;
                }
                Err(error) => error,
            },
            Err(error) => error,
        };
        follower.absence.bear(problem).await?;
    }
}

struct Follower<'a, W> {
    client: &'a Client,
    id: JobId,
    stream: Stream,
    write: W,
    /// A log only grows, so after a break this much is passed over.
    copied: usize,
    absence: Absence,
}

impl<W: FnMut(&[u8]) -> io::Result<()>> Follower<'_, W> {
    /// One connection. The outer error is that of our own output, which is final.
    async fn copy_to_end(&mut self) -> io::Result<Result<(), Error>> {
        let request = Request { stream: self.stream, follow: true, ..Request::default() };
        let mut log = match self.client.logs(self.id, &request).await {
            Ok(log) => log,
            Err(error) => return Ok(Err(error)),
        };
        let mut to_skip = self.copied;
        loop {
            let chunk = match log.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            };
            self.absence.end();
            let fresh = &chunk[to_skip.min(chunk.len())..];
            to_skip = to_skip.saturating_sub(chunk.len());
            self.copied += fresh.len();
            if !fresh.is_empty() {
                (self.write)(fresh)?;
            }
        }
    }
}
