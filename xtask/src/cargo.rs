//! Cargo commands and workspace metadata.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A cargo command in the root of the repository.
pub fn command(root: &Path) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root);
    remove_package_variables(&mut command);
    command
}

/// Removes the package variables that `cargo run` set for this process. Build scripts that watch these variables would
/// otherwise run again on every change between `cargo xtask` and plain `cargo`.
pub fn remove_package_variables(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// A cargo target: a library, a binary, an integration test…
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The package's name with underscores.
    pub crate_name: String,
    /// The target's name, for integration tests and benches only: it is part of a test's path.
    pub own_name: Option<String>,
    /// The target's root file.
    pub source: PathBuf,
}

/// Members of this workspace, from `cargo metadata`.
pub struct Workspace {
    pub package_dirs: Vec<PathBuf>,
    pub targets: Vec<Target>,
    pub target_directory: PathBuf,
}

impl Workspace {
    pub fn read(root: &Path) -> Result<Self> {
        let output = command(root)
            .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
            .output()
            .context("cannot run cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        Self::from_metadata(&serde_json::from_slice(&output.stdout)?)
    }

    fn from_metadata(metadata: &Value) -> Result<Self> {
        let mut workspace = Workspace {
            package_dirs: Vec::new(),
            targets: Vec::new(),
            target_directory: PathBuf::from(text(metadata, "target_directory")?),
        };
        for package in list(metadata, "packages")? {
            let manifest = PathBuf::from(text(package, "manifest_path")?);
            let crate_name = text(package, "name")?.replace('-', "_");
            workspace.package_dirs.push(manifest.parent().unwrap_or(&manifest).to_path_buf());
            for target in list(package, "targets")? {
                let named_in_path = list(target, "kind")?.iter().any(|kind| kind == "test" || kind == "bench");
                workspace.targets.push(Target {
                    crate_name: crate_name.clone(),
                    own_name: named_in_path.then(|| text(target, "name").map(str::to_owned)).transpose()?,
                    source: PathBuf::from(text(target, "src_path")?),
                });
            }
        }
        Ok(workspace)
    }
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().with_context(|| format!("cargo metadata has no text field {field}"))
}

fn list<'a>(value: &'a Value, field: &str) -> Result<&'a Vec<Value>> {
    value[field].as_array().with_context(|| format!("cargo metadata has no list field {field}"))
}
