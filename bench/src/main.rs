//! The benchmark. Every figure is measured beside its reference in the same run, because the machine is
//! shared and noisy: what counts is the ratio.

mod bare;
mod commits;
mod components;
mod conditions;
mod deciding;
mod engine_alone;
mod following;
mod http;
mod latency;
mod memory;
mod placing;
mod report;
mod server;
mod spawning;
mod start;
mod workflows;

use std::path::PathBuf;

use clap::Parser;
use report::Report;

/// The one that the server has, too: what is measured in this process is what happens in that one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Outlast on this machine.
#[derive(Parser)]
struct Arguments {
    /// Only the figures whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// A tenth of the work: for trying the benchmark itself, not for figures.
    #[arg(long)]
    quick: bool,
    /// Where the results go as JSON, too.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Be the bare server that the real one is compared with.
    #[arg(long, hide = true)]
    bare: bool,
}

/// How much work a figure is measured with.
#[derive(Clone, Copy)]
pub struct Scale {
    quick: bool,
}

impl Scale {
    pub fn of(self, full: u64) -> u64 {
        if self.quick { (full / 10).max(1) } else { full }
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.bare {
        return bare::serve();
    }
    let scale = Scale { quick: arguments.quick };
    let mut report = Report::new(conditions::read()?, arguments.only);
    engine_alone::measure(scale, &mut report)?;
    commits::measure(scale, &mut report)?;
    latency::measure(scale, &mut report)?;
    http::measure(scale, &mut report)?;
    start::measure(scale, &mut report)?;
    memory::measure(scale, &mut report)?;
    spawning::measure(scale, &mut report)?;
    components::measure(scale, &mut report)?;
    following::measure(scale, &mut report)?;
    deciding::measure(scale, &mut report)?;
    placing::measure(scale, &mut report)?;
    workflows::measure(scale, &mut report)?;
    report.finish(arguments.json.as_deref())
}
