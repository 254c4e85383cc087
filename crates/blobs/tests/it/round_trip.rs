//! Puts and reads.

use std::fs;
use std::sync::Arc;

use blobs::{Blobs, Error, limits};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use model::blob::BlobId;

use crate::support::{Fixture, content, files_below, noise, pieces, read_all};

// FEATURES: C11
#[tokio::test]
async fn content_of_every_size_round_trips() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    for bytes in [0, 1, 31, 32, 4096, 262_143, 262_144, 262_145, 1 << 20, 5_000_000] {
        for original in [noise(bytes, 7), Bytes::from(vec![b'a'; bytes])] {
            let id = blobs.put(original.clone()).await.unwrap();
            assert_eq!(id, BlobId::of(&original));
            assert!(content(&blobs, id).await.unwrap() == original, "{bytes} bytes");
            assert_eq!(blobs.stat(id).await.unwrap().unwrap().bytes, bytes as u64);
        }
    }
    assert_eq!(fixture.leftovers(), [] as [std::path::PathBuf; 0]);
}

// FEATURES: C11
#[tokio::test]
async fn content_is_stored_compressed() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = blobs.put(Bytes::from(vec![b'x'; 10_000_000])).await.unwrap();
    let stat = blobs.stat(id).await.unwrap().unwrap();
    assert_eq!(stat.stored_bytes, fs::metadata(fixture.stored(id)).unwrap().len());
    assert!(stat.stored_bytes < 10_000, "{stat:?}");
}

#[tokio::test]
async fn a_file_and_a_stream_give_the_same_blob() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = noise(3_000_000, 1);
    let file = fixture.directory.path().join("file");
    fs::write(&file, &original).unwrap();
    let id = BlobId::of(&original);
    assert_eq!(blobs.put_file(&file).await.unwrap(), (id, 3_000_000));
    fs::remove_file(fixture.stored(id)).unwrap();
    assert_eq!(blobs.put_stream(pieces(&original, 10_000)).await.unwrap(), (id, 3_000_000));
    assert!(content(&blobs, id).await.unwrap() == original);
}

#[tokio::test]
async fn an_interrupted_stream_leaves_nothing() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let good: Result<Bytes, std::io::Error> = Ok(noise(3_000_000, 1));
    let broken = futures_util::stream::iter([good, Err(std::io::Error::other("connection reset"))]);
    let error = blobs.put_stream(broken).await.unwrap_err();
    assert!(matches!(&error, Error::Interrupted { reason } if reason.contains("connection reset")), "{error}");
    assert!(files_below(fixture.directory.path()).is_empty());
}

#[tokio::test]
async fn blobs_survive_a_restart() {
    let fixture = Fixture::new();
    let id = fixture.open().await.put(Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!(content(&fixture.open().await, id).await.unwrap(), b"hello");
}

// FEATURES: C11
#[tokio::test]
async fn only_missing_blobs_are_reported_as_missing() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let present = blobs.put(Bytes::from_static(b"present")).await.unwrap();
    let (one, two) = (BlobId::of(b"one"), BlobId::of(b"two"));
    assert_eq!(blobs.missing(&[one, present, two]).await.unwrap(), [one, two]);
    assert_eq!(blobs.stat(one).await.unwrap(), None);
    assert!(matches!(blobs.read(one).await, Err(Error::NotFound { id }) if id == one));
}

#[tokio::test]
async fn a_query_for_missing_blobs_is_limited() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let ids = vec![BlobId::of(b"x"); limits::IDS_MAX + 1];
    assert_eq!(blobs.missing(&ids[1..]).await.unwrap().len(), limits::IDS_MAX);
    assert!(matches!(blobs.missing(&ids).await, Err(Error::TooMany { .. })));
}

#[tokio::test]
async fn putting_an_existing_blob_writes_nothing() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = blobs.put(Bytes::from_static(b"same")).await.unwrap();
    let written = fs::metadata(fixture.stored(id)).unwrap().modified().unwrap();
    assert_eq!(blobs.put(Bytes::from_static(b"same")).await.unwrap(), id);
    assert_eq!(blobs.put_stream(pieces(&Bytes::from_static(b"same"), 2)).await.unwrap(), (id, 4));
    assert_eq!(fs::metadata(fixture.stored(id)).unwrap().modified().unwrap(), written);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_puts_of_the_same_content_succeed() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = noise(2_000_000, 3);
    let puts = (0..32).map(|number| {
        let (blobs, original) = (blobs.clone(), original.clone());
        tokio::spawn(async move {
            if number % 2 == 0 {
                blobs.put(original).await.unwrap()
            } else {
                blobs.put_stream(pieces(&original, 100_000)).await.unwrap().0
            }
        })
    });
    for id in join_all(puts).await {
        assert_eq!(id.unwrap(), BlobId::of(&original));
    }
    assert!(content(&blobs, BlobId::of(&original)).await.unwrap() == original);
    assert_eq!(files_below(fixture.directory.path()).len(), 1);
}

#[tokio::test]
async fn a_blob_is_accepted_up_to_the_maximum_size() {
    let mut fixture = Fixture::new();
    fixture.options.blob_bytes_max = 1000;
    let blobs = fixture.open().await;
    let (fits, more) = (noise(1000, 1), noise(1001, 1));
    blobs.put(fits.clone()).await.unwrap();
    assert!(matches!(blobs.put(more.clone()).await, Err(Error::TooLarge { limit: 1000, .. })));
    assert!(matches!(blobs.put_stream(pieces(&more, 10)).await, Err(Error::TooLarge { limit: 1000, .. })));
    assert!(matches!(blobs.begin_upload(BlobId::of(&more), 1001).await, Err(Error::TooLarge { .. })));
    let file = fixture.directory.path().join("file");
    fs::write(&file, &more).unwrap();
    assert!(matches!(blobs.put_file(&file).await, Err(Error::TooLarge { .. })));
    assert_eq!(fixture.leftovers(), [file]);
}

// FEATURES: C11
#[tokio::test]
async fn a_range_of_the_content_can_be_read() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = noise(1_000_000, 5);
    let id = blobs.put(original.clone()).await.unwrap();
    check_ranges(&blobs, id, &original).await;
}

#[tokio::test]
async fn a_range_of_a_blob_too_large_for_the_cache_can_be_read() {
    let mut fixture = Fixture::new();
    fixture.options.cache_bytes_max = 100_000;
    let blobs = fixture.open().await;
    let original = noise(1_000_000, 5);
    let id = blobs.put(original.clone()).await.unwrap();
    check_ranges(&blobs, id, &original).await;
}

async fn check_ranges(blobs: &Blobs, id: BlobId, original: &Bytes) {
    let end = original.len() as u64;
    for range in [0..0, 0..1, 0..end, 10..300_000, 262_143..262_145, end - 1..end, end..end] {
        let stream = blobs.read_range(id, range.clone()).await.unwrap();
        assert_eq!(stream.bytes(), range.end - range.start);
        let part = read_all(stream).await.unwrap();
        assert!(part == original[range.start as usize..range.end as usize], "{range:?}");
    }
    #[expect(clippy::reversed_empty_ranges, reason = "the reversed range must be refused")]
    for range in [0..end + 1, end + 1..end + 2, 5..4] {
        assert!(matches!(blobs.read_range(id, range).await, Err(Error::BadRange { .. })));
    }
}

#[tokio::test]
async fn abandoned_streams_do_not_block_later_reads() {
    let fixture = Fixture::new();
    let blobs = Arc::new(fixture.open().await);
    let id = blobs.put(noise(5_000_000, 1)).await.unwrap();
    for _ in 0..1000 {
        let mut stream = blobs.read(id).await.unwrap();
        assert!(!stream.next().await.unwrap().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_work_directory_is_exclusive() {
    let fixture = Fixture::new();
    let first = fixture.open().await;
    assert!(matches!(Blobs::open(fixture.options.clone()).await, Err(Error::InUse { .. })));
    drop(first);
    fixture.open().await;
}
