//! Garbage collection: unreferenced blobs are deleted, protected ones are not.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use blobs::{Blobs, Error, SweepStats};
use bytes::Bytes;
use model::blob::BlobId;
use parking_lot::Mutex;
use tokio::sync::RwLock;

use crate::support::{Fixture, content, much_later, noise};

async fn sweep(blobs: &Blobs, in_use: &[BlobId]) -> SweepStats {
    blobs.begin_collection().unwrap().sweep(|id| in_use.contains(id), much_later()).await.unwrap()
}

async fn put(blobs: &Blobs, text: &str) -> BlobId {
    blobs.put(Bytes::from(text.to_owned())).await.unwrap()
}

async fn has(blobs: &Blobs, id: BlobId) -> bool {
    blobs.stat(id).await.unwrap().is_some()
}

// FEATURES: C11
#[tokio::test]
async fn unreferenced_blobs_are_deleted() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let (used, unused) = (put(&blobs, "used").await, put(&blobs, "unused").await);
    let bytes = blobs.stat(unused).await.unwrap().unwrap().stored_bytes;
    let swept = sweep(&blobs, &[used]).await;
    assert_eq!(swept, SweepStats { deleted: 1, deleted_bytes: bytes, retained: 1, abandoned_uploads: 0 });
    assert!(has(&blobs, used).await && !has(&blobs, unused).await);
    assert!(matches!(blobs.materialise(unused).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn one_collection_deletes_several_batches() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    for number in 0..1100 {
        put(&blobs, &number.to_string()).await;
    }
    assert_eq!(sweep(&blobs, &[]).await.deleted, 1100);
    assert_eq!(sweep(&blobs, &[]).await, SweepStats::default());
}

#[tokio::test]
async fn blobs_within_the_grace_period_are_retained() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = put(&blobs, "young").await;
    let soon = SystemTime::now() + fixture.options.grace - Duration::from_secs(60);
    let swept = blobs.begin_collection().unwrap().sweep(|_| false, soon).await.unwrap();
    assert_eq!((swept.deleted, swept.retained), (0, 1));
    assert!(has(&blobs, id).await);
}

// FEATURES: C11
#[tokio::test]
async fn blobs_queried_put_or_read_since_the_beginning_are_retained() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let queried = put(&blobs, "queried").await;
    let again = put(&blobs, "again").await;
    let read = put(&blobs, "read").await;
    let uploaded = put(&blobs, "uploaded").await;
    let unused = put(&blobs, "unused").await;
    let collection = blobs.begin_collection().unwrap();
    assert!(blobs.missing(&[queried]).await.unwrap().is_empty());
    put(&blobs, "again").await;
    let new = put(&blobs, "new").await;
    content(&blobs, read).await.unwrap();
    assert!(blobs.begin_upload(uploaded, 8).await.unwrap().done);
    let swept = collection.sweep(|_| false, much_later()).await.unwrap();
    assert_eq!((swept.deleted, swept.retained), (1, 5));
    for id in [queried, again, new, read, uploaded] {
        assert!(has(&blobs, id).await);
    }
    assert!(!has(&blobs, unused).await);
}

#[tokio::test]
async fn pinned_blobs_are_retained() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = put(&blobs, "pinned").await;
    let pinned = blobs.materialise(id).await.unwrap();
    assert_eq!(sweep(&blobs, &[]).await.deleted, 0);
    let path = pinned.path().to_path_buf();
    assert!(has(&blobs, id).await && path.exists());
    drop(pinned);
    assert_eq!(sweep(&blobs, &[]).await.deleted, 1);
    assert!(!path.exists());
}

#[tokio::test]
async fn collections_are_exclusive_and_a_dropped_one_deletes_nothing() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = put(&blobs, "x").await;
    let first = blobs.begin_collection().unwrap();
    assert!(matches!(blobs.begin_collection(), Err(Error::Busy { .. })));
    drop(first);
    assert!(has(&blobs, id).await);
    assert_eq!(sweep(&blobs, &[]).await.deleted, 1);
}

#[tokio::test]
async fn foreign_files_in_the_directory_are_left_alone() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let foreign = fixture.directory.path().join("store/blobs/readme.txt");
    put(&blobs, "x").await;
    std::fs::write(&foreign, "not a blob").unwrap();
    assert_eq!(sweep(&blobs, &[]).await.deleted, 1);
    assert!(foreign.exists());
}

#[tokio::test]
async fn a_collection_removes_abandoned_uploads() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    blobs.begin_upload(BlobId::of(b"x"), 1).await.unwrap();
    assert_eq!(sweep(&blobs, &[]).await.abandoned_uploads, 1);
    assert_eq!(fixture.leftovers(), [] as [&Path; 0]);
}

/// Clients query, upload, refer to and release blobs while collections run continuously. A blob reported as present
/// must be present when the client's job reads it.
// FEATURES: C11
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_blob_reported_as_present_is_not_collected() {
    const CLIENTS: u64 = 3;
    const ROUNDS: u64 = 200;
    const CONTENTS: u64 = 4;
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let jobs = Arc::new(Mutex::new(HashMap::<BlobId, usize>::new()));
    // The collections see every grace period as expired. So none may begin between a client's query and its job, which
    // the grace period would ensure; running ones continue.
    let grace = Arc::new(RwLock::new(()));
    let stop = Arc::new(AtomicBool::new(false));
    let collector = {
        let (blobs, jobs, grace, stop) = (blobs.clone(), Arc::clone(&jobs), Arc::clone(&grace), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut deleted = 0;
            while !stop.load(Ordering::Relaxed) {
                let begun = grace.write().await;
                let collection = blobs.begin_collection().unwrap();
                drop(begun);
                let in_use: HashSet<BlobId> = jobs.lock().keys().copied().collect();
                deleted += collection.sweep(|id| in_use.contains(id), much_later()).await.unwrap().deleted;
            }
            deleted
        })
    };
    let clients = (0..CLIENTS).map(|client| {
        let (blobs, jobs, grace) = (blobs.clone(), Arc::clone(&jobs), Arc::clone(&grace));
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                let original = noise(2000, (client + round) % CONTENTS);
                let id = BlobId::of(&original);
                let within = grace.read().await;
                if !blobs.missing(&[id]).await.unwrap().is_empty() {
                    blobs.put(original.clone()).await.unwrap();
                }
                *jobs.lock().entry(id).or_default() += 1;
                drop(within);
                let found = content(&blobs, id).await;
                assert!(found.is_ok_and(|found| found == original), "client {client}, round {round}");
                let mut jobs = jobs.lock();
                let count = jobs.get_mut(&id).unwrap();
                *count -= 1;
                if *count == 0 {
                    jobs.remove(&id);
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    assert!(collector.await.unwrap() > 0, "no blob was ever collected, so the test proves nothing");
}
