//! `outlast jobs`: looking at jobs and deciding about them.

pub mod act;
mod artifacts;
#[cfg(test)]
pub mod example;
pub mod list;
pub mod show;
mod why;

use anyhow::Result;
use clap::{Args, Subcommand};
use client::jobs::List;

use crate::context::Context;

/// List jobs, look at one, fetch its files, cancel, retry, retract, release or remove them.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: list::Options,
}

#[derive(Subcommand)]
enum Command {
    /// List jobs, newest first as the server has them.
    List(list::Options),
    /// Show everything about a job.
    Show {
        id: String,
        /// Only why it is where it is.
        #[arg(long)]
        why: bool,
    },
    /// Stop jobs, running or not.
    Cancel {
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Run jobs that did not succeed once more, if their retry limits allow it.
    Retry {
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Take jobs away from their runners, to be started again; uses no retry.
    Retract {
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Let out the results of quarantined jobs.
    Release {
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Remove jobs that have ended.
    Rm {
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// List the jobs that run now.
    Running(list::Options),
    /// List the jobs that have ended.
    Completed(list::Options),
    /// Download the files that a job left behind and its outputs caught.
    Artifacts(artifacts::Options),
    /// List jobs by what happened last, or show the history of one.
    History {
        id: Option<String>,
        #[command(flatten)]
        list: list::Options,
    },
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    match options.command.unwrap_or(Command::List(options.list)) {
        Command::List(options) => list::run(List::All, &options, context).await,
        Command::Running(options) => list::run(List::Running, &options, context).await,
        Command::Completed(options) => list::run(List::Completed, &options, context).await,
        Command::History { id: None, list } => list::run(List::History, &list, context).await,
        Command::History { id: Some(id), .. } => show::history(&id, context).await,
        Command::Artifacts(options) => artifacts::fetch(&options, context).await,
        Command::Show { id, why: false } => show::job(&id, context).await,
        Command::Show { id, why: true } => why::show(&id, context).await,
        Command::Cancel { ids } => act::each(act::Act::Cancel, &ids, context).await,
        Command::Retry { ids } => act::each(act::Act::Retry, &ids, context).await,
        Command::Retract { ids } => act::each(act::Act::Retract, &ids, context).await,
        Command::Release { ids } => act::each(act::Act::Release, &ids, context).await,
        Command::Rm { ids } => act::each(act::Act::Remove, &ids, context).await,
    }
}
