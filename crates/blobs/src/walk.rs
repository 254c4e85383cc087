//! A directory that somebody else has written, looked through without trusting anything in it.
//!
//! Every step opens an entry of an open directory and refuses to follow links, so that a link that appears in the middle
//! cannot lead anywhere else; only files whose type is known to be a plain file are opened, so that a pipe or a device
//! cannot hold anybody up.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::Error;
use crate::limits::{PATH_DEPTH_MAX, WALK_ENTRIES_MAX};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File {
        bytes: u64,
        executable: bool,
    },
    Link,
    /// A device, a pipe, a socket: what it is.
    Special(&'static str),
    Directory,
    /// A directory that could not be looked into, and why.
    Closed(&'static str),
}

/// Calls `visit` with the path below `root` and the kind of everything in it, in no particular order. A name that is not
/// UTF-8 is shown as well as it can be, and reported as special.
pub(crate) fn walk(root: &Path, visit: impl FnMut(&str, Kind) -> Result<(), Error>) -> Result<(), Error> {
    walk_within(root, WALK_ENTRIES_MAX, visit)
}

fn walk_within(
    root: &Path,
    entries_max: usize,
    mut visit: impl FnMut(&str, Kind) -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |error: Errno| Error::io("look through", root)(error.into());
    let top = open(CWD, root, OFlags::DIRECTORY).map_err(failed)?;
    let mut open_directories = vec![(Dir::new(top).map_err(failed)?, String::new())];
    let mut entries = 0;
    while let Some((directory, prefix)) = open_directories.last_mut() {
        let Some(entry) = directory.read() else {
            open_directories.pop();
            continue;
        };
        let entry = entry.map_err(failed)?;
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        entries += 1;
        if entries > entries_max {
            return Err(Error::TooMany { what: "files in a directory", limit: entries_max });
        }
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let parent = directory.fd().map_err(failed)?;
        let kind = match kind_of(parent, entry.file_name()) {
            Ok(kind) => kind,
            // It went away in the meantime.
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(failed(error)),
        };
        let kind = match kind {
            Kind::Directory if path.split('/').count() >= PATH_DEPTH_MAX => Kind::Closed("it lies too deep"),
            Kind::Directory => match open(parent, entry.file_name(), OFlags::DIRECTORY).and_then(Dir::new) {
                Ok(below) => {
                    let prefix = format!("{path}/");
                    visit(&path, Kind::Directory)?;
                    open_directories.push((below, prefix));
                    continue;
                }
                Err(_) => Kind::Closed("it cannot be opened"),
            },
            Kind::File { .. } | Kind::Link if entry.file_name().to_str().is_err() => {
                Kind::Special("a name that is not UTF-8")
            }
            other => other,
        };
        visit(&path, kind)?;
    }
    Ok(())
}

/// Opens a plain file for reading, from `root` down without following a link. The error says what it is instead.
pub(crate) fn open_file(root: &Path, path: &str) -> io::Result<File> {
    let mut directory = open(CWD, root, OFlags::DIRECTORY)?;
    let (parents, name) = path.rsplit_once('/').map_or((None, path), |(parents, name)| (Some(parents), name));
    for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
        directory = open(&directory, part, OFlags::DIRECTORY)?;
    }
    let file = match kind_of(&directory, name)? {
        Kind::File { .. } => File::from(open(&directory, name, OFlags::empty())?),
        Kind::Link | Kind::Special(_) | Kind::Directory | Kind::Closed(_) => {
            return Err(io::Error::other("it is no longer a plain file"));
        }
    };
    // What was opened may be another thing than what was looked at.
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no longer a plain file"));
    }
    Ok(file)
}

/// Never follows a link in the last part, never waits, never makes a terminal ours.
fn open(at: impl AsFd, name: impl rustix::path::Arg, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

fn kind_of(at: impl AsFd, name: impl rustix::path::Arg) -> Result<Kind, Errno> {
    let found = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Kind::File {
            bytes: u64::try_from(found.st_size).unwrap_or_default(),
            executable: found.st_mode & 0o111 != 0,
        },
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        FileType::Fifo => Kind::Special("a pipe"),
        FileType::Socket => Kind::Special("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Kind::Special("a device"),
        FileType::Unknown => Kind::Special("of an unknown type"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_entries_are_looked_at_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a", "b/c", "d/e/f"] {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        let stopped = walk_within(directory.path(), 5, |_, _| Ok(()));
        assert!(matches!(stopped, Err(Error::TooMany { limit: 5, .. })));
        let mut seen = Vec::new();
        walk_within(directory.path(), 6, |path, _| {
            seen.push(path.to_owned());
            Ok(())
        })
        .unwrap();
        seen.sort();
        assert_eq!(seen, ["a", "b", "b/c", "d", "d/e", "d/e/f"]);
    }
}
