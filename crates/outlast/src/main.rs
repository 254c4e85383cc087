//! `outlast`: the command line of Outlast.
//!
//! One file per command. Shared: [`context`] (client and output format), [`exit`] (errors and exit codes), [`output`],
//! [`table`] and [`paint`] (formatting).

mod allocator;
mod approvals;
mod audit;
mod bench;
mod blobs;
mod cli;
mod completions;
mod context;
mod definition;
mod dlq;
mod doctor;
mod download;
mod duration;
mod exit;
mod for_each;
mod ids;
mod interrupt;
mod jobs;
mod join;
mod logs;
mod nodes;
mod output;
mod paint;
mod policy;
mod queues;
mod run;
mod schedules;
mod screen;
mod size;
mod stack;
mod submit;
mod table;
mod tenants;
mod text;
mod up;
mod upload;
mod workers;
mod workflows;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    become_spawner_if_asked();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    exit::finish(cli.waits(), cli.run())
}

/// Must run first: a spawner is single-threaded and does not parse the command line.
#[expect(unsafe_code, reason = "only the start of the process can guarantee that no earlier allocation is freed")]
fn become_spawner_if_asked() {
    if !spawner::is_requested() {
        return;
    }
    // SAFETY: nothing allocated before this line is still in use, and `main` does not return in a spawner.
    unsafe { allocator::use_system() };
    spawner::run_if_requested();
}
