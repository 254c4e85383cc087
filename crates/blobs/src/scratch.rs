//! Files that are not finished yet.
//!
//! Every process has a directory of its own for them, locked while it lives. What a killed process left is known by its
//! free lock, and removed by whoever starts next; what a living one is writing is never touched, even where several
//! nodes share one disk.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, tree};

/// How often a fresh name is tried before the directory is given up.
const TRIES_MAX: usize = 100;

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
        for _ in 0..TRIES_MAX {
            let directory = parent.join(format!("{:016x}", random()?));
            fs::create_dir(&directory).map_err(Error::io("make the directory", &directory))?;
            // Between the two lines another start may have taken it for a leftover.
            let Ok(Some(lock)) = tree::try_lock(&directory) else { continue };
            if directory.exists() {
                return Ok(Self { directory, next: AtomicU64::new(0), _lock: lock });
            }
        }
        Err(Error::Busy { what: format!("no scratch directory can be made in `{}`", parent.display()) })
    }

    /// For messages.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// A name that nothing has.
    pub fn name(&self) -> PathBuf {
        self.directory.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }

    pub fn file(&self) -> Result<TempFile, Error> {
        let path = self.name();
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create_new(true).open(&path).map_err(Error::io("make the file", &path))?;
        Ok(TempFile { path, file, kept: false })
    }

    /// Takes something out of sight in one step, so that its name is free. What comes back is to be removed.
    pub fn set_aside(&self, path: &Path) -> Option<PathBuf> {
        let aside = self.name();
        // A directory is moved only by who may write to it. If this fails, so does the next line.
        if path.is_dir() {
            let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
        }
        match fs::rename(path, &aside) {
            Ok(()) => Some(aside),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!("{}", Error::io("set aside", path)(error));
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

/// Gone when dropped, unless it was put in its place.
#[derive(Debug)]
pub(crate) struct TempFile {
    pub path: PathBuf,
    pub file: File,
    kept: bool,
}

impl TempFile {
    pub fn rename(mut self, to: &Path) -> io::Result<()> {
        fs::rename(&self.path, to)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.kept {
            tree::remove_or_warn(&self.path);
        }
    }
}

fn remove_leftovers(parent: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(parent).map_err(Error::io("list", parent))? {
        let path = entry.map_err(Error::io("list", parent))?.path();
        // Another start may be removing the same leftover.
        if let Ok(Some(_lock)) = tree::try_lock(&path) {
            tree::remove_or_warn(&path);
        }
    }
    Ok(())
}

fn random() -> Result<u64, Error> {
    getrandom::u64().map_err(|error| Error::Storage { action: "draw a random number", reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_goes_and_what_a_living_one_writes_stays() {
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
    fn nothing_is_left_when_it_is_dropped() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(parent.path()).unwrap();
        drop(scratch.file().unwrap());
        drop(scratch);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
