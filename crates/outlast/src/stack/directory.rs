//! The directory of a stack: a marker, which is also the lock of commands, and a directory for each service.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::file::Stack;
use super::service::{Role, Service};
use crate::exit::Usage;

/// A directory with this file was created for a stack. It begins with a dot, so no service has its name.
const MARKER: &str = ".outlast-stack";

/// The directory of a stack, locked: one command at a time changes a stack.
#[derive(Debug)]
pub struct StackDirectory {
    path: PathBuf,
    _lock: File,
}

impl StackDirectory {
    /// Locks the directory, and creates it if there is none.
    pub fn create(stack: &Stack) -> Result<Self> {
        let path = &stack.directory;
        if !path.join(MARKER).exists() && !is_empty(path).with_context(|| format!("cannot read {}", path.display()))? {
            return Err(Usage(format!(
                "{} has files in it and is not the directory of a stack: choose another `directory` in the stack file",
                path.display()
            ))
            .into());
        }
        fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        Self::lock(path)
    }

    /// Locks the directory. `None`: the stack was never started.
    pub fn open(stack: &Stack) -> Result<Option<Self>> {
        match stack.directory.join(MARKER).exists() {
            true => Self::lock(&stack.directory).map(Some),
            false => Ok(None),
        }
    }

    fn lock(path: &Path) -> Result<Self> {
        let marker = path.join(MARKER);
        let problem = || format!("cannot open {}", marker.display());
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&marker);
        let mut file = opened.with_context(problem)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                bail!(
                    "another `outlast stack` command changes this stack (pid {}): wait until it has ended",
                    pid.trim()
                );
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(problem),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).with_context(problem)?;
        Ok(Self { path: path.to_owned(), _lock: file })
    }

    /// Removes everything.
    pub fn remove(self) -> Result<()> {
        // The marker goes last: a removal that failed half-way can be repeated.
        let remove = || -> io::Result<()> {
            for entry in fs::read_dir(&self.path)? {
                let entry = entry?;
                match entry.file_type()?.is_dir() {
                    true => fs::remove_dir_all(entry.path())?,
                    false if entry.file_name() == MARKER => {}
                    false => fs::remove_file(entry.path())?,
                }
            }
            fs::remove_file(self.path.join(MARKER))?;
            fs::remove_dir(&self.path)
        };
        remove().with_context(|| format!("cannot remove {}", self.path.display()))
    }
}

/// Services that were started and are no longer in the stack file.
pub fn strays(stack: &Stack) -> Vec<Service> {
    let entries = fs::read_dir(&stack.directory).into_iter().flatten().flatten();
    let names = entries.filter(|entry| Service::has_record(&entry.path())).map(|entry| entry.file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| !stack.services.iter().any(|service| service.name() == name)).collect();
    names.sort();
    let service = |name: &String| Service::new(name, None, Role::Runner, &stack.directory, &stack.directory);
    names.iter().map(service).collect()
}

fn is_empty(path: &Path) -> io::Result<bool> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::file::Purpose;

    fn stack(directory: &Path) -> Stack {
        fs::write(directory.join("stack.yaml"), "directory: state\nnodes: [{name: build-1}]\n").unwrap();
        Stack::read(&directory.join("stack.yaml"), Purpose::Inspect).unwrap()
    }

    #[test]
    fn one_command_at_a_time_has_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let stack = stack(directory.path());
        assert!(StackDirectory::open(&stack).unwrap().is_none());
        let first = StackDirectory::create(&stack).unwrap();
        let refused = StackDirectory::create(&stack).unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(first);
        assert!(StackDirectory::open(&stack).unwrap().is_some());
    }

    // FEATURES: B7
    #[test]
    fn only_the_directory_of_a_stack_is_taken_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let stack = stack(directory.path());
        fs::create_dir(&stack.directory).unwrap();
        fs::write(stack.directory.join("precious"), "").unwrap();
        assert!(StackDirectory::create(&stack).unwrap_err().is::<Usage>());
        assert!(StackDirectory::open(&stack).unwrap().is_none());
        fs::remove_file(stack.directory.join("precious")).unwrap();
        let own = StackDirectory::create(&stack).unwrap();
        fs::create_dir_all(stack.directory.join("build-1/data")).unwrap();
        own.remove().unwrap();
        assert!(!stack.directory.exists() && directory.path().join("stack.yaml").exists());
    }

    #[test]
    fn services_that_left_the_file_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let stack = stack(directory.path());
        for name in ["build-1", "build-2", "other"] {
            fs::create_dir_all(stack.directory.join(name)).unwrap();
        }
        fs::write(stack.directory.join("build-1/process"), "").unwrap();
        fs::write(stack.directory.join("build-2/process"), "").unwrap();
        let names: Vec<String> = strays(&stack).iter().map(|service| service.name().to_owned()).collect();
        assert_eq!(names, ["build-2"]);
    }
}
