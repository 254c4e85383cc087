//! `outlast logs`: what a job wrote.

mod copy;

use anyhow::Result;
use clap::Args;
use client::logs::{Request, Stream};

use crate::context::Context;
use crate::interrupt::{Raced, race};
use crate::{exit, ids, output};
pub use copy::{Absence, follow};

/// Print what a job wrote to its standard output or error.
#[derive(Args)]
pub struct Options {
    /// Go on until the job ends; wait for it to start.
    #[arg(short, long)]
    follow: bool,
    /// Standard error instead of standard output.
    #[arg(long)]
    stderr: bool,
    /// Only the last lines.
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    id: String,
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    let id = ids::job(&options.id)?;
    let client = &context.client;
    let stream = if options.stderr { Stream::Stderr } else { Stream::Stdout };
    let copy = async {
        // Where a log is shown from somewhere in its middle, there is no telling where to go on after a break.
        if options.follow && options.tail.is_none() {
            // A job that is not there is an error at once, and nothing to wait for.
            client.job(id).await?;
            return follow(client, id, stream, output::write).await;
        }
        let request = Request { stream, follow: options.follow, tail: options.tail, attempt: None };
        let mut log = client.logs(id, &request).await?;
        while let Some(bytes) = log.chunk().await? {
            output::write(&bytes)?;
        }
        Ok(())
    };
    match race(copy).await? {
        Raced::Done(()) => Ok(exit::DONE),
        Raced::Interrupted => Ok(exit::INTERRUPTED),
    }
}
