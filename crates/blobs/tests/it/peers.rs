//! Runner nodes: blobs fetched from and uploaded to the store of a control node, with faults in between.

mod network;

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use blobs::peer::{ObjectPeer, PeerError, PeerUpload, PeerUploadStats, PutOffset};
use blobs::workers::{Function, Manifest, ManifestEntry};
use blobs::{Blobs, Error, Globs, Options, OutputLimits};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use model::blob::{BlobId, WorkerId};
use model::id::NodeId;
use proptest::prelude::*;

use self::network::{MIB, NODE, OTHER_NODE, Pair, QUICK};
use crate::support::{content, files_below, much_later, noise, pieces};

#[tokio::test(flavor = "multi_thread")]
async fn content_round_trips_through_a_peer() {
    let pair = Pair::new().await;
    let zeros = Bytes::from(vec![0; 20 * MIB]);
    for original in [Bytes::new(), noise(100, 1), noise(700_000, 2), noise(8 * MIB + 17, 3), zeros] {
        let id = pair.control.put(original.clone()).await.unwrap();
        pair.assert_fetched(&original).await;
        assert_eq!(pair.runner.stat(id).await.unwrap(), pair.control.stat(id).await.unwrap());
        assert!(content(&pair.runner, id).await.unwrap() == original);
    }
    for original in [noise(1000, 11), noise(700_000, 12), noise(8 * MIB + 17, 13), vec![1; 20 * MIB].into()] {
        let id = BlobId::of(&original);
        assert_eq!(pair.runner.missing(&[id]).await.unwrap(), [id]);
        assert_eq!(pair.runner.put(original.clone()).await.unwrap(), id);
        assert_eq!(pair.runner.missing(&[id]).await.unwrap(), []);
        assert!(content(&pair.control, id).await.unwrap() == original);
        // The second upload transfers nothing.
        let uploaded = pair.network.uploaded_bytes.load(Ordering::SeqCst);
        pair.runner.put(original.clone()).await.unwrap();
        assert_eq!(pair.network.uploaded_bytes.load(Ordering::SeqCst), uploaded);
    }
    assert_eq!(pair.stats(), PeerUploadStats { accepted: 4, ..PeerUploadStats::default() });
    assert_eq!(pair.runner_leftovers(), [] as [&Path; 0]);
    assert_eq!(pair.control_fixture.leftovers(), [] as [&Path; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetched_file_is_cached_within_the_limit() {
    let pair = Pair::with(|_| {}, |options| options.cache_bytes_max = 3 * MIB as u64).await;
    let originals: Vec<Bytes> = (0..4).map(|seed| noise(MIB, seed)).collect();
    for original in &originals {
        pair.control.put(original.clone()).await.unwrap();
    }
    pair.assert_fetched(&originals[0]).await;
    pair.assert_fetched(&originals[0]).await;
    assert_eq!(pair.network.gets.load(Ordering::SeqCst), 1);
    for original in &originals {
        pair.assert_fetched(original).await;
    }
    assert!(files_below(&pair.runner_directory.path().join("work/cache")).len() <= 2);
    pair.assert_fetched(&originals[3]).await;
    assert_eq!(pair.network.gets.load(Ordering::SeqCst), 4);
    // Too large for the cache: an error for a file, a direct stream for a reader.
    let large = noise(4 * MIB, 9);
    let id = pair.control.put(large.clone()).await.unwrap();
    assert!(matches!(pair.runner.materialise(id).await, Err(Error::CacheFull { .. })));
    assert!(content(&pair.runner, id).await.unwrap() == large);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_file_is_available_without_the_control_node_after_a_restart() {
    let pair = Pair::new().await;
    let original = noise(MIB, 1);
    pair.control.put(original.clone()).await.unwrap();
    pair.assert_fetched(&original).await;
    let Pair { network, runner, runner_options, runner_directory: _directory, .. } = pair;
    network.lost.store(usize::MAX, Ordering::SeqCst);
    drop(runner);
    let runner = Blobs::open(runner_options).await.unwrap();
    let pinned = runner.materialise(BlobId::of(&original)).await.unwrap();
    assert!(fs::read(pinned.path()).unwrap() == original);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_fetches_share_one_download() {
    let pair = Pair::new().await;
    let original = noise(8 * MIB, 1);
    let id = pair.control.put(original.clone()).await.unwrap();
    let fetches = (0..16).map(|_| pair.runner.materialise(id));
    for pinned in futures_util::future::join_all(fetches).await {
        assert!(fs::read(pinned.unwrap().path()).unwrap() == original);
    }
    assert_eq!(pair.network.gets.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_blob_and_a_missing_control_node_are_different_errors() {
    let pair = Pair::new().await;
    let id = BlobId::of(b"missing");
    let worker = WorkerId::of(b"missing");
    assert!(matches!(pair.runner.materialise(id).await, Err(Error::NotFound { .. })));
    assert!(matches!(pair.runner.read(id).await, Err(Error::NotFound { .. })));
    assert_eq!(pair.runner.stat(id).await.unwrap(), None);
    assert!(matches!(pair.runner.materialise_worker(worker).await, Err(Error::WorkerNotFound { .. })));

    pair.network.lost.store(usize::MAX, Ordering::SeqCst);
    let before = pair.network.requests.load(Ordering::SeqCst);
    let error = pair.runner.materialise(id).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(error.code(), "control_node_unreachable");
    assert_eq!(pair.network.requests.load(Ordering::SeqCst) - before, QUICK.attempts_max as usize);
    assert!(matches!(pair.runner.materialise_worker(worker).await, Err(Error::Unreachable { .. })));
    assert!(matches!(pair.runner.missing(&[id]).await, Err(Error::Unreachable { .. })));
    assert!(matches!(pair.runner.stat(id).await, Err(Error::Unreachable { .. })));
    assert!(matches!(pair.runner.put(noise(10, 1)).await, Err(Error::Unreachable { .. })));
    assert!(matches!(pair.runner.put_stream(pieces(&noise(3 * MIB, 1), MIB)).await, Err(Error::Unreachable { .. })));
    assert_eq!(pair.runner_leftovers(), [] as [&Path; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absence_shorter_than_the_retries_is_not_noticed() {
    let pair = Pair::new().await;
    let (fetched, sent) = (noise(2 * MIB, 1), noise(2 * MIB, 2));
    pair.control.put(fetched.clone()).await.unwrap();
    pair.network.lost.store(5, Ordering::SeqCst);
    pair.assert_fetched(&fetched).await;
    pair.network.lost.store(5, Ordering::SeqCst);
    // `put_stream` asks nothing before it uploads.
    let (id, _) = pair.runner.put_stream(pieces(&sent, MIB)).await.unwrap();
    assert!(content(&pair.control, id).await.unwrap() == sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_download_resumes_where_it_was_cut() {
    for silently in [false, true] {
        let pair = Pair::new().await;
        let original = noise(8 * MIB, 1);
        let id = pair.control.put(original.clone()).await.unwrap();
        let cuts = vec![0, MIB as u64, 3, 2 * MIB as u64 + 5, 10];
        pair.network.set(|faults| (faults.cut_downloads, faults.cut_silently) = (cuts, silently));
        pair.assert_fetched(&original).await;
        assert_eq!(pair.network.gets.load(Ordering::SeqCst), 6);
        let stored = pair.control.stat(id).await.unwrap().unwrap().stored_bytes;
        // Less than two whole downloads after five cuts: nothing was received twice.
        let second = stored - 10;
        let third = second - (2 * MIB as u64 + 5);
        let expected = stored + second + third + (third - 3) + 2 * (third - 3 - MIB as u64);
        assert_eq!(pair.network.downloaded_bytes.load(Ordering::SeqCst), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_hangs_is_resumed() {
    let pair = Pair::with(|_| {}, |options| options.peer_retry.stall_timeout = Duration::from_millis(100)).await;
    let original = noise(4 * MIB, 1);
    pair.control.put(original.clone()).await.unwrap();
    pair.network.set(|faults| faults.hang_after = Some(1_500_000));
    pair.assert_fetched(&original).await;
    assert_eq!(pair.network.gets.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_always_cut_is_given_up() {
    let pair = Pair::new().await;
    let original = noise(2 * MIB, 1);
    let id = pair.control.put(original.clone()).await.unwrap();
    pair.network.set(|faults| faults.cut_downloads = vec![1; 1000]);
    assert!(matches!(pair.runner.materialise(id).await, Err(Error::Unreachable { .. })));
    assert_eq!(pair.network.gets.load(Ordering::SeqCst), QUICK.attempts_max as usize);
    assert_eq!(pair.runner_leftovers(), [] as [&Path; 0]);
    // Each cut with progress of a piece is forgiven.
    pair.network.set(|faults| faults.cut_downloads = vec![260 << 10; 1000]);
    pair.assert_fetched(&original).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_arrives_damaged_is_repeated() {
    let pair = Pair::new().await;
    let original = noise(2 * MIB, 1);
    let id = pair.control.put(original.clone()).await.unwrap();
    for flip in [0, 20, 40, MIB as u64, 2 * MIB as u64] {
        pair.network.set(|faults| faults.flips = vec![flip, flip]);
        pair.assert_fetched(&original).await;
        assert!(fs::remove_dir_all(pair.runner_directory.path().join("work/cache/blobs")).is_ok());
    }
    pair.network.set(|faults| faults.extended = 2);
    pair.assert_fetched(&original).await;
    fs::remove_dir_all(pair.runner_directory.path().join("work/cache/blobs")).unwrap();
    pair.network.set(|faults| faults.flips = vec![100; 3]);
    assert!(matches!(pair.runner.materialise(id).await, Err(Error::Damaged { .. })));
    // Nothing is wrong with the object itself.
    assert_eq!(pair.control.missing(&[id]).await.unwrap(), []);
    assert_eq!(pair.runner_leftovers(), [] as [&Path; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_damaged_at_the_control_node_becomes_missing_there() {
    let pair = Pair::new().await;
    let original = noise(3 * MIB, 1);
    let id = pair.control.put(original.clone()).await.unwrap();
    let path = pair.control_fixture.stored(id);
    let mut bytes = fs::read(&path).unwrap();
    bytes[2 * MIB] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(matches!(pair.runner.materialise(id).await, Err(Error::Damaged { .. })));
    assert_eq!(pair.control.missing(&[id]).await.unwrap(), [id]);
    // A runner node with the same content repairs it.
    pair.runner.put(original.clone()).await.unwrap();
    pair.assert_fetched(&original).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_upload_resumes_where_it_was_cut() {
    for silently in [false, true] {
        let pair = Pair::new().await;
        let original = noise(8 * MIB, 1);
        let cuts = vec![0, 3 * MIB as u64 + 1, 5, MIB as u64 + 7];
        pair.network.set(|faults| (faults.cut_uploads, faults.cut_silently) = (cuts, silently));
        let id = pair.runner.put(original.clone()).await.unwrap();
        assert!(content(&pair.control, id).await.unwrap() == original);
        let stored = pair.control.stat(id).await.unwrap().unwrap().stored_bytes;
        let second = stored - (MIB as u64 + 7);
        let expected = stored + second + (second - 5) + 2 * (second - 5 - (3 * MIB as u64 + 1));
        assert_eq!(pair.network.uploaded_bytes.load(Ordering::SeqCst), expected);
        assert_eq!(pair.stats(), PeerUploadStats { accepted: 1, ..PeerUploadStats::default() });
        assert_eq!(pair.control_fixture.leftovers(), [] as [&Path; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_does_not_repeat_the_upload() {
    let pair = Pair::new().await;
    pair.network.set(|faults| faults.lose_put_answer = true);
    let original = noise(4 * MIB, 1);
    let id = pair.runner.put(original).await.unwrap();
    let stored = pair.control.stat(id).await.unwrap().unwrap().stored_bytes;
    assert_eq!(pair.network.uploaded_bytes.load(Ordering::SeqCst), stored);
    assert_eq!(pair.stats().accepted, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_upload_ends_with_its_control_node() {
    let pair = Pair::new().await;
    let original = noise(4 * MIB, 1);
    let id = BlobId::of(&original);
    let object = Pair::stored_object(&original).await;
    let total = object.len() as u64;
    let service = pair.control.serve_peer(NODE);
    assert_eq!(service.put_offset(id, total).await.unwrap(), PutOffset::At(0));
    assert!(pair.send(id, total, 0, &object[..MIB]).await.is_err());
    assert_eq!(service.put_offset(id, total).await.unwrap(), PutOffset::At(MIB as u64));
    assert_eq!(pair.send(id, total, 5, &object[5..]).await, Err(PeerError::WrongOffset { expected: MIB as u64 }));
    // Another runner node has its own upload.
    assert_eq!(pair.control.serve_peer(OTHER_NODE).put_offset(id, total).await.unwrap(), PutOffset::At(0));
    let stats = PeerUploadStats { unfinished: 1, unfinished_bytes: total, ..PeerUploadStats::default() };
    assert_eq!(pair.stats(), PeerUploadStats { received_bytes: MIB as u64, ..stats });
    // A restart discards unfinished uploads; the runner node begins again.
    let Pair { control_fixture, control, network, runner, runner_options, .. } = pair;
    drop((network, runner, runner_options, service, control));
    let control = control_fixture.open().await;
    assert_eq!(control.serve_peer(NODE).put_offset(id, total).await.unwrap(), PutOffset::At(0));
    assert_eq!(control_fixture.leftovers(), [] as [&Path; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_connection_does_not_block_the_next_request() {
    let pair = Pair::new().await;
    let original = noise(4 * MIB, 1);
    let id = BlobId::of(&original);
    let object = Pair::stored_object(&original).await;
    let total = object.len() as u64;
    let service = pair.control.serve_peer(NODE);
    let start = stream::iter([Ok(object.slice(..MIB))]);
    let upload = PeerUpload { stored_bytes: total, offset: 0, content: start.chain(stream::pending()).boxed() };
    let dead = tokio::spawn({
        let service = service.clone();
        async move { service.put(id, upload).await }
    });
    let deadline = Instant::now() + Duration::from_secs(20);
    while pair.stats().received_bytes < MIB as u64 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(service.put_offset(id, total).await.unwrap(), PutOffset::At(MIB as u64));
    assert!(matches!(dead.await.unwrap(), Err(PeerError::Failed { .. })));
    pair.send(id, total, MIB as u64, &object[MIB..]).await.unwrap();
    assert!(content(&pair.control, id).await.unwrap() == original);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_uploads_of_one_blob_succeed() {
    let pair = Pair::new().await;
    let original = noise(8 * MIB, 1);
    let id = BlobId::of(&original);
    let object = Pair::stored_object(&original).await;
    let uploads = (0..6).map(|node| {
        let service = pair.control.serve_peer(NodeId(node));
        let content =
            stream::iter(object.chunks(MIB).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect::<Vec<_>>());
        let upload = PeerUpload { stored_bytes: object.len() as u64, offset: 0, content: content.boxed() };
        async move { service.put(id, upload).await }
    });
    for upload in futures_util::future::join_all(uploads).await {
        upload.unwrap();
    }
    assert!(content(&pair.control, id).await.unwrap() == original);
    assert_eq!(pair.stats().unfinished, 0);
    assert_eq!(pair.control_fixture.leftovers(), [] as [&Path; 0]);
}

/// Replaces the sizes in the header of a stored object and its checksum.
fn forge(object: &Bytes, plain_bytes: u64) -> Vec<u8> {
    let mut forged = object.to_vec();
    forged[8..16].copy_from_slice(&plain_bytes.to_le_bytes());
    let crc = crc32c::crc32c(&forged[..28]);
    forged[28..32].copy_from_slice(&crc.to_le_bytes());
    forged
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lying_runner_node_is_refused_and_leaves_nothing() {
    let pair = Pair::with(|options| options.blob_bytes_max = 32 * MIB as u64, |_| {}).await;
    let original = noise(2 * MIB, 1);
    let id = BlobId::of(&original);
    let object = Pair::stored_object(&original).await;
    let other = Pair::stored_object(&noise(2 * MIB, 2)).await;
    let bomb = Pair::stored_object(&Bytes::from(vec![0; 64 * MIB])).await;
    let mut flipped = object.to_vec();
    flipped[MIB] ^= 1;
    let mut padded = object.to_vec();
    padded.extend_from_slice(&[0; 100]);
    let mut bad_header = object.to_vec();
    bad_header[3] ^= 1;
    let lies: Vec<(&str, Vec<u8>)> = vec![
        ("wrong content", other.to_vec()),
        ("a flipped bit", flipped),
        ("a garbage header", bad_header),
        ("garbage", noise(MIB, 5).to_vec()),
        ("nothing but a short text", b"hello".to_vec()),
        ("nothing", Vec::new()),
        ("extra bytes", padded),
        ("content above the limit", bomb.to_vec()),
        ("a bomb with a small size in its header", forge(&bomb, 5)),
        ("a larger size in its header", forge(&object, 3 * MIB as u64)),
        ("a truncated object", object[..MIB].to_vec()),
    ];
    let count = lies.len() as u64;
    for (what, bytes) in lies {
        let error = pair.send(id, bytes.len() as u64, 0, &bytes).await.unwrap_err();
        assert!(matches!(error, PeerError::Rejected { .. } | PeerError::TooLarge { .. }), "{what}: {error:?}");
        // The same in two requests, verified at the end.
        if bytes.len() > 40 {
            let half = bytes.len() / 2;
            let first = pair.send(id, bytes.len() as u64, 0, &bytes[..half]).await.unwrap_err();
            if matches!(first, PeerError::Failed { .. }) {
                let error = pair.send(id, bytes.len() as u64, half as u64, &bytes[half..]).await.unwrap_err();
                assert!(matches!(error, PeerError::Rejected { .. } | PeerError::TooLarge { .. }), "{what}: {error:?}");
            }
        }
        assert_eq!(pair.stats().unfinished, 0, "{what}");
        assert_eq!(pair.control_fixture.leftovers(), [] as [&Path; 0], "{what}");
    }
    // More bytes than announced, and an announcement above all limits.
    assert!(matches!(pair.send(id, MIB as u64, 0, &object).await, Err(PeerError::Rejected { .. })));
    assert!(matches!(pair.send(id, 1 << 40, 0, &object).await, Err(PeerError::TooLarge { .. })));
    assert!(pair.stats().rejected >= count + 2);
    assert_eq!(pair.control.missing(&[id]).await.unwrap(), [id]);
    assert_eq!(pair.control_fixture.leftovers(), [] as [&Path; 0]);
    pair.send(id, object.len() as u64, 0, &object).await.unwrap();
    assert!(content(&pair.control, id).await.unwrap() == original);
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_uploads_are_limited_and_expire() {
    let limits = |options: &mut Options| {
        options.peer_uploads.uploads_per_peer_max = 2;
        options.peer_uploads.uploads_max = 3;
        options.peer_uploads.bytes_per_peer_max = 10_000;
        options.peer_uploads.bytes_max = 15_000;
    };
    let pair = Pair::with(limits, |_| {}).await;
    let begin = |node: NodeId, number: u64, bytes: u64| {
        let (service, id) = (pair.control.serve_peer(node), BlobId::of(&number.to_le_bytes()));
        async move {
            let upload = PeerUpload { stored_bytes: bytes, offset: 0, content: stream::empty().boxed() };
            service.put(id, upload).await.unwrap_err()
        }
    };
    let begun = |error: &PeerError| matches!(error, PeerError::Failed { .. });
    let busy = |error: &PeerError| matches!(error, PeerError::Busy { .. });
    assert!(matches!(begin(NODE, 0, 10_001).await, PeerError::TooLarge { .. }));
    assert!(begun(&begin(NODE, 1, 6000).await));
    // A repeated request counts once.
    assert!(begun(&begin(NODE, 1, 6000).await));
    assert!(busy(&begin(NODE, 2, 4001).await));
    assert!(begun(&begin(NODE, 2, 4000).await));
    assert!(busy(&begin(NODE, 3, 0).await));
    assert!(busy(&begin(OTHER_NODE, 4, 5001).await));
    assert!(begun(&begin(OTHER_NODE, 4, 5000).await));
    assert!(busy(&begin(NodeId(9), 5, 0).await));
    assert_eq!((pair.stats().unfinished, pair.stats().unfinished_bytes), (3, 15_000));
    assert_eq!(pair.control.remove_abandoned_uploads(std::time::SystemTime::now()).await.unwrap(), 0);
    assert_eq!(pair.control.remove_abandoned_uploads(much_later()).await.unwrap(), 3);
    assert_eq!(pair.stats(), PeerUploadStats { expired: 3, ..PeerUploadStats::default() });
    assert!(begun(&begin(NODE, 3, 10_000).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uploaded_blob_is_protected_from_collection() {
    let pair = Pair::new().await;
    // The grace period after the start is over for the sweep, but not that of the upload.
    let collection = pair.control.begin_collection().unwrap();
    let id = pair.runner.put(noise(2 * MIB, 1)).await.unwrap();
    let stats = collection.sweep(|_| false, much_later()).await.unwrap();
    assert_eq!((stats.deleted, stats.retained), (0, 1));
    assert_eq!(pair.runner.missing(&[id]).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_the_whole_store_is_refused_at_a_runner_node() {
    let pair = Pair::new().await;
    let manifest = Manifest {
        name: "w".to_owned(),
        version: "1".to_owned(),
        files: [].into(),
        env: [].into(),
        functions: Vec::new(),
    };
    let before = pair.network.requests.load(Ordering::SeqCst);
    let errors = [
        pair.runner.begin_collection().unwrap_err(),
        pair.runner.workers().await.unwrap_err(),
        pair.runner.register(manifest).await.unwrap_err(),
        pair.runner.remove_worker(WorkerId::of(b"x")).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::NotAtThisNode { .. }), "{error}");
        assert!(error.to_string().contains("control node"), "{error}");
    }
    assert_eq!(pair.network.requests.load(Ordering::SeqCst), before);
}

async fn worker(control: &Blobs, version: &str, files: &[(&str, Bytes, bool)]) -> WorkerId {
    let mut entries = std::collections::BTreeMap::new();
    for (path, content, executable) in files {
        let blob = control.put(content.clone()).await.unwrap();
        let bytes = content.len() as u64;
        entries.insert((*path).to_owned(), ManifestEntry::File { blob, bytes, executable: *executable });
    }
    entries.insert("link".to_owned(), ManifestEntry::Link { target: files[0].0.to_owned() });
    let command = vec![format!("./{}", files[0].0)];
    let function = Function { name: "f".to_owned(), version: version.to_owned(), command };
    let functions = vec![function];
    let manifest =
        Manifest { name: "w".to_owned(), version: version.to_owned(), files: entries, env: [].into(), functions };
    control.register(manifest).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_fetched_and_common_files_only_once() {
    use std::os::unix::fs::PermissionsExt;
    let pair = Pair::new().await;
    let (library, program) = (noise(3 * MIB, 1), noise(50_000, 2));
    let first = [("run", program.clone(), true), ("lib/a", library.clone(), false), ("lib/b", library.clone(), true)];
    let id = worker(&pair.control, "1", &first).await;
    pair.network.lost.store(3, Ordering::SeqCst);
    let bundle = pair.runner.materialise_worker(id).await.unwrap();
    assert_eq!(bundle.manifest().id(), id);
    for (path, content, executable) in &first {
        let path = bundle.path().join(path);
        assert!(fs::read(&path).unwrap() == *content);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if *executable { 0o555 } else { 0o444 });
    }
    assert_eq!(fs::read_link(bundle.path().join("link")).unwrap(), Path::new("run"));
    assert_eq!(pair.network.gets.load(Ordering::SeqCst), 2);
    let second = [("run", noise(50_000, 3), true), ("lib/a", library.clone(), false)];
    let id = worker(&pair.control, "2", &second).await;
    pair.runner.materialise_worker(id).await.unwrap();
    assert_eq!(pair.network.gets.load(Ordering::SeqCst), 3);
    let listed = pair.runner.worker(id).await.unwrap();
    let known = pair.control.worker(id).await.unwrap();
    assert_eq!((listed.registered_at, &listed.manifest), (known.registered_at, &known.manifest));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_fills_the_cache_is_fetched_without_cached_files() {
    let pair = Pair::with(|_| {}, |options| options.cache_bytes_max = 3 * MIB as u64).await;
    let id = worker(&pair.control, "1", &[("run", noise(2 * MIB, 1), true)]).await;
    let bundle = pair.runner.materialise_worker(id).await.unwrap();
    assert!(fs::read(bundle.path().join("run")).unwrap() == noise(2 * MIB, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_and_logs_are_at_the_control_node_before_the_attempt_ends() {
    let pair = Pair::new().await;
    let job = tempfile::tempdir().unwrap();
    for number in 0..40 {
        fs::write(job.path().join(format!("{number}.txt")), noise(1000 * number, number as u64)).unwrap();
    }
    pair.network.set(|faults| faults.cut_uploads = vec![500; 10]);
    let globs = Globs::new(&["*.txt".to_owned()]).unwrap();
    let limits = OutputLimits { files: 100, bytes: 100 * MIB as u64 };
    let outputs = pair.runner.collect_outputs(job.path(), &globs, limits).await.unwrap();
    assert_eq!(outputs.files.len(), 40);
    for file in outputs.files {
        let original = fs::read(job.path().join(&file.path)).unwrap();
        assert!(content(&pair.control, file.blob).await.unwrap() == original);
    }
    let log = job.path().join("log");
    fs::write(&log, "line\n".repeat(1_000_000)).unwrap();
    let (id, bytes) = pair.runner.put_file(&log).await.unwrap();
    assert_eq!(bytes, 5_000_000);
    assert_eq!(content(&pair.control, id).await.unwrap().len(), 5_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_fetch_leaves_nothing_and_can_be_repeated() {
    let pair = Pair::new().await;
    let original = noise(8 * MIB, 1);
    let id = pair.control.put(original.clone()).await.unwrap();
    pair.network.set(|faults| faults.hang_after = Some(2 * MIB as u64));
    let fetch = tokio::time::timeout(Duration::from_millis(200), pair.runner.materialise(id));
    assert!(fetch.await.is_err());
    let deadline = Instant::now() + Duration::from_secs(20);
    while !pair.runner_leftovers().is_empty() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pair.assert_fetched(&original).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever the cuts and flips, a fetch and an upload end with the right content or an error, and leave nothing.
    #[test]
    fn transfers_survive_cuts_anywhere(
        bytes in prop_oneof![0..2000_usize, 8 * MIB..9 * MIB],
        downloads in proptest::collection::vec(0..9 * MIB as u64, 0..6),
        uploads in proptest::collection::vec(0..9 * MIB as u64, 0..6),
        flips in proptest::collection::vec(0..9 * MIB as u64, 0..2),
        silently: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            // More attempts than cuts, since small steps are not progress.
            let pair = Pair::with(|_| {}, |options| options.peer_retry.attempts_max = 20).await;
            let (fetched, sent) = (noise(bytes, 1), noise(bytes, 2));
            pair.control.put(fetched.clone()).await.unwrap();
            pair.network.set(|faults| {
                (faults.cut_downloads, faults.cut_uploads) = (downloads, uploads);
                (faults.flips, faults.cut_silently) = (flips, silently);
            });
            pair.assert_fetched(&fetched).await;
            let (id, _) = pair.runner.put_stream(pieces(&sent, MIB)).await.unwrap();
            assert!(content(&pair.control, id).await.unwrap() == sent);
            assert_eq!((pair.stats().unfinished, pair.stats().rejected), (0, 0));
            assert_eq!(pair.control_fixture.leftovers(), [] as [&Path; 0]);
            assert_eq!(pair.runner_leftovers(), [] as [&Path; 0]);
        });
    }
}

/// Not a test: prints the throughput. Run it with `--release --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement; runs with `cargo xtask test --all`"]
async fn throughput_of_a_peer() {
    const BYTES: usize = 1 << 30;
    let pair = Pair::new().await;
    let original = noise(BYTES, 1);
    let rate = |start: Instant| BYTES as f64 / 1e6 / start.elapsed().as_secs_f64();
    let id = pair.control.put(original.clone()).await.unwrap();
    for round in 0..6 {
        let start = Instant::now();
        let pinned = pair.runner.materialise(id).await.unwrap();
        let rate = rate(start);
        // A file from the cache would be no measurement.
        assert_eq!(pair.network.gets.load(Ordering::SeqCst), round + 1);
        assert!(fs::read(pinned.path()).unwrap() == original);
        println!("round {round}: fetched at {rate:.0} MB/s");
        fs::remove_file(pinned.path()).unwrap();
    }
    let file = pair.runner_directory.path().join("output");
    for round in 0..3_u8 {
        let mut content = original.to_vec();
        content[0] ^= round + 1;
        fs::write(&file, content).unwrap();
        let start = Instant::now();
        pair.runner.put_file(&file).await.unwrap();
        println!("round {round}: packed, uploaded and synced at {:.0} MB/s", rate(start));
    }
    let start = Instant::now();
    let pinned = pair.control.materialise(id).await.unwrap();
    println!("for comparison, from a local store: {:.0} MB/s", rate(start));
    drop(pinned);
}
