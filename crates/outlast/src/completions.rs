//! `outlast completions`: shell completion scripts.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::{exit, output};

/// Print a shell completion script.
#[derive(Args)]
#[command(after_help = "Example: outlast completions bash > /etc/bash_completion.d/outlast")]
pub struct Options {
    /// Shell.
    shell: Shell,
}

pub fn run(options: &Options) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "outlast", &mut script);
    output::write(&script)?;
    Ok(exit::DONE)
}
