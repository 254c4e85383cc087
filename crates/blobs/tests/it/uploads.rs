//! Uploads in pieces.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blobs::{Error, Progress};
use bytes::Bytes;
use futures_util::StreamExt;
use model::blob::BlobId;
use tokio::sync::{Notify, mpsc};

use crate::support::{Fixture, content, noise, pieces};

// FEATURES: C11
#[tokio::test]
async fn an_upload_resumes_after_a_restart() {
    let fixture = Fixture::new();
    let original = noise(3_000_000, 1);
    let id = BlobId::of(&original);
    let blobs = fixture.open().await;
    assert_eq!(
        blobs.begin_upload(id, 3_000_000).await.unwrap(),
        Progress { received: 0, total: 3_000_000, done: false }
    );
    let progress = blobs.append(id, 0, pieces(&original.slice(..1_000_000), 7_000)).await.unwrap();
    assert_eq!((progress.received, progress.done), (1_000_000, false));
    assert_eq!(blobs.missing(&[id]).await.unwrap(), [id]);
    drop(blobs);

    let blobs = fixture.open().await;
    assert_eq!(blobs.begin_upload(id, 3_000_000).await.unwrap(), progress);
    assert_eq!(blobs.upload_progress(id), Some(progress));
    let progress = blobs.append(id, 1_000_000, pieces(&original.slice(1_000_000..), 500_000)).await.unwrap();
    assert!(progress.done);
    assert!(content(&blobs, id).await.unwrap() == original);
    assert!(blobs.begin_upload(id, 3_000_000).await.unwrap().done);
    // Resent by a client that missed the response.
    assert_eq!(blobs.append(id, 1_000_000, pieces(&original.slice(1_000_000..), 500_000)).await.unwrap(), progress);
    assert_eq!(fixture.leftovers(), [] as [&Path; 0]);
}

#[tokio::test]
async fn an_empty_blob_is_uploaded_by_appending_nothing() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = BlobId::of(b"");
    assert!(!blobs.begin_upload(id, 0).await.unwrap().done);
    assert!(blobs.append(id, 0, pieces(&Bytes::new(), 1)).await.unwrap().done);
    assert_eq!(content(&blobs, id).await.unwrap(), b"");
}

// FEATURES: C11
#[tokio::test]
async fn content_that_does_not_match_its_id_is_discarded() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let (announced, sent) = (noise(100_000, 1), noise(100_000, 2));
    let id = BlobId::of(&announced);
    blobs.begin_upload(id, 100_000).await.unwrap();
    let error = blobs.append(id, 0, pieces(&sent, 1000)).await.unwrap_err();
    assert!(matches!(error, Error::Mismatch { found, .. } if found == BlobId::of(&sent)), "{error}");
    assert_eq!(blobs.upload_progress(id), None);
    assert_eq!(blobs.missing(&[id, BlobId::of(&sent)]).await.unwrap().len(), 2);
    assert_eq!(fixture.leftovers(), [] as [&Path; 0]);
    // The matching content is accepted afterwards.
    blobs.begin_upload(id, 100_000).await.unwrap();
    assert!(blobs.append(id, 0, pieces(&announced, 1000)).await.unwrap().done);
}

#[tokio::test]
async fn pieces_must_have_the_expected_offset_and_size() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = noise(10_000, 1);
    let id = BlobId::of(&original);
    assert!(matches!(blobs.append(id, 0, pieces(&original, 10)).await, Err(Error::UploadNotFound { .. })));
    blobs.begin_upload(id, 10_000).await.unwrap();
    blobs.append(id, 0, pieces(&original.slice(..4000), 1000)).await.unwrap();
    for wrong in [0, 3999, 4001, 10_000, u64::MAX] {
        let error = blobs.append(id, wrong, pieces(&original.slice(4000..), 1000)).await.unwrap_err();
        assert!(matches!(error, Error::WrongOffset { expected: 4000, .. }), "{error}");
    }
    let too_much = noise(6001, 1);
    assert!(matches!(blobs.append(id, 4000, pieces(&too_much, 6001)).await, Err(Error::TooLarge { .. })));
    assert_eq!(blobs.upload_progress(id).unwrap().received, 4000);
    assert!(blobs.append(id, 4000, pieces(&original.slice(4000..), 1000)).await.unwrap().done);
}

#[tokio::test]
async fn bytes_before_an_interruption_are_retained() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = noise(500_000, 1);
    let id = BlobId::of(&original);
    blobs.begin_upload(id, 500_000).await.unwrap();
    let broken = futures_util::stream::iter([Ok(original.slice(..300_001)), Err(std::io::Error::other("gone"))]);
    assert!(matches!(blobs.append(id, 0, broken).await, Err(Error::Interrupted { .. })));
    assert_eq!(blobs.upload_progress(id).unwrap().received, 300_001);
    assert!(blobs.append(id, 300_001, pieces(&original.slice(300_001..), 9999)).await.unwrap().done);
    assert!(content(&blobs, id).await.unwrap() == original);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_one_caller_at_a_time_may_append() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = noise(1_000_000, 1);
    let id = BlobId::of(&original);
    blobs.begin_upload(id, 1_000_000).await.unwrap();
    let (sender, mut receiver) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    let first = {
        let blobs = blobs.clone();
        let stream = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
        tokio::spawn(async move { blobs.append(id, 0, stream).await })
    };
    sender.send(Ok(original.slice(..400_000))).await.unwrap();
    // The channel has room for one piece: this send succeeds only after the first append has claimed the upload.
    sender.send(Ok(original.slice(400_000..))).await.unwrap();
    let second = blobs.append(id, 0, pieces(&original, 1000)).await;
    assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}");
    assert!(matches!(blobs.begin_upload(id, 5).await, Err(Error::Busy { .. })));
    assert!(matches!(blobs.cancel_upload(id).await, Err(Error::Busy { .. })));
    drop(sender);
    assert!(first.await.unwrap().unwrap().done);
    assert!(content(&blobs, id).await.unwrap() == original);
    assert!(blobs.begin_upload(id, 1_000_000).await.unwrap().done);
}

#[tokio::test]
async fn an_upload_resumes_after_a_cancelled_append() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = noise(2_000_000, 1);
    let id = BlobId::of(&original);
    blobs.begin_upload(id, 2_000_000).await.unwrap();
    // A stalled connection that the server drops.
    let waiting = Arc::new(Notify::new());
    let stalls = {
        let waiting = Arc::clone(&waiting);
        futures_util::stream::once(async move {
            waiting.notify_one();
            std::future::pending().await
        })
    };
    let stalled = pieces(&original.slice(..1_200_000), 100_000).chain(stalls);
    tokio::select! {
        outcome = blobs.append(id, 0, stalled) => panic!("{outcome:?}"),
        () = waiting.notified() => {}
    }
    let received = blobs.upload_progress(id).unwrap().received;
    assert!(received > 0 && received <= 1_200_000, "{received}");
    let rest = original.slice(received as usize..);
    assert!(blobs.append(id, received, pieces(&rest, 100_000)).await.unwrap().done);
    assert!(content(&blobs, id).await.unwrap() == original);
}

#[tokio::test]
async fn abandoned_uploads_are_removed_after_the_timeout() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = noise(1000, 1);
    let id = BlobId::of(&original);
    blobs.begin_upload(id, 1000).await.unwrap();
    blobs.append(id, 0, pieces(&original.slice(..500), 500)).await.unwrap();
    let almost = SystemTime::now() + fixture.options.upload_abandoned_after - Duration::from_secs(60);
    assert_eq!(blobs.remove_abandoned_uploads(almost).await.unwrap(), 0);
    assert_eq!(blobs.remove_abandoned_uploads(almost + Duration::from_secs(120)).await.unwrap(), 1);
    assert_eq!(blobs.upload_progress(id), None);
    assert_eq!(fixture.leftovers(), [] as [&Path; 0]);
}

#[tokio::test]
async fn unfinished_uploads_are_limited() {
    let mut fixture = Fixture::new();
    fixture.options.uploads_max = 3;
    let blobs = fixture.open().await;
    let id = |number: u8| BlobId::of(&[number]);
    for number in 0..3 {
        blobs.begin_upload(id(number), 1).await.unwrap();
    }
    assert!(matches!(blobs.begin_upload(id(3), 1).await, Err(Error::Busy { .. })));
    assert!(blobs.cancel_upload(id(0)).await.unwrap());
    assert!(!blobs.cancel_upload(id(0)).await.unwrap());
    blobs.begin_upload(id(3), 1).await.unwrap();
}

#[tokio::test]
async fn an_upload_with_another_size_starts_over() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let original = noise(1000, 1);
    let id = BlobId::of(&original);
    blobs.begin_upload(id, 2000).await.unwrap();
    blobs.append(id, 0, pieces(&noise(1500, 2), 500)).await.unwrap();
    assert_eq!(blobs.begin_upload(id, 1000).await.unwrap().received, 0);
    assert!(blobs.append(id, 0, pieces(&original, 500)).await.unwrap().done);
}

#[tokio::test]
async fn invalid_files_among_the_uploads_are_removed() {
    let fixture = Fixture::new();
    let uploads = fixture.work().join("uploads");
    fs::create_dir_all(&uploads).unwrap();
    fs::write(uploads.join("junk"), "x").unwrap();
    fs::write(uploads.join(format!("{}.3", BlobId::of(b"x").hex())), "longer").unwrap();
    fixture.open().await;
    assert_eq!(fixture.leftovers(), [] as [&Path; 0]);
}
