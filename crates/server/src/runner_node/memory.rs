//! What a runner node remembers of its cluster, so that it can start without its control node.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use minicbor::{Decode, Encode};
use model::codec;

/// File in the directory of the cluster.
const FILE: &str = "control";

#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub(super) struct Memory {
    /// Addresses of control nodes.
    #[n(0)]
    pub control: Vec<String>,
    /// Number of shards of the cluster. Absent before the first connection.
    #[n(1)]
    pub shards: Option<u16>,
}

impl Memory {
    /// An unreadable file is like none: the control node tells everything again.
    pub fn read(directory: &Path) -> Self {
        let bytes = fs::read(directory.join(FILE)).unwrap_or_default();
        codec::decode(&bytes).unwrap_or_default()
    }

    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let (path, unfinished) = (directory.join(FILE), directory.join("control.tmp"));
        let mut file = File::create(&unfinished)?;
        file.write_all(&codec::encode(self))?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        File::open(directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept_and_a_damaged_file_is_like_none() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Memory::read(directory.path()), Memory::default());
        let memory = Memory { control: vec!["control:7071".to_owned()], shards: Some(4) };
        memory.write(directory.path()).unwrap();
        assert_eq!(Memory::read(directory.path()), memory);
        fs::write(directory.path().join(FILE), "damaged").unwrap();
        assert_eq!(Memory::read(directory.path()), Memory::default());
    }
}
