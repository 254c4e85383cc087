//! Blobs in a bucket.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use blobs::workers::{Manifest, ManifestEntry};
use blobs::{Blobs, Credentials, Error, Location, Options, S3, Secret};
use bytes::Bytes;
use model::blob::BlobId;
use tempfile::TempDir;

use crate::bucket::{self, Bucket};
use crate::support::{content, files_below, much_later, noise, pieces, read_all};

struct Remote {
    work: TempDir,
    bucket: Arc<Bucket>,
    options: Options,
}

impl Remote {
    async fn new() -> Self {
        let (bucket, endpoint) = bucket::serve().await;
        let work = tempfile::tempdir().unwrap();
        let location = Location::S3(S3 {
            bucket: bucket::NAME.to_owned(),
            endpoint: Some(endpoint),
            region: Some("nowhere-1".to_owned()),
            prefix: "team/outlast".to_owned(),
            credentials: Credentials::Explicit {
                access_key_id: "key".to_owned(),
                secret_access_key: Secret("hush".to_owned()),
            },
        });
        let options = Options::new(location, work.path());
        Self { work, bucket, options }
    }

    async fn open(&self) -> Blobs {
        Blobs::open(self.options.clone()).await.unwrap()
    }

    fn key(id: BlobId) -> String {
        let hex = id.hex();
        format!("team/outlast/blobs/{}/{}/{hex}", &hex[..2], &hex[2..4])
    }
}

// FEATURES: C11
#[tokio::test(flavor = "multi_thread")]
async fn content_round_trips_through_the_bucket() {
    let remote = Remote::new().await;
    let blobs = remote.open().await;
    // The last two are uploaded in parts.
    for original in [Bytes::new(), noise(5000, 1), noise(1_100_000, 1), noise(20_000_000, 2)] {
        let id = blobs.put(original.clone()).await.unwrap();
        assert!(content(&blobs, id).await.unwrap() == original);
        assert_eq!(blobs.stat(id).await.unwrap().unwrap().bytes, original.len() as u64);
        assert!(remote.bucket.objects.lock().await.contains_key(&Remote::key(id)));
    }
    assert!(remote.bucket.uploads.lock().await.is_empty());
    let id = BlobId::of(&noise(20_000_000, 2));
    assert_eq!(blobs.missing(&[id, BlobId::of(b"x")]).await.unwrap(), [BlobId::of(b"x")]);
    let part = read_all(blobs.read_range(id, 100..200).await.unwrap()).await.unwrap();
    assert_eq!(part, noise(20_000_000, 2)[100..200]);
    assert_eq!(files_below(&remote.work.path().join("scratch")), [] as [&Path; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_in_pieces_reach_the_bucket() {
    let remote = Remote::new().await;
    let original = noise(3_000_000, 1);
    let id = BlobId::of(&original);
    let blobs = remote.open().await;
    blobs.begin_upload(id, 3_000_000).await.unwrap();
    blobs.append(id, 0, pieces(&original.slice(..1_000_000), 9999)).await.unwrap();
    drop(blobs);
    let blobs = remote.open().await;
    let progress = blobs.begin_upload(id, 3_000_000).await.unwrap();
    assert_eq!(progress.received, 1_000_000);
    assert!(blobs.append(id, 1_000_000, pieces(&original.slice(1_000_000..), 9999)).await.unwrap().done);
    assert!(content(&blobs, id).await.unwrap() == original);
}

// FEATURES: C11
#[tokio::test(flavor = "multi_thread")]
async fn damage_in_the_bucket_is_detected() {
    let remote = Remote::new().await;
    let blobs = remote.open().await;
    let original = noise(100_000, 1);
    let id = blobs.put(original.clone()).await.unwrap();
    let intact = remote.bucket.objects.lock().await[&Remote::key(id)].to_vec();
    for position in [0, 10, 31, 40, 50_000, intact.len() - 1] {
        let mut damaged = intact.clone();
        damaged[position] ^= 1;
        remote.bucket.objects.lock().await.insert(Remote::key(id), damaged.into());
        assert!(matches!(content(&blobs, id).await, Err(Error::Damaged { .. })), "{position}");
    }
    for bytes in [0, 10, 32, 1000] {
        remote.bucket.objects.lock().await.insert(Remote::key(id), Bytes::copy_from_slice(&intact[..bytes]));
        assert!(matches!(content(&blobs, id).await, Err(Error::Damaged { .. })), "{bytes}");
        assert!(matches!(blobs.stat(id).await, Err(Error::Damaged { .. })), "{bytes}");
    }
    blobs.put(original.clone()).await.unwrap();
    assert!(content(&blobs, id).await.unwrap() == original);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_and_garbage_collection_work_on_a_bucket() {
    let remote = Remote::new().await;
    let blobs = remote.open().await;
    let content = noise(1000, 1);
    let blob = blobs.put(content.clone()).await.unwrap();
    for seed in 2..12 {
        blobs.put(noise(1000, seed)).await.unwrap();
    }
    let manifest = Manifest {
        name: "one".to_owned(),
        version: "1".to_owned(),
        files: [("file".to_owned(), ManifestEntry::File { blob, bytes: 1000, executable: true })].into(),
        env: [].into(),
        functions: Vec::new(),
    };
    let worker = blobs.register(manifest).await.unwrap();
    assert_eq!(blobs.workers().await.unwrap()[0].id, worker);
    let bundle = blobs.materialise_worker(worker).await.unwrap();
    assert!(std::fs::read(bundle.path().join("file")).unwrap() == content);
    let swept = blobs.begin_collection().unwrap().sweep(|_| false, much_later()).await.unwrap();
    assert_eq!((swept.deleted, swept.retained), (10, 1));
    drop(bundle);
    blobs.remove_worker(worker).await.unwrap();
    let swept = blobs.begin_collection().unwrap().sweep(|_| false, much_later()).await.unwrap();
    assert_eq!((swept.deleted, swept.retained), (1, 0));
    assert!(remote.bucket.objects.lock().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_requests_are_retried() {
    let remote = Remote::new().await;
    let blobs = remote.open().await;
    remote.bucket.failures.store(2, Ordering::SeqCst);
    let id = blobs.put(Bytes::from_static(b"hello")).await.unwrap();
    remote.bucket.failures.store(2, Ordering::SeqCst);
    assert_eq!(content(&blobs, id).await.unwrap(), b"hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_upload_is_reported_and_leaves_nothing() {
    let remote = Remote::new().await;
    let blobs = remote.open().await;
    remote.bucket.refuses_parts.store(1, Ordering::SeqCst);
    let error = blobs.put(noise(3_000_000, 1)).await.unwrap_err();
    assert!(matches!(error, Error::Storage { .. }), "{error}");
    assert!(remote.bucket.uploads.lock().await.is_empty());
    assert_eq!(files_below(&remote.work.path().join("scratch")), [] as [&Path; 0]);
    remote.bucket.refuses_parts.store(0, Ordering::SeqCst);
    blobs.put(noise(3_000_000, 1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_do_not_appear_in_debug_output() {
    let remote = Remote::new().await;
    assert!(!format!("{:?}", remote.options).contains("hush"));
    let blobs = remote.open().await;
    assert!(!format!("{blobs:?}").contains("hush"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_node_serves_runner_nodes_from_a_bucket() {
    use blobs::peer::ObjectPeer;
    use futures_util::TryStreamExt;
    let remote = Remote::new().await;
    let control = remote.open().await;
    let service = control.serve_peer(model::id::NodeId(1));
    let directory = tempfile::tempdir().unwrap();
    let location = Location::Peer(Arc::new(service.clone()));
    let runner = Blobs::open(Options::new(location, directory.path())).await.unwrap();
    let (fetched, sent) = (noise(3_000_000, 1), noise(9_000_000, 2));
    let id = control.put(fetched.clone()).await.unwrap();
    assert!(content(&runner, id).await.unwrap() == fetched);
    let stored = remote.bucket.objects.lock().await[&Remote::key(id)].clone();
    for offset in [0, 1, 31, 1_000_000, stored.len() - 1, stored.len()] {
        let object = service.get(id, offset as u64).await.unwrap().unwrap();
        let rest: Vec<Bytes> = object.content.try_collect().await.unwrap();
        assert_eq!(object.stored_bytes, stored.len() as u64);
        assert!(rest.concat() == stored[offset..], "{offset}");
    }
    assert!(service.get(id, stored.len() as u64 + 1).await.is_err());
    let id = runner.put(sent.clone()).await.unwrap();
    assert!(remote.bucket.objects.lock().await.contains_key(&Remote::key(id)));
    assert!(content(&control, id).await.unwrap() == sent);
    assert_eq!(files_below(&remote.work.path().join("scratch")), [] as [&Path; 0]);
}
