//! Full disks: a clear error, no leftover files, and later operations succeed.

use std::path::Path;
use std::process::Command;

use blobs::workers::{Manifest, ManifestEntry};
use blobs::{Blobs, Error};
use model::blob::BlobId;
use tempfile::TempDir;

use crate::support::{content, files_below, noise, options_at, pieces, skip};

/// Mounted tmpfs, unmounted on drop.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    fn new(mebibytes: u32) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self { directory });
        }
        skip("cannot mount a tmpfs (needs root and the mount privilege)");
        None
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    async fn open(&self) -> Blobs {
        Blobs::open(options_at(self.path())).await.unwrap()
    }

    fn free(&self) -> u64 {
        let found = rustix::fs::statvfs(self.path()).unwrap();
        found.f_bavail * found.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.directory.path()).status();
    }
}

fn assert_full(outcome: Result<impl std::fmt::Debug, Error>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
}

// FEATURES: C11
#[tokio::test]
async fn a_put_on_a_full_disk_leaves_nothing() {
    let Some(disk) = SmallDisk::new(8) else { return };
    let blobs = disk.open().await;
    let stored = blobs.put(noise(1_000_000, 1)).await.unwrap();
    let free = disk.free();
    for round in 0..3 {
        assert_full(blobs.put(noise(20_000_000, 2)).await);
        assert_full(blobs.put_stream(pieces(&noise(20_000_000, 3), 100_000)).await);
        assert_eq!(disk.free(), free, "round {round}");
    }
    assert!(content(&blobs, stored).await.unwrap() == noise(1_000_000, 1));
    blobs.put(noise(1_000_000, 4)).await.unwrap();
}

// FEATURES: C11
#[tokio::test]
async fn an_upload_on_a_full_disk_leaves_nothing() {
    let Some(disk) = SmallDisk::new(8) else { return };
    let blobs = disk.open().await;
    let free = disk.free();
    // The disk fills up while receiving, and while packing the received content.
    for bytes in [20_000_000, 5_000_000] {
        let original = noise(bytes, 1);
        let id = BlobId::of(&original);
        blobs.begin_upload(id, bytes as u64).await.unwrap();
        assert_full(blobs.append(id, 0, pieces(&original, 100_000)).await);
        assert_eq!(blobs.upload_progress(id), None);
        assert!(free - disk.free() < 100_000);
    }
    let small = noise(1_000_000, 2);
    blobs.begin_upload(BlobId::of(&small), 1_000_000).await.unwrap();
    assert!(blobs.append(BlobId::of(&small), 0, pieces(&small, 100_000)).await.unwrap().done);
}

#[tokio::test]
async fn materialising_on_a_full_disk_leaves_nothing() {
    let Some(disk) = SmallDisk::new(8) else { return };
    let blobs = disk.open().await;
    // Compresses well.
    let zeros = bytes::Bytes::from(vec![0; 20_000_000]);
    let id = blobs.put(zeros).await.unwrap();
    let entry = ManifestEntry::File { blob: id, bytes: 20_000_000, executable: false };
    let manifest = Manifest {
        name: "large".to_owned(),
        version: "1".to_owned(),
        files: [("file".to_owned(), entry)].into(),
        env: [].into(),
        functions: Vec::new(),
    };
    let worker = blobs.register(manifest).await.unwrap();
    let free = disk.free();
    assert_full(blobs.materialise(id).await);
    assert_full(blobs.materialise_worker(worker).await);
    assert!(free - disk.free() < 100_000);
    assert_eq!(files_below(&disk.path().join("work")).len(), 0);
    let small = blobs.put(noise(1_000_000, 1)).await.unwrap();
    blobs.materialise(small).await.unwrap();
}

#[tokio::test]
async fn an_upload_of_a_runner_node_on_a_full_disk_leaves_nothing() {
    use blobs::peer::{ObjectPeer, PeerError, PeerUpload, PutOffset};
    use futures_util::{StreamExt, stream};
    let Some(disk) = SmallDisk::new(8) else { return };
    let blobs = disk.open().await;
    let free = disk.free();
    let original = noise(20_000_000, 1);
    let elsewhere = tempfile::tempdir().unwrap();
    let id = Blobs::open(options_at(elsewhere.path())).await.unwrap().put(original).await.unwrap();
    let object = std::fs::read(crate::support::stored_at(elsewhere.path(), id)).unwrap();
    let total = object.len() as u64;
    let service = blobs.serve_peer(model::id::NodeId(1));
    for round in 0..3 {
        let content: Vec<_> = object.chunks(300_000).map(|piece| Ok(bytes::Bytes::copy_from_slice(piece))).collect();
        let upload = PeerUpload { stored_bytes: total, offset: 0, content: stream::iter(content).boxed() };
        let error = service.put(id, upload).await.unwrap_err();
        assert!(matches!(&error, PeerError::Failed { reason } if reason.contains("no space left")), "{error}");
        assert_eq!(disk.free(), free, "round {round}");
        assert_eq!(service.put_offset(id, total).await.unwrap(), PutOffset::At(0));
    }
    assert_eq!(blobs.peer_upload_stats().unfinished, 0);
    blobs.put(noise(1_000_000, 2)).await.unwrap();
}
