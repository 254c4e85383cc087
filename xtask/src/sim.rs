//! `cargo xtask sim`: runs the simulation of whole clusters in virtual time, from seeds.

use anyhow::{Result, bail};
use clap::Args;

use crate::{cargo, repo, steps};

#[derive(Args)]
pub struct Options {
    /// Number of seeds to run
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// First seed; with `--seeds 1`, replay exactly this seed
    #[arg(long)]
    seed: Option<u64>,
    /// Run as many seeds as fit into this time, instead of a number of them
    #[arg(long)]
    minutes: Option<u64>,
    /// Arguments of the simulation
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

impl Options {
    /// Options of a run of `seeds` seeds.
    pub fn seeds(seeds: u64) -> Self {
        Self { seeds, seed: None, minutes: None, rest: Vec::new() }
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
    match options.minutes {
        Some(minutes) => command.args(["--minutes", &minutes.to_string()]),
        None => command.args(["--seeds", &options.seeds.to_string()]),
    };
    if let Some(seed) = options.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    steps::run_shown(command.args(&options.rest))
}
