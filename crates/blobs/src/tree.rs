//! Helpers for the store's own directories: create, sync, remove, lock.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::Error;

pub(crate) fn create_all(directory: &Path) -> Result<(), Error> {
    fs::create_dir_all(directory).map_err(Error::io("create the directory", directory))
}

/// Every new directory is durable before the next one is created in it.
pub(crate) fn create_all_durably(directory: &Path) -> Result<(), Error> {
    let mut missing: Vec<&Path> = directory.ancestors().take_while(|directory| !directory.exists()).collect();
    while let Some(directory) = missing.pop() {
        match fs::create_dir(directory) {
            // Another process may be creating the same directory.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("create the directory", directory)(error));
            }
            Ok(()) | Err(_) => sync(parent_of(directory))?,
        }
    }
    Ok(())
}

/// `.` for a relative path with one component.
fn parent_of(directory: &Path) -> &Path {
    match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

pub(crate) fn sync(directory: &Path) -> Result<(), Error> {
    File::open(directory).and_then(|file| file.sync_all()).map_err(Error::io("sync the directory", directory))
}

/// Removes a file or a directory tree, also with read-only directories. A missing path is not an error.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).or_else(|error| {
            if error.kind() != io::ErrorKind::PermissionDenied {
                return Err(error);
            }
            make_writable(path)?;
            fs::remove_dir_all(path)
        }),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// For clean-up without a caller to report to; the next start tries again.
pub(crate) fn remove_or_warn(path: &Path) {
    if let Err(error) = remove(path) {
        tracing::warn!("{error}");
    }
}

fn make_writable(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // `file_type` does not follow links.
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

/// Locks a directory until the file is dropped or the process ends. `None` if another process holds the lock.
pub(crate) fn try_lock(directory: &Path) -> Result<Option<File>, Error> {
    let file = File::open(directory).map_err(Error::io("open the directory", directory))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(Error::io("lock the directory", directory)(error)),
    }
}
