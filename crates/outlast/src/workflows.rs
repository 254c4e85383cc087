//! `outlast workflows`: looking at workflows, steering them, and working on their definitions.

mod act;
mod graph;
mod history;
mod list;
mod plain;
mod show;
mod tasks;
pub mod tree;
mod validate;
pub mod watch;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::context::Context;
use crate::{exit, output};

/// List workflows, look at one, steer it, run it again; check and draw definitions.
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
    /// List workflows, newest first.
    List(list::Options),
    /// Show a workflow with all its tasks.
    Show {
        id: String,
        /// Stay and show what happens until it has ended.
        #[arg(long)]
        watch: bool,
    },
    /// Stop workflows and what they run.
    Cancel {
        #[arg(required = true)]
        ids: Vec<String>,
        /// Undo what was done, last first, where the tasks say how.
        #[arg(long)]
        compensate: bool,
    },
    /// Let workflows begin nothing new; what runs goes on.
    Pause {
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Let paused workflows go on.
    Resume {
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Give a workflow the signal that a task of it waits for.
    Signal(act::SignalOptions),
    /// Run a workflow that has ended again: what had not succeeded, or everything from a task on.
    Rerun {
        id: String,
        /// The task to begin with.
        #[arg(long, value_name = "TASK")]
        from: Option<String>,
    },
    /// Show what has happened in a workflow, oldest first.
    History(history::Options),
    /// List the tasks of a workflow and their items, or show one task with its result.
    Tasks(tasks::Options),
    /// Remove workflows that have ended.
    Rm {
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Check the definition in a file; needs no server.
    Validate {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Draw the tasks of a file, or those of a workflow with their states.
    Graph(graph::Options),
    /// Print the JSON Schema of definitions, for editors; needs no server.
    Schema,
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    match options.command.unwrap_or(Command::List(options.list)) {
        Command::List(options) => list::run(&options, context).await,
        Command::Show { id, watch: false } => show::once(&id, context).await,
        Command::Show { id, watch: true } => show::until_end(&id, context).await,
        Command::Cancel { ids, compensate } => act::each(act::Act::Cancel { compensate }, &ids, context).await,
        Command::Pause { ids } => act::each(act::Act::Pause, &ids, context).await,
        Command::Resume { ids } => act::each(act::Act::Resume, &ids, context).await,
        Command::Rm { ids } => act::each(act::Act::Remove, &ids, context).await,
        Command::Signal(options) => act::signal(&options, context).await,
        Command::Rerun { id, from } => act::rerun(&id, from.as_deref(), context).await,
        Command::History(options) => history::run(&options, context).await,
        Command::Tasks(options) => tasks::run(&options, context).await,
        Command::Validate { file } => validate::run(&file, context),
        Command::Graph(options) => graph::run(&options, context).await,
        Command::Schema => {
            output::write(workflow::SCHEMA.as_bytes())?;
            Ok(exit::DONE)
        }
    }
}
