//! Finds Rust files without a `mod` declaration: they are never compiled.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Finding, Rule};
use crate::cargo::Workspace;
use crate::repo::Repo;
use crate::rust::tree;

pub fn check(repo: &Repo, workspace: &Workspace) -> Vec<Finding> {
    let read = |file: &Path| std::fs::read_to_string(file).ok();
    let modules = tree::modules(&workspace.targets, &read);
    let compiled: BTreeSet<PathBuf> = modules.into_iter().map(|module| module.file).collect();
    let rust_files = repo.files_ending("rs").filter(|file| in_workspace(repo, workspace, file));
    let dead = rust_files.filter(|file| !compiled.contains(&repo.root.join(file)));
    dead.map(|file| Finding::new(Rule::DeadFile, file, 1, "no module declares this file, so it is never compiled"))
        .collect()
}

/// Whether the file is not in a package outside the workspace, such as an example module.
fn in_workspace(repo: &Repo, workspace: &Workspace, file: &Path) -> bool {
    let manifest_of = |directory: &&Path| repo.files.contains(&directory.join("Cargo.toml"));
    let package = file.ancestors().skip(1).find(manifest_of).unwrap_or(Path::new(""));
    let directory = repo.root.join(package);
    // The root has no package: a Rust file outside all packages is a finding.
    package == Path::new("") || workspace.package_dirs.contains(&directory)
}
