//! `outlast workflows`: lists, inspects and controls workflows, and validates definitions.

mod actions;
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
use actions::WorkflowAction;

/// List, inspect and control workflows; validate and draw definitions.
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
    /// Show a workflow with its tasks.
    Show {
        /// Workflow id.
        id: String,
        /// Show changes until the workflow has ended.
        #[arg(long)]
        watch: bool,
    },
    /// Cancel workflows and their jobs.
    Cancel {
        /// Workflow ids.
        #[arg(required = true)]
        ids: Vec<String>,
        /// Roll back: compensate the succeeded tasks, last first.
        #[arg(long)]
        compensate: bool,
    },
    /// Pause workflows. Running tasks continue, no new ones start.
    Pause {
        /// Workflow ids.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Resume paused workflows.
    Resume {
        /// Workflow ids.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Send a signal to a workflow.
    Signal(actions::SignalOptions),
    /// Rerun an ended workflow: its unsuccessful tasks, or everything from one task on.
    Rerun {
        /// Workflow id.
        id: String,
        /// First task to rerun.
        #[arg(long, value_name = "TASK")]
        from: Option<String>,
    },
    /// Show the events of a workflow, oldest first.
    History(history::Options),
    /// List the tasks and items of a workflow, or show one task with its result.
    Tasks(tasks::Options),
    /// Delete ended workflows.
    Rm {
        /// Workflow ids.
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Validate a definition file, without a server.
    Validate {
        /// Definition file; `-` for standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Draw the task graph of a file, or of a workflow with its states.
    Graph(graph::Options),
    /// Print the JSON Schema of definitions, for editors, without a server.
    Schema,
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    match options.command.unwrap_or(Command::List(options.list)) {
        Command::List(options) => list::run(&options, context).await,
        Command::Show { id, watch: false } => show::once(&id, context).await,
        Command::Show { id, watch: true } => show::until_end(&id, context).await,
        Command::Cancel { ids, compensate } => actions::run(WorkflowAction::Cancel { compensate }, &ids, context).await,
        Command::Pause { ids } => actions::run(WorkflowAction::Pause, &ids, context).await,
        Command::Resume { ids } => actions::run(WorkflowAction::Resume, &ids, context).await,
        Command::Rm { ids } => actions::run(WorkflowAction::Remove, &ids, context).await,
        Command::Signal(options) => actions::signal(&options, context).await,
        Command::Rerun { id, from } => actions::rerun(&id, from.as_deref(), context).await,
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
