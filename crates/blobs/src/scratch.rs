//! Scratch directory for incomplete files.
//!
//! Every process has its own, locked while it runs. Each start removes unlocked directories, left by killed processes.
//! Directories of running processes are never touched, also if several nodes share a disk.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, tree};

/// Attempts to create a directory under a new name.
const ATTEMPTS_MAX: usize = 100;

#[derive(Debug)]
pub(crate) struct Scratch {
    directory: PathBuf,
    next: AtomicU64,
    _lock: File,
}

impl Scratch {
    pub fn open(parent: &Path) -> Result<Self, Error> {
        tree::create_all(parent)?;
        remove_leftovers(parent)?;
        for _ in 0..ATTEMPTS_MAX {
            let directory = parent.join(format!("{:016x}", random()?));
            fs::create_dir(&directory).map_err(Error::io("create the directory", &directory))?;
            // A concurrent start may have removed the directory before it is locked.
            let Ok(Some(lock)) = tree::try_lock(&directory) else { continue };
            if directory.exists() {
                return Ok(Self { directory, next: AtomicU64::new(0), _lock: lock });
            }
        }
        Err(Error::Busy { what: format!("cannot create a scratch directory in `{}`", parent.display()) })
    }

    /// For error messages.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// An unused path.
    pub fn new_path(&self) -> PathBuf {
        self.directory.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }

    pub fn file(&self) -> Result<TempFile, Error> {
        let path = self.new_path();
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create_new(true).open(&path).map_err(Error::io("create the file", &path))?;
        Ok(TempFile { path, file, renamed: false })
    }

    /// Atomically moves a file or directory out of the way. The caller removes the returned path.
    pub fn move_to_scratch(&self, path: &Path) -> Option<PathBuf> {
        let target = self.new_path();
        // Moving a directory needs write permission on it. If this fails, the rename fails and reports it.
        if path.is_dir() {
            let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
        }
        match fs::rename(path, &target) {
            Ok(()) => Some(target),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!("{}", Error::io("move to the scratch directory", path)(error));
                }
                None
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        tree::remove_or_warn(&self.directory);
    }
}

/// File that is removed on drop unless it was renamed.
#[derive(Debug)]
pub(crate) struct TempFile {
    pub path: PathBuf,
    pub file: File,
    renamed: bool,
}

impl TempFile {
    pub fn rename(mut self, to: &Path) -> io::Result<()> {
        fs::rename(&self.path, to)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.renamed {
            tree::remove_or_warn(&self.path);
        }
    }
}

fn remove_leftovers(parent: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(parent).map_err(Error::io("list", parent))? {
        let path = entry.map_err(Error::io("list", parent))?.path();
        // A concurrent start may be removing the same directory.
        if let Ok(Some(_lock)) = tree::try_lock(&path) {
            tree::remove_or_warn(&path);
        }
    }
    Ok(())
}

fn random() -> Result<u64, Error> {
    getrandom::u64().map_err(|error| Error::Storage { action: "generate a random number", reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_dead_processes_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let living = Scratch::open(parent.path()).unwrap();
        let file = living.file().unwrap();
        let dead = parent.path().join("dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("0"), "half").unwrap();
        let _new = Scratch::open(parent.path()).unwrap();
        assert!(file.path.exists());
        assert!(!dead.exists());
    }

    #[test]
    fn dropping_removes_all_files() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(parent.path()).unwrap();
        drop(scratch.file().unwrap());
        drop(scratch);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
