//! The benchmark. Every figure and its reference are measured in the same run: the machine is shared and noisy, so only
//! the ratio is meaningful.

mod bare_server;
mod cluster;
mod commits;
mod engine_inputs;
mod http;
mod latency;
mod log_follow;
mod machine;
mod memory;
mod placement;
mod policy_cost;
mod report;
mod restart;
mod rolling;
mod sandboxes;
mod server;
mod task_round_trip;
mod tls;
mod wasm;
mod workflows;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use report::Report;

/// The server's allocator, so that figures measured in this process apply to the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Outlast on this machine.
#[derive(Parser)]
struct Arguments {
    /// Measure only the figures whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Do a tenth of the work. Tests the benchmark itself; the figures are not valid.
    #[arg(long)]
    quick: bool,
    /// Keep nodes busy for ten minutes instead of one.
    #[arg(long)]
    long: bool,
    /// Also write the results to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Run the bare server, the reference of the HTTP figures.
    #[arg(long, hide = true)]
    bare: bool,
}

/// The amount of work of a measurement.
#[derive(Clone, Copy)]
pub struct Scale {
    quick: bool,
    long: bool,
}

impl Scale {
    pub fn of(self, full: u64) -> u64 {
        if self.quick { (full / 10).max(1) } else { full }
    }

    /// How long nodes are kept busy.
    pub fn busy(self) -> Duration {
        Duration::from_secs(if self.long { 600 } else { self.of(60) })
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.bare {
        return bare_server::serve();
    }
    let scale = Scale { quick: arguments.quick, long: arguments.long };
    let mut report = Report::new(machine::read()?, arguments.only);
    engine_inputs::measure(scale, &mut report)?;
    commits::measure(scale, &mut report)?;
    latency::measure(scale, &mut report)?;
    http::measure(scale, &mut report)?;
    restart::measure(scale, &mut report)?;
    memory::measure(scale, &mut report)?;
    sandboxes::measure(scale, &mut report)?;
    wasm::measure(scale, &mut report)?;
    log_follow::measure(scale, &mut report)?;
    policy_cost::measure(scale, &mut report)?;
    placement::measure(scale, &mut report)?;
    workflows::measure(scale, &mut report)?;
    task_round_trip::measure(scale, &mut report)?;
    cluster::measure(scale, &mut report)?;
    rolling::measure(scale, &mut report)?;
    report.finish(arguments.json.as_deref())
}
