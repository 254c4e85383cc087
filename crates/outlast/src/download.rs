//! Downloads into files: renamed to the final name only after verification, and never outside the target directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use client::Client;
use model::blob::BlobId;

use crate::exit::Usage;

/// Options of a downloaded file.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    pub executable: bool,
    /// Replace an existing file.
    pub force: bool,
}

/// Downloads a blob to a temporary file beside `path` and renames it after verification.
pub async fn to_file(
    client: &Client,
    id: BlobId,
    path: &Path,
    options: FileOptions,
    on_bytes: impl Fn(u64),
) -> Result<u64> {
    if !options.force && path.symlink_metadata().is_ok() {
        return Err(Usage(format!("{} already exists; use --force to replace it", path.display())).into());
    }
    let mut part = PartialFile::create(path, options).with_context(|| format!("cannot create {}", path.display()))?;
    let mut download = client.get_blob(id).await?;
    let mut bytes = 0;
    while let Some(chunk) = download.chunk().await? {
        part.file.write_all(&chunk).with_context(|| format!("cannot write {}", path.display()))?;
        bytes += chunk.len() as u64;
        on_bytes(chunk.len() as u64);
    }
    part.rename_to(path).with_context(|| format!("cannot rename the download to {}", path.display()))?;
    Ok(bytes)
}

/// Incomplete file, deleted on drop.
pub struct PartialFile {
    path: PathBuf,
    pub file: File,
}

impl PartialFile {
    pub fn create(target: &Path, options: FileOptions) -> io::Result<Self> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = target.with_file_name(name);
        // The umask applies.
        let mode = if options.executable { 0o777 } else { 0o666 };
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?;
        Ok(Self { path, file })
    }

    pub fn rename_to(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // Fails after a rename, which is fine.
        let _ = fs::remove_file(&self.path);
    }
}

/// Path of `path` within `directory`, creating its parent directories. Paths that leave the directory are rejected:
/// they come from a job and are untrusted.
pub fn resolve_path(directory: &Path, path: &str) -> Result<PathBuf> {
    let safe = blobs::safe_relative(path).map_err(|error| refused(&error.to_string()))?;
    let mut parent = directory.to_owned();
    for part in safe.parent().unwrap_or_else(|| Path::new("")) {
        parent.push(part);
        match parent.symlink_metadata() {
            Ok(found) if found.is_dir() => {}
            Ok(found) if found.is_symlink() => {
                return Err(refused(&format!("{} is a symbolic link", parent.display())));
            }
            Ok(_) => return Err(refused(&format!("{} is not a directory", parent.display()))),
            Err(_) => fs::create_dir(&parent).with_context(|| format!("cannot create {}", parent.display()))?,
        }
    }
    Ok(directory.join(safe))
}

fn refused(why: &str) -> anyhow::Error {
    anyhow::anyhow!("refusing to write the file: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_the_directory_are_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        assert_eq!(resolve_path(root, "a/b/c.txt").unwrap(), root.join("a/b/c.txt"));
        assert!(root.join("a/b").is_dir());
        std::os::unix::fs::symlink("/tmp", root.join("link")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        for bad in ["../x", "/etc/x", "a/../../x", "link/x", "file/x", "", "a//b"] {
            assert!(resolve_path(root, bad).is_err(), "{bad}");
        }
    }
}
