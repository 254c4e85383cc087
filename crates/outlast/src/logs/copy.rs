//! Copies a log to its end, across server restarts.

use std::io;
use std::time::Instant;

use anyhow::Result;
use client::Client;
use client::logs::{Log, LogChunk, LogOptions};
use model::id::JobId;

use super::outage::{OUTAGE_MAX, Outage};
use super::writer::LogWriter;

/// Prints both streams of a job, separately, until the job is terminal and all output is printed.
pub async fn follow(client: &Client, id: JobId) -> Result<()> {
    let mut writer = LogWriter::new(true, false);
    let copied =
        copy(client.logs(id, LogOptions { follow: true, ..LogOptions::default() }), true, |chunk| writer.write(chunk));
    match copied.await {
        // The job's terminal state reports the quarantine in more detail.
        Err(error) if error.downcast_ref().and_then(client::Error::code) == Some("quarantined") => Ok(()),
        result => result,
    }
}

/// Passes every chunk to `write` once. `retry`: waits during outages and resumes after the last chunk.
pub async fn copy(mut log: Log, retry: bool, mut write: impl FnMut(&LogChunk) -> io::Result<()>) -> Result<()> {
    let mut outage = Outage::default();
    loop {
        let requested = Instant::now();
        match log.next().await {
            Ok(Some(chunk)) => {
                outage.end();
                write(&chunk)?;
            }
            Ok(None) => return Ok(()),
            Err(error) if retry => {
                // No connection attempt takes that long: the server was available and the job silent.
                if requested.elapsed() > OUTAGE_MAX {
                    outage.end();
                }
                outage.wait_or_fail(error).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
