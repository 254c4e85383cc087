//! Plain files from the cache.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use blobs::{Blobs, Error, copy_into, link_into};
use bytes::Bytes;
use futures_util::future::join_all;
use model::blob::BlobId;

use crate::support::{Fixture, files_below, noise};

fn cached(fixture: &Fixture) -> Vec<PathBuf> {
    files_below(&fixture.work().join("cache"))
}

async fn put(blobs: &Blobs, bytes: usize, seed: u64) -> BlobId {
    blobs.put(noise(bytes, seed)).await.unwrap()
}

// FEATURES: C11
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_callers_share_one_read_only_file() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = put(&blobs, 3_000_000, 1).await;
    let calls = join_all((0..20).map(|_| {
        let blobs = blobs.clone();
        tokio::spawn(async move { blobs.materialise(id).await.unwrap() })
    }));
    let pinned: Vec<_> = calls.await.into_iter().map(Result::unwrap).collect();
    let inode = fs::metadata(pinned[0].path()).unwrap().ino();
    for file in &pinned {
        let found = fs::metadata(file.path()).unwrap();
        assert_eq!((found.ino(), found.permissions().mode() & 0o7777), (inode, 0o444));
    }
    assert!(fs::read(pinned[0].path()).unwrap() == noise(3_000_000, 1));
    assert_eq!(cached(&fixture), [pinned[0].path()]);
}

#[tokio::test]
async fn a_missing_blob_cannot_be_materialised() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = BlobId::of(b"nowhere");
    assert!(matches!(blobs.materialise(id).await, Err(Error::NotFound { .. })));
    assert_eq!(fixture.leftovers(), [] as [&Path; 0]);
}

#[tokio::test]
async fn the_least_recently_used_file_is_evicted_first_and_pinned_files_stay() {
    let mut fixture = Fixture::new();
    fixture.options.cache_bytes_max = 400_000;
    let blobs = fixture.open().await;
    let mut ids = Vec::new();
    for seed in 0..5 {
        ids.push(put(&blobs, 90_000, seed).await);
    }
    let pinned = blobs.materialise(ids[0]).await.unwrap();
    let mut paths = Vec::new();
    for id in &ids[1..4] {
        paths.push(blobs.materialise(*id).await.unwrap().path().to_path_buf());
    }
    // Used again: now `ids[2]` is the least recently used.
    drop(blobs.materialise(ids[1]).await.unwrap());
    let last = blobs.materialise(ids[4]).await.unwrap();
    assert!(pinned.path().exists() && last.path().exists());
    assert_eq!(paths.iter().map(|path| path.exists()).collect::<Vec<_>>(), [true, false, true]);
    assert!(fs::read(last.path()).unwrap() == noise(90_000, 4));
}

#[tokio::test]
async fn a_cache_full_of_pinned_files_returns_an_error() {
    let mut fixture = Fixture::new();
    fixture.options.cache_bytes_max = 200_000;
    let blobs = fixture.open().await;
    let (one, two) = (put(&blobs, 120_000, 1).await, put(&blobs, 120_000, 2).await);
    let pinned = blobs.materialise(one).await.unwrap();
    let error = blobs.materialise(two).await.unwrap_err();
    assert!(matches!(error, Error::CacheFull { limit: 200_000, .. }), "{error}");
    assert_eq!(cached(&fixture), [pinned.path()]);
    drop(pinned);
    blobs.materialise(two).await.unwrap();
    let large = put(&blobs, 300_000, 3).await;
    assert!(matches!(blobs.materialise(large).await, Err(Error::CacheFull { .. })));
    // Nothing is evicted for a file that cannot fit.
    assert_eq!(cached(&fixture).len(), 1);
}

#[tokio::test]
async fn a_file_as_large_as_the_cache_fits() {
    let mut fixture = Fixture::new();
    fixture.options.cache_bytes_max = 3 * 4096;
    let blobs = fixture.open().await;
    let (fits, more) = (put(&blobs, 2 * 4096, 1).await, put(&blobs, 2 * 4096 + 1, 1).await);
    blobs.materialise(fits).await.unwrap();
    assert!(matches!(blobs.materialise(more).await, Err(Error::CacheFull { .. })));
}

#[tokio::test]
async fn intact_files_are_reused_after_a_restart() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let (intact, modified) = (put(&blobs, 10_000, 1).await, put(&blobs, 10_000, 2).await);
    let inode = fs::metadata(blobs.materialise(intact).await.unwrap().path()).unwrap().ino();
    let path = blobs.materialise(modified).await.unwrap().path().to_path_buf();
    drop(blobs);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&path, noise(10_000, 3)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    fs::write(path.parent().unwrap().join("junk"), "x").unwrap();

    let blobs = fixture.open().await;
    assert_eq!(fs::metadata(blobs.materialise(intact).await.unwrap().path()).unwrap().ino(), inode);
    assert!(fs::read(blobs.materialise(modified).await.unwrap().path()).unwrap() == noise(10_000, 2));
    assert_eq!(cached(&fixture).len(), 2);
}

#[tokio::test]
async fn a_cache_shrunk_at_a_restart_is_evicted_down_to_its_limit() {
    let mut fixture = Fixture::new();
    let blobs = fixture.open().await;
    for seed in 0..10 {
        let id = put(&blobs, 90_000, seed).await;
        blobs.materialise(id).await.unwrap();
    }
    drop(blobs);
    fixture.options.cache_bytes_max = 200_000;
    let blobs = fixture.open().await;
    let id = put(&blobs, 90_000, 10).await;
    blobs.materialise(id).await.unwrap();
    assert_eq!(cached(&fixture).len(), 2);
}

#[tokio::test]
async fn a_link_shares_the_file_and_a_copy_does_not() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = put(&blobs, 10_000, 1).await;
    let pinned = blobs.materialise(id).await.unwrap();
    let (link, copy) = (fixture.directory.path().join("link"), fixture.directory.path().join("copy"));
    link_into(&pinned, &link).await.unwrap();
    copy_into(&pinned, &copy).await.unwrap();
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!(inode(&link), inode(pinned.path()));
    assert_ne!(inode(&copy), inode(pinned.path()));
    for path in [&link, &copy] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o444);
        assert!(fs::read(path).unwrap() == noise(10_000, 1));
    }
    // Existing files are not replaced.
    assert!(matches!(link_into(&pinned, &copy).await, Err(Error::Io { .. })));
    assert!(matches!(copy_into(&pinned, &link).await, Err(Error::Io { .. })));
}

#[tokio::test]
async fn a_link_to_another_file_system_becomes_a_copy() {
    let elsewhere = Path::new("/dev/shm");
    let fixture = Fixture::new();
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).unwrap_or_default();
    if !elsewhere.is_dir() || device(elsewhere) == device(fixture.directory.path()) {
        return crate::support::skip("needs a second file system at /dev/shm");
    }
    let blobs = fixture.open().await;
    let id = put(&blobs, 10_000, 1).await;
    let pinned = blobs.materialise(id).await.unwrap();
    let target = tempfile::tempdir_in(elsewhere).unwrap();
    link_into(&pinned, &target.path().join("x")).await.unwrap();
    assert!(fs::read(target.path().join("x")).unwrap() == noise(10_000, 1));
}

// FEATURES: C11
#[tokio::test]
async fn a_modified_input_file_is_not_reused() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = blobs.put(Bytes::from_static(b"original")).await.unwrap();
    let input = fixture.directory.path().join("input");
    link_into(&blobs.materialise(id).await.unwrap(), &input).await.unwrap();
    // With the server's privileges, which a sandboxed job does not have.
    fs::set_permissions(&input, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&input, "CHANGED!").unwrap();
    fs::set_permissions(&input, fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(fs::read(blobs.materialise(id).await.unwrap().path()).unwrap(), b"original");
}
