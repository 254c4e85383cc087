//! The repository: its root and its files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Directories at the root that are not part of the repository. Used when git is not available.
const EXCLUDED: [&str; 3] = [".git", "target", "outlast-data"];

pub struct Repo {
    pub root: PathBuf,
    /// Every file that is or would be committed, relative to the root, sorted.
    pub files: BTreeSet<PathBuf>,
}

impl Repo {
    pub fn open() -> Result<Self> {
        let root = root();
        let files = match list_with_git(&root) {
            Some(files) => files,
            None => walk(&root)?,
        };
        Ok(Self { root, files })
    }

    /// The text of a file; `None` if it is not UTF-8.
    pub fn read(&self, file: &Path) -> Option<String> {
        fs::read_to_string(self.root.join(file)).ok()
    }

    pub fn files_ending(&self, extension: &str) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().filter(move |file| file.extension().is_some_and(|found| found == extension))
    }
}

/// The root of the repository: the parent of this crate's directory.
pub fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// Tracked files and new files that are not ignored. `None` if this is not a git checkout.
fn list_with_git(root: &Path) -> Option<BTreeSet<PathBuf>> {
    // CI often runs as another user than the owner of the checkout; git would refuse the listing.
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let listing = String::from_utf8(output.stdout).ok()?;
    let files = listing.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    // A deleted file can still be in the index.
    Some(files.filter(|file| root.join(file).is_file()).collect())
}

fn walk(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut directories = vec![root.to_path_buf()];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            let relative = path.strip_prefix(root).unwrap_or(&path).to_path_buf();
            if EXCLUDED.iter().any(|name| relative == Path::new(name)) {
                continue;
            }
            if path.is_dir() && !path.is_symlink() {
                directories.push(path);
            } else if path.is_file() {
                files.insert(relative);
            }
        }
    }
    Ok(files)
}
