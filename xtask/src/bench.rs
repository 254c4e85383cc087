//! `cargo xtask bench`: measures all figures and their references in one run, with a release build.

use anyhow::Result;
use clap::Args;

use crate::{cargo, repo, steps, tools};

#[derive(Args)]
pub struct Options {
    /// Arguments of the benchmark: --only NAME, --quick, --long, --json FILE
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let root = repo::root();
    tools::ensure_system(tools::FOR_BENCH)?;
    // The benchmark measures the release binary and expects it in its own directory.
    steps::run_shown(cargo::command(&root).args(["build", "--release", "--locked", "--package", "outlast"]))?;
    let mut command = cargo::command(&root);
    command.args(["run", "--release", "--quiet", "--locked", "--package", "bench", "--"]);
    steps::run_shown(command.args(&options.rest))
}
