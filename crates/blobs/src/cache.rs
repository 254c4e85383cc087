//! Plain files and unpacked bundles that jobs read, within a bound.
//!
//! What is pinned stays. Of the rest, what was used least recently goes when room is needed.
//!
//! Files survive a restart, and so do bundles: attempts of the process before may still be running from them. Nothing in
//! the cache is synced, and nothing is written down about it, so after a restart everything is hashed again before its
//! first use. That reads less than unpacking would write, and needs no index that could be wrong. Within one process a
//! file is trusted while its size, times and mode are what they were: that costs one `stat`, and notices a job that has
//! written to its input with the rights of the server.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use model::blob::{BlobId, WorkerId};
use parking_lot::Mutex;

use crate::scratch::Scratch;
use crate::turns::Turns;
use crate::{Error, tree};

pub(crate) const FILE_MODE: u32 = 0o444;
const BLOCK_BYTES: u64 = 4096;

/// What a file of so many bytes takes on a disk, about: whole blocks, and one for its name and its place.
pub(crate) fn footprint(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(BLOCK_BYTES).and_then(|bytes| bytes.checked_add(BLOCK_BYTES)).unwrap_or(u64::MAX)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    Blob(BlobId),
    Worker(WorkerId),
}

#[derive(Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
    scratch: Arc<Scratch>,
    bytes_max: u64,
    state: Mutex<State>,
    /// Who makes or removes an item; others wait and find it made.
    pub turns: Arc<Turns<Item>>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Item, Entry>,
    /// Those that may go, by when they were last used.
    unpinned: BTreeMap<u64, Item>,
    /// Of all entries, and of what room was made for.
    bytes: u64,
    pinned_bytes: u64,
    /// Counts uses, and gives every entry its number.
    counter: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    path: PathBuf,
    bytes: u64,
    pins: usize,
    last_use: u64,
    trust: Trust,
}

#[derive(Debug, Clone, Copy)]
enum Trust {
    /// Found at the start.
    None,
    /// Of a directory nothing is looked at again.
    Directory,
    File(Print),
}

/// What changes when somebody writes to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print {
    inode: u64,
    bytes: u64,
    mode: u32,
    modified: (i64, i64),
}

impl Print {
    fn of(found: &Metadata) -> Self {
        let modified = (found.mtime(), found.mtime_nsec());
        Self { inode: found.ino(), bytes: found.len(), mode: found.mode(), modified }
    }
}

impl Cache {
    pub fn open(directory: &Path, scratch: &Arc<Scratch>, bytes_max: u64) -> Result<Self, Error> {
        let mut found = found_files(&directory.join("blobs"))?;
        found.sort_by_key(|found| found.modified);
        // Last, so that they are the last to go: somebody may be running from them.
        let mut bundles = found_bundles(&directory.join("workers"))?;
        bundles.sort_by_key(|found| found.modified);
        let mut state = State::default();
        for Found { item, path, bytes, .. } in found.into_iter().chain(bundles) {
            // Another version may have counted the size of a bundle, which is part of its name, in another way.
            if state.entries.contains_key(&item) {
                tree::remove(&path)?;
            } else {
                state.add(item, path, bytes, Trust::None);
            }
        }
        Ok(Self {
            directory: directory.to_path_buf(),
            scratch: Arc::clone(scratch),
            bytes_max,
            state: Mutex::new(state),
            turns: Arc::default(),
        })
    }

    pub fn blob_path(&self, id: BlobId) -> PathBuf {
        let hex = id.hex();
        self.directory.join("blobs").join(&hex[..2]).join(hex)
    }

    /// The size is part of the name, so that it need not be counted anew at every start.
    pub fn worker_path(&self, id: WorkerId, bytes: u64) -> PathBuf {
        self.directory.join("workers").join(format!("{id}.{bytes}"))
    }

    /// What is there and can be trusted.
    pub fn hit(self: &Arc<Self>, item: Item) -> Option<Pinned> {
        let (pinned, trust) = self.pin(item)?;
        let sound = match trust {
            Trust::None => false,
            Trust::Directory => true,
            Trust::File(print) => fs::symlink_metadata(&pinned.path).is_ok_and(|found| Print::of(&found) == print),
        };
        if !sound && !matches!(trust, Trust::None) {
            tracing::warn!("`{}` was changed in the cache; it is made anew", pinned.path.display());
            self.discard(&pinned);
        }
        sound.then_some(pinned)
    }

    /// What is there and has to be looked at before it can be trusted.
    pub fn found(self: &Arc<Self>, item: Item) -> Option<Pinned> {
        self.pin(item).map(|(pinned, _)| pinned)
    }

    fn pin(self: &Arc<Self>, item: Item) -> Option<(Pinned, Trust)> {
        let mut state = self.state.lock();
        let entry = state.pin(item)?;
        let pinned = Pinned { cache: Arc::clone(self), item, number: entry.number, path: entry.path.clone() };
        Some((pinned, entry.trust))
    }

    /// For when it was looked at and is right.
    pub fn trust(&self, pinned: &Pinned) -> Result<(), Error> {
        let trust = trust_in(&pinned.path)?;
        if let Some(entry) = self.state.lock().entries.get_mut(&pinned.item)
            && entry.number == pinned.number
        {
            entry.trust = trust;
        }
        Ok(())
    }

    /// For when it was looked at and is not right. Whoever else has it pinned loses it.
    pub fn discard(&self, pinned: &Pinned) {
        self.remove_if(pinned.item, |entry| entry.number == pinned.number);
    }

    /// Says whether it is gone now: what is pinned stays.
    pub fn remove(&self, item: Item) -> bool {
        self.remove_if(item, |entry| entry.pins == 0);
        !self.state.lock().entries.contains_key(&item)
    }

    pub fn is_pinned(&self, item: Item) -> bool {
        self.state.lock().entries.get(&item).is_some_and(|entry| entry.pins > 0)
    }

    fn remove_if(&self, item: Item, condition: impl FnOnce(&Entry) -> bool) {
        let aside = {
            let mut state = self.state.lock();
            if !state.entries.get(&item).is_some_and(condition) {
                return;
            }
            state.take(item).and_then(|path| self.scratch.set_aside(&path))
        };
        if let Some(aside) = aside {
            tree::remove_or_warn(&aside);
        }
    }

    /// Makes room, blocking while files are removed.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> Result<Room, Error> {
        let mut aside = Vec::new();
        let made = {
            let mut state = self.state.lock();
            let fits = |state: &State| state.bytes.checked_add(bytes).is_some_and(|bytes| bytes <= self.bytes_max);
            // Nothing is thrown out for what cannot fit anyway.
            let possible = bytes <= self.bytes_max.saturating_sub(state.pinned_bytes);
            while possible
                && !fits(&state)
                && let Some((_, item)) = state.unpinned.pop_first()
            {
                aside.extend(state.take(item).and_then(|path| self.scratch.set_aside(&path)));
            }
            if fits(&state) {
                state.bytes += bytes;
                Ok(Room { cache: Arc::clone(self), bytes })
            } else {
                let pinned = state.pinned_bytes;
                Err(Error::CacheFull { needed: bytes, pinned, limit: self.bytes_max })
            }
        };
        aside.iter().for_each(|path| tree::remove_or_warn(path));
        made
    }

    /// Takes in what was just made and is in its place at `path`.
    pub fn insert(self: &Arc<Self>, item: Item, path: PathBuf, mut room: Room) -> Result<Pinned, Error> {
        let trust = trust_in(&path)?;
        let mut state = self.state.lock();
        // The room becomes the entry's.
        let bytes = std::mem::take(&mut room.bytes);
        state.bytes -= bytes;
        let number = state.add(item, path.clone(), bytes, trust);
        state.pin(item);
        drop(state);
        Ok(Pinned { cache: Arc::clone(self), item, number, path })
    }
}

impl State {
    fn add(&mut self, item: Item, path: PathBuf, bytes: u64, trust: Trust) -> u64 {
        // Only who has the item's turn adds it, and only when it is not there.
        debug_assert!(!self.entries.contains_key(&item));
        self.counter += 1;
        let number = self.counter;
        self.bytes += bytes;
        self.unpinned.insert(number, item);
        self.entries.insert(item, Entry { number, path, bytes, pins: 0, last_use: number, trust });
        number
    }

    fn pin(&mut self, item: Item) -> Option<&Entry> {
        let entry = self.entries.get_mut(&item)?;
        if entry.pins == 0 {
            self.unpinned.remove(&entry.last_use);
            self.pinned_bytes += entry.bytes;
        }
        entry.pins += 1;
        Some(entry)
    }

    /// Forgets an item, and says where its files are.
    fn take(&mut self, item: Item) -> Option<PathBuf> {
        let entry = self.entries.remove(&item)?;
        self.unpinned.remove(&entry.last_use);
        self.bytes -= entry.bytes;
        if entry.pins > 0 {
            self.pinned_bytes -= entry.bytes;
        }
        Some(entry.path)
    }
}

fn trust_in(path: &Path) -> Result<Trust, Error> {
    let found = fs::symlink_metadata(path).map_err(Error::io("look at", path))?;
    Ok(if found.is_dir() { Trust::Directory } else { Trust::File(Print::of(&found)) })
}

/// Something in the cache that stays while this lives.
#[derive(Debug)]
pub struct Pinned {
    cache: Arc<Cache>,
    item: Item,
    number: u64,
    path: PathBuf,
}

impl Pinned {
    /// A read-only file, or a read-only directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        let State { entries, unpinned, pinned_bytes, counter, .. } = &mut *state;
        let Some(entry) = entries.get_mut(&self.item).filter(|entry| entry.number == self.number) else { return };
        entry.pins -= 1;
        if entry.pins == 0 {
            *counter += 1;
            entry.last_use = *counter;
            *pinned_bytes -= entry.bytes;
            unpinned.insert(entry.last_use, self.item);
        }
    }
}

/// Room that was made for something; given back when dropped.
#[derive(Debug)]
pub(crate) struct Room {
    cache: Arc<Cache>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.cache.state.lock().bytes -= self.bytes;
    }
}

struct Found {
    item: Item,
    path: PathBuf,
    bytes: u64,
    modified: Option<SystemTime>,
}

fn found_files(directory: &Path) -> Result<Vec<Found>, Error> {
    let mut all = Vec::new();
    for (name, path, found) in listed(directory)? {
        if !found.is_dir() {
            tree::remove(&path)?;
            continue;
        }
        for (hex, path, found) in listed(&path)? {
            match format!("blob:{hex}").parse() {
                Ok(id) if found.is_file() && hex.starts_with(&name) => {
                    let (bytes, modified) = (footprint(found.len()), found.modified().ok());
                    all.push(Found { item: Item::Blob(id), path, bytes, modified });
                }
                _ => tree::remove(&path)?,
            }
        }
    }
    Ok(all)
}

fn found_bundles(directory: &Path) -> Result<Vec<Found>, Error> {
    let mut all = Vec::new();
    for (name, path, found) in listed(directory)? {
        let parsed = name.split_once('.').and_then(|(id, bytes)| Some((id.parse().ok()?, bytes.parse().ok()?)));
        match parsed {
            Some((id, bytes)) if found.is_dir() => {
                all.push(Found { item: Item::Worker(id), path, bytes, modified: found.modified().ok() });
            }
            _ => tree::remove(&path)?,
        }
    }
    Ok(all)
}

fn listed(directory: &Path) -> Result<Vec<(String, PathBuf, Metadata)>, Error> {
    tree::create_all(directory)?;
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::io("list", directory))? {
        let entry = entry.map_err(Error::io("list", directory))?;
        let found = entry.metadata().map_err(Error::io("look at", &entry.path()))?;
        all.push((entry.file_name().to_string_lossy().into_owned(), entry.path(), found));
    }
    Ok(all)
}
