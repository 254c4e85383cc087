//! Objects in a local directory, durable when written.
//!
//! Reading, listing and deleting go through `object_store`. Writing does not: its local store leaves `name#1` beside
//! the target when it is killed in the middle, which nobody can tell from a write that is going on; and it takes its
//! content in memory, where ours is already in a file on the right disk.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::path::Path as Key;
use parking_lot::RwLock;

use crate::pack::Body;
use crate::scratch::Scratch;
use crate::{Error, tree};

#[derive(Debug)]
pub(crate) struct Local {
    root: PathBuf,
    scratch: Arc<Scratch>,
    /// Held for writing while directories are made, so that nobody reports an object durable in a directory that
    /// is not.
    directories: RwLock<()>,
}

impl Local {
    pub fn new(root: PathBuf, scratch: Arc<Scratch>) -> Self {
        Self { root, scratch, directories: RwLock::new(()) }
    }

    /// Puts an object in its place, whole or not at all. Replaces what is there.
    pub fn publish(&self, key: &Key, body: Body) -> Result<(), Error> {
        let path = self.root.join(key.as_ref());
        let directory = path.parent().unwrap_or(&self.root);
        let file = match body {
            Body::File(file) => file,
            Body::Memory(bytes) => {
                let mut file = self.scratch.file()?;
                file.file.write_all(&bytes).map_err(Error::io("write", &file.path))?;
                file
            }
        };
        file.file.sync_all().map_err(Error::io("sync", &file.path))?;
        if !directory.exists() {
            let _making = self.directories.write();
            tree::create_all_durably(directory)?;
        }
        file.rename(&path).map_err(Error::io("put in place", &path))?;
        tree::sync(directory)?;
        // Somebody else may have made the directory and not be done with it.
        drop(self.directories.read());
        Ok(())
    }
}
