//! The journal itself: opening, the public operations, closing.

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
use crate::maintenance::SpareRoom;
use crate::recover::{Recovery, recover};
use crate::segment::{Segment, new_generation, put_in_place};
use crate::spare::{Spares, prepare};
use crate::{Error, Options, Position, Reader};

type Hook = Box<dyn Fn(Position) + Send + Sync>;

/// What the journal, its readers and its background thread share.
pub(crate) struct Shared {
    pub directory: PathBuf,
    pub options: Options,
    pub state: Mutex<State>,
    pub frame_done: Condvar,
    pub durable_changed: Condvar,
    /// Wakes the background thread.
    pub chores: Condvar,
    pub writer: Mutex<Writer>,
    /// Oldest first; the last one is being written.
    pub segments: RwLock<VecDeque<Arc<Segment>>>,
    pub spare_room: SpareRoom,
    hooks: RwLock<Vec<Hook>>,
    /// The last durable position. Changed only by who writes.
    pub durable: AtomicU64,
}

impl Shared {
    pub fn tell_hooks(&self, durable: Position) {
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
    chores: Option<JoinHandle<()>>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens the journal in `directory`, which is made if need be. What a crash left unfinished is cut off;
    /// damage is an error and leaves everything as it is.
    pub fn open(directory: &Path, options: Options) -> Result<Self, Error> {
        let options = Options {
            segment_bytes: options.segment_bytes.max(2 * PAGE_BYTES).next_multiple_of(PAGE_BYTES),
            first_segment_bytes: options.first_segment_bytes.max(2 * PAGE_BYTES).next_multiple_of(PAGE_BYTES),
            ..options
        };
        std::fs::create_dir_all(directory).map_err(Error::io("make the directory", directory))?;
        let lock = lock_directory(directory)?;
        let names = file_names(directory)?;
        let recovered = recover(directory, &names, new_generation())?;
        let mut spares = Spares::adopt(directory, &names, options.segment_bytes)?;
        let spare = match spares.take(0) {
            Some(spare) => spare,
            None => prepare(&spares.reserve_path(), options.first_segment_bytes)?,
        };
        recovered.settle()?;
        // Writing always goes on in a new segment: its header states where the log ended, so a cut is final.
        let active = put_in_place(directory, &spare.path, spare.file, spare.file_bytes, recovered.next)?;
        let active = Arc::new(active);
        let mut segments: VecDeque<_> = recovered.segments.into();
        segments.push_back(Arc::clone(&active));
        let shared = Arc::new(Shared {
            directory: directory.to_path_buf(),
            state: Mutex::new(State::new(recovered.next.first)),
            frame_done: Condvar::new(),
            durable_changed: Condvar::new(),
            chores: Condvar::new(),
            writer: Mutex::new(Writer::new(active)),
            segments: RwLock::new(segments),
            spare_room: SpareRoom::new(spares),
            hooks: RwLock::new(Vec::new()),
            durable: AtomicU64::new(recovered.next.first.0 - 1),
            options,
        });
        let recovery = Recovery { last: shared.durable(), oldest: shared.oldest(), cut: recovered.cut };
        let chores = start_chores(&shared, directory)?;
        Ok(Self { shared, recovery, lock, chores: Some(chores) })
    }

    /// What opening found.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Appends one entry; it is durable when this returns. An error that leaves the outcome open
    /// (a failed write) also stops the journal: see [`Error::Poisoned`].
    pub fn append(&self, payload: &[u8]) -> Result<Position, Error> {
        self.append_parts(&[payload])
    }

    /// Like [`Journal::append`], for an entry that lies in several pieces.
    pub fn append_parts(&self, parts: &[&[u8]]) -> Result<Position, Error> {
        self.shared.append(parts).map(|(position, _)| position)
    }

    /// Like [`Journal::append_parts`], and also gives back the entry as it was written. The bytes are shared
    /// with the entries of the same frame, not copied; holding them holds the frame in memory.
    pub fn append_shared(&self, parts: &[&[u8]]) -> Result<(Position, Bytes), Error> {
        self.shared.append(parts)
    }

    /// The last durable entry, [`Position::NONE`] if there is none.
    pub fn durable(&self) -> Position {
        self.shared.durable()
    }

    /// The oldest entry that is kept, or the one after [`Journal::durable`] if there is none.
    pub fn oldest(&self) -> Position {
        self.shared.oldest()
    }

    /// Waits until something after `after` is durable, at most for `timeout`. Returns what is durable then.
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

    /// Calls `hook` after each frame with what is durable then. It runs on an appending thread: it must not
    /// block and must not append.
    pub fn on_durable(&self, hook: Box<dyn Fn(Position) + Send + Sync>) {
        self.shared.hooks.write().push(hook);
    }

    /// A reader that begins with the entry `from`. It sees durable entries only.
    pub fn reader(&self, from: Position) -> Result<Reader, Error> {
        Reader::new(Arc::clone(&self.shared), from)
    }

    /// Says that recovery needs no entry up to and including `upto`. Their segments are kept for readers as long
    /// as the options say, then reused.
    pub fn release(&self, upto: Position) {
        let mut state = self.shared.state.lock();
        if upto > state.released {
            state.released = upto.min(self.shared.durable());
            self.shared.chores.notify_one();
        }
    }

    /// Seals the end and stops. Dropping the journal does the same, without telling of errors.
    pub fn close(mut self) -> Result<(), Error> {
        self.stop();
        match &self.shared.state.lock().poisoned {
            Some(reason) => Err(Error::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn stop(&mut self) {
        let Some(chores) = self.chores.take() else { return };
        self.shared.state.lock().stopping = true;
        self.shared.chores.notify_one();
        if chores.join().is_err() {
            tracing::error!("the journal's background thread panicked");
        }
        self.shared.seal(&mut self.shared.state.lock());
        // Closing the file is not enough: a process that is being forked at this moment holds a copy of it.
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "could not unlock the journal's directory");
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start_chores(shared: &Arc<Shared>, directory: &Path) -> Result<JoinHandle<()>, Error> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || shared.run_chores())
        .map_err(Error::io("start the background thread for", directory))
}

/// Two writers would destroy each other's segments. The lock goes with the process, however it ends.
fn lock_directory(directory: &Path) -> Result<File, Error> {
    let file = File::open(directory).map_err(Error::io("open the directory", directory))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::InUse { directory: directory.to_path_buf() }),
        Err(std::fs::TryLockError::Error(error)) => Err(Error::io("lock the directory", directory)(error)),
    }
}

fn file_names(directory: &Path) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for item in std::fs::read_dir(directory).map_err(Error::io("list", directory))? {
        let item = item.map_err(Error::io("list", directory))?;
        names.extend(item.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}
