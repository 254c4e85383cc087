//! `outlast jobs`: lists, inspects and controls jobs.

pub mod actions;
mod artifacts;
#[cfg(test)]
pub mod example;
pub mod list;
pub mod show;
mod why;

use anyhow::Result;
use clap::{Args, Subcommand};
use client::jobs::JobList;

use crate::context::Context;
use actions::JobAction;

/// List, inspect and control jobs.
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
    /// List jobs, newest first.
    List(list::Options),
    /// Show a job with its history.
    Show {
        /// Job id.
        id: String,
        /// Explain the job's current state.
        #[arg(long)]
        why: bool,
    },
    /// Cancel jobs, running or not.
    Cancel {
        /// Job ids.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Retry unsuccessful jobs, within their retry budget.
    Retry {
        /// Job ids.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Take jobs back from their runners and run them again, without using a retry.
    Retract {
        /// Job ids.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Release the results of quarantined jobs.
    Release {
        /// Job ids.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Delete terminal jobs.
    Rm {
        /// Job ids.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// List running jobs.
    Running(list::Options),
    /// List terminal jobs.
    Completed(list::Options),
    /// Download the artifacts of a job.
    Artifacts(artifacts::Options),
    /// List jobs, newest first, or show the history of one job.
    History {
        /// Job id.
        id: Option<String>,
        #[command(flatten)]
        list: list::Options,
    },
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    match options.command.unwrap_or(Command::List(options.list)) {
        Command::List(options) => list::run(JobList::All, &options, context).await,
        Command::Running(options) => list::run(JobList::Running, &options, context).await,
        Command::Completed(options) => list::run(JobList::Completed, &options, context).await,
        Command::History { id: None, list } => list::run(JobList::History, &list, context).await,
        Command::History { id: Some(id), .. } => show::history(&id, context).await,
        Command::Artifacts(options) => artifacts::fetch(&options, context).await,
        Command::Show { id, why: false } => show::job(&id, context).await,
        Command::Show { id, why: true } => why::show(&id, context).await,
        Command::Cancel { ids } => actions::run(JobAction::Cancel, &ids, context).await,
        Command::Retry { ids } => actions::run(JobAction::Retry, &ids, context).await,
        Command::Retract { ids } => actions::run(JobAction::Retract, &ids, context).await,
        Command::Release { ids } => actions::run(JobAction::Release, &ids, context).await,
        Command::Rm { ids } => actions::run(JobAction::Remove, &ids, context).await,
    }
}
