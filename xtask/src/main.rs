//! Development tasks of this repository: `cargo xtask <command>`.
//!
//! No part of the product. Each command is one module with an `Options` type and a `run` function, one line in
//! [`Command`] and one in [`main`].

mod bench;
mod cargo;
mod check;
mod features;
mod openapi;
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
#[command(name = "cargo xtask", about = "Development tasks of this repository", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check format, lints, docs, dependencies and style
    Check(check::Options),
    /// Run all tests: unit, integration and doc tests, and the simulation
    Test(test::Options),
    /// List the tests of each row of the feature list
    Features(features::Options),
    /// Run the simulation of whole clusters from seeds
    Sim(sim::Options),
    /// Run the benchmark
    Bench(bench::Options),
    /// Generate the OpenAPI document
    Openapi(openapi::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Check(options) => check::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Features(options) => features::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Openapi(options) => openapi::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
