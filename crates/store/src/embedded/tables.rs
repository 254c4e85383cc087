//! The tables: everything that was committed longer ago, in `fjall`, one tree per keyspace.
//!
//! Writing goes through fjall's *ingestion*: a layer is already sorted, so it becomes a table file directly,
//! without passing through fjall's own journal and memtables. Each ingestion is synced when it finishes. A crash
//! between the ingestions of one layer is harmless: the applied position is noted after all of them, and the
//! replay writes the same again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use fjall::{AbstractTree, Database, KeyspaceCreateOptions, PersistMode};

use super::directory::explain;
use super::overlay::{FullRange, Layer, Slot};
use super::table_id::TableId;
use crate::key::FullKey;
use crate::{Error, Position};

const STATE: &str = "state";
const APPLIED_KEY: &str = "applied";

/// Every value begins with its checksum.
const CHECKSUM_BYTES: usize = 4;

/// The smallest that fjall takes; hardly anything goes through its journal here.
const FJALL_JOURNAL_BYTES: u64 = 64 << 20;
const MEMTABLE_BYTES: u64 = 8 << 20;
const CACHE_WHILE_MAKING_BYTES: u64 = 1 << 20;

/// When this many unmerged runs lie in a table, writing waits for the merge: reads would get slow.
const RUNS_MAX: usize = 16;
const RUNS_PAUSE: Duration = Duration::from_millis(2);

/// What a full check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// How many records were read.
    pub records: u64,
    /// How many of them, or of the places they should be in, cannot be trusted.
    pub damaged: u64,
    /// The first few, in words.
    pub examples: Vec<String>,
}

const EXAMPLES_MAX: usize = 10;

impl Verification {
    fn damage(&mut self, what: String) {
        self.damaged += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(what);
        }
    }
}

pub(crate) struct Tables {
    directory: PathBuf,
    database: Database,
    trees: Vec<fjall::Keyspace>,
    state: fjall::Keyspace,
}

impl Tables {
    /// Opens the tables, or makes them.
    pub fn open(directory: &Path, cache_bytes: u64) -> Result<Self, Error> {
        if !directory.exists() {
            Self::make(directory)?;
        }
        Self::open_in_place(directory, cache_bytes)
    }

    /// A crash while fjall makes its first files leaves what fjall refuses to open. So they are made beside, and put
    /// in place when they are complete.
    fn make(directory: &Path) -> Result<(), Error> {
        let unfinished = directory.with_extension("new");
        let failed = |error: std::io::Error| explain(directory, "make the tables in", directory, &error);
        if unfinished.exists() {
            std::fs::remove_dir_all(&unfinished).map_err(failed)?;
        }
        drop(Self::open_in_place(&unfinished, CACHE_WHILE_MAKING_BYTES)?);
        std::fs::rename(&unfinished, directory).map_err(failed)?;
        let parent = directory.parent().unwrap_or(directory);
        std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
    }

    fn open_in_place(directory: &Path, cache_bytes: u64) -> Result<Self, Error> {
        let failed = |error| failure(directory, &error);
        let database = Database::builder(directory)
            .cache_size(cache_bytes)
            .worker_threads(1)
            .max_journaling_size(FJALL_JOURNAL_BYTES)
            .open()
            .map_err(failed)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let mut trees = Vec::new();
        for table in TableId::all() {
            trees.push(database.keyspace(table.name(), options).map_err(failed)?);
        }
        let state = database.keyspace(STATE, options).map_err(failed)?;
        Ok(Self { directory: directory.to_path_buf(), database, trees, state })
    }

    /// Everything up to here is in the tables, durably.
    pub fn applied(&self) -> Result<Position, Error> {
        let Some(value) = self.state.get(APPLIED_KEY).map_err(|error| self.failed(&error))? else {
            return Ok(Position::NONE);
        };
        let number = checked(APPLIED_KEY.as_bytes(), &value).and_then(|value| value.try_into().ok());
        let number = number.ok_or(Error::DamagedRecord { keyspace: None, key: APPLIED_KEY.to_owned() })?;
        Ok(Position(u64::from_le_bytes(number)))
    }

    /// Writes a layer and notes that it was; durable when this returns.
    pub fn write(&self, layer: &Layer) -> Result<(), Error> {
        for table in TableId::all() {
            self.wait_for_merges(table)?;
            self.ingest(table, layer).map_err(|error| self.failed(&error))?;
        }
        let number = layer.last.0.to_le_bytes();
        let mut value = Vec::with_capacity(CHECKSUM_BYTES + number.len());
        with_checksum(APPLIED_KEY.as_bytes(), &number, &mut value);
        self.state.insert(APPLIED_KEY, value).map_err(|error| self.failed(&error))?;
        self.database.persist(PersistMode::SyncAll).map_err(|error| self.failed(&error))
    }

    fn ingest(&self, table: TableId, layer: &Layer) -> fjall::Result<()> {
        let map = layer.map(table);
        if map.is_empty() {
            return Ok(());
        }
        let tree = &self.trees[table.index()];
        let mut ingestion = tree.start_ingestion()?;
        let mut wrote = false;
        let mut stored = Vec::new();
        for (key, slot) in map {
            match slot {
                Some(value) => {
                    stored.clear();
                    with_checksum(key, value, &mut stored);
                    ingestion.write(&**key, stored.as_slice())?;
                    wrote = true;
                }
                // Most of what is deleted never came here: its whole life was in the overlay.
                None if tree.contains_key(key)? => {
                    ingestion.write_tombstone(&**key)?;
                    wrote = true;
                }
                None => {}
            }
        }
        if wrote { ingestion.finish() } else { Ok(()) }
    }

    /// fjall does not slow ingestion down by itself.
    fn wait_for_merges(&self, table: TableId) -> Result<(), Error> {
        while self.trees[table.index()].tree.l0_run_count() >= RUNS_MAX {
            // Fails when fjall's worker has died; then nobody would ever merge.
            self.database.persist(PersistMode::Buffer).map_err(|error| self.failed(&error))?;
            std::thread::sleep(RUNS_PAUSE);
        }
        Ok(())
    }

    pub fn get(&self, table: TableId, key: &FullKey) -> Result<Option<Bytes>, Error> {
        let stored = self.trees[table.index()].get(key).map_err(|error| self.failed(&error))?;
        stored.map(|stored| self.value(table, key, &stored)).transpose()
    }

    /// The entries of a range as they are now, whatever is written meanwhile.
    pub fn range(&self, table: TableId, range: FullRange) -> impl DoubleEndedIterator<Item = TableItem> + '_ {
        self.trees[table.index()].range(range).map(move |guard| {
            let (key, stored) = guard.into_inner().map_err(|error| self.failed(&error))?;
            let key = full_key(table, &key)?;
            let value = self.value(table, &key, &stored)?;
            Ok((key, Some(value)))
        })
    }

    fn value(&self, table: TableId, key: &FullKey, stored: &[u8]) -> Result<Bytes, Error> {
        checked(key, stored).map(Bytes::copy_from_slice).ok_or_else(|| damaged(table, key))
    }

    /// Reads and checks every record.
    pub fn verify(&self) -> Verification {
        let mut result = Verification::default();
        for table in TableId::all() {
            for guard in self.trees[table.index()].iter() {
                result.records += 1;
                let checked_out = match guard.into_inner() {
                    Ok((key, stored)) => checked(&key, &stored).map(drop).ok_or_else(|| damaged(table, &key)),
                    Err(error) => Err(self.failed(&error)),
                };
                if let Err(error) = checked_out {
                    result.damage(format!("{}: {error}", table.name()));
                }
            }
        }
        result
    }

    fn failed(&self, error: &fjall::Error) -> Error {
        failure(&self.directory, error)
    }
}

pub(crate) type TableItem = Result<(FullKey, Slot), Error>;

fn failure(directory: &Path, error: &fjall::Error) -> Error {
    match error {
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => {
            explain(directory, "use the tables in", directory, io)
        }
        other => Error::Tables { reason: format!("{other} in `{}`", directory.display()) },
    }
}

fn full_key(table: TableId, key: &[u8]) -> Result<FullKey, Error> {
    if key.len() > size_of::<FullKey>() - 1 || key.len() < 2 {
        return Err(damaged(table, key));
    }
    Ok(FullKey::new(key))
}

fn damaged(table: TableId, key: &[u8]) -> Error {
    Error::DamagedRecord { keyspace: table.keyspace(), key: key.escape_ascii().to_string() }
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), value)
}

fn with_checksum(key: &[u8], value: &[u8], stored: &mut Vec<u8>) {
    stored.extend_from_slice(&checksum(key, value).to_le_bytes());
    stored.extend_from_slice(value);
}

/// The value of a stored record, if it is the one that was written for this key.
fn checked<'a>(key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    let (sum, value) = stored.split_first_chunk::<CHECKSUM_BYTES>()?;
    (u32::from_le_bytes(*sum) == checksum(key, value)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_any_flipped_bit_or_under_another_key_is_refused() {
        let mut stored = Vec::new();
        with_checksum(b"key", b"value", &mut stored);
        assert_eq!(checked(b"key", &stored), Some(&b"value"[..]));
        assert_eq!(checked(b"kez", &stored), None);
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(checked(b"key", &flipped), None);
        }
        assert_eq!(checked(b"key", &stored[..3]), None);
    }
}
