//! Copies a log to its end, across server restarts.

use std::io;
use std::time::{Duration, Instant};

use anyhow::Result;
use client::Client;
use client::logs::{LogChunk, LogOptions};
use model::id::JobId;

use super::outage::Outage;
use super::writer::LogWriter;

/// No connection attempt takes that long.
const ATTEMPT_MAX: Duration = Duration::from_secs(60);

/// Prints both streams of a job, separately, until the job is terminal and all output is printed.
pub async fn follow(client: &Client, id: JobId) -> Result<()> {
    let mut writer = LogWriter::new(true, false);
    let options = LogOptions { follow: true, ..LogOptions::default() };
    match copy(client, id, options, |chunk| writer.write(chunk)).await {
        // The job's terminal state reports the quarantine in more detail.
        Err(error) if error.downcast_ref().and_then(client::Error::code) == Some("quarantined") => Ok(()),
        result => result,
    }
}

/// Passes every chunk to `write` once. Waits during outages and resumes after the last chunk.
pub async fn copy(
    client: &Client,
    id: JobId,
    options: LogOptions,
    mut write: impl FnMut(&LogChunk) -> io::Result<()>,
) -> Result<()> {
    let (mut outage, client) = Outage::of(client);
    let mut log = client.logs(id, options);
    loop {
        let requested = Instant::now();
        match log.next().await {
            Ok(Some(chunk)) => {
                outage.end();
                write(&chunk)?;
            }
            Ok(None) => return Ok(()),
            Err(error) => {
                // The server was available and the job silent.
                if requested.elapsed() > ATTEMPT_MAX {
                    outage.end();
                }
                outage.wait_or_fail(error).await?;
            }
        }
    }
}
