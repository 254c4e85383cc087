//! `outlast bench`: measures throughput and latency of a running server.

mod report;
mod workload;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use api::QueueSpec;
use clap::{Args, ValueEnum};
use client::Client;
use client::load::{self, LoadPlan, LoadReport, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use model::queue::{Counters, QueueRef};
use tokio::time::sleep;

use crate::cli::Global;
use crate::context::Context;
use crate::exit::{self, Usage};
use report::Report;
use workload::JobWorkload;

/// Poll interval of the queue counters.
const POLL: Duration = Duration::from_millis(5);
/// Time without progress after which the run fails.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);

/// Measure the throughput and submit latency of a running server.
#[derive(Args)]
#[command(after_help = "\
The jobs go to queues created for this run. Latencies are measured by the client, from the submission to its \
response; with --wait, to the end of the job.")]
pub struct Options {
    /// Number of jobs.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Concurrent connections.
    #[arg(long, value_name = "C", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,
    /// Jobs per request.
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Executor of the jobs: echo, or a process that runs `true`.
    #[arg(long, value_enum, default_value_t = Executor::Echo)]
    executor: Executor,
    /// Size of the value returned by an echo job.
    #[arg(long, value_name = "N", default_value_t = 16)]
    value_bytes: usize,
    /// Give every job a unique idempotency key.
    #[arg(long)]
    keys: bool,
    /// Wait for the end of each job before submitting the next.
    #[arg(long)]
    wait: bool,
    /// Number of queues the jobs are spread over. Each queue belongs to one shard.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    queues: u16,
    /// Client threads. They compete with a server on the same machine.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Executor {
    Echo,
    Process,
}

pub fn run(options: Options, global: &Global) -> Result<u8> {
    if options.wait && options.batch > 1 {
        return Err(Usage("--wait cannot be combined with --batch".to_owned()).into());
    }
    let mut context = Context::new(global)?;
    if options.json {
        context.printer.format = crate::output::Format::Json;
    }
    let mut builder = match options.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(options.threads.into()).enable_all().build();
    let runtime = runtime.context("cannot start the asynchronous runtime")?;
    runtime.block_on(measure(&options, global.token.as_deref(), &context))
}

async fn measure(options: &Options, token: Option<&str>, context: &Context) -> Result<u8> {
    let client = &context.client;
    client.ready().await?;
    let queues = create_queues(options.queues, client).await?;
    let workload = Arc::new(JobWorkload::new(options, &queues, client.address(), token, &run_name()?));
    let plan = LoadPlan {
        address: client.address().clone(),
        requests: workload.requests(),
        connections: options.concurrency.into(),
    };
    let progress = Progress::default();
    let progress_task = show_progress(progress.clone(), options.jobs);
    let started = Instant::now();
    let submitted = load::run(&plan, workload, &progress).await.context("cannot connect to the server")?;
    progress_task.abort();
    let mut ends = Counters::default();
    for queue in &queues {
        add(&mut ends, &wait_until_idle(*queue, client).await?);
    }
    let seconds = started.elapsed();
    for queue in &queues {
        // Empty queues expire; draining keeps others from adding jobs until then.
        let _ = client.drain_queue(*queue).await;
    }
    let report = Report::new(options.jobs, &submitted, &ends, seconds);
    context.printer.print(&report, Report::table)?;
    if let (true, Some(failure)) = (report.failed > 0, first_failure(&submitted, &ends)) {
        eprintln!("first failure: {failure}");
    }
    Ok(if report.failed == 0 { exit::DONE } else { exit::FAILED })
}

async fn create_queues(count: u16, client: &Client) -> Result<Vec<QueueRef>> {
    let mut queues = Vec::new();
    for _ in 0..count {
        let spec = QueueSpec { tag: "bench".to_owned(), ..QueueSpec::default() };
        queues.push(QueueRef::Id(client.create_queue(&spec).await?.id));
    }
    Ok(queues)
}

/// Unique prefix of the idempotency keys of this run.
fn run_name() -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("this machine's clock is before 1970")?;
    Ok(format!("bench-{:x}-{:x}", now.as_nanos(), std::process::id()))
}

/// Waits until a queue has no active jobs and returns its counters.
async fn wait_until_idle(queue: QueueRef, client: &Client) -> Result<Counters> {
    let mut last_active = u64::MAX;
    let mut last_progress = Instant::now();
    loop {
        let counters = client.queue(queue).await?.counters;
        if counters.active == 0 {
            return Ok(counters);
        }
        if counters.active < last_active {
            last_active = counters.active;
            last_progress = Instant::now();
        }
        if last_progress.elapsed() > STANDSTILL_MAX {
            bail!("{} jobs of {queue} made no progress for {STANDSTILL_MAX:?}", counters.active);
        }
        sleep(POLL).await;
    }
}

fn add(sum: &mut Counters, more: &Counters) {
    let Counters { active, succeeded, failed, timed_out, cancelled, denied, quarantined, abandoned } = more;
    sum.active += active;
    sum.succeeded += succeeded;
    sum.failed += failed;
    sum.timed_out += timed_out;
    sum.cancelled += cancelled;
    sum.denied += denied;
    sum.quarantined += quarantined;
    sum.abandoned += abandoned;
}

fn first_failure(submitted: &LoadReport, ends: &Counters) -> Option<String> {
    let ended_badly = crate::queues::ended(ends) - ends.succeeded;
    let by_end = || (ended_badly > 0).then(|| format!("{ended_badly} jobs ended without success"));
    submitted.first_failure.clone().or_else(by_end)
}

/// Updates a progress bar, hidden if standard error is not a terminal.
fn show_progress(progress: Progress, jobs: u64) -> tokio::task::JoinHandle<()> {
    let bar = ProgressBar::new(jobs);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} submitted  {per_sec}  {elapsed}");
    let bar = if let Ok(style) = style { bar.with_style(style) } else { bar };
    let clears = ClearOnDrop(bar.clone());
    tokio::spawn(async move {
        let clears = clears;
        while !clears.0.is_hidden() {
            clears.0.set_position(progress.jobs());
            sleep(Duration::from_millis(200)).await;
        }
    })
}

/// Clears the bar when its task is aborted.
struct ClearOnDrop(ProgressBar);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
