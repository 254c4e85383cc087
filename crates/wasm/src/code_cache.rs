//! Disk cache of compiled components.
//!
//! Loading compiled code means executing it, so only code stored by this node may be loaded: the directory is private
//! to the user, and every file starts with a checksum keyed by component and engine. A file that does not match is
//! removed and the component compiled again.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use model::blob::BlobId;

use crate::error::Error;

const MAGIC: &[u8; 8] = b"OUTLWASM";
const CHECKSUM_BYTES: usize = 32;
const SUFFIX: &str = "code";
const SUFFIX_UNFINISHED: &str = "part";

/// Key of a compiled component: the component and the engine's fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CodeKey([u8; 32]);

impl CodeKey {
    pub fn new(id: BlobId, engine: &[u8; 32]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("outlast compiled WebAssembly component 1");
        hasher.update(&id.0).update(engine);
        Self(*hasher.finalize().as_bytes())
    }

    fn file_name(self) -> String {
        // Hexadecimal, as for blobs.
        format!("{}.{SUFFIX}", BlobId(self.0).hex())
    }
}

/// Directory of compiled components.
#[derive(Debug)]
pub struct CodeCache {
    directory: PathBuf,
    bytes_max: u64,
    written: AtomicU64,
}

impl CodeCache {
    pub fn open(directory: &Path, bytes_max: u64) -> Result<Self, Error> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory).map_err(Error::io("create", directory))?;
        let metadata = fs::metadata(directory).map_err(Error::io("read", directory))?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(Error::ForeignCache { path: directory.to_path_buf() });
        }
        let cache = Self { directory: directory.to_path_buf(), bytes_max, written: AtomicU64::new(0) };
        if metadata.mode() & 0o777 != 0o700 {
            let private = Permissions::from_mode(0o700);
            fs::set_permissions(directory, private).map_err(Error::io("make private", directory))?;
            // Other users could write to the directory, so its files are untrusted.
            cache.remove_all(SUFFIX).map_err(Error::io("empty", directory))?;
        }
        cache.remove_all(SUFFIX_UNFINISHED).map_err(Error::io("clean up", directory))?;
        Ok(cache)
    }

    /// The stored code if present and intact.
    pub(crate) fn load(&self, key: CodeKey) -> Option<Vec<u8>> {
        let path = self.path(key);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "cannot read compiled code; it is compiled again");
                return None;
            }
        };
        match read(&mut file, key) {
            Ok(code) => {
                // The mtime orders eviction. A failure only causes an earlier eviction.
                let _ = file.set_modified(SystemTime::now());
                Some(code)
            }
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "compiled code is damaged; it is compiled again");
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// Stores compiled code. A failure only causes a warning.
    pub(crate) fn store(&self, key: CodeKey, code: &[u8]) {
        if let Err(error) = self.write(key, code).and_then(|()| self.evict(key)) {
            tracing::warn!(%error, directory = %self.directory.display(), "cannot store compiled code in the cache");
        }
    }

    fn write(&self, key: CodeKey, code: &[u8]) -> io::Result<()> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.directory.join(format!("{}-{number}.{SUFFIX_UNFINISHED}", std::process::id()));
        let written = write(&unfinished, key, code).and_then(|()| fs::rename(&unfinished, self.path(key)));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    /// Evicts the least recently used files down to the limit, except the one just stored.
    fn evict(&self, retained: CodeKey) -> io::Result<()> {
        let retained = self.path(retained);
        let mut files = Vec::new();
        for entry in self.entries(SUFFIX)? {
            let Ok(metadata) = fs::metadata(&entry) else { continue };
            files.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), metadata.len(), entry));
        }
        let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        files.sort_unstable();
        for (_, size, path) in files {
            if bytes <= self.bytes_max {
                break;
            }
            if path != retained {
                fs::remove_file(&path)?;
                bytes -= size;
            }
        }
        Ok(())
    }

    fn remove_all(&self, suffix: &str) -> io::Result<()> {
        self.entries(suffix)?.iter().try_for_each(fs::remove_file)
    }

    fn entries(&self, suffix: &str) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.path()));
        let entries: io::Result<Vec<PathBuf>> = entries.collect();
        Ok(entries?.into_iter().filter(|path| path.extension().is_some_and(|found| found == suffix)).collect())
    }

    fn path(&self, key: CodeKey) -> PathBuf {
        self.directory.join(key.file_name())
    }
}

fn checksum(key: CodeKey, code: &[u8]) -> [u8; CHECKSUM_BYTES] {
    *blake3::keyed_hash(&key.0, code).as_bytes()
}

/// Not synced: after a crash the checksum detects an incomplete file.
fn write(path: &Path, key: CodeKey, code: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(MAGIC)?;
    file.write_all(&checksum(key, code))?;
    file.write_all(code)
}

fn read(file: &mut File, key: CodeKey) -> io::Result<Vec<u8>> {
    let damaged = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let Some((header, code)) = bytes.split_at_checked(MAGIC.len() + CHECKSUM_BYTES) else {
        return Err(damaged("it is too short"));
    };
    let (magic, expected) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(damaged("it is not a compiled component"));
    }
    if checksum(key, code) != expected {
        return Err(damaged("its checksum is wrong"));
    }
    let header_bytes = header.len();
    bytes.drain(..header_bytes);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_another_engine_is_not_found() {
        let directory = tempfile::tempdir().unwrap();
        let cache = CodeCache::open(directory.path(), u64::MAX).unwrap();
        let key = |engine| CodeKey::new(BlobId([1; 32]), &[engine; 32]);
        cache.store(key(1), b"code");
        assert_eq!(cache.load(key(1)).as_deref(), Some(&b"code"[..]));
        assert_eq!(cache.load(key(2)), None);
        // A file under another key is rejected and removed.
        fs::rename(cache.path(key(1)), cache.path(key(2))).unwrap();
        assert_eq!(cache.load(key(2)), None);
        assert!(!cache.path(key(2)).exists());
    }
}
