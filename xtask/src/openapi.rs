//! `cargo xtask openapi`: writes `crates/api/openapi.json` anew from the types and routes of the crate `api`.

use anyhow::Result;
use clap::Args;

use crate::steps::run_shown;
use crate::{cargo, repo};

#[derive(Args)]
pub struct Options {}

pub fn run(_: &Options) -> Result<()> {
    let root = repo::root();
    let mut command = cargo::command(&root);
    command.args(["test", "--quiet", "--package", "api", "--lib", "the_checked_in_document_is_current"]);
    run_shown(command.env("UPDATE_OPENAPI", "1"))
}
