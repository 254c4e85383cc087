//! The public type [`Journal`]: open, append, read, release, close.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::commit::{State, Writer};
use crate::format::PAGE_BYTES;
use crate::maintenance::SparePool;
use crate::recover::{Recovery, recover};
use crate::segment::{Segment, install_segment, new_generation};
use crate::spare::{Spares, prepare};
use crate::{Error, Options, Position, Reader};

type Hook = Box<dyn Fn(Position) + Send + Sync>;

/// State shared by the journal, its readers and its maintenance thread.
pub(crate) struct Shared {
    pub directory: PathBuf,
    pub options: Options,
    pub state: Mutex<State>,
    pub frame_done: Condvar,
    pub durable_changed: Condvar,
    /// Wakes the maintenance thread.
    pub maintenance_wake: Condvar,
    pub writer: Mutex<Writer>,
    /// Oldest first; the last one is the active segment.
    pub segments: RwLock<VecDeque<Arc<Segment>>>,
    pub spare_pool: SparePool,
    hooks: RwLock<Vec<Hook>>,
    /// The last durable position. Changed only by the writing thread.
    pub durable: AtomicU64,
}

impl Shared {
    pub fn call_hooks(&self, durable: Position) {
        for hook in self.hooks.read().iter() {
            hook(durable);
        }
    }

    pub fn oldest(&self) -> Position {
        self.segments.read().front().map_or(Position(1), |segment| segment.header.first)
    }

    pub fn durable(&self) -> Position {
        Position(self.durable.load(Ordering::Acquire))
    }
}

/// An open journal. All operations may be called from any thread.
pub struct Journal {
    shared: Arc<Shared>,
    recovery: Recovery,
    /// The locked directory.
    lock: File,
    maintenance: Option<JoinHandle<()>>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens the journal in `directory` and creates the directory if necessary. A torn tail is truncated. Any other
    /// damage is an error and leaves the files unchanged.
    pub fn open(directory: &Path, options: Options) -> Result<Self, Error> {
        let options = Options {
            segment_bytes: options.segment_bytes.max(2 * PAGE_BYTES).next_multiple_of(PAGE_BYTES),
            first_segment_bytes: options.first_segment_bytes.max(2 * PAGE_BYTES).next_multiple_of(PAGE_BYTES),
            ..options
        };
        std::fs::create_dir_all(directory).map_err(Error::io("create the directory", directory))?;
        let lock = lock_directory(directory)?;
        let names = file_names(directory)?;
        let recovered = recover(directory, &names, new_generation())?;
        let mut spares = Spares::adopt(directory, &names, options.segment_bytes)?;
        let spare = match spares.take(0) {
            Some(spare) => spare,
            None => prepare(&spares.reserve_path(), options.first_segment_bytes)?,
        };
        recovered.rewrite_last_frame()?;
        // Writing always continues in a new segment. Its header records the end of the log, so a truncation is final.
        let active = install_segment(directory, &spare.path, spare.file, spare.file_bytes, recovered.next)?;
        let active = Arc::new(active);
        let mut segments: VecDeque<_> = recovered.segments.into();
        segments.push_back(Arc::clone(&active));
        let shared = Arc::new(Shared {
            directory: directory.to_path_buf(),
            state: Mutex::new(State::new(recovered.next.first)),
            frame_done: Condvar::new(),
            durable_changed: Condvar::new(),
            maintenance_wake: Condvar::new(),
            writer: Mutex::new(Writer::new(active)),
            segments: RwLock::new(segments),
            spare_pool: SparePool::new(spares),
            hooks: RwLock::new(Vec::new()),
            durable: AtomicU64::new(recovered.next.first.0 - 1),
            options,
        });
        let recovery = Recovery { last: shared.durable(), oldest: shared.oldest(), torn_tail: recovered.torn_tail };
        let maintenance = start_maintenance(&shared, directory)?;
        Ok(Self { shared, recovery, lock, maintenance: Some(maintenance) })
    }

    /// Result of the recovery at opening.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Appends one entry, which is durable when this returns. A failed write leaves the outcome unknown and stops
    /// the journal: see [`Error::Poisoned`].
    pub fn append(&self, payload: &[u8]) -> Result<Position, Error> {
        self.append_parts(&[payload])
    }

    /// Like [`Journal::append`], for an entry given in several parts.
    pub fn append_parts(&self, parts: &[&[u8]]) -> Result<Position, Error> {
        self.shared.append(parts).map(|(position, _)| position)
    }

    /// Like [`Journal::append_parts`], and also returns the entry as written. The bytes may be a slice of the frame,
    /// which stays in memory as long as they do.
    pub fn append_shared(&self, parts: &[&[u8]]) -> Result<(Position, Bytes), Error> {
        self.shared.append(parts)
    }

    /// Position of the last durable entry, [`Position::NONE`] if there is none.
    pub fn durable(&self) -> Position {
        self.shared.durable()
    }

    /// Position of the oldest retained entry, or the one after [`Journal::durable`] if there is none.
    pub fn oldest(&self) -> Position {
        self.shared.oldest()
    }

    /// Waits for an entry after `after` to become durable, at most for `timeout`. Returns the durable position.
    pub fn wait_durable(&self, after: Position, timeout: Duration) -> Position {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.state.lock();
        while self.shared.durable() <= after && state.poisoned.is_none() {
            if self.shared.durable_changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        self.shared.durable()
    }

    /// Calls `hook` with the durable position after each frame. The hook runs on an appending thread: it must not
    /// block and must not append.
    pub fn on_durable(&self, hook: Box<dyn Fn(Position) + Send + Sync>) {
        self.shared.hooks.write().push(hook);
    }

    /// Returns a reader of durable entries, starting with the entry `from`.
    pub fn reader(&self, from: Position) -> Result<Reader, Error> {
        Reader::new(Arc::clone(&self.shared), from)
    }

    /// Declares that recovery needs no entry up to and including `upto`. Their segments are retained for readers as
    /// configured in [`Options`], then reused.
    pub fn release(&self, upto: Position) {
        let mut state = self.shared.state.lock();
        if upto > state.released {
            state.released = upto.min(self.shared.durable());
            self.shared.maintenance_wake.notify_one();
        }
    }

    /// Seals the last frame and stops. Dropping the journal does the same without reporting errors.
    pub fn close(mut self) -> Result<(), Error> {
        self.stop();
        match &self.shared.state.lock().poisoned {
            Some(reason) => Err(Error::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn stop(&mut self) {
        let Some(maintenance) = self.maintenance.take() else { return };
        self.shared.state.lock().stopping = true;
        self.shared.maintenance_wake.notify_one();
        if maintenance.join().is_err() {
            tracing::error!("the maintenance thread of the journal panicked");
        }
        self.shared.seal(&mut self.shared.state.lock());
        // Closing the file is not enough: a process that is being forked right now has a copy of the descriptor.
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, directory = %self.shared.directory.display(), "cannot unlock the journal directory");
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start_maintenance(shared: &Arc<Shared>, directory: &Path) -> Result<JoinHandle<()>, Error> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || shared.run_maintenance())
        .map_err(Error::io("start the maintenance thread for", directory))
}

/// Prevents two writers, which would overwrite each other's segments. The lock ends with the process.
fn lock_directory(directory: &Path) -> Result<File, Error> {
    let file = File::open(directory).map_err(Error::io("open the directory", directory))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::InUse { directory: directory.to_path_buf() }),
        Err(std::fs::TryLockError::Error(error)) => Err(Error::io("lock the directory", directory)(error)),
    }
}

pub(crate) fn file_names(directory: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for item in std::fs::read_dir(directory).map_err(Error::io("list", directory))? {
        let item = item.map_err(Error::io("list", directory))?;
        names.extend(item.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}
