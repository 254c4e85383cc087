//! From the journal to the tables: what has arrived, what is readable, what is written.
//!
//! Commits arrive from many threads, each after its own append; here they are put back into journal order. One
//! thread makes them readable (the overlay), another writes them to the tables. They are two so that a read never
//! waits for a table file to be synced.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};

use super::entry::{self, Entry};
use super::overlay::Layers;
use super::tables::Tables;
use crate::{Error, Position};

/// How far things have come. Its lock is taken after that of the layers, never before.
#[derive(Debug)]
struct Progress {
    /// Entries that are durable but not in the overlay: slot 0 is the one after `taken`.
    arrived: VecDeque<Option<Bytes>>,
    taken: Position,
    /// The newest entry that arrived; those before it may still be on their way.
    newest: Position,
    /// Everything up to here is in the overlay or the tables.
    readable: Position,
    /// Everything up to here is in the tables.
    applied: Position,
    backlog_bytes: u64,
    active_bytes: u64,
    /// When the oldest entry of the active layer came in.
    active_since: Option<Instant>,
    /// Off while replaying: nothing is written to the tables before it is certain that they are sound.
    may_flush: bool,
    /// Someone wants everything up to here in the tables now.
    flush_up_to: Position,
    stopping: bool,
    /// Why the store has stopped for good.
    fatal: Option<String>,
}

pub(crate) struct Limits {
    pub backlog_bytes_max: u64,
    pub flush_bytes: u64,
    pub flush_after: Duration,
}

pub(crate) struct Pipeline {
    limits: Limits,
    progress: Mutex<Progress>,
    arrival: Condvar,
    more_readable: Condvar,
    flush_due: Condvar,
    flushed: Condvar,
    pub layers: RwLock<Layers>,
    pub tables: Tables,
}

impl Pipeline {
    pub fn new(tables: Tables, applied: Position, limits: Limits) -> Self {
        let progress = Progress {
            arrived: VecDeque::new(),
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
            arrival: Condvar::new(),
            more_readable: Condvar::new(),
            flush_due: Condvar::new(),
            flushed: Condvar::new(),
            layers: RwLock::new(Layers::default()),
            tables,
        }
    }

    /// Waits while too much is not in the tables yet.
    pub fn wait_for_room(&self) -> Result<(), Error> {
        let mut progress = self.progress.lock();
        loop {
            progress.check()?;
            if progress.backlog_bytes < self.limits.backlog_bytes_max {
                return Ok(());
            }
            self.flushed.wait(&mut progress);
        }
    }

    /// Takes a durable entry. Every position must come exactly once, in any order.
    pub fn arrive(&self, position: Position, entry: Bytes) {
        let mut progress = self.progress.lock();
        let slot = (position.0 - progress.taken.0 - 1) as usize;
        if progress.arrived.len() <= slot {
            progress.arrived.resize(slot + 1, None);
        }
        progress.backlog_bytes += entry.len() as u64;
        progress.arrived[slot] = Some(entry);
        progress.newest = progress.newest.max(position);
        if slot == 0 {
            self.arrival.notify_one();
        }
    }

    /// Waits until everything up to `target` can be read: usually it can.
    pub fn wait_readable(&self, target: Position) -> Result<(), Error> {
        let mut progress = self.progress.lock();
        while progress.readable < target {
            progress.check()?;
            self.more_readable.wait(&mut progress);
        }
        Ok(())
    }

    /// From now on layers are written to the tables.
    pub fn allow_flush(&self) {
        self.progress.lock().may_flush = true;
        self.flush_due.notify_one();
    }

    /// Waits until everything that has arrived is in the tables.
    pub fn flush(&self) -> Result<(), Error> {
        let arrived = self.progress.lock().newest;
        self.wait_readable(arrived)?;
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
        self.wake_everyone();
    }

    /// Stops the store for good: nothing more can be promised.
    pub fn fail(&self, error: &Error) {
        tracing::error!(%error, "the store stops");
        self.progress.lock().fatal.get_or_insert_with(|| error.to_string());
        self.wake_everyone();
    }

    fn wake_everyone(&self) {
        self.arrival.notify_all();
        self.more_readable.notify_all();
        self.flush_due.notify_all();
        self.flushed.notify_all();
    }

    /// The overlay thread: makes entries readable, in journal order.
    pub fn run_overlay(&self) {
        while let Some((first, entries)) = self.take_arrived() {
            if let Err(error) = self.make_readable(first, entries) {
                self.fail(&error);
                return;
            }
        }
    }

    fn take_arrived(&self) -> Option<(Position, Vec<Bytes>)> {
        let mut progress = self.progress.lock();
        loop {
            if progress.stopping || progress.fatal.is_some() {
                return None;
            }
            let mut entries = Vec::new();
            while let Some(Some(_)) = progress.arrived.front() {
                entries.extend(progress.arrived.pop_front().flatten());
            }
            if !entries.is_empty() {
                let first = progress.taken.next();
                progress.taken = Position(progress.taken.0 + entries.len() as u64);
                return Some((first, entries));
            }
            self.arrival.wait(&mut progress);
        }
    }

    fn make_readable(&self, first: Position, entries: Vec<Bytes>) -> Result<(), Error> {
        let mut position = first;
        for entry in entries {
            let malformed = |reason: String| Error::Tables {
                reason: format!("the journal entry {position} cannot be read: {reason}"),
            };
            let decoded = entry::decode(&entry).map_err(|reason| malformed(reason.to_owned()))?;
            let mut layers = self.layers.write();
            let before = layers.active.bytes;
            layers.active.apply(position, &decoded).map_err(malformed)?;
            let added = layers.active.bytes - before;
            let mut progress = self.progress.lock();
            // What is not data leaves the backlog here: heads of entries, checkpoints.
            progress.backlog_bytes -= entry.len() as u64 - added;
            progress.active_bytes += added;
            progress.readable = position;
            self.more_readable.notify_all();
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

    /// The table thread: writes layers to the tables. `checkpoint` is called after each with what is applied.
    pub fn run_tables(&self, checkpoint: impl Fn(Position) -> Result<(), Error>) {
        while self.wait_until_flush_is_due() {
            let written = self.write_layer().and_then(&checkpoint);
            if let Err(error) = written {
                self.fail(&error);
                return;
            }
        }
    }

    /// `false` when the thread is to end.
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
                let full = progress.active_bytes >= self.limits.flush_bytes;
                let wanted = progress.flush_up_to > progress.applied;
                if full || wanted || Instant::now() >= due {
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

/// Whether a checkpoint in the journal says that the tables were further than they are.
pub(crate) fn checkpoint_of(entry: &Bytes) -> Option<Position> {
    match entry::decode(entry) {
        Ok(Entry::Checkpoint { applied }) => Some(applied),
        Ok(Entry::Commit { .. } | Entry::OpenShard { .. }) | Err(_) => None,
    }
}
