//! Walk of an untrusted directory tree.
//!
//! Every step opens an entry relative to an open directory without following links, so that a link created meanwhile
//! cannot lead out of the tree. Only regular files are opened, so that a pipe or device cannot block the walk.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::Error;
use crate::limits::{PATH_DEPTH_MAX, WALK_ENTRIES_MAX};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    File {
        bytes: u64,
        executable: bool,
    },
    Link,
    /// Device, pipe or socket; the text names the type.
    Special(&'static str),
    Directory,
    /// Directory that could not be entered; the text is the reason.
    Unreadable(&'static str),
}

/// Calls `visit` with the relative path and kind of every entry below `root`, in no particular order. An entry whose
/// name is not UTF-8 is reported as special, with a lossy path.
pub(crate) fn walk(root: &Path, visit: impl FnMut(&str, FileKind) -> Result<(), Error>) -> Result<(), Error> {
    walk_within(root, WALK_ENTRIES_MAX, visit)
}

fn walk_within(
    root: &Path,
    entries_max: usize,
    mut visit: impl FnMut(&str, FileKind) -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |error: Errno| Error::io("walk", root)(error.into());
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
            // Removed meanwhile.
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(failed(error)),
        };
        let kind = match kind {
            FileKind::Directory if path.split('/').count() >= PATH_DEPTH_MAX => FileKind::Unreadable("it is too deep"),
            FileKind::Directory => match open(parent, entry.file_name(), OFlags::DIRECTORY).and_then(Dir::new) {
                Ok(below) => {
                    let prefix = format!("{path}/");
                    visit(&path, FileKind::Directory)?;
                    open_directories.push((below, prefix));
                    continue;
                }
                Err(_) => FileKind::Unreadable("it cannot be opened"),
            },
            FileKind::File { .. } | FileKind::Link if entry.file_name().to_str().is_err() => {
                FileKind::Special("a name that is not UTF-8")
            }
            other => other,
        };
        visit(&path, kind)?;
    }
    Ok(())
}

/// Opens a regular file for reading, relative to `root`, without following links.
pub(crate) fn open_file(root: &Path, path: &str) -> io::Result<File> {
    let mut directory = open(CWD, root, OFlags::DIRECTORY)?;
    let (parents, name) = path.rsplit_once('/').map_or((None, path), |(parents, name)| (Some(parents), name));
    for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
        directory = open(&directory, part, OFlags::DIRECTORY)?;
    }
    let file = match kind_of(&directory, name)? {
        FileKind::File { .. } => File::from(open(&directory, name, OFlags::empty())?),
        FileKind::Link | FileKind::Special(_) | FileKind::Directory | FileKind::Unreadable(_) => {
            return Err(io::Error::other("it is no longer a regular file"));
        }
    };
    // The entry may have been replaced between `stat` and `open`.
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no longer a regular file"));
    }
    Ok(file)
}

/// Does not follow a link in the last component, does not block, does not acquire a controlling terminal.
fn open(at: impl AsFd, name: impl rustix::path::Arg, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

fn kind_of(at: impl AsFd, name: impl rustix::path::Arg) -> Result<FileKind, Errno> {
    let found = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => FileKind::File {
            bytes: u64::try_from(found.st_size).unwrap_or_default(),
            executable: found.st_mode & 0o111 != 0,
        },
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        FileType::Fifo => FileKind::Special("a pipe"),
        FileType::Socket => FileKind::Special("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => FileKind::Special("a device"),
        FileType::Unknown => FileKind::Special("of an unknown type"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_stops_at_the_entry_limit() {
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
