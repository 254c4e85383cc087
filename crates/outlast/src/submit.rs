//! `outlast submit`: submits a job from the command line, or jobs from a file.

mod chunk;
mod content;
mod input;
mod many;
pub mod source;
mod spec;
mod wait;

use std::path::PathBuf;

use anyhow::Result;
use api::AcceptedView;
use bytes::Bytes;
use clap::{ArgGroup, Args};
use client::jobs::SubmitOptions;

use crate::context::Context;
use crate::exit::{self, Usage};
use crate::ids;
use source::Source;
pub use spec::parse_pair;

/// Submit jobs and print their ids.
#[derive(Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["command", "echo", "file", "wasm", "function"]))]
#[command(override_usage = "\
outlast submit [OPTIONS] [--] COMMAND [ARGUMENT]...
       outlast submit [OPTIONS] --wasm FILE|blob:… [--] [ARGUMENT]...
       outlast submit [OPTIONS] --worker w_… --function NAME [--] [ARGUMENT]...
       outlast submit [OPTIONS] --echo JSON
       outlast submit [OPTIONS] --file FILE")]
#[command(after_help = "\
A command runs in its own working directory, with its inputs in inputs/ and its worker in worker/. Files it writes to \
outputs/ can be stored as artifacts. It is not run by a shell: for pipes and variables use sh -c.
It runs in the `standard` sandbox unless --sandbox sets another one.

Examples:
  outlast submit --wait -- sh -c 'echo hello; exit 3'
  outlast submit --topic reports --timeout 10m --retries 2 -- sh -c 'date | tee outputs/report'
  outlast submit --wait --input in.csv=data/table.csv -- sort -n inputs/in.csv
  outlast submit --wait --stdin table.csv sort -n
  outlast submit --memory 512M --cpu 1m --worker w_… --function render --artifact '*.png'
  outlast submit --wait --echo '{\"answer\": 42}'
  generate-jobs | outlast submit --file -")]
pub struct Options {
    /// Print the job's output while it runs and exit with its exit code.
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    job: spec::Options,
    /// Queue of the job, by id or token [default: the tenant's implicit queue]
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Idempotency key. Repeating it returns the same job.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Submit an echo job, which returns this JSON value.
    #[arg(long, value_name = "JSON", conflicts_with_all = spec::Options::NOT_FOR_ECHO, conflicts_with_all = ["command", "wasm"])]
    echo: Option<String>,
    /// WebAssembly component to run, a file or a blob. COMMAND is its arguments.
    #[arg(long, value_name = "FILE|blob:…", conflicts_with_all = spec::Options::NOT_FOR_WASM)]
    wasm: Option<content::Source>,
    /// Submit the jobs in a file: JSON or YAML with one job, a list or `jobs:`, or NDJSON; `-` for standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = spec::Options::NAMES, conflicts_with_all = ["command", "echo", "wasm"])]
    file: Option<PathBuf>,
    /// Program and its arguments. Options of `outlast submit` go before it.
    // Hyphenated arguments belong to the command only after its name: a mistyped option before it must not become a
    // program.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub async fn run(mut options: Options, context: &Context) -> Result<u8> {
    if options.wait && options.queue.is_none() && options.file.is_none() {
        // With --wait, a failure is reported immediately and output is printed once.
        options.job.retries.get_or_insert(0);
    }
    let queue = options.queue.as_deref().map(ids::queue).transpose()?;
    let submit_options = SubmitOptions { idempotency_key: options.key, queue };
    let job = match (&options.file, &options.echo, &options.wasm) {
        (Some(file), _, _) => match source::open(file)? {
            Source::One(job) => job,
            Source::Many(_) if options.wait || submit_options.idempotency_key.is_some() => {
                return Err(
                    Usage("--wait and --key require a single job; this file may contain several".to_owned()).into()
                );
            }
            Source::Many(jobs) => return many::submit(jobs, &submit_options, context).await,
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
    submit_one(job, &submit_options, options.wait, context).await
}

async fn submit_one(job: Bytes, options: &SubmitOptions, wait: bool, context: &Context) -> Result<u8> {
    let accepted = context.client.submit_raw(job, options).await?;
    if wait {
        return wait::until_terminal(accepted.id, context).await;
    }
    context.printer.print(&accepted, |accepted: &AcceptedView, _| format!("{}\n", accepted.id))?;
    Ok(exit::DONE)
}
