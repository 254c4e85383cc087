//! `cargo xtask sim`: whole clusters in virtual time, from seeds.

use anyhow::{Result, bail};
use clap::Args;

use crate::{cargo, repo, steps};

#[derive(Args)]
pub struct Options {
    /// How many seeds to run
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// Start at this seed; with `--seeds 1`, replay exactly this one
    #[arg(long)]
    seed: Option<u64>,
    /// Passed on to the simulation
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

impl Options {
    /// As many seeds as every test run has to survive.
    pub fn seeds(seeds: u64) -> Self {
        Self { seeds, seed: None, rest: Vec::new() }
    }
}

/// Whether there is a simulation to run yet.
pub fn exists() -> bool {
    repo::root().join("crates/sim/src/main.rs").is_file()
}

pub fn run(options: &Options) -> Result<()> {
    if !exists() {
        bail!("crates/sim has no main.rs: there is nothing to simulate yet");
    }
    let mut command = cargo::command(&repo::root());
    // Release: a seed is worth what it explores, and optimised code explores ten times as much.
    command.args(["run", "--release", "--quiet", "--locked", "--package", "sim", "--"]);
    command.args(["--seeds", &options.seeds.to_string()]);
    if let Some(seed) = options.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    steps::run_shown(command.args(&options.rest))
}
