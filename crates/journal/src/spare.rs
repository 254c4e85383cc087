//! Spare segments: prepared ahead of need, or recycled from expired ones.
//!
//! The blocks of a spare have been written once, with zeros. In a merely allocated file every later `fdatasync` would
//! write metadata as well. A recycled file is not zeroed again: its old frames belong to another generation.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::segment::{Segment, sync_directory};
use crate::{Error, SPARES_MAX};

const SPARE_PREFIX: &str = "spare-";
const SPARE_SUFFIX: &str = ".seg";
const UNFINISHED_SUFFIX: &str = ".tmp";

const ZEROS_BYTES: usize = 1 << 20;
/// Zeros are synced in steps of this size. Otherwise the sync of the next commit would wait for all of them.
const SYNC_EVERY_BYTES: u64 = 8 << 20;

/// A prepared file that is not part of the log.
#[derive(Debug)]
pub(crate) struct Spare {
    pub path: PathBuf,
    pub file: File,
    pub file_bytes: u64,
}

/// The spares of one journal. Their names contain a running number.
#[derive(Debug)]
pub(crate) struct Spares {
    directory: PathBuf,
    next_number: u64,
    ready: Vec<Spare>,
}

impl Spares {
    /// Adopts the spares of an earlier process. Unfinished files and those of another size are deleted.
    pub fn adopt(directory: &Path, names: &[String], segment_bytes: u64) -> Result<Self, Error> {
        let mut spares = Self { directory: directory.to_path_buf(), next_number: 1, ready: Vec::new() };
        for name in names {
            let path = directory.join(name);
            if name.starts_with(SPARE_PREFIX) && name.ends_with(UNFINISHED_SUFFIX) {
                remove(&path)?;
            }
            let Some(number) = spare_number(name) else { continue };
            spares.next_number = spares.next_number.max(number + 1);
            let file = open_for_writing(&path)?;
            let file_bytes = file.metadata().map_err(Error::io("read the size of", &path))?.len();
            if spares.ready.len() < SPARES_MAX && file_bytes == segment_bytes {
                spares.ready.push(Spare { path, file, file_bytes });
            } else {
                remove(&path)?;
            }
        }
        Ok(spares)
    }

    pub fn take(&mut self, file_bytes_min: u64) -> Option<Spare> {
        let fits = self.ready.iter().position(|spare| spare.file_bytes >= file_bytes_min)?;
        Some(self.ready.swap_remove(fits))
    }

    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    pub fn add(&mut self, spare: Spare) {
        self.ready.push(spare);
    }

    /// Returns an unused path for a new spare.
    pub fn reserve_path(&mut self) -> PathBuf {
        let number = self.next_number;
        self.next_number += 1;
        self.directory.join(format!("{SPARE_PREFIX}{number:08}{SPARE_SUFFIX}"))
    }

    /// Removes a segment from the log. It becomes a spare, or is deleted if there are enough.
    pub fn recycle(&mut self, segment: &Arc<Segment>, segment_bytes: u64) -> Result<(), Error> {
        if self.ready.len() >= SPARES_MAX || segment.file_bytes != segment_bytes {
            remove(&segment.path)?;
            return sync_directory(&self.directory);
        }
        let path = self.reserve_path();
        let file = open_for_writing(&segment.path)?;
        std::fs::rename(&segment.path, &path).map_err(Error::io("recycle", &segment.path))?;
        // The rename must be durable before the file gets a new header. Otherwise a crash could bring back the old
        // name with the new content.
        sync_directory(&self.directory)?;
        self.ready.push(Spare { path, file, file_bytes: segment.file_bytes });
        Ok(())
    }
}

/// Writes a new spare. On failure the file is removed.
pub(crate) fn prepare(path: &Path, file_bytes: u64) -> Result<Spare, Error> {
    let unfinished = path.with_extension("tmp");
    match write_zeros(&unfinished, file_bytes) {
        Ok(file) => {
            std::fs::rename(&unfinished, path).map_err(Error::io("rename a prepared segment to", path))?;
            Ok(Spare { path: path.to_path_buf(), file, file_bytes })
        }
        Err(error) => {
            // The file may not exist. If it cannot be removed, the next start tries again.
            let _ = std::fs::remove_file(&unfinished);
            if Error::is_no_space(&error) {
                let directory = path.parent().unwrap_or(path).to_path_buf();
                return Err(Error::NoSpace { directory, bytes: file_bytes });
            }
            Err(Error::io("prepare the segment", path)(error))
        }
    }
}

fn write_zeros(path: &Path, file_bytes: u64) -> std::io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    let zeros = vec![0; ZEROS_BYTES];
    let mut written = 0;
    while written < file_bytes {
        let part = (file_bytes - written).min(ZEROS_BYTES as u64);
        file.write_all_at(&zeros[..part as usize], written)?;
        written += part;
        if written % SYNC_EVERY_BYTES == 0 {
            file.sync_data()?;
        }
    }
    file.sync_all()?;
    Ok(file)
}

fn spare_number(name: &str) -> Option<u64> {
    name.strip_prefix(SPARE_PREFIX)?.strip_suffix(SPARE_SUFFIX)?.parse().ok()
}

fn open_for_writing(path: &Path) -> Result<File, Error> {
    OpenOptions::new().read(true).write(true).open(path).map_err(Error::io("open", path))
}

fn remove(path: &Path) -> Result<(), Error> {
    std::fs::remove_file(path).map_err(Error::io("remove", path))
}
