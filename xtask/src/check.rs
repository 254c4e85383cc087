//! `cargo xtask check`: everything that must hold before a commit and needs no test to run.

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
        "fix it, or say why it is right with a comment `style: expect(<rule>)` on the line above",
        || style::check(&repo),
    );
    steps.quiet("features", "put each marker right above the test that proves the row", || features::check(root));
    steps.quiet("dependencies", "see deny.toml for what may come in and why", || dependencies(root));
    steps.quiet("clippy", "fix it, or use #[expect(…, reason = \"…\")] where clippy is wrong", || {
        let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
        cargo_step(root, &arguments)
    });
    steps.quiet("docs", "fix the doc comments that rustdoc names", || {
        let mut command = cargo::command(root);
        command.args(["doc", "--workspace", "--no-deps", "--locked", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
        run_captured(&mut command).map(|()| String::new())
    });
    steps.finish()
}

fn cargo_step(root: &Path, arguments: &[&str]) -> Result<String> {
    run_captured(cargo::command(root).args(arguments)).map(|()| String::new())
}

/// Advisories are left out: they need a network and change under an unchanged tree.
fn dependencies(root: &Path) -> Result<String> {
    let mut command = Command::new(tools::DENY.ensure()?);
    command.args(["--locked", "--log-level", "error", "check", "bans", "licenses", "sources"]).current_dir(root);
    cargo::forget_own_package(&mut command);
    run_captured(&mut command).map(|()| String::new())
}
