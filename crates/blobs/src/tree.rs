//! Directories of our own: made, synced, removed.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::Error;

pub(crate) fn create_all(directory: &Path) -> Result<(), Error> {
    fs::create_dir_all(directory).map_err(Error::io("make the directory", directory))
}

/// Every new directory is durable before the next one is made in it.
pub(crate) fn create_all_durably(directory: &Path) -> Result<(), Error> {
    let mut missing: Vec<&Path> = directory.ancestors().take_while(|directory| !directory.exists()).collect();
    while let Some(directory) = missing.pop() {
        match fs::create_dir(directory) {
            // Another process may be making the same.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("make the directory", directory)(error));
            }
            Ok(()) | Err(_) => sync(parent_of(directory))?,
        }
    }
    Ok(())
}

/// Of a relative path with one part, the directory that it is relative to.
fn parent_of(directory: &Path) -> &Path {
    match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

pub(crate) fn sync(directory: &Path) -> Result<(), Error> {
    File::open(directory).and_then(|file| file.sync_all()).map_err(Error::io("sync the directory", directory))
}

/// Removes a file or a whole directory, also one whose directories are read-only. What is not there is fine.
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

/// For cleaning up where nobody is there to be told: the next start tries again.
pub(crate) fn remove_or_warn(path: &Path) {
    if let Err(error) = remove(path) {
        tracing::warn!("{error}");
    }
}

fn make_writable(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // The type of the entry itself: a link to a directory is none.
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

/// Takes the lock on a directory, which goes with the process, however it ends. `None` if someone else has it.
pub(crate) fn try_lock(directory: &Path) -> Result<Option<File>, Error> {
    let file = File::open(directory).map_err(Error::io("open the directory", directory))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(Error::io("lock the directory", directory)(error)),
    }
}
