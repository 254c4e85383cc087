//! Pipeline from the journal through the overlay to the tables.
//!
//! Entries are submitted by many threads, each after its own append, and put back into journal order here. One thread
//! applies them to the overlay, another writes the overlay to the tables. Two threads are needed so that a read never
//! waits for the sync of a table file.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};

use super::entry::{self, JournalEntry};
use super::overlay::Layers;
use super::tables::Tables;
use crate::{Error, Position};

/// Progress of the pipeline. Lock order: layers first, then progress.
#[derive(Debug)]
struct Progress {
    /// Submitted entries that are not taken yet. Index 0 is the entry after `taken`; `None` is not submitted yet.
    submitted: VecDeque<Option<Bytes>>,
    /// The last entry taken by the overlay thread.
    taken: Position,
    /// The newest submitted entry. Earlier ones may still be missing.
    newest: Position,
    /// All entries up to this position are in the overlay or the tables.
    readable: Position,
    /// All entries up to this position are in the tables.
    applied: Position,
    /// Size of the submitted entries that are not in the tables.
    backlog_bytes: u64,
    active_bytes: u64,
    /// Time of the first entry in the active layer.
    active_since: Option<Instant>,
    /// Off during replay: nothing is written to the tables before they are checked against the journal.
    may_flush: bool,
    /// Entries up to this position are to be flushed immediately.
    flush_up_to: Position,
    stopping: bool,
    /// The error that stopped the store.
    fatal: Option<String>,
}

pub(crate) struct FlushLimits {
    pub backlog_bytes_max: u64,
    pub flush_bytes: u64,
    pub flush_after: Duration,
}

pub(crate) struct Pipeline {
    limits: FlushLimits,
    progress: Mutex<Progress>,
    entry_submitted: Condvar,
    readable_advanced: Condvar,
    flush_due: Condvar,
    flushed: Condvar,
    pub layers: RwLock<Layers>,
    pub tables: Tables,
}

impl Pipeline {
    pub fn new(tables: Tables, applied: Position, limits: FlushLimits) -> Self {
        let progress = Progress {
            submitted: VecDeque::new(),
            taken: applied,
            newest: applied,
            readable: applied,
            applied,
            backlog_bytes: 0,
            active_bytes: 0,
            active_since: None,
            may_flush: false,
            flush_up_to: Position::NONE,
            stopping: false,
            fatal: None,
        };
        Self {
            limits,
            progress: Mutex::new(progress),
            entry_submitted: Condvar::new(),
            readable_advanced: Condvar::new(),
            flush_due: Condvar::new(),
            flushed: Condvar::new(),
            layers: RwLock::new(Layers::default()),
            tables,
        }
    }

    /// Waits while the backlog exceeds its limit.
    pub fn wait_for_backlog(&self) -> Result<(), Error> {
        let mut progress = self.progress.lock();
        loop {
            progress.check()?;
            if progress.backlog_bytes < self.limits.backlog_bytes_max {
                return Ok(());
            }
            self.flushed.wait(&mut progress);
        }
    }

    /// Submits a durable entry. Every position must be submitted exactly once, in any order.
    pub fn submit(&self, position: Position, entry: Bytes) {
        let mut progress = self.progress.lock();
        let index = (position.0 - progress.taken.0 - 1) as usize;
        if progress.submitted.len() <= index {
            progress.submitted.resize(index + 1, None);
        }
        progress.backlog_bytes += entry.len() as u64;
        progress.submitted[index] = Some(entry);
        progress.newest = progress.newest.max(position);
        if index == 0 {
            self.entry_submitted.notify_one();
        }
    }

    /// Waits until all entries up to `target` are readable. Usually they are already.
    pub fn wait_readable(&self, target: Position) -> Result<(), Error> {
        let mut progress = self.progress.lock();
        while progress.readable < target {
            progress.check()?;
            self.readable_advanced.wait(&mut progress);
        }
        Ok(())
    }

    /// Enables flushes to the tables.
    pub fn allow_flush(&self) {
        self.progress.lock().may_flush = true;
        self.flush_due.notify_one();
    }

    /// Writes all submitted entries to the tables, and waits until they are there.
    pub fn flush(&self) -> Result<(), Error> {
        let newest = self.progress.lock().newest;
        self.wait_readable(newest)?;
        let mut progress = self.progress.lock();
        let target = progress.readable;
        if progress.backlog_bytes > 0 {
            progress.flush_up_to = target;
            self.flush_due.notify_one();
        }
        while progress.applied < target && progress.backlog_bytes > 0 {
            progress.check()?;
            self.flushed.wait(&mut progress);
        }
        Ok(())
    }

    pub fn stop(&self) {
        self.progress.lock().stopping = true;
        self.wake_all();
    }

    /// Stops the store until a restart. All waiting calls return the error.
    pub fn fail(&self, error: &Error) {
        tracing::error!(%error, "the store has stopped, restart the server to recover");
        self.progress.lock().fatal.get_or_insert_with(|| error.to_string());
        self.wake_all();
    }

    fn wake_all(&self) {
        self.entry_submitted.notify_all();
        self.readable_advanced.notify_all();
        self.flush_due.notify_all();
        self.flushed.notify_all();
    }

    /// The overlay thread: applies entries in journal order.
    pub fn run_overlay(&self) {
        while let Some((first, entries)) = self.take_submitted() {
            if let Err(error) = self.apply_to_overlay(first, entries) {
                self.fail(&error);
                return;
            }
        }
    }

    fn take_submitted(&self) -> Option<(Position, Vec<Bytes>)> {
        let mut progress = self.progress.lock();
        loop {
            if progress.stopping || progress.fatal.is_some() {
                return None;
            }
            let mut entries = Vec::new();
            while let Some(Some(_)) = progress.submitted.front() {
                entries.extend(progress.submitted.pop_front().flatten());
            }
            if !entries.is_empty() {
                let first = progress.taken.next();
                progress.taken = Position(progress.taken.0 + entries.len() as u64);
                return Some((first, entries));
            }
            self.entry_submitted.wait(&mut progress);
        }
    }

    fn apply_to_overlay(&self, first: Position, entries: Vec<Bytes>) -> Result<(), Error> {
        let mut position = first;
        for entry in entries {
            let malformed = |reason: String| Error::Tables {
                reason: format!("the journal entry {position} cannot be decoded: {reason}"),
            };
            let decoded = entry::decode(&entry).map_err(|reason| malformed(reason.to_owned()))?;
            let mut layers = self.layers.write();
            let before = layers.active.bytes;
            layers.active.apply(position, &decoded).map_err(malformed)?;
            let added = layers.active.bytes - before;
            let mut progress = self.progress.lock();
            // The parts without data, heads of entries and checkpoints, leave the backlog here.
            progress.backlog_bytes -= entry.len() as u64 - added;
            progress.active_bytes += added;
            progress.readable = position;
            self.readable_advanced.notify_all();
            if added > 0 && progress.active_since.is_none() {
                progress.active_since = Some(Instant::now());
                self.flush_due.notify_one();
            } else if progress.active_bytes >= self.limits.flush_bytes {
                self.flush_due.notify_one();
            }
            position = position.next();
        }
        Ok(())
    }

    /// The table thread: writes layers to the tables. Calls `checkpoint` with the applied position after each.
    pub fn run_tables(&self, checkpoint: impl Fn(Position) -> Result<(), Error>) {
        while self.wait_until_flush_is_due() {
            let written = self.write_layer().and_then(&checkpoint);
            if let Err(error) = written {
                self.fail(&error);
                return;
            }
        }
    }

    /// Returns `false` if the thread must end.
    fn wait_until_flush_is_due(&self) -> bool {
        let mut progress = self.progress.lock();
        loop {
            if progress.stopping || progress.fatal.is_some() {
                return false;
            }
            let due = progress.active_since.map(|since| since + self.limits.flush_after);
            if progress.may_flush
                && let Some(due) = due
            {
                let is_full = progress.active_bytes >= self.limits.flush_bytes;
                let is_requested = progress.flush_up_to > progress.applied;
                if is_full || is_requested || Instant::now() >= due {
                    return true;
                }
                self.flush_due.wait_until(&mut progress, due);
            } else {
                self.flush_due.wait(&mut progress);
            }
        }
    }

    fn write_layer(&self) -> Result<Position, Error> {
        let layer = {
            let mut layers = self.layers.write();
            let mut progress = self.progress.lock();
            progress.active_bytes = 0;
            progress.active_since = None;
            layers.freeze()
        };
        self.tables.write(&layer)?;
        self.layers.write().frozen = None;
        let mut progress = self.progress.lock();
        progress.backlog_bytes -= layer.bytes;
        progress.applied = layer.last;
        self.flushed.notify_all();
        Ok(layer.last)
    }
}

impl Progress {
    fn check(&self) -> Result<(), Error> {
        match &self.fatal {
            Some(reason) => Err(Error::Stopped { reason: reason.clone() }),
            None if self.stopping => Err(Error::Stopped { reason: "it was closed".to_owned() }),
            None => Ok(()),
        }
    }
}

/// The position in a journal entry that is a checkpoint.
pub(crate) fn checkpoint_of(entry: &Bytes) -> Option<Position> {
    match entry::decode(entry) {
        Ok(JournalEntry::Checkpoint { applied }) => Some(applied),
        Ok(JournalEntry::Commit { .. } | JournalEntry::OpenShard { .. } | JournalEntry::Document { .. }) | Err(_) => {
            None
        }
    }
}
