//! Files of the cache in the directories of attempts.
//!
//! A hard link shares the file itself: its mode keeps a job from writing to it as long as the job runs as somebody else
//! than the server, or sees it on a read-only mount. Where neither holds, a copy is the right thing; on file systems
//! that can share blocks it costs next to nothing.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::blocking::blocking;
use crate::cache::{FILE_MODE, Pinned};
use crate::{Error, tree};

/// Puts the file at `destination`, where nothing may be, as a hard link; as a copy where links end (another file
/// system, too many links).
pub async fn link_into(pinned: &Pinned, destination: &Path) -> Result<(), Error> {
    let (from, to) = paths(pinned, destination);
    blocking(move || match fs::hard_link(&from, &to) {
        Ok(()) => Ok(()),
        Err(error) if links_end(error.kind()) => copy(&from, &to),
        Err(error) => Err(Error::io("link", &to)(error)),
    })
    .await
}

/// Puts a read-only copy of the file at `destination`, where nothing may be. Blocks are shared if the file system can.
pub async fn copy_into(pinned: &Pinned, destination: &Path) -> Result<(), Error> {
    let (from, to) = paths(pinned, destination);
    blocking(move || copy(&from, &to)).await
}

fn paths(pinned: &Pinned, destination: &Path) -> (PathBuf, PathBuf) {
    (pinned.path().to_path_buf(), destination.to_path_buf())
}

fn links_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(kind, CrossesDevices | TooManyLinks | PermissionDenied | Unsupported)
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let mut source = File::open(from).map_err(Error::io("open", from))?;
    let mut options = OpenOptions::new();
    let mut target =
        options.write(true).create_new(true).mode(0o600).open(to).map_err(Error::io("make the file", to))?;
    let copied = clone_blocks(&source, &target)
        .or_else(|_| io::copy(&mut source, &mut target).map(drop))
        .and_then(|()| target.set_permissions(Permissions::from_mode(FILE_MODE)));
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
