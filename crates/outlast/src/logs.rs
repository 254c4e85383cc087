//! `outlast logs`: what a job wrote.

mod absence;
mod copy;
mod show;

use anyhow::Result;
use clap::Args;
use client::logs::{Request, Stream};

use crate::context::Context;
use crate::interrupt::{Raced, race};
use crate::{exit, ids};
pub use absence::{Absence, is_absence};
pub use copy::follow;
use show::Show;

/// Print what a job wrote to its standard output or error.
#[derive(Args)]
pub struct Options {
    /// Go on until the job ends; wait for it to start. A server that is replaced meanwhile is waited for.
    #[arg(short, long)]
    follow: bool,
    /// Standard error instead of standard output.
    #[arg(long)]
    stderr: bool,
    /// Both, each to where the job wrote it: standard error to standard error.
    #[arg(long, conflicts_with = "stderr")]
    both: bool,
    /// Put the time before each line.
    #[arg(long)]
    timestamps: bool,
    /// Only the last lines.
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    id: String,
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    let id = ids::job(&options.id)?;
    let client = &context.client;
    let stream = match (options.both, options.stderr) {
        (true, _) => None,
        (false, true) => Some(Stream::Stderr),
        (false, false) => Some(Stream::Stdout),
    };
    let request = Request { stream, follow: options.follow, tail: options.tail, attempt: None };
    let mut show = Show::new(options.both, options.timestamps);
    let copy = async {
        if options.follow {
            // A job that is not there, or a server, is an error at once and nothing to wait for.
            client.job(id).await?;
        }
        copy::copy(client.logs(id, request), options.follow, |piece| show.piece(piece)).await
    };
    match race(copy).await? {
        Raced::Done(()) => Ok(exit::DONE),
        Raced::Interrupted => Ok(exit::INTERRUPTED),
    }
}
