//! `outlast doctor`: checks for common problems and suggests fixes.

mod check;
mod disk;
mod host;
mod protections;
mod server;
mod tables;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::context::Context;
use crate::exit;
use check::{Checks, Mark};

/// Check the server, its data directory and this machine.
#[derive(Args)]
pub struct Options {
    /// Data directory of the server on this machine.
    #[arg(long, value_name = "DIR", default_value = "outlast-data")]
    data_dir: PathBuf,
    /// Also verify every record in the data directory. The server must be stopped.
    #[arg(long)]
    verify: bool,
}

pub async fn run(options: Options, context: &Context) -> Result<u8> {
    let mut checks = server::check(&context.client, options.verify).await;
    checks.extend(protections::check(&context.client).await);
    checks.extend(disk::check(&options.data_dir));
    if options.verify {
        checks.push(tables::check(&options.data_dir));
    }
    checks.extend(host::check());
    let checks = Checks { checks };
    context.printer.print(&checks, Checks::render)?;
    let any_bad = checks.checks.iter().any(|check| check.mark == Mark::Bad);
    Ok(if any_bad { exit::FAILED } else { exit::DONE })
}
