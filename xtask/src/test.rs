//! `cargo xtask test`: runs all tests, including those with real processes, and the simulation.

use std::env;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cargo::{self, Workspace};
use crate::steps::{Steps, run_captured, run_shown};
use crate::{repo, sim, tools};

/// Simulation seeds of every full test run.
const SIM_SEEDS: u64 = 200;

#[derive(Args)]
pub struct Options {
    /// Include long tests (`#[ignore]`), and run property tests with a random seed
    #[arg(long)]
    all: bool,
    /// Arguments of nextest: parts of test names, `--package …`; skips doc tests and the simulation
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    filter: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let root = repo::root();
    let environment = TestEnvironment::new(&root)?;
    let mut steps = Steps::default();
    steps.quiet("packages", "install the packages listed above", || tools::ensure_system(tools::FOR_TESTS));
    // This also builds the binaries that the tests start. A build of its own would compile many crates twice: without
    // the tests' dependencies, others have fewer features.
    steps.shown("tests", "run a single test with `cargo xtask test <part of its name>`", || {
        run_shown(&mut nextest(&root, options, &environment)?)
    });
    if options.filter.is_empty() {
        unfiltered_steps(&mut steps, &root, &environment);
    } else {
        steps.skip("doc tests", "a filter was given");
        steps.skip("simulation", "a filter was given");
    }
    steps
        .quiet("skipped", "with CI=true every test must run: install its requirements", || environment.check_skipped());
    steps.finish()
}

/// Steps of a run without a filter only.
fn unfiltered_steps(steps: &mut Steps, root: &Path, environment: &TestEnvironment) {
    steps.quiet("doc tests", "fix the example in the doc comment", || {
        let mut command = cargo::command(root);
        environment.apply_to(command.args(["test", "--doc", "--workspace", "--locked", "--quiet"]));
        run_captured(&mut command).map(|()| String::new())
    });
    if sim::exists() {
        steps.shown("simulation", "replay the failing seed with `cargo xtask sim --seeds 1 --seed <seed>`", || {
            sim::run(&sim::Options::seeds(SIM_SEEDS))
        });
    } else {
        steps.skip("simulation", "crates/sim does not exist");
    }
}

fn nextest(root: &Path, options: &Options, environment: &TestEnvironment) -> Result<Command> {
    let mut command = Command::new(tools::NEXTEST.ensure()?);
    command.current_dir(root).args(["nextest", "run", "--workspace", "--locked"]);
    cargo::remove_package_variables(&mut command);
    if options.all {
        command.args(["--profile", "all", "--run-ignored", "all"]);
    } else if environment.is_ci {
        command.args(["--profile", "ci"]);
    }
    environment.apply_to(command.args(&options.filter));
    if options.all || env::var("OUTLAST_EXPLORE").is_ok_and(|value| value == "1") {
        randomise_property_tests(&mut command);
    }
    Ok(command)
}

/// Replaces the fixed seed of the property tests, set in `.cargo/config.toml`, by a random one.
fn randomise_property_tests(command: &mut Command) {
    let seed = RandomState::new().hash_one(());
    println!(
        "random seed of the property tests; replay: `PROPTEST_RNG_SEED={seed} cargo xtask test <part of its name>`"
    );
    command.env("PROPTEST_RNG_SEED", seed.to_string());
}

/// Environment variables of the tests, and the log of skipped tests.
struct TestEnvironment {
    is_ci: bool,
    /// A test that cannot run appends a line with the reason.
    skip_log: PathBuf,
}

impl TestEnvironment {
    fn new(root: &Path) -> Result<Self> {
        let target = Workspace::read(root)?.target_directory;
        let skip_log = target.join("skipped-tests.txt");
        fs::create_dir_all(&target)
            .and_then(|()| fs::write(&skip_log, ""))
            .context("cannot write to the target directory of cargo")?;
        let is_ci = env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"));
        Ok(Self { is_ci, skip_log })
    }

    fn apply_to(&self, command: &mut Command) {
        command.env("OUTLAST_SKIP_LOG", &self.skip_log);
        if self.is_ci {
            command.env("OUTLAST_TEST_NO_SKIP", "1");
        }
    }

    /// Lists skipped tests. In CI a skipped test is an error.
    fn check_skipped(&self) -> Result<String> {
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

    fn check_skipped(is_ci: bool, log: &str) -> Result<String> {
        let skip_log = env::temp_dir().join(format!("xtask-skip-log-{}-{is_ci}-{}", std::process::id(), log.len()));
        fs::write(&skip_log, log)?;
        let verdict = TestEnvironment { is_ci, skip_log: skip_log.clone() }.check_skipped();
        fs::remove_file(skip_log)?;
        verdict
    }

    #[test]
    fn skipped_tests_are_listed_and_fail_in_ci() {
        assert_eq!(check_skipped(true, "").unwrap(), "none");
        assert_eq!(check_skipped(false, "skipped: no user namespaces\n").unwrap(), "1\nskipped: no user namespaces");
        let error = check_skipped(true, "skipped: no user namespaces\n").unwrap_err().to_string();
        assert!(error.contains("no user namespaces"), "{error}");
    }
}
