//! `cargo xtask sim`: runs the simulation of whole clusters in virtual time, from seeds.

use anyhow::{Result, bail};
use clap::Args;

use crate::{cargo, repo, steps};

/// Seeds of a run without other options.
const SEEDS: u64 = 200;

#[derive(Args)]
pub struct Options {
    /// Number of seeds to run [default: 200]
    #[arg(long)]
    seeds: Option<u64>,
    /// First seed; with `--seeds 1`, replay exactly this seed
    #[arg(long)]
    seed: Option<u64>,
    /// Run as many seeds as fit into this time, instead of a number of them
    #[arg(long)]
    minutes: Option<u64>,
    /// Instead: measure how clusters of this size find dead nodes
    #[arg(long)]
    nodes: Option<usize>,
    /// Arguments of the simulation
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

impl Options {
    /// Options of a run of `seeds` seeds.
    pub fn seeds(seeds: u64) -> Self {
        Self { seeds: Some(seeds), seed: None, minutes: None, nodes: None, rest: Vec::new() }
    }
}

/// Whether crates/sim exists.
pub fn exists() -> bool {
    repo::root().join("crates/sim/src/main.rs").is_file()
}

pub fn run(options: &Options) -> Result<()> {
    if !exists() {
        bail!("crates/sim/src/main.rs does not exist");
    }
    let mut command = cargo::command(&repo::root());
    // Release build: it runs ten times as many seeds in the same time.
    command.args(["run", "--release", "--quiet", "--locked", "--package", "sim", "--"]);
    match (options.minutes, options.nodes, options.seeds) {
        (Some(minutes), _, _) => command.args(["--minutes", &minutes.to_string()]),
        (None, None, seeds) => command.args(["--seeds", &seeds.unwrap_or(SEEDS).to_string()]),
        (None, Some(_), Some(seeds)) => command.args(["--seeds", &seeds.to_string()]),
        (None, Some(_), None) => &mut command,
    };
    if let Some(nodes) = options.nodes {
        command.args(["--nodes", &nodes.to_string()]);
    }
    if let Some(seed) = options.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    steps::run_shown(command.args(&options.rest))
}
