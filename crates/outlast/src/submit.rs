//! `outlast submit`: one job from the command line, or one or many from a file.

mod chunk;
mod content;
mod input;
mod many;
pub mod source;
mod spec;
mod wait;

use std::path::PathBuf;

use anyhow::Result;
use bytes::Bytes;
use clap::{ArgGroup, Args};
use client::jobs::Submit;
use model::view::AcceptedView;

use crate::context::Context;
use crate::exit::{self, Usage};
use crate::ids;
use source::Source;
pub use spec::parse_pair;

/// Submit a job and print its id.
#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["command", "echo", "file", "wasm", "function"]))]
#[command(override_usage = "\
outlast submit [OPTIONS] [--] COMMAND [ARGUMENT]...
       outlast submit [OPTIONS] --wasm FILE|blob:… [--] [ARGUMENT]...
       outlast submit [OPTIONS] --worker w_… --function NAME [--] [ARGUMENT]...
       outlast submit [OPTIONS] --echo JSON
       outlast submit [OPTIONS] --file FILE")]
#[command(after_help = "\
A command runs in a working directory of its own, with its inputs in inputs/ and its worker in worker/; what it \
leaves in outputs/ can be kept. It is not a shell line: for pipes, variables and the like use sh -c.
It is kept from its host by the `standard` sandbox unless --sandbox says otherwise.

Examples:
  outlast submit --wait -- sh -c 'echo hello; exit 3'
  outlast submit --topic reports --timeout 10m --retries 2 -- sh -c 'date | tee outputs/report'
  outlast submit --wait --input in.csv=data/table.csv -- sort -n inputs/in.csv
  outlast submit --wait --stdin table.csv sort -n
  outlast submit --memory 512M --cpu 1m --worker w_… --function render --artifact '*.png'
  outlast submit --wait --echo '{\"answer\": 42}'
  generate-jobs | outlast submit --file -")]
pub struct Options {
    /// Show the job's output as it comes and exit with its exit code.
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    job: spec::Options,
    /// The queue it goes to, by id or token.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Names this submit: the same key again gives the same job, not another one.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Submit a job that returns this JSON value.
    #[arg(long, value_name = "JSON", conflicts_with_all = spec::Options::NOT_FOR_ECHO, conflicts_with_all = ["command", "wasm"])]
    echo: Option<String>,
    /// Run this WebAssembly component, a file or a blob; COMMAND is then its arguments.
    #[arg(long, value_name = "FILE|blob:…", conflicts_with_all = spec::Options::NOT_FOR_WASM)]
    wasm: Option<content::Source>,
    /// Submit what is in a file: JSON or YAML with one job, a list or `jobs:`, or NDJSON with a job per line; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = spec::Options::NAMES, conflicts_with_all = ["command", "echo", "wasm"])]
    file: Option<PathBuf>,
    /// The program to run and its arguments; options of this command go before it.
    // Hyphens are the command's own only behind its name: before it, a mistyped option of ours must not become a program.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub async fn run(mut options: Options, context: &Context) -> Result<u8> {
    if options.wait && options.queue.is_none() && options.file.is_none() {
        // Whoever waits wants to see a failure when it happens, and each output once.
        options.job.retries.get_or_insert(0);
    }
    let queue = options.queue.as_deref().map(ids::queue).transpose()?;
    let submit = Submit { idempotency_key: options.key, queue };
    let job = match (&options.file, &options.echo, &options.wasm) {
        (Some(file), _, _) => match source::open(file)? {
            Source::One(job) => job,
            Source::Many(_) if options.wait || submit.idempotency_key.is_some() => {
                return Err(
                    Usage("--wait and --key are for a single job, and this file may have many".to_owned()).into()
                );
            }
            Source::Many(jobs) => return many::submit(jobs, &submit, context).await,
        },
        (None, Some(value), _) => spec::echo(&options.job, value)?,
        (None, None, Some(component)) => {
            let component = content::component(component, &context.client).await?;
            let inputs = content::inputs(&options.job.input, &context.client).await?;
            spec::wasm(&options.job, inputs, component, options.command)?
        }
        (None, None, None) => {
            let inputs = content::inputs(&options.job.input, &context.client).await?;
            spec::process(&options.job, inputs, options.command)?
        }
    };
    one(job, &submit, options.wait, context).await
}

async fn one(job: Bytes, submit: &Submit, wait: bool, context: &Context) -> Result<u8> {
    let accepted = context.client.submit_raw(job, submit).await?;
    if wait {
        return wait::until_terminal(accepted.id, context).await;
    }
    context.printer.print(&accepted, |accepted: &AcceptedView, _| format!("{}\n", accepted.id))?;
    Ok(exit::DONE)
}
