//! Collection of garbage: everything that may go, nothing that may not.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use blobs::{Blobs, Error, Swept};
use bytes::Bytes;
use model::blob::BlobId;
use parking_lot::Mutex;
use tokio::sync::RwLock;

use crate::common::{Fixture, content, much_later, noise};

async fn sweep(blobs: &Blobs, in_use: &[BlobId]) -> Swept {
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
async fn what_nobody_refers_to_goes() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let (used, unused) = (put(&blobs, "used").await, put(&blobs, "unused").await);
    let bytes = blobs.stat(unused).await.unwrap().unwrap().stored_bytes;
    let swept = sweep(&blobs, &[used]).await;
    assert_eq!(swept, Swept { deleted: 1, deleted_bytes: bytes, kept: 1, abandoned_uploads: 0 });
    assert!(has(&blobs, used).await && !has(&blobs, unused).await);
    assert!(matches!(blobs.materialise(unused).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn many_go_in_one_collection() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    for number in 0..1100 {
        put(&blobs, &number.to_string()).await;
    }
    assert_eq!(sweep(&blobs, &[]).await.deleted, 1100);
    assert_eq!(sweep(&blobs, &[]).await, Swept::default());
}

#[tokio::test]
async fn what_is_young_stays() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = put(&blobs, "young").await;
    let soon = SystemTime::now() + fixture.options.grace - Duration::from_secs(60);
    let swept = blobs.begin_collection().unwrap().sweep(|_| false, soon).await.unwrap();
    assert_eq!((swept.deleted, swept.kept), (0, 1));
    assert!(has(&blobs, id).await);
}

// FEATURES: C11
#[tokio::test]
async fn what_was_asked_for_put_or_read_since_the_beginning_stays() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let asked = put(&blobs, "asked").await;
    let again = put(&blobs, "again").await;
    let read = put(&blobs, "read").await;
    let uploaded = put(&blobs, "uploaded").await;
    let unused = put(&blobs, "unused").await;
    let collection = blobs.begin_collection().unwrap();
    assert!(blobs.missing(&[asked]).await.unwrap().is_empty());
    put(&blobs, "again").await;
    let new = put(&blobs, "new").await;
    content(&blobs, read).await.unwrap();
    assert!(blobs.begin_upload(uploaded, 8).await.unwrap().done);
    let swept = collection.sweep(|_| false, much_later()).await.unwrap();
    assert_eq!((swept.deleted, swept.kept), (1, 5));
    for id in [asked, again, new, read, uploaded] {
        assert!(has(&blobs, id).await);
    }
    assert!(!has(&blobs, unused).await);
}

#[tokio::test]
async fn what_is_pinned_stays_until_it_is_not() {
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
async fn one_collection_at_a_time_and_one_dropped_does_nothing() {
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
async fn strangers_in_the_directory_are_left_alone() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let stranger = fixture.directory.path().join("store/blobs/readme.txt");
    put(&blobs, "x").await;
    std::fs::write(&stranger, "not a blob").unwrap();
    assert_eq!(sweep(&blobs, &[]).await.deleted, 1);
    assert!(stranger.exists());
}

#[tokio::test]
async fn abandoned_uploads_go_with_a_collection() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    blobs.begin_upload(BlobId::of(b"x"), 1).await.unwrap();
    assert_eq!(sweep(&blobs, &[]).await.abandoned_uploads, 1);
    assert_eq!(fixture.leftovers(), [] as [&Path; 0]);
}

/// Clients ask, upload, refer and forget all the time; collections run all the time. What a client was told is there is
/// there when its job wants it.
// FEATURES: C11
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_never_loses_what_it_was_told_is_there() {
    const CLIENTS: u64 = 3;
    const ROUNDS: u64 = 200;
    const CONTENTS: u64 = 4;
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let jobs = Arc::new(Mutex::new(HashMap::<BlobId, usize>::new()));
    // To a collection every grace period is over. So none may begin between a client's question and its job, which is
    // what the grace period is for; those that have begun go on.
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
    assert!(collector.await.unwrap() > 0, "nothing was ever collected: this shows nothing");
}
