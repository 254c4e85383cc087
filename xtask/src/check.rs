//! `cargo xtask check`: all checks before a commit other than tests.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::repo::Repo;
use crate::steps::{Steps, run_captured};
use crate::{cargo, features, style, tools};

#[derive(Args)]
pub struct Options {}

pub fn run(_: &Options) -> Result<()> {
    let repo = Repo::open()?;
    let root = repo.root.as_path();
    let mut steps = Steps::default();
    steps.quiet("format", "run `cargo fmt --all`", || {
        cargo_step(root, &["fmt", "--all", "--check", "--", "--color=never"])
    });
    steps.quiet(
        "style",
        "fix the findings, or give the reason for an exception in a comment `style: expect(<rule>)` on the line above",
        || style::check(&repo),
    );
    steps.quiet("features", "put each marker directly above the test that covers the row", || features::check(root));
    steps.quiet("dependencies", "see deny.toml for the permitted dependencies and licences", || dependencies(root));
    steps.quiet("clippy", "fix the warnings, or use #[expect(…, reason = \"…\")] for a false positive", || {
        let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
        cargo_step(root, &arguments)
    });
    steps.quiet("docs", "fix the doc comments listed above", || {
        let mut command = cargo::command(root);
        command.args(["doc", "--workspace", "--no-deps", "--locked", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
        run_captured(&mut command).map(|()| String::new())
    });
    steps.finish()
}

fn cargo_step(root: &Path, arguments: &[&str]) -> Result<String> {
    run_captured(cargo::command(root).args(arguments)).map(|()| String::new())
}

/// Without advisories: they need a network, and their result changes without a change to the tree.
fn dependencies(root: &Path) -> Result<String> {
    let mut command = Command::new(tools::DENY.ensure()?);
    command.args(["--locked", "--log-level", "error", "check", "bans", "licenses", "sources"]).current_dir(root);
    cargo::remove_package_variables(&mut command);
    run_captured(&mut command).map(|()| String::new())
}
