//! Links and copies of cache files in the directories of attempts.
//!
//! A hard link shares the file itself. Its mode protects it from the job if the job runs as another user than the
//! server or sees it on a read-only mount. Otherwise the job needs a copy, which is cheap on file systems with block
//! sharing.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::blocking::blocking;
use crate::cache::{FILE_MODE, Pinned};
use crate::{Error, tree};

/// Hard-links the file to `destination`, which must not exist. Falls back to a copy where a link is impossible (another
/// file system, too many links).
pub async fn link_into(pinned: &Pinned, destination: &Path) -> Result<(), Error> {
    let (from, to) = paths(pinned, destination);
    blocking(move || match fs::hard_link(&from, &to) {
        Ok(()) => Ok(()),
        Err(error) if is_link_impossible(error.kind()) => copy(&from, &to, FILE_MODE),
        Err(error) => Err(Error::io("link", &to)(error)),
    })
    .await
}

/// Copies the file, read-only, to `destination`, which must not exist. Shares blocks if the file system supports it.
pub async fn copy_into(pinned: &Pinned, destination: &Path) -> Result<(), Error> {
    copy_with_mode(pinned, destination, FILE_MODE).await
}

pub(crate) async fn copy_with_mode(pinned: &Pinned, destination: &Path, mode: u32) -> Result<(), Error> {
    let (from, to) = paths(pinned, destination);
    blocking(move || copy(&from, &to, mode)).await
}

fn paths(pinned: &Pinned, destination: &Path) -> (PathBuf, PathBuf) {
    (pinned.path().to_path_buf(), destination.to_path_buf())
}

fn is_link_impossible(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(kind, CrossesDevices | TooManyLinks | PermissionDenied | Unsupported)
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), Error> {
    let mut source = File::open(from).map_err(Error::io("open", from))?;
    let mut options = OpenOptions::new();
    let mut target =
        options.write(true).create_new(true).mode(0o600).open(to).map_err(Error::io("create the file", to))?;
    let copied = clone_blocks(&source, &target)
        .or_else(|_| io::copy(&mut source, &mut target).map(drop))
        .and_then(|()| target.set_permissions(Permissions::from_mode(mode)));
    copied.map_err(|error| {
        tree::remove_or_warn(to);
        Error::io("write", to)(error)
    })
}

#[cfg(target_os = "linux")]
fn clone_blocks(source: &File, target: &File) -> io::Result<()> {
    Ok(rustix::fs::ioctl_ficlone(target, source)?)
}

#[cfg(not(target_os = "linux"))]
fn clone_blocks(_source: &File, _target: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
