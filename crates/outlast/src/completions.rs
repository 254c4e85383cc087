//! `outlast completions`: what a shell needs to complete our commands.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::{exit, output};

/// Print the completion script of a shell.
#[derive(Args)]
#[command(after_help = "For example: outlast completions bash > /etc/bash_completion.d/outlast")]
pub struct Options {
    shell: Shell,
}

pub fn run(options: &Options) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "outlast", &mut script);
    output::write(&script)?;
    Ok(exit::DONE)
}
