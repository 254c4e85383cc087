//! The tables: flushed records in `fjall`, one tree per keyspace.
//!
//! Layers are written by fjall's *ingestion*: a layer is sorted already, so it becomes a table file directly, without
//! fjall's own journal and memtables. Each ingestion is synced when it finishes. A crash between the ingestions of one
//! layer is harmless: the applied position is stored after all of them, and the replay writes the same records again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use fjall::{AbstractTree, Database, KeyspaceCreateOptions, PersistMode};

use super::directory::convert_io_error;
use super::overlay::{FullRange, Layer, ValueOrTombstone};
use super::table_id::TableId;
use crate::key::FullKey;
use crate::{Error, Position};

const STATE: &str = "state";
const APPLIED_KEY: &str = "applied";

/// Every stored value starts with its checksum.
const CHECKSUM_BYTES: usize = 4;

/// The minimum that fjall accepts. Only the applied position goes through its journal.
const FJALL_JOURNAL_BYTES: u64 = 64 << 20;
const MEMTABLE_BYTES: u64 = 8 << 20;
const CREATION_CACHE_BYTES: u64 = 1 << 20;

/// Writing waits for compaction while a table has this many level-0 runs, because they slow down reads.
const LEVEL0_RUNS_MAX: usize = 16;
const COMPACTION_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Result of a full verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// Number of records read.
    pub records: u64,
    /// Number of damaged or unreadable records.
    pub damaged: u64,
    /// Descriptions of the first few.
    pub examples: Vec<String>,
}

const EXAMPLES_MAX: usize = 10;

impl Verification {
    fn add_damaged(&mut self, description: String) {
        self.damaged += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(description);
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
    /// Opens the tables, and creates them if necessary.
    pub fn open(directory: &Path, cache_bytes: u64) -> Result<Self, Error> {
        if !directory.exists() {
            Self::create(directory)?;
        }
        Self::open_in_place(directory, cache_bytes)
    }

    /// Creates the tables in a temporary directory and renames it when complete. A crash while fjall creates its first
    /// files leaves a state that fjall refuses to open.
    fn create(directory: &Path) -> Result<(), Error> {
        let unfinished = directory.with_extension("new");
        let failed = |error: std::io::Error| convert_io_error(directory, "create the tables in", directory, &error);
        if unfinished.exists() {
            std::fs::remove_dir_all(&unfinished).map_err(failed)?;
        }
        drop(Self::open_in_place(&unfinished, CREATION_CACHE_BYTES)?);
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

    /// The tables durably contain all entries up to this position.
    pub fn applied(&self) -> Result<Position, Error> {
        let Some(value) = self.state.get(APPLIED_KEY).map_err(|error| self.failed(&error))? else {
            return Ok(Position::NONE);
        };
        let number = verified_value(APPLIED_KEY.as_bytes(), &value).and_then(|value| value.try_into().ok());
        let number = number.ok_or(Error::DamagedRecord { keyspace: None, key: APPLIED_KEY.to_owned() })?;
        Ok(Position(u64::from_le_bytes(number)))
    }

    /// Writes a layer and its position. Durable on return.
    pub fn write(&self, layer: &Layer) -> Result<(), Error> {
        for table in TableId::all() {
            self.wait_for_compaction(table)?;
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
        for (key, value) in map {
            match value {
                Some(value) => {
                    stored.clear();
                    with_checksum(key, value, &mut stored);
                    ingestion.write(&**key, stored.as_slice())?;
                    wrote = true;
                }
                // Most deleted records were never flushed, and need no tombstone.
                None if tree.contains_key(key)? => {
                    ingestion.write_tombstone(&**key)?;
                    wrote = true;
                }
                None => {}
            }
        }
        if wrote { ingestion.finish() } else { Ok(()) }
    }

    /// Back-pressure: fjall does not limit ingestion itself.
    fn wait_for_compaction(&self, table: TableId) -> Result<(), Error> {
        while self.trees[table.index()].tree.l0_run_count() >= LEVEL0_RUNS_MAX {
            // Fails if fjall's worker thread has died, which would leave the tables uncompacted for ever.
            self.database.persist(PersistMode::Buffer).map_err(|error| self.failed(&error))?;
            std::thread::sleep(COMPACTION_POLL_INTERVAL);
        }
        Ok(())
    }

    pub fn get(&self, table: TableId, key: &FullKey) -> Result<Option<Bytes>, Error> {
        let stored = self.trees[table.index()].get(key).map_err(|error| self.failed(&error))?;
        stored.map(|stored| self.value(table, key, &stored)).transpose()
    }

    /// Iterates over a snapshot of a range.
    pub fn range(&self, table: TableId, range: FullRange) -> impl DoubleEndedIterator<Item = TableItem> + '_ {
        self.trees[table.index()].range(range).map(move |guard| {
            let (key, stored) = guard.into_inner().map_err(|error| self.failed(&error))?;
            let key = full_key(table, &key)?;
            let value = self.value(table, &key, &stored)?;
            Ok((key, Some(value)))
        })
    }

    fn value(&self, table: TableId, key: &FullKey, stored: &[u8]) -> Result<Bytes, Error> {
        verified_value(key, stored).map(Bytes::copy_from_slice).ok_or_else(|| damaged(table, key))
    }

    /// Reads and verifies every record.
    pub fn verify(&self) -> Verification {
        let mut result = Verification::default();
        for table in TableId::all() {
            for guard in self.trees[table.index()].iter() {
                result.records += 1;
                let verified = match guard.into_inner() {
                    Ok((key, stored)) => verified_value(&key, &stored).map(drop).ok_or_else(|| damaged(table, &key)),
                    Err(error) => Err(self.failed(&error)),
                };
                if let Err(error) = verified {
                    result.add_damaged(format!("{}: {error}", table.name()));
                }
            }
        }
        result
    }

    fn failed(&self, error: &fjall::Error) -> Error {
        failure(&self.directory, error)
    }
}

pub(crate) type TableItem = Result<(FullKey, ValueOrTombstone), Error>;

fn failure(directory: &Path, error: &fjall::Error) -> Error {
    match error {
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => {
            convert_io_error(directory, "access the tables in", directory, io)
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

/// The value of a stored record, if its checksum matches the key and the value.
fn verified_value<'a>(key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    let (sum, value) = stored.split_first_chunk::<CHECKSUM_BYTES>()?;
    (u32::from_le_bytes(*sum) == checksum(key, value)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_or_a_wrong_key_is_detected() {
        let mut stored = Vec::new();
        with_checksum(b"key", b"value", &mut stored);
        assert_eq!(verified_value(b"key", &stored), Some(&b"value"[..]));
        assert_eq!(verified_value(b"kez", &stored), None);
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verified_value(b"key", &flipped), None);
        }
        assert_eq!(verified_value(b"key", &stored[..3]), None);
    }
}
