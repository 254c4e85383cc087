//! Tools the chores need that cargo does not bring along, installed where they are missing.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{cargo, repo, steps};

/// A cargo subcommand, built from source when it is not there.
pub struct CargoTool {
    pub name: &'static str,
    /// Installed in this version; a newer one on the `PATH` is taken as it is.
    pub version: &'static str,
}

pub const DENY: CargoTool = CargoTool { name: "cargo-deny", version: "0.20.2" };
pub const NEXTEST: CargoTool = CargoTool { name: "cargo-nextest", version: "0.9.143" };

impl CargoTool {
    /// Where the tool is, after installing it if need be.
    pub fn ensure(&self) -> Result<PathBuf> {
        if let Some(found) = find_on_path(self.name)
            && version_of(&found).is_some_and(|version| version >= numbers(self.version))
        {
            return Ok(found);
        }
        // The version is part of the path, so a new one never meets the old one's files.
        let root = tools_dir()?.join(format!("{}-{}", self.name, self.version));
        let installed = root.join("bin").join(self.name);
        if !installed.is_file() {
            self.install(&root).with_context(|| {
                let Self { name, version } = self;
                format!("{name} {version} is missing; `cargo install {name} --locked --version ={version}` puts it on the PATH")
            })?;
        }
        Ok(installed)
    }

    fn install(&self, root: &Path) -> Result<()> {
        let mut command = cargo::command(&repo::root());
        command
            .args(["install", self.name, "--locked", "--version", &format!("={}", self.version), "--root"])
            .arg(root);
        // Built apart from our own crates, and for a short wait rather than for speed: it runs for a second or so,
        // and an optimised build takes twice as long.
        command.env_remove("CARGO_TARGET_DIR");
        command.arg("--debug").env("CARGO_PROFILE_DEV_DEBUG", "0");
        steps::run_captured(&mut command)
    }
}

/// A program the tests start, and the Debian package that has it.
pub struct SystemTool {
    pub name: &'static str,
    pub package: &'static str,
    /// Which tests need it, for the person who is asked to install it.
    pub reason: &'static str,
}

/// What the tests need from the system.
pub const FOR_TESTS: &[SystemTool] = &[
    SystemTool { name: "cc", package: "gcc", reason: "programs that try to get out of their sandbox" },
    SystemTool { name: "bash", package: "bash", reason: "connections from inside a sandbox" },
    SystemTool { name: "unshare", package: "util-linux", reason: "attempts to leave a sandbox" },
];

/// What the benchmark compares with.
pub const FOR_BENCH: &[SystemTool] =
    &[SystemTool { name: "bwrap", package: "bubblewrap", reason: "the sandbox that ours is compared with" }];

/// Installs what is missing of `wanted` with apt-get; says what was installed.
pub fn ensure_system(wanted: &[SystemTool]) -> Result<String> {
    let missing: Vec<_> = wanted.iter().filter(|tool| find_on_path(tool.name).is_none()).collect();
    if missing.is_empty() {
        return Ok(String::new());
    }
    let packages: Vec<_> = missing.iter().map(|tool| tool.package).collect();
    let by_hand = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if !is_root() || find_on_path("apt-get").is_none() {
        let reasons: Vec<_> = missing.iter().map(|tool| format!("  {}: {}", tool.name, tool.reason)).collect();
        bail!("tests need programs that are not here:\n{}\nas root: {by_hand}", reasons.join("\n"));
    }
    let apt_get = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        steps::run_captured(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt_get(&["update", "-qq"])?;
    apt_get(&[&["install", "-y", "-qq", "--no-install-recommends"], packages.as_slice()].concat())?;
    match missing.iter().find(|tool| find_on_path(tool.name).is_none()) {
        Some(tool) => bail!("package {} is installed but {} is still not on the PATH", tool.package, tool.name),
        None => Ok(format!("installed {}", packages.join(", "))),
    }
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn find_on_path(name: &str) -> Option<PathBuf> {
    find_in(&env::var_os("PATH")?, name)
}

fn find_in(path: &OsString, name: &str) -> Option<PathBuf> {
    env::split_paths(path).map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}

/// `$XDG_CACHE_HOME/outlast/tools`, by default below `~/.cache`: it outlives a `cargo clean`.
fn tools_dir() -> Result<PathBuf> {
    let cache = match env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache"),
    };
    Ok(cache.join("outlast/tools"))
}

/// The version a tool reports: the first word of its first line that looks like one.
fn version_of(tool: &Path) -> Option<Vec<u64>> {
    let output = Command::new(tool).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next()?.split_whitespace().map(numbers).find(|version| version.len() == 3)
}

/// `1.2.3` as numbers that compare; empty when it is none.
fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(str::parse).collect::<Result<_, _>>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(numbers("0.9.143") > numbers("0.9.99"));
        assert!(numbers("0.20.2") >= numbers("0.20.2"));
        assert_eq!(numbers("cargo-deny"), Vec::<u64>::new());
    }

    #[test]
    fn nothing_is_installed_when_nothing_is_missing() {
        let shell = SystemTool { name: "sh", package: "dash", reason: "every test" };
        assert_eq!(ensure_system(&[shell]).unwrap(), "");
    }

    #[test]
    fn a_program_is_found_on_the_path() {
        let path = OsString::from("/no/such/directory:/bin:/usr/bin");
        assert!(find_in(&path, "sh").is_some());
        assert_eq!(find_in(&path, "no-such-program"), None);
    }
}
