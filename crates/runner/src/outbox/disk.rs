//! The outbox's journal: opened, replayed, written, and set aside if it is damaged.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hashbrown::HashMap;
use journal::{Journal, Position};
use model::codec::{self, DecodeError};
use model::message::AttemptRef;

use super::record::{Batch, StoredEnd};

const SEGMENT_BYTES: u64 = 2 << 20;
const FIRST_SEGMENT_BYTES: u64 = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    #[error("an entry cannot be read: {0}")]
    Unreadable(#[from] DecodeError),
    #[error("cannot rename the damaged directory `{}`: {source}", directory.display())]
    SetAside { directory: PathBuf, source: io::Error },
}

impl Error {
    /// Whether another process has opened the journal.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Journal(journal::Error::InUse { .. }))
    }

    /// Whether the stored ends are unreadable for good.
    fn is_damage(&self) -> bool {
        use journal::Error::{Damaged, Expired, InUse, Io, Missing, NewerFormat, NoSpace, Poisoned, TooLarge};
        match self {
            Self::Unreadable(_) => true,
            Self::SetAside { .. } => false,
            Self::Journal(Damaged { .. } | Missing { .. } | NewerFormat { .. }) => true,
            Self::Journal(
                Io { .. } | InUse { .. } | TooLarge { .. } | NoSpace { .. } | Poisoned { .. } | Expired { .. },
            ) => false,
        }
    }
}

/// An end found in the journal, with its encoded size.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FoundEnd {
    pub end: StoredEnd,
    pub bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Disk {
    journal: Journal,
    /// Written since everything before became obsolete.
    bytes: u64,
}

impl Disk {
    /// Opens the journal and returns the unacknowledged ends in it. A damaged journal is set aside, and a new one takes
    /// its place: the jobs of lost ends run again.
    pub fn open(directory: &Path) -> Result<(Self, Vec<FoundEnd>), Error> {
        match Self::try_open(directory) {
            Err(damage) if damage.is_damage() => {
                set_aside(directory, &damage)?;
                Self::try_open(directory)
            }
            opened => opened,
        }
    }

    fn try_open(directory: &Path) -> Result<(Self, Vec<FoundEnd>), Error> {
        let options = journal::Options {
            segment_bytes: SEGMENT_BYTES,
            first_segment_bytes: FIRST_SEGMENT_BYTES,
            keep_bytes: 0,
            keep_for: Duration::ZERO,
            ..journal::Options::default()
        };
        let journal = Journal::open(directory, options)?;
        let mut replay = Replay::default();
        let mut reader = journal.reader(journal.oldest())?;
        while let Some((position, entry)) = reader.next()? {
            replay.apply(position, &entry)?;
        }
        Ok((Self { bytes: replay.bytes, journal }, replay.finish()))
    }

    /// The unacknowledged ends of a journal that cannot be opened, for example because its disk is full.
    pub fn read(directory: &Path) -> Result<Vec<FoundEnd>, Error> {
        let mut replay = Replay::default();
        let mut result = Ok(());
        journal::read_entries(directory, |position, entry| {
            if result.is_ok() {
                result = replay.apply(position, &entry);
            }
        })?;
        result.map(|()| replay.finish())
    }

    /// Durable when it returns. After an error the journal must be opened again.
    pub fn append(&mut self, batch: &Batch) -> Result<(), Error> {
        let entry = codec::encode(batch);
        self.journal.append(&entry)?;
        self.bytes += entry.len() as u64;
        Ok(())
    }

    /// Whether most of the journal is obsolete, if `live` bytes are not.
    pub fn is_mostly_obsolete(&self, live: u64) -> bool {
        self.bytes > 2 * live + SEGMENT_BYTES
    }

    /// Everything that counts will be written again. Returns the position to pass to [`Disk::end_rewrite`] then.
    pub fn begin_rewrite(&mut self) -> Position {
        self.bytes = 0;
        self.journal.durable()
    }

    /// Entries up to this one are obsolete, durably.
    pub fn end_rewrite(&mut self, obsolete: Position) -> Result<(), Error> {
        self.append(&Batch { obsolete: Some(obsolete.0), ..Batch::default() })?;
        self.journal.release(obsolete);
        Ok(())
    }

    /// All ends are acknowledged.
    pub fn release_all(&mut self) {
        self.bytes = 0;
        self.journal.release(self.journal.durable());
    }
}

fn set_aside(directory: &Path, damage: &Error) -> Result<(), Error> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut aside = directory.as_os_str().to_owned();
    aside.push(format!(".damaged-{}", now.as_millis()));
    let aside = PathBuf::from(aside);
    std::fs::rename(directory, &aside)
        .map_err(|source| Error::SetAside { directory: directory.to_path_buf(), source })?;
    tracing::error!(
        %damage, directory = %aside.display(),
        "the outbox is damaged and was set aside: jobs whose results were not delivered run again"
    );
    Ok(())
}

/// The ends that remain after applying entries in order.
#[derive(Default)]
struct Replay {
    /// With the position of the entry, and a number that tells their order.
    ends: HashMap<AttemptRef, (Position, u64, FoundEnd)>,
    count: u64,
    /// Of all entries.
    bytes: u64,
}

impl Replay {
    fn apply(&mut self, position: Position, entry: &Bytes) -> Result<(), Error> {
        self.bytes += entry.len() as u64;
        let batch: Batch = codec::decode(entry)?;
        for attempt_ref in &batch.acknowledged {
            self.ends.remove(attempt_ref);
        }
        for encoded in batch.ends {
            let found = FoundEnd { end: StoredEnd::decode(&encoded)?, bytes: encoded.len() as u64 };
            self.count += 1;
            self.ends.insert(found.end.attempt_ref, (position, self.count, found));
        }
        if let Some(obsolete) = batch.obsolete {
            self.ends.retain(|_, (position, ..)| position.0 > obsolete);
        }
        Ok(())
    }

    fn finish(self) -> Vec<FoundEnd> {
        let mut ends: Vec<(Position, u64, FoundEnd)> = self.ends.into_values().collect();
        ends.sort_unstable_by_key(|(_, number, _)| *number);
        ends.into_iter().map(|(.., found)| found).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::id::{Attempt, JobId, ShardId};
    use model::job::{End, Outcome};

    use super::super::record::encode_end;
    use super::*;

    fn attempt_ref(job: u64) -> AttemptRef {
        AttemptRef { job: JobId(job), attempt: Attempt(1) }
    }

    fn batch(acknowledged: &[u64], ended: &[u64]) -> Batch {
        let outcome = Outcome::of(End::Succeeded);
        let encode = |job: &u64| encode_end(ShardId(0), attempt_ref(*job), &outcome).into();
        Batch {
            acknowledged: acknowledged.iter().copied().map(attempt_ref).collect(),
            ends: ended.iter().map(encode).collect(),
            obsolete: None,
        }
    }

    fn jobs(found: &[FoundEnd]) -> Vec<u64> {
        found.iter().map(|found| found.end.attempt_ref.job.0).collect()
    }

    #[test]
    fn unacknowledged_ends_are_found_again_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let (mut disk, found) = Disk::open(directory.path()).unwrap();
        assert_eq!(found, []);
        // An attempt that was stopped, acknowledged and stopped again has two ends.
        for batch in [batch(&[], &[3, 1, 2]), batch(&[1], &[4]), batch(&[3], &[3])] {
            disk.append(&batch).unwrap();
        }
        drop(disk);
        assert_eq!(jobs(&Disk::read(directory.path()).unwrap()), [2, 4, 3]);
        let (mut disk, found) = Disk::open(directory.path()).unwrap();
        assert_eq!(jobs(&found), [2, 4, 3]);
        disk.append(&batch(&[2, 3, 4], &[])).unwrap();
        drop(disk);
        assert_eq!(Disk::open(directory.path()).unwrap().1, []);
    }

    #[test]
    fn a_rewrite_replaces_what_was_before() {
        let directory = tempfile::tempdir().unwrap();
        let (mut disk, _) = Disk::open(directory.path()).unwrap();
        disk.append(&batch(&[], &[1, 2])).unwrap();
        let obsolete = disk.begin_rewrite();
        disk.append(&batch(&[], &[2])).unwrap();
        // A crash during a rewrite loses nothing, but may bring back an acknowledged end, which its shard ignores.
        assert_eq!(jobs(&Disk::read(directory.path()).unwrap()), [1, 2]);
        disk.end_rewrite(obsolete).unwrap();
        assert_eq!(jobs(&Disk::read(directory.path()).unwrap()), [2]);
        drop(disk);
        assert_eq!(jobs(&Disk::open(directory.path()).unwrap().1), [2]);
    }

    #[test]
    fn an_unreadable_entry_is_damage() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("outbox");
        Journal::open(&directory, journal::Options::default()).unwrap().append(b"no batch").unwrap();
        let (_, found) = Disk::open(&directory).unwrap();
        assert_eq!(found, []);
        let names = std::fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.filter(|name| name.to_string_lossy().starts_with("outbox.damaged-")).count(), 1);
    }
}
