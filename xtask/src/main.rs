//! The chores of this repository, as `cargo xtask <command>`.
//!
//! Nothing here is part of the product. Each command is one module with an `Options` type and a `run` function;
//! a new one needs its module, one line in [`Command`] and one in [`main`].

mod bench;
mod cargo;
mod check;
mod features;
mod repo;
mod rust;
mod sim;
mod steps;
mod style;
mod test;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The chores of this repository", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Format, lints, docs, dependencies and style: what must hold before a commit
    Check(check::Options),
    /// All tests: unit, integration, doc tests and a run of the simulation
    Test(test::Options),
    /// Which tests prove which row of the feature list
    Features(features::Options),
    /// Simulate whole clusters from seeds
    Sim(sim::Options),
    /// Measure every figure beside its reference
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Check(options) => check::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Features(options) => features::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Bench(options) => bench::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
