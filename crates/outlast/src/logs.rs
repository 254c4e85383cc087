//! `outlast logs`: prints the output of a job.

mod copy;
mod outage;
mod writer;

use anyhow::Result;
use clap::Args;
use client::logs::{LogOptions, Stream};

use crate::context::Context;
use crate::interrupt::{OrInterrupt, or_interrupt};
use crate::{exit, ids};
pub use copy::follow;
pub use outage::{Outage, is_outage};
use writer::LogWriter;

/// Print the standard output or standard error of a job.
#[derive(Args)]
pub struct Options {
    /// Wait for the job to start and follow its output until it is terminal, across server restarts.
    #[arg(short, long)]
    follow: bool,
    /// Print standard error instead of standard output.
    #[arg(long)]
    stderr: bool,
    /// Print both, standard error to standard error.
    #[arg(long, conflicts_with = "stderr")]
    both: bool,
    /// Prefix each line with its time.
    #[arg(long)]
    timestamps: bool,
    /// Print only the last N lines [default: all]
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    /// Job id.
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
    let log_options = LogOptions { stream, follow: options.follow, tail: options.tail, attempt: None };
    let mut writer = LogWriter::new(options.both, options.timestamps);
    let copy = async {
        // A missing job or server is an immediate error; only later outages are tolerated.
        client.job(id).await?;
        copy::copy(client, id, log_options, |chunk| writer.write(chunk)).await
    };
    match or_interrupt(copy).await? {
        OrInterrupt::Done(()) => Ok(exit::DONE),
        OrInterrupt::Interrupted => Ok(exit::INTERRUPTED),
    }
}
