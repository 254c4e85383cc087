//! `cargo xtask test`: all tests, on real processes, and a run of the simulation.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cargo::{self, Workspace};
use crate::steps::{Steps, run_captured, run_shown};
use crate::{repo, sim, tools};

/// Every test run survives at least this many seeds of the simulation.
const SIM_SEEDS: u64 = 200;

#[derive(Args)]
pub struct Options {
    /// Long tests too (those marked `#[ignore]`)
    #[arg(long)]
    all: bool,
    /// Passed on to nextest: parts of test names, `--package …`; leaves out doc tests and the simulation
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    filter: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let root = repo::root();
    let surroundings = Surroundings::new(&root)?;
    let mut steps = Steps::default();
    steps.quiet("packages", "install what is named above", || tools::ensure_system(tools::FOR_TESTS));
    if root.join("crates/outlast").is_dir() {
        steps.quiet("binary", "fix the build of the `outlast` binary: tests start it", || {
            run_captured(cargo::command(&root).args(["build", "--locked", "--quiet", "--package", "outlast"]))?;
            Ok(String::new())
        });
    } else {
        steps.left_out("binary", "crates/outlast does not exist yet");
    }
    steps.shown("tests", "run one alone with `cargo xtask test <part of its name>`", || {
        run_shown(&mut nextest(&root, options, &surroundings)?)
    });
    if options.filter.is_empty() {
        whole_run(&mut steps, &root, &surroundings);
    } else {
        steps.left_out("doc tests", "a filter was given");
        steps.left_out("simulation", "a filter was given");
    }
    steps.quiet("skipped", "with CI=true every test must run: install what it needs", || surroundings.judge_skipped());
    steps.finish()
}

/// What only a run without a filter does.
fn whole_run(steps: &mut Steps, root: &Path, surroundings: &Surroundings) {
    steps.quiet("doc tests", "fix the example in the doc comment", || {
        let mut command = cargo::command(root);
        surroundings.tell(command.args(["test", "--doc", "--workspace", "--locked", "--quiet"]));
        run_captured(&mut command).map(|()| String::new())
    });
    if sim::exists() {
        steps.shown("simulation", "replay the failing seed with `cargo xtask sim --seeds 1 --seed <seed>`", || {
            sim::run(&sim::Options::seeds(SIM_SEEDS))
        });
    } else {
        steps.left_out("simulation", "crates/sim does not exist yet");
    }
}

fn nextest(root: &Path, options: &Options, surroundings: &Surroundings) -> Result<Command> {
    let mut command = Command::new(tools::NEXTEST.ensure()?);
    command.current_dir(root).args(["nextest", "run", "--workspace", "--locked"]);
    cargo::forget_own_package(&mut command);
    if options.all {
        command.args(["--profile", "all", "--run-ignored", "all"]);
    } else if surroundings.is_ci {
        command.args(["--profile", "ci"]);
    }
    surroundings.tell(command.args(&options.filter));
    Ok(command)
}

/// What tests are told about where they run, and what they tell back.
struct Surroundings {
    is_ci: bool,
    binary: PathBuf,
    /// Tests that cannot run here append a line that says why.
    skip_log: PathBuf,
}

impl Surroundings {
    fn new(root: &Path) -> Result<Self> {
        let target = Workspace::read(root)?.target_directory;
        let skip_log = target.join("skipped-tests.txt");
        fs::create_dir_all(&target)
            .and_then(|()| fs::write(&skip_log, ""))
            .context("cannot write to the target directory")?;
        let is_ci = env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"));
        Ok(Self { is_ci, binary: target.join("debug/outlast"), skip_log })
    }

    fn tell(&self, command: &mut Command) {
        command.env("OUTLAST_BIN", &self.binary).env("OUTLAST_SKIP_LOG", &self.skip_log);
        if self.is_ci {
            command.env("OUTLAST_TEST_NO_SKIP", "1");
        }
    }

    /// Shows what was skipped. In CI nothing may be: a test that never runs proves nothing.
    fn judge_skipped(&self) -> Result<String> {
        let log = fs::read_to_string(&self.skip_log).unwrap_or_default();
        let mut lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines.sort_unstable();
        lines.dedup();
        match (lines.is_empty(), self.is_ci) {
            (true, _) => Ok("none".into()),
            (false, true) => bail!("{}\n{} tests were skipped", lines.join("\n"), lines.len()),
            (false, false) => Ok(format!("{}\n{}", lines.len(), lines.join("\n"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(is_ci: bool, log: &str) -> Result<String> {
        let skip_log = env::temp_dir().join(format!("xtask-skip-log-{}-{is_ci}-{}", std::process::id(), log.len()));
        fs::write(&skip_log, log)?;
        let verdict = Surroundings { is_ci, binary: PathBuf::new(), skip_log: skip_log.clone() }.judge_skipped();
        fs::remove_file(skip_log)?;
        verdict
    }

    #[test]
    fn skipped_tests_are_shown_and_fail_in_ci() {
        assert_eq!(judge(true, "").unwrap(), "none");
        assert_eq!(judge(false, "skipped: no user namespaces\n").unwrap(), "1\nskipped: no user namespaces");
        let error = judge(true, "skipped: no user namespaces\n").unwrap_err().to_string();
        assert!(error.contains("no user namespaces"), "{error}");
    }
}
