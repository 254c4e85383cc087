//! Copying a log to its end, even if the server goes away and comes back in between.

use std::io;
use std::time::Instant;

use anyhow::Result;
use client::Client;
use client::logs::{Log, Piece, Request};
use model::id::JobId;

use super::absence::{ABSENCE_MAX, Absence};
use super::show::Show;

/// Shows both streams of a job, each where it belongs, until the job is terminal and everything was shown.
pub async fn follow(client: &Client, id: JobId) -> Result<()> {
    let mut show = Show::new(true, false);
    let copied = copy(client.logs(id, Request { follow: true, ..Request::default() }), true, |piece| show.piece(piece));
    match copied.await {
        // Its end says so, too, and says it better.
        Err(error) if error.downcast_ref().and_then(client::Error::code) == Some("quarantined") => Ok(()),
        result => result,
    }
}

/// Hands on every piece once. `patient`: a server that is away is waited for, and then the log goes on where it was.
pub async fn copy(mut log: Log, patient: bool, mut show: impl FnMut(&Piece) -> io::Result<()>) -> Result<()> {
    let mut absence = Absence::default();
    loop {
        let asked = Instant::now();
        match log.next().await {
            Ok(Some(piece)) => {
                absence.end();
                show(&piece)?;
            }
            Ok(None) => return Ok(()),
            Err(error) if patient => {
                // No attempt to connect takes that long: the server was there, and the job had nothing to say.
                if asked.elapsed() > ABSENCE_MAX {
                    absence.end();
                }
                absence.bear(error).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
