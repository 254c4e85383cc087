//! Durable outbox: results that their shards do not acknowledge soon are stored, and sent again by the next start.
//!
//! The links keep all unacknowledged messages in memory. What a shard commits at once, as usual, never comes here. An
//! end that stays unacknowledged is written to a journal of its own, together with others in one write and one sync. Its
//! acknowledgement is written as well, so that it does not come back. When most of the journal is obsolete, the rest is
//! written again and the old entries are released: the journal takes at most about three times the bytes that wait.

mod disk;
mod record;
mod tracker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use link::RunnerEnd;
use model::id::ShardId;
use model::message::AttemptRef;

use disk::Disk;
pub(crate) use disk::FoundEnd;
pub use tracker::OutboxUsage;
use tracker::{Chunk, Tracker};

/// Interval between tries to write after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time for the previous process to release the journal. After a `kill -9`, a process that it was just forking still
/// holds the lock for a moment.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
const RELEASE_INTERVAL: Duration = Duration::from_millis(20);

/// Settings of a durable outbox.
#[derive(Debug, Clone)]
pub struct OutboxOptions {
    pub directory: PathBuf,
    /// With more unacknowledged bytes than this, the runner takes no new work until at most half of this is left.
    pub bytes_max: u64,
}

/// [`Outbox::open`] and [`Outbox::store`] block; the other methods do not.
#[derive(Debug)]
pub(crate) struct Outbox {
    options: OutboxOptions,
    /// Absent after a failure.
    disk: Option<Disk>,
    tracker: Tracker,
    /// The next write replaces the whole content.
    rewrite: bool,
    failure: Option<Failure>,
    full: bool,
}

#[derive(Debug)]
struct Failure {
    reason: String,
    retry_at: Instant,
}

impl Outbox {
    /// Opens the outbox and returns the ends that were not acknowledged. Without access to its disk it starts as after a
    /// failed write.
    pub fn open(options: OutboxOptions) -> (Self, Vec<FoundEnd>) {
        let mut outbox =
            Self { options, disk: None, tracker: Tracker::default(), rewrite: false, failure: None, full: false };
        let found: Vec<FoundEnd> = match open_when_released(&outbox.options.directory) {
            Ok((disk, found)) => {
                outbox.disk = Some(disk);
                found
            }
            Err(error) => {
                let found = outbox.read_despite(&error);
                outbox.fail(&error);
                found
            }
        };
        outbox.full = found.iter().map(|found| found.bytes).sum::<u64>() > outbox.options.bytes_max;
        (outbox, found)
    }

    /// The stored ends, although the journal cannot be opened for writing.
    fn read_despite(&self, error: &disk::Error) -> Vec<FoundEnd> {
        if error.is_in_use() {
            // The other process delivers them.
            return Vec::new();
        }
        Disk::read(&self.options.directory).unwrap_or_else(|error| {
            tracing::error!(%error, "the outbox cannot be read: jobs whose results were not delivered run again");
            Vec::new()
        })
    }

    /// A stored end was sent again as this message.
    pub fn note_replayed(&mut self, shard: ShardId, sequence: u64, attempt_ref: AttemptRef, bytes: u64) {
        self.tracker.note_replayed(shard, sequence, attempt_ref, bytes);
    }

    /// A stored end cannot be sent again. The next write leaves it out.
    pub fn note_undeliverable(&mut self) {
        self.rewrite = true;
    }

    /// All messages sent so far are due at the next call of [`Outbox::collect`].
    pub fn mark_due<T>(&mut self, links: &BTreeMap<ShardId, RunnerEnd<T>>) {
        self.tracker.mark_due(links);
    }

    /// What is due to be written.
    pub fn collect<T>(&self, links: &BTreeMap<ShardId, RunnerEnd<T>>) -> Chunk {
        self.tracker.collect(links)
    }

    /// Whether [`Outbox::store`] is to be called.
    pub fn is_due(&self, chunk: &Chunk) -> bool {
        match &self.failure {
            Some(failure) => failure.retry_at <= Instant::now(),
            None => !chunk.is_empty() || self.rewrite,
        }
    }

    /// Writes a chunk, and what `collect` returns after it, until there is nothing more.
    pub fn store(&mut self, chunk: Chunk, collect: impl Fn(&Self) -> Chunk) {
        match self.try_store(chunk, collect) {
            Ok(()) => {
                if self.failure.take().is_some() {
                    tracing::info!("undelivered results can be stored again");
                }
                self.update_full();
            }
            Err(error) => self.fail(&error),
        }
    }

    fn try_store(&mut self, mut chunk: Chunk, collect: impl Fn(&Self) -> Chunk) -> Result<(), disk::Error> {
        let mut disk = match self.disk.take() {
            Some(disk) => disk,
            None => {
                self.rewrite = true;
                Disk::open(&self.options.directory)?.0
            }
        };
        let mut obsolete = None;
        if self.rewrite || disk.is_mostly_obsolete(self.tracker.usage().bytes) {
            self.rewrite = true;
            obsolete = Some(disk.begin_rewrite());
            self.tracker.restart();
            chunk = collect(self);
        }
        while !chunk.is_empty() {
            disk.append(&chunk.take_batch())?;
            self.tracker.apply(chunk);
            chunk = collect(self);
        }
        self.tracker.apply(chunk);
        if let Some(obsolete) = obsolete {
            disk.end_rewrite(obsolete)?;
        }
        if self.tracker.usage() == OutboxUsage::default() {
            disk.release_all();
        }
        self.rewrite = false;
        self.disk = Some(disk);
        Ok(())
    }

    fn fail(&mut self, error: &disk::Error) {
        let reason = error.to_string();
        if self.failure.is_none() {
            tracing::error!(error = %reason, "undelivered results cannot be stored: no new work until they can");
        }
        self.disk = None;
        self.failure = Some(Failure { reason, retry_at: Instant::now() + RETRY_INTERVAL });
    }

    fn update_full(&mut self) {
        let (bytes, bytes_max) = (self.usage().bytes, self.options.bytes_max);
        if bytes > bytes_max && !self.full {
            tracing::warn!(bytes, bytes_max, "the outbox is full: no new work until half of the limit is left");
            self.full = true;
        }
        self.full &= bytes > bytes_max / 2;
    }

    pub fn usage(&self) -> OutboxUsage {
        self.tracker.usage()
    }

    /// Why the runner must not take new work. Does not change while the cause is the same.
    pub fn refusal(&self) -> Option<String> {
        match &self.failure {
            Some(failure) => Some(format!("undelivered results cannot be stored: {}", failure.reason)),
            None if self.full => Some(format!(
                "undelivered results have reached the limit of {} bytes; the shards they belong to do not acknowledge them",
                self.options.bytes_max
            )),
            None => None,
        }
    }
}

fn open_when_released(directory: &Path) -> Result<(Disk, Vec<FoundEnd>), disk::Error> {
    let deadline = Instant::now() + RELEASE_TIMEOUT;
    loop {
        match Disk::open(directory) {
            Err(error) if error.is_in_use() && Instant::now() < deadline => std::thread::sleep(RELEASE_INTERVAL),
            opened => return opened,
        }
    }
}

#[cfg(test)]
mod tests {
    use model::id::{Attempt, JobId};
    use model::job::{End, Outcome};

    use super::*;

    #[test]
    fn an_outbox_that_is_still_in_use_is_opened_when_it_is_released() {
        let directory = tempfile::tempdir().unwrap();
        let (mut disk, _) = Disk::open(directory.path()).unwrap();
        let attempt_ref = AttemptRef { job: JobId(1), attempt: Attempt(1) };
        let end = record::encode_end(ShardId(0), attempt_ref, &Outcome::of(End::Succeeded));
        disk.append(&record::Batch { ends: vec![end.into()], ..record::Batch::default() }).unwrap();
        let options = OutboxOptions { directory: directory.path().to_path_buf(), bytes_max: 1_000 };
        let opening = std::thread::spawn(move || Outbox::open(options));
        drop(disk);
        let (outbox, found) = opening.join().unwrap();
        assert_eq!((outbox.refusal(), found.len()), (None, 1));
    }
}
