//! `outlast`: everything that can be done with Outlast from a terminal.
//!
//! Each command has its file. What they share: [`context`] (the server and the way to print), [`exit`] (what the exit
//! codes mean), [`output`], [`table`] and [`paint`] (how things look).

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
mod each;
mod exit;
mod ids;
mod interrupt;
mod jobs;
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

/// Before anything else: a spawner has one thread, and knows nothing of the command line.
#[expect(unsafe_code, reason = "only the start of the process can know that nothing allocated before is freed")]
fn become_spawner_if_asked() {
    if !spawner::is_asked_for() {
        return;
    }
    // SAFETY: nothing was kept from before this line, and `main` does not return in a spawner.
    unsafe { allocator::use_system() };
    spawner::become_spawner_if_asked();
}
