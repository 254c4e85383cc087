//! External tools of the xtask commands. Missing ones are installed.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{cargo, repo, steps};

/// A cargo subcommand, built from source if it is missing.
pub struct CargoTool {
    pub name: &'static str,
    /// The version to install. A newer one on the `PATH` is used as is.
    pub version: &'static str,
}

pub const DENY: CargoTool = CargoTool { name: "cargo-deny", version: "0.20.2" };
pub const NEXTEST: CargoTool = CargoTool { name: "cargo-nextest", version: "0.9.143" };

impl CargoTool {
    /// Path of the tool, installed if necessary.
    pub fn ensure(&self) -> Result<PathBuf> {
        if let Some(found) = find_on_path(self.name)
            && version_of(&found).is_some_and(|version| version >= numbers(self.version))
        {
            return Ok(found);
        }
        // The version is part of the path: versions do not share files.
        let root = tools_dir()?.join(format!("{}-{}", self.name, self.version));
        let installed = root.join("bin").join(self.name);
        if !installed.is_file() {
            self.install(&root).with_context(|| {
                let Self { name, version } = self;
                format!("cannot install {name} {version}; run `cargo install {name} --locked --version ={version}`")
            })?;
        }
        Ok(installed)
    }

    fn install(&self, root: &Path) -> Result<()> {
        let mut command = cargo::command(&repo::root());
        command
            .args(["install", self.name, "--locked", "--version", &format!("={}", self.version), "--root"])
            .arg(root);
        // Own target directory, no optimisation: an optimised build takes twice as long, and the tool runs for about a
        // second.
        command.env_remove("CARGO_TARGET_DIR");
        command.arg("--debug").env("CARGO_PROFILE_DEV_DEBUG", "0");
        steps::run_captured(&mut command)
    }
}

/// A program that the tests start, and its Debian package.
pub struct SystemTool {
    pub name: &'static str,
    pub package: &'static str,
    /// Its use, for the error message.
    pub reason: &'static str,
}

/// Programs of the tests.
pub const FOR_TESTS: &[SystemTool] = &[
    SystemTool { name: "cc", package: "gcc", reason: "compiles programs that try to escape the sandbox" },
    SystemTool { name: "bash", package: "bash", reason: "opens connections from inside a sandbox" },
    SystemTool { name: "unshare", package: "util-linux", reason: "tries to create namespaces inside a sandbox" },
    SystemTool { name: "ip", package: "iproute2", reason: "joins the nodes of a cluster by a network of their own" },
    SystemTool { name: "nft", package: "nftables", reason: "cuts links between the nodes of a cluster" },
];

/// Programs of the benchmark.
pub const FOR_BENCH: &[SystemTool] = &[
    SystemTool { name: "bwrap", package: "bubblewrap", reason: "reference of the sandbox figures" },
    SystemTool { name: "curl", package: "curl", reason: "reference of the transfer of inputs" },
    SystemTool { name: "ip", package: "iproute2", reason: "joins the nodes of a cluster by a network of their own" },
    SystemTool { name: "nft", package: "nftables", reason: "cuts links between the nodes of a cluster" },
];

/// Installs the missing programs of `wanted` with apt-get. Returns the installed packages.
pub fn ensure_system(wanted: &[SystemTool]) -> Result<String> {
    let missing: Vec<_> = wanted.iter().filter(|tool| find_on_path(tool.name).is_none()).collect();
    if missing.is_empty() {
        return Ok(String::new());
    }
    let packages: Vec<_> = missing.iter().map(|tool| tool.package).collect();
    let by_hand = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if !is_root() || find_on_path("apt-get").is_none() {
        let reasons: Vec<_> = missing.iter().map(|tool| format!("  {}: {}", tool.name, tool.reason)).collect();
        bail!("programs are missing:\n{}\nRun as root: {by_hand}", reasons.join("\n"));
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

/// `$XDG_CACHE_HOME/outlast/tools`, by default below `~/.cache`: not removed by `cargo clean`.
fn tools_dir() -> Result<PathBuf> {
    let cache = match env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache"),
    };
    Ok(cache.join("outlast/tools"))
}

/// The version a tool reports: the first version number in its first line.
fn version_of(tool: &Path) -> Option<Vec<u64>> {
    let output = Command::new(tool).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next()?.split_whitespace().map(numbers).find(|version| version.len() == 3)
}

/// `1.2.3` as a list of numbers; empty if it is not a version.
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
