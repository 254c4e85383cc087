//! The data directory: lock, format version and identity of the node.

use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use model::id::{Incarnation, NodeId};

use crate::Error;

const FORMAT_VERSION: u32 = 1;
const LOCK: &str = "lock";
const FORMAT: &str = "format";

/// A data directory locked by this process. Runner nodes have one without a store in it.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    lock: File,
    node: NodeId,
    incarnation: Incarnation,
}

impl DataDirectory {
    /// Creates the directory if necessary, locks it, and increments its incarnation.
    pub fn open(path: &Path) -> Result<Self, Error> {
        create(path)?;
        let lock = lock(path)?;
        let identity = match read_identity(path)? {
            Some(identity) => Identity { incarnation: identity.incarnation + 1, ..identity },
            None => Identity { node: random_node_id(), incarnation: 1 },
        };
        write_identity(path, &identity)?;
        let (node, incarnation) = (NodeId(identity.node), Incarnation(identity.incarnation));
        Ok(Self { path: path.to_path_buf(), lock, node, incarnation })
    }

    /// Node and incarnation of a directory that another process may have locked. `None`: it was not opened yet.
    pub fn identity(path: &Path) -> Result<Option<(NodeId, Incarnation)>, Error> {
        let identity = read_identity(path)?;
        Ok(identity.map(|identity| (NodeId(identity.node), Incarnation(identity.incarnation))))
    }

    /// Chosen when the directory was created.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Number of this start.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    pub(crate) fn tables(&self) -> PathBuf {
        self.path.join("tables")
    }
}

impl Drop for DataDirectory {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that is being forked right now has a copy of the descriptor.
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, directory = %self.path.display(), "cannot unlock the data directory");
        }
    }
}

fn create(path: &Path) -> Result<(), Error> {
    if path.exists() && !path.is_dir() {
        return Err(Error::NotADirectory { directory: path.to_path_buf() });
    }
    std::fs::create_dir_all(path).map_err(|error| convert_io_error(path, "create the directory", path, &error))
}

fn lock(directory: &Path) -> Result<File, Error> {
    let path = directory.join(LOCK);
    let failed = |error| convert_io_error(directory, "open", &path, &error);
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = open.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // The other process may not have written its pid yet. Then the error is without a pid.
            let _ = file.read_to_string(&mut pid);
            return Err(Error::InUse { directory: directory.to_path_buf(), pid: pid.trim().parse().ok() });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    file.set_len(0).map_err(failed)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(failed)?;
    Ok(file)
}

struct Identity {
    node: u64,
    incarnation: u64,
}

fn read_identity(directory: &Path) -> Result<Option<Identity>, Error> {
    let path = directory.join(FORMAT);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::InvalidData => return Err(malformed(&path, "it is not UTF-8 text")),
        Err(error) => return Err(convert_io_error(directory, "read", &path, &error)),
    };
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    };
    let found = field("format").ok_or_else(|| malformed(&path, "the line `format` is missing or has no number"))?;
    if found > u64::from(FORMAT_VERSION) {
        let found = u32::try_from(found).unwrap_or(u32::MAX);
        return Err(Error::NewerFormat { directory: directory.to_path_buf(), found, supported: FORMAT_VERSION });
    }
    let node = field("node").ok_or_else(|| malformed(&path, "the line `node` is missing or has no number"))?;
    let incarnation =
        field("incarnation").ok_or_else(|| malformed(&path, "the line `incarnation` is missing or has no number"))?;
    Ok(Some(Identity { node, incarnation }))
}

fn write_identity(directory: &Path, identity: &Identity) -> Result<(), Error> {
    let path = directory.join(FORMAT);
    let unfinished = directory.join("format.tmp");
    let text = format!("format {FORMAT_VERSION}\nnode {}\nincarnation {}\n", identity.node, identity.incarnation);
    let write = || -> io::Result<()> {
        let mut file = File::create(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, &path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(|error| convert_io_error(directory, "write", &path, &error))
}

/// Random 64-bit node ID: no authority assigns them, and a collision is unlikely.
fn random_node_id() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    RandomState::new().hash_one((now.as_nanos(), std::process::id()))
}

fn malformed(file: &Path, reason: &str) -> Error {
    Error::Malformed { file: file.to_path_buf(), reason: reason.to_owned() }
}

/// Converts an I/O error, with specific variants for those that an operator can fix.
pub(crate) fn convert_io_error(directory: &Path, action: &'static str, path: &Path, error: &io::Error) -> Error {
    let directory = directory.to_path_buf();
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Error::NotWritable { directory, reason: error.to_string() }
        }
        ErrorKind::NotADirectory => Error::NotADirectory { directory },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::NoSpace { directory },
        _ => Error::Io { action, path: path.to_path_buf(), reason: error.to_string() },
    }
}
