//! Durable writes of objects to a local directory.
//!
//! Reading, listing and deleting use `object_store`. Writing does not: a killed `object_store` write leaves `name#1`
//! beside the target, which looks like a write in progress; and it takes the content from memory, whereas large content
//! is already in a file on the target disk.

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
    /// Write-locked while directories are created, so that no object is reported as durable in a directory that is not.
    directories: RwLock<()>,
}

impl Local {
    pub fn new(root: PathBuf, scratch: Arc<Scratch>) -> Self {
        Self { root, scratch, directories: RwLock::new(()) }
    }

    /// Writes an object atomically and durably. Replaces an existing one.
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
            let _creating = self.directories.write();
            tree::create_all_durably(directory)?;
        }
        file.rename(&path).map_err(Error::io("rename a file to", &path))?;
        tree::sync(directory)?;
        // Another thread may have created the directory and not synced it yet.
        drop(self.directories.read());
        Ok(())
    }
}
