//! Workers: registration, lists, unpacking, removal.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use blobs::workers::{Function, Manifest, ManifestEntry, scan_directory};
use blobs::{Blobs, Error, limits};
use bytes::Bytes;
use futures_util::future::join_all;
use model::blob::{BlobId, WorkerId};
use tempfile::TempDir;

use crate::support::{Fixture, files_below, much_later, noise};

/// Typical worker directory with a program, data and links.
fn tools() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir_all(path("lib/deep")).unwrap();
    fs::write(path("run"), "#!/bin/sh\ncat \"$(dirname \"$0\")/lib/deep/data\"\n").unwrap();
    fs::set_permissions(path("run"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(path("lib/deep/data"), "hello from the bundle").unwrap();
    symlink("lib", path("lib64")).unwrap();
    symlink("../../run", path("lib/deep/up")).unwrap();
    let description = r#"{"name": "tools", "version": "1", "functions": [{"name": "main", "command": ["./run"]}]}"#;
    fs::write(path("worker.json"), description).unwrap();
    directory
}

async fn register(blobs: &Blobs, directory: &Path) -> WorkerId {
    let scanned = scan_directory(directory).unwrap();
    for file in &scanned.files {
        blobs.put_file(&file.path).await.unwrap();
    }
    blobs.register(scanned.manifest).await.unwrap()
}

fn one_file(content: &Bytes) -> Manifest {
    let entry = ManifestEntry::File { blob: BlobId::of(content), bytes: content.len() as u64, executable: false };
    Manifest {
        name: "one".to_owned(),
        version: "1".to_owned(),
        files: BTreeMap::from([("file".to_owned(), entry)]),
        env: BTreeMap::new(),
        functions: Vec::new(),
    }
}

// FEATURES: C10
#[tokio::test]
async fn a_registered_worker_is_listed_described_and_runs() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = register(&blobs, tools().path()).await;
    let listed = blobs.workers().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].id, listed[0].name.as_str(), listed[0].version.as_str()), (id, "tools", "1"));
    assert_eq!((listed[0].files, listed[0].functions[0].name.as_str()), (4, "main"));
    let worker = blobs.worker(id).await.unwrap();
    assert_eq!(worker.manifest.id(), id);
    assert_eq!(worker.summary(), listed[0]);

    let bundle = blobs.materialise_worker(id).await.unwrap();
    for program in ["run", "lib64/deep/up"] {
        let ran = Command::new(bundle.path().join(program)).output().unwrap();
        if program == "run" {
            assert_eq!(ran.stdout, b"hello from the bundle");
        }
    }
    assert_eq!(bundle.manifest().functions[0].command, ["./run"]);
}

// FEATURES: C10
#[tokio::test]
async fn an_unpacked_worker_is_read_only() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = register(&blobs, tools().path()).await;
    let bundle = blobs.materialise_worker(id).await.unwrap();
    let mode = |path: &str| fs::symlink_metadata(bundle.path().join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!([mode(""), mode("lib"), mode("lib/deep")], [0o555; 3]);
    assert_eq!([mode("run"), mode("lib/deep/data")], [0o555, 0o444]);
    assert_eq!(fs::read_link(bundle.path().join("lib/deep/up")).unwrap(), Path::new("../../run"));
}

#[tokio::test]
async fn registration_is_idempotent_and_survives_a_restart() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = register(&blobs, tools().path()).await;
    assert_eq!(register(&blobs, tools().path()).await, id);
    drop(blobs);
    let blobs = fixture.open().await;
    assert_eq!(blobs.workers().await.unwrap().len(), 1);
    blobs.materialise_worker(id).await.unwrap();
}

// FEATURES: C10
#[tokio::test]
async fn a_bundle_with_missing_blobs_is_refused_with_their_ids() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let manifest = one_file(&Bytes::from_static(b"content"));
    let error = blobs.register(manifest.clone()).await.unwrap_err();
    assert!(matches!(&error, Error::BlobsMissing { ids } if *ids == [BlobId::of(b"content")]), "{error}");
    assert!(blobs.workers().await.unwrap().is_empty());
    blobs.put(Bytes::from_static(b"content")).await.unwrap();
    blobs.register(manifest).await.unwrap();
}

// FEATURES: C10
#[tokio::test]
async fn manifests_with_wrong_sizes_or_outside_paths_are_refused() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let content = Bytes::from_static(b"content");
    blobs.put(content.clone()).await.unwrap();
    let entry = |bytes| ManifestEntry::File { blob: BlobId::of(&content), bytes, executable: false };
    let mut wrong_size = one_file(&content);
    wrong_size.files.insert("file".to_owned(), entry(8));
    assert!(matches!(blobs.register(wrong_size).await, Err(Error::BadManifest { .. })));
    for path in ["../file", "/file", "a/../../file"] {
        let mut outside = one_file(&content);
        outside.files.insert(path.to_owned(), entry(7));
        assert!(matches!(blobs.register(outside).await, Err(Error::BadPath { .. })), "{path}");
    }
    let mut link = one_file(&content);
    link.files.insert("link".to_owned(), ManifestEntry::Link { target: "../../etc/passwd".to_owned() });
    assert!(matches!(blobs.register(link).await, Err(Error::BadPath { .. })));
    let mut function = one_file(&content);
    let command = vec!["bin/none".to_owned()];
    function.functions.push(Function { name: "f".to_owned(), version: "1".to_owned(), command });
    assert!(matches!(blobs.register(function).await, Err(Error::BadManifest { .. })));
    assert!(blobs.workers().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_callers_share_one_unpacked_worker() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = register(&blobs, tools().path()).await;
    let calls = (0..10).map(|_| {
        let blobs = blobs.clone();
        tokio::spawn(async move { blobs.materialise_worker(id).await.unwrap() })
    });
    let bundles: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    let inode = |path: &Path| fs::metadata(path.join("run")).unwrap().ino();
    assert!(bundles.iter().all(|bundle| inode(bundle.path()) == inode(bundles[0].path())));
    assert_eq!(fs::read_dir(fixture.work().join("cache/workers")).unwrap().count(), 1);
}

// FEATURES: C10
#[tokio::test]
async fn an_unpacked_worker_is_verified_and_reused_after_a_restart() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = register(&blobs, tools().path()).await;
    let path = blobs.materialise_worker(id).await.unwrap().path().to_path_buf();
    let inode = || fs::metadata(path.join("run")).unwrap().ino();
    let original = inode();
    drop(blobs);
    let blobs = fixture.open().await;
    blobs.materialise_worker(id).await.unwrap();
    assert_eq!(inode(), original);
    drop(blobs);

    let damages: [&dyn Fn(); 4] = [
        &|| fs::write(path.join("lib/deep/data"), "something else altogether").unwrap(),
        &|| fs::write(path.join("lib/more"), "x").unwrap(),
        &|| fs::remove_file(path.join("lib/deep/up")).unwrap(),
        &|| {
            fs::remove_file(path.join("lib64")).unwrap();
            symlink("/etc", path.join("lib64")).unwrap();
        },
    ];
    for (number, damage) in damages.iter().enumerate() {
        // Needed if the test does not run as root.
        for name in ["", "lib", "lib/deep"] {
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(path.join("lib/deep/data"), fs::Permissions::from_mode(0o644)).unwrap();
        damage();
        fs::set_permissions(path.join("lib/deep/data"), fs::Permissions::from_mode(0o444)).unwrap();
        for name in ["", "lib", "lib/deep"] {
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o555)).unwrap();
        }
        let blobs = fixture.open().await;
        let bundle = blobs.materialise_worker(id).await.unwrap();
        assert_eq!(fs::read(path.join("lib/deep/data")).unwrap(), b"hello from the bundle", "{number}");
        assert!(!path.join("lib/more").exists() && path.join("lib/deep/up").exists(), "{number}");
        assert_eq!(fs::read_link(bundle.path().join("lib64")).unwrap(), Path::new("lib"), "{number}");
    }
}

#[tokio::test]
async fn unpacked_workers_count_towards_the_cache_limit() {
    let mut fixture = Fixture::new();
    fixture.options.cache_bytes_max = 300_000;
    let blobs = fixture.open().await;
    let mut ids = Vec::new();
    for seed in 0..3 {
        let content = noise(120_000, seed);
        blobs.put(content.clone()).await.unwrap();
        ids.push(blobs.register(one_file(&content)).await.unwrap());
    }
    let first = blobs.materialise_worker(ids[0]).await.unwrap();
    drop(blobs.materialise_worker(ids[1]).await.unwrap());
    let third = blobs.materialise_worker(ids[2]).await.unwrap();
    assert!(first.path().exists() && third.path().exists());
    assert_eq!(files_below(&fixture.work().join("cache")).len(), 2);
    assert!(matches!(blobs.materialise_worker(ids[1]).await, Err(Error::CacheFull { .. })));
    assert_eq!(fs::read_dir(fixture.work().join("scratch")).unwrap().count(), 1);
    assert_eq!(files_below(&fixture.work().join("scratch")).len(), 0);
}

#[tokio::test]
async fn a_worker_with_a_damaged_blob_leaves_no_partial_directory() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = register(&blobs, tools().path()).await;
    fs::write(fixture.stored(BlobId::of(b"hello from the bundle")), "junk").unwrap();
    let error = blobs.materialise_worker(id).await.unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    // Files unpacked concurrently with the damaged one may be removed a moment later.
    let since = std::time::Instant::now();
    while !fixture.leftovers().is_empty() && since.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(fixture.leftovers(), [] as [&Path; 0]);
    // A new registration reports the damaged blob as missing.
    let manifest = scan_directory(tools().path()).unwrap().manifest;
    assert!(matches!(blobs.register(manifest).await, Err(Error::BlobsMissing { .. })));
    assert_eq!(register(&blobs, tools().path()).await, id);
    blobs.materialise_worker(id).await.unwrap();
}

#[tokio::test]
async fn a_damaged_manifest_is_detected_and_aborts_collections() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = register(&blobs, tools().path()).await;
    drop(blobs);
    let path = fixture.directory.path().join("store/workers").join(id.to_string());
    let intact = fs::read_to_string(&path).unwrap();
    fs::write(&path, intact.replace("tools", "fools")).unwrap();
    let blobs = fixture.open().await;
    assert!(matches!(blobs.worker(id).await, Err(Error::Damaged { .. })));
    let swept = blobs.begin_collection().unwrap().sweep(|_| false, much_later()).await;
    assert!(matches!(swept, Err(Error::Damaged { .. })));
    assert_eq!(files_below(&fixture.directory.path().join("store/blobs")).len(), 2);
    blobs.remove_worker(id).await.unwrap();
    assert_eq!(blobs.begin_collection().unwrap().sweep(|_| false, much_later()).await.unwrap().deleted, 2);
}

// FEATURES: C10
#[tokio::test]
async fn blobs_of_a_worker_are_retained_until_its_removal() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let id = register(&blobs, tools().path()).await;
    let sweep = async || blobs.begin_collection().unwrap().sweep(|_| false, much_later()).await.unwrap().deleted;
    assert_eq!(sweep().await, 0);
    let bundle = blobs.materialise_worker(id).await.unwrap();
    let path = bundle.path().to_path_buf();
    let error = blobs.remove_worker(id).await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    drop(bundle);
    blobs.remove_worker(id).await.unwrap();
    assert!(!path.exists());
    assert!(matches!(blobs.remove_worker(id).await, Err(Error::WorkerNotFound { .. })));
    assert!(matches!(blobs.materialise_worker(id).await, Err(Error::WorkerNotFound { .. })));
    assert_eq!(sweep().await, 2);
}

#[tokio::test]
async fn registered_workers_are_limited() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let manifest = |name: &str| Manifest { name: name.to_owned(), files: BTreeMap::new(), ..one_file(&Bytes::new()) };
    let id = blobs.register(manifest("first")).await.unwrap();
    let directory = fixture.directory.path().join("store/workers");
    for number in 2..limits::WORKERS_MAX {
        fs::write(directory.join(WorkerId::of(&number.to_le_bytes()).to_string()), "{}").unwrap();
    }
    blobs.register(manifest("last")).await.unwrap();
    assert!(matches!(blobs.register(manifest("more")).await, Err(Error::TooMany { .. })));
    // Registering an existing worker again still succeeds.
    assert_eq!(blobs.register(manifest("first")).await.unwrap(), id);
}

#[tokio::test]
async fn a_manifest_is_accepted_up_to_the_maximum_size() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let function = |number: usize, bytes: usize| Function {
        name: number.to_string(),
        version: "1".to_owned(),
        command: vec!["true".to_owned(), "x".repeat(bytes)],
    };
    let mut manifest = Manifest { files: BTreeMap::new(), ..one_file(&Bytes::new()) };
    manifest.functions = (0..300).map(|number| function(number, 100_000)).collect();
    let left = limits::MANIFEST_BYTES_MAX - manifest.canonical().len();
    manifest.functions = (0..300).map(|number| function(number, 100_000 + left / 300)).collect();
    manifest.functions[0].command[1].push_str(&"x".repeat(left % 300));
    assert_eq!(manifest.canonical().len(), limits::MANIFEST_BYTES_MAX);
    let id = blobs.register(manifest.clone()).await.unwrap();
    assert_eq!(blobs.worker(id).await.unwrap().manifest.id(), id);
    manifest.name.push('x');
    let error = blobs.register(manifest).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}
