//! Content from the server into files: verified before it has its name, and never outside of where it belongs.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use client::Client;
use model::blob::BlobId;

use crate::exit::Usage;

/// How a file is to be made.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    pub executable: bool,
    /// Replace what is there.
    pub force: bool,
}

/// Writes a blob to a file. Until all of it has come, and is what it should be, it lies under another name beside it.
pub async fn to_file(client: &Client, id: BlobId, path: &Path, manner: Manner, got: impl Fn(u64)) -> Result<u64> {
    if !manner.force && path.symlink_metadata().is_ok() {
        return Err(Usage(format!("{} is there already; --force replaces it", path.display())).into());
    }
    let mut part = Part::create(path, manner).with_context(|| format!("cannot make {}", path.display()))?;
    let mut download = client.get_blob(id).await?;
    let mut bytes = 0;
    while let Some(piece) = download.chunk().await? {
        part.file.write_all(&piece).with_context(|| format!("cannot write {}", path.display()))?;
        bytes += piece.len() as u64;
        got(piece.len() as u64);
    }
    part.keep(path).with_context(|| format!("cannot put {} in its place", path.display()))?;
    Ok(bytes)
}

/// A file that is not complete; gone when dropped.
pub struct Part {
    path: PathBuf,
    pub file: File,
}

impl Part {
    pub fn create(wanted: &Path, manner: Manner) -> io::Result<Self> {
        let mut name = wanted.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = wanted.with_file_name(name);
        // As everybody's own settings (umask) have it for new files.
        let mode = if manner.executable { 0o777 } else { 0o666 };
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        Ok(Self { path, file })
    }

    pub fn keep(self, wanted: &Path) -> io::Result<()> {
        fs::rename(&self.path, wanted)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // After a rename there is nothing under this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// The place of `path` in `directory`, whose directories are made. What could lead out of it is refused: the path comes
/// from a job, which may be anybody's.
pub fn place_in(directory: &Path, path: &str) -> Result<PathBuf> {
    let safe = blobs::safe_relative(path).map_err(|error| refused(&error.to_string()))?;
    let mut place = directory.to_owned();
    for part in safe.parent().unwrap_or_else(|| Path::new("")) {
        place.push(part);
        match place.symlink_metadata() {
            Ok(found) if found.is_dir() => {}
            Ok(found) if found.is_symlink() => {
                return Err(refused(&format!("{} is a link, and may lead anywhere", place.display())));
            }
            Ok(_) => return Err(refused(&format!("{} is in the way: it is not a directory", place.display()))),
            Err(_) => fs::create_dir(&place).with_context(|| format!("cannot make {}", place.display()))?,
        }
    }
    Ok(directory.join(safe))
}

fn refused(why: &str) -> anyhow::Error {
    anyhow::anyhow!("it is not written: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_placed_outside_of_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        assert_eq!(place_in(root, "a/b/c.txt").unwrap(), root.join("a/b/c.txt"));
        assert!(root.join("a/b").is_dir());
        std::os::unix::fs::symlink("/tmp", root.join("link")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        for bad in ["../x", "/etc/x", "a/../../x", "link/x", "file/x", "", "a//b"] {
            assert!(place_in(root, bad).is_err(), "{bad}");
        }
    }
}
