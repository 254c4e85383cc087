//! `outlast stack`: several nodes on this machine as plain processes, described by a stack file.

mod clean;
mod directory;
mod down;
mod file;
mod operator;
mod process;
mod progress;
mod restart;
mod service;
mod spawners;
mod status;
mod up;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};

use self::clean::Cleaned;
use self::directory::{StackDirectory, strays};
use self::file::{Purpose, Stack};
use self::operator::Operator;
use self::progress::Progress;
use self::service::Service;
use self::status::StackView;
use crate::cli::Global;
use crate::context::Context;
use crate::interrupt::{OrInterrupt, or_interrupt};
use crate::workflows::watch::print_stderr;
use crate::{duration, exit, output};

/// Run several nodes on this machine, as described by a stack file.
#[derive(Args)]
#[command(after_help = "\
A stack file, in YAML:
  control: {listen: 127.0.0.1:7070, cluster_listen: 127.0.0.1:7071}
  nodes:
  - {name: build-1, labels: {zone: a}, process_slots: 4}
  - {name: build-2, count: 3}      # build-2-1 to build-2-3

The services are `control` and the nodes. The address of the server comes from the file, not from --server.")]
pub struct Options {
    /// Stack file.
    #[arg(long, short, global = true, default_value = "stack.yaml", value_name = "FILE")]
    file: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Start what does not run, and wait until it is ready.
    Up {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show services, processes and nodes.
    Status,
    /// Restart services in place. Their jobs go on, and so do all other services.
    Restart {
        /// Names of services, or of entries with several nodes [default: all]
        #[arg(value_name = "SERVICE")]
        services: Vec<String>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Restart one runner node after the other, then the control node. Jobs go on. Stops at the first that fails.
    Rolling {
        #[command(flatten)]
        limit: Limit,
    },
    /// Stop all services. Data, logs and memberships are kept, and running jobs go on until the next `up`.
    Down {
        /// Stop running jobs too. They start again after the next `up`, without using a retry.
        #[arg(long)]
        stop_jobs: bool,
        #[command(flatten)]
        limit: Limit,
    },
    /// Remove the directory of a stopped stack with all jobs and data.
    Clean {
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

impl Command {
    fn purpose(&self) -> Purpose {
        match self {
            Self::Up { .. } | Self::Restart { .. } | Self::Rolling { .. } => Purpose::Start,
            Self::Status | Self::Down { .. } | Self::Clean { .. } => Purpose::Inspect,
        }
    }
}

#[derive(Args)]
struct Limit {
    /// Time for each service to start or stop.
    #[arg(long, value_parser = duration::parse, default_value = "60s")]
    timeout: Duration,
}

pub async fn run(options: Options, global: Global) -> Result<u8> {
    let command = options.command.unwrap_or(Command::Status);
    let stack = Stack::read(&options.file, command.purpose())?;
    let context = Context::new(&Global { server: stack.url(), ..global })?;
    match or_interrupt(perform(command, &stack, &context)).await? {
        OrInterrupt::Done(code) => Ok(code),
        OrInterrupt::Interrupted => {
            print_stderr("\ninterrupted: `outlast stack status` shows what runs, `outlast stack up` starts the rest");
            Ok(exit::INTERRUPTED)
        }
    }
}

async fn perform(command: Command, stack: &Stack, context: &Context) -> Result<u8> {
    match command {
        Command::Up { limit } => {
            let _lock = StackDirectory::create(stack)?;
            up::up(stack, &mut operator(stack, &[], &limit, context)).await?;
            note_changes(stack);
            finish(stack, context, &format!("{} is ready: {}\n", stack.name, stack.url())).await?;
        }
        Command::Status => print_status(stack, context).await?,
        Command::Restart { services, limit } => {
            let services = restart::select(stack, &services)?;
            let _lock = open(stack)?;
            restart::restart(stack, &services, &mut operator(stack, &services, &limit, context)).await?;
            finish(stack, context, "").await?;
        }
        Command::Rolling { limit } => {
            let _lock = open(stack)?;
            let order: Vec<&Service> = stack.runners().iter().chain([stack.control()]).collect();
            restart::rolling(stack, &mut operator(stack, &order, &limit, context)).await?;
            let text = format!("{} services were restarted, and their jobs went on\n", order.len());
            finish(stack, context, &text).await?;
        }
        Command::Down { stop_jobs, limit } => {
            let _lock = StackDirectory::open(stack)?;
            let strays = strays(stack);
            let order: Vec<&Service> = stack.runners().iter().chain(&strays).rev().chain([stack.control()]).collect();
            let mut operator = operator(stack, &order, &limit, context);
            let leftover = down::down(stack, &strays, stop_jobs, &mut operator).await?;
            finish(stack, context, &kept(&leftover)).await?;
        }
        Command::Clean { yes } => {
            let directory = stack.directory.display();
            let text = match clean::clean(stack, yes).await? {
                Cleaned::Removed => format!("{directory} was removed\n"),
                Cleaned::Nothing => format!("there is no {directory}: nothing to remove\n"),
                Cleaned::Kept => {
                    print_stderr("nothing was removed");
                    return Ok(exit::FAILED);
                }
            };
            output::write(text.as_bytes())?;
        }
    }
    Ok(exit::DONE)
}

/// The directory of a stack that was started before.
fn open(stack: &Stack) -> Result<StackDirectory> {
    StackDirectory::open(stack)?.context("the stack was never started: start it with `outlast stack up`")
}

/// `shown`: the services that the command is about; none: all.
fn operator<'a>(stack: &'a Stack, shown: &[&Service], limit: &Limit, context: &'a Context) -> Operator<'a> {
    let all: Vec<&Service> = stack.services.iter().collect();
    let shown = if shown.is_empty() { all.as_slice() } else { shown };
    let names: Vec<String> = shown.iter().map(|service| service.name().to_owned()).collect();
    let progress = Progress::new(names, context.printer.is_human_readable());
    Operator::new(stack, &context.client, limit.timeout, progress)
}

/// A closing line for people; the whole stack for programs.
async fn finish(stack: &Stack, context: &Context, text: &str) -> Result<()> {
    match context.printer.is_human_readable() {
        true => output::write(text.as_bytes())?,
        false => print_status(stack, context).await?,
    }
    Ok(())
}

async fn print_status(stack: &Stack, context: &Context) -> Result<()> {
    let operator = Operator::new(stack, &context.client, Duration::ZERO, Progress::new([], false));
    let view = StackView::new(stack, &strays(stack), operator.nodes().await);
    context.printer.print(&view, StackView::table)
}

fn note_changes(stack: &Stack) {
    let changed = up::changed(stack);
    if !changed.is_empty() {
        let names = changed.join(" ");
        print_stderr(&format!(
            "the stack file has changed since these services were started; to apply it: outlast stack restart {names}"
        ));
    }
}

fn kept(leftover: &down::Leftover) -> String {
    match leftover.jobs {
        0 => "All data is kept\n".to_owned(),
        1 => {
            "All data is kept. 1 job goes on without its node, by default for ten minutes; the next `outlast stack up` \
              adopts it\n"
                .to_owned()
        }
        jobs => format!(
            "All data is kept. {jobs} jobs go on without their nodes, by default for ten minutes; the next \
             `outlast stack up` adopts them\n"
        ),
    }
}
