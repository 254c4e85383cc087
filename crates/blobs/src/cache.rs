//! Bounded LRU cache of plain files and unpacked bundles.
//!
//! Pinned entries are never evicted. The least recently used of the others are evicted when space is needed.
//!
//! Files and bundles survive a restart: attempts of the previous process may still be running from a bundle. The cache
//! is not synced and has no index, so after a restart every entry is hashed again before its first use. Hashing reads
//! less than unpacking would write, and an index could be wrong. Within one process a file counts as verified while its
//! inode, size, mtime and mode are unchanged. That check costs one `stat` and detects a job that wrote to its input
//! with the server's privileges.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use model::blob::{BlobId, WorkerId};
use parking_lot::Mutex;

use crate::key_locks::KeyLocks;
use crate::scratch::Scratch;
use crate::{Error, tree};

pub(crate) const FILE_MODE: u32 = 0o444;
const BLOCK_BYTES: u64 = 4096;

/// Estimated disk usage of a file: its size in whole blocks, plus one block for inode and directory entry.
pub(crate) fn footprint(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(BLOCK_BYTES).and_then(|bytes| bytes.checked_add(BLOCK_BYTES)).unwrap_or(u64::MAX)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CacheKey {
    Blob(BlobId),
    Worker(WorkerId),
}

#[derive(Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
    scratch: Arc<Scratch>,
    bytes_max: u64,
    state: Mutex<State>,
    /// Serialises creation and removal of an entry; waiters find the entry created.
    pub locks: Arc<KeyLocks<CacheKey>>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<CacheKey, CacheEntry>,
    /// Eviction candidates by last use.
    unpinned: BTreeMap<u64, CacheKey>,
    /// All entries and reservations.
    bytes: u64,
    pinned_bytes: u64,
    /// Source of `last_use` and of entry numbers.
    counter: u64,
}

#[derive(Debug)]
struct CacheEntry {
    number: u64,
    path: PathBuf,
    bytes: u64,
    pins: usize,
    last_use: u64,
    verification: Verification,
}

#[derive(Debug, Clone, Copy)]
enum Verification {
    /// Left by an earlier process.
    None,
    /// Verified; a directory is not checked again.
    Directory,
    File(Fingerprint),
}

/// File metadata that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fingerprint {
    inode: u64,
    bytes: u64,
    mode: u32,
    modified: (i64, i64),
}

impl Fingerprint {
    fn of(found: &Metadata) -> Self {
        let modified = (found.mtime(), found.mtime_nsec());
        Self { inode: found.ino(), bytes: found.len(), mode: found.mode(), modified }
    }
}

impl Cache {
    pub fn open(directory: &Path, scratch: &Arc<Scratch>, bytes_max: u64) -> Result<Self, Error> {
        let mut found = scan_files(&directory.join("blobs"))?;
        found.sort_by_key(|found| found.modified);
        // Bundles come last, so they are evicted last: attempts may be running from them.
        let mut bundles = scan_bundles(&directory.join("workers"))?;
        bundles.sort_by_key(|found| found.modified);
        let mut state = State::default();
        for ExistingItem { key, path, bytes, .. } in found.into_iter().chain(bundles) {
            // The directory name contains the bundle's size, which another version may have computed differently.
            if state.entries.contains_key(&key) {
                tree::remove(&path)?;
            } else {
                state.add(key, path, bytes, Verification::None);
            }
        }
        Ok(Self {
            directory: directory.to_path_buf(),
            scratch: Arc::clone(scratch),
            bytes_max,
            state: Mutex::new(state),
            locks: Arc::default(),
        })
    }

    pub fn blob_path(&self, id: BlobId) -> PathBuf {
        let hex = id.hex();
        self.directory.join("blobs").join(&hex[..2]).join(hex)
    }

    /// The name contains the size, so that it is not computed again at every start.
    pub fn worker_path(&self, id: WorkerId, bytes: u64) -> PathBuf {
        self.directory.join("workers").join(format!("{id}.{bytes}"))
    }

    /// Pins a verified entry.
    pub fn hit(self: &Arc<Self>, key: CacheKey) -> Option<Pinned> {
        let (pinned, verification) = self.pin(key)?;
        let intact = match verification {
            Verification::None => false,
            Verification::Directory => true,
            Verification::File(fingerprint) => {
                fs::symlink_metadata(&pinned.path).is_ok_and(|found| Fingerprint::of(&found) == fingerprint)
            }
        };
        if !intact && !matches!(verification, Verification::None) {
            tracing::warn!("cached file `{}` was modified; it is unpacked again", pinned.path.display());
            self.discard(&pinned);
        }
        intact.then_some(pinned)
    }

    /// Pins an entry that may still need verification.
    pub fn unverified(self: &Arc<Self>, key: CacheKey) -> Option<Pinned> {
        self.pin(key).map(|(pinned, _)| pinned)
    }

    fn pin(self: &Arc<Self>, key: CacheKey) -> Option<(Pinned, Verification)> {
        let mut state = self.state.lock();
        let entry = state.pin(key)?;
        let pinned = Pinned { cache: Arc::clone(self), key, number: entry.number, path: entry.path.clone() };
        Some((pinned, entry.verification))
    }

    /// Records that the caller has verified the entry.
    pub fn mark_verified(&self, pinned: &Pinned) -> Result<(), Error> {
        let verification = verification_of(&pinned.path)?;
        if let Some(entry) = self.state.lock().entries.get_mut(&pinned.key)
            && entry.number == pinned.number
        {
            entry.verification = verification;
        }
        Ok(())
    }

    /// Removes an entry that failed verification, also if it is pinned elsewhere.
    pub fn discard(&self, pinned: &Pinned) {
        self.remove_if(pinned.key, |entry| entry.number == pinned.number);
    }

    /// Removes an entry unless it is pinned. Returns whether the key is absent afterwards.
    pub fn remove(&self, key: CacheKey) -> bool {
        self.remove_if(key, |entry| entry.pins == 0);
        !self.state.lock().entries.contains_key(&key)
    }

    pub fn is_pinned(&self, key: CacheKey) -> bool {
        self.state.lock().entries.get(&key).is_some_and(|entry| entry.pins > 0)
    }

    fn remove_if(&self, key: CacheKey, condition: impl FnOnce(&CacheEntry) -> bool) {
        let removed = {
            let mut state = self.state.lock();
            if !state.entries.get(&key).is_some_and(condition) {
                return;
            }
            state.remove(key).and_then(|path| self.scratch.move_to_scratch(&path))
        };
        if let Some(removed) = removed {
            tree::remove_or_warn(&removed);
        }
    }

    /// Reserves space. Blocks while evicted files are removed.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Reservation, Error> {
        let mut removed = Vec::new();
        let reserved = {
            let mut state = self.state.lock();
            let fits = |state: &State| state.bytes.checked_add(bytes).is_some_and(|bytes| bytes <= self.bytes_max);
            // No eviction for a reservation that cannot succeed.
            let possible = bytes <= self.bytes_max.saturating_sub(state.pinned_bytes);
            while possible
                && !fits(&state)
                && let Some((_, key)) = state.unpinned.pop_first()
            {
                removed.extend(state.remove(key).and_then(|path| self.scratch.move_to_scratch(&path)));
            }
            if fits(&state) {
                state.bytes += bytes;
                Ok(Reservation { cache: Arc::clone(self), bytes })
            } else {
                let pinned = state.pinned_bytes;
                Err(Error::CacheFull { needed: bytes, pinned, limit: self.bytes_max })
            }
        };
        removed.iter().for_each(|path| tree::remove_or_warn(path));
        reserved
    }

    /// Adds a verified entry at `path` and pins it.
    pub fn insert(
        self: &Arc<Self>,
        key: CacheKey,
        path: PathBuf,
        mut reservation: Reservation,
    ) -> Result<Pinned, Error> {
        let verification = verification_of(&path)?;
        let mut state = self.state.lock();
        // The reserved bytes pass to the entry.
        let bytes = std::mem::take(&mut reservation.bytes);
        state.bytes -= bytes;
        let number = state.add(key, path.clone(), bytes, verification);
        state.pin(key);
        drop(state);
        Ok(Pinned { cache: Arc::clone(self), key, number, path })
    }
}

impl State {
    fn add(&mut self, key: CacheKey, path: PathBuf, bytes: u64, verification: Verification) -> u64 {
        // Callers hold the key's lock and have checked that the entry is missing.
        debug_assert!(!self.entries.contains_key(&key));
        self.counter += 1;
        let number = self.counter;
        self.bytes += bytes;
        self.unpinned.insert(number, key);
        self.entries.insert(key, CacheEntry { number, path, bytes, pins: 0, last_use: number, verification });
        number
    }

    fn pin(&mut self, key: CacheKey) -> Option<&CacheEntry> {
        let entry = self.entries.get_mut(&key)?;
        if entry.pins == 0 {
            self.unpinned.remove(&entry.last_use);
            self.pinned_bytes += entry.bytes;
        }
        entry.pins += 1;
        Some(entry)
    }

    /// Removes an entry and returns its path.
    fn remove(&mut self, key: CacheKey) -> Option<PathBuf> {
        let entry = self.entries.remove(&key)?;
        self.unpinned.remove(&entry.last_use);
        self.bytes -= entry.bytes;
        if entry.pins > 0 {
            self.pinned_bytes -= entry.bytes;
        }
        Some(entry.path)
    }
}

fn verification_of(path: &Path) -> Result<Verification, Error> {
    let found = fs::symlink_metadata(path).map_err(Error::io("inspect", path))?;
    Ok(if found.is_dir() { Verification::Directory } else { Verification::File(Fingerprint::of(&found)) })
}

/// Guard of a cache entry. The entry is not evicted while the guard exists.
#[derive(Debug)]
pub struct Pinned {
    cache: Arc<Cache>,
    key: CacheKey,
    number: u64,
    path: PathBuf,
}

impl Pinned {
    /// Read-only file or directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        let State { entries, unpinned, pinned_bytes, counter, .. } = &mut *state;
        let Some(entry) = entries.get_mut(&self.key).filter(|entry| entry.number == self.number) else { return };
        entry.pins -= 1;
        if entry.pins == 0 {
            *counter += 1;
            entry.last_use = *counter;
            *pinned_bytes -= entry.bytes;
            unpinned.insert(entry.last_use, self.key);
        }
    }
}

/// Reserved cache space, released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    cache: Arc<Cache>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.cache.state.lock().bytes -= self.bytes;
    }
}

struct ExistingItem {
    key: CacheKey,
    path: PathBuf,
    bytes: u64,
    modified: Option<SystemTime>,
}

fn scan_files(directory: &Path) -> Result<Vec<ExistingItem>, Error> {
    let mut all = Vec::new();
    for (name, path, found) in list_directory(directory)? {
        if !found.is_dir() {
            tree::remove(&path)?;
            continue;
        }
        for (hex, path, found) in list_directory(&path)? {
            match format!("blob:{hex}").parse() {
                Ok(id) if found.is_file() && hex.starts_with(&name) => {
                    let (bytes, modified) = (footprint(found.len()), found.modified().ok());
                    all.push(ExistingItem { key: CacheKey::Blob(id), path, bytes, modified });
                }
                _ => tree::remove(&path)?,
            }
        }
    }
    Ok(all)
}

fn scan_bundles(directory: &Path) -> Result<Vec<ExistingItem>, Error> {
    let mut all = Vec::new();
    for (name, path, found) in list_directory(directory)? {
        let parsed = name.split_once('.').and_then(|(id, bytes)| Some((id.parse().ok()?, bytes.parse().ok()?)));
        match parsed {
            Some((id, bytes)) if found.is_dir() => {
                all.push(ExistingItem { key: CacheKey::Worker(id), path, bytes, modified: found.modified().ok() });
            }
            _ => tree::remove(&path)?,
        }
    }
    Ok(all)
}

fn list_directory(directory: &Path) -> Result<Vec<(String, PathBuf, Metadata)>, Error> {
    tree::create_all(directory)?;
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::io("list", directory))? {
        let entry = entry.map_err(Error::io("list", directory))?;
        let found = entry.metadata().map_err(Error::io("inspect", &entry.path()))?;
        all.push((entry.file_name().to_string_lossy().into_owned(), entry.path(), found));
    }
    Ok(all)
}
