//! Output files of jobs, including hostile ones.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blobs::{Blobs, Error, Globs, OutputLimits, Outputs, limits};
use model::blob::BlobId;
use tempfile::TempDir;

use crate::support::{Fixture, content};

const LIMITS: OutputLimits = OutputLimits { files: 1000, bytes: 1 << 30 };

fn globs(globs: &[&str]) -> Globs {
    Globs::new(&globs.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
}

async fn collect(blobs: &Blobs, directory: &Path, patterns: &[&str]) -> Outputs {
    blobs.collect_outputs(directory, &globs(patterns), LIMITS).await.unwrap()
}

fn names(outputs: &Outputs) -> Vec<&str> {
    outputs.files.iter().map(|file| file.path.as_str()).collect()
}

fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("out/deep")).unwrap();
    fs::write(directory.path().join("result.txt"), "result").unwrap();
    fs::write(directory.path().join("out/a.bin"), "a").unwrap();
    fs::write(directory.path().join("out/deep/b.bin"), "b").unwrap();
    fs::set_permissions(directory.path().join("out/a.bin"), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

// FEATURES: C11
#[tokio::test]
async fn files_matching_the_globs_become_blobs() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let directory = directory();
    let outputs = collect(&blobs, directory.path(), &["*.txt", "out/**"]).await;
    assert_eq!(names(&outputs), ["out/a.bin", "out/deep/b.bin", "result.txt"]);
    assert_eq!(outputs.files.iter().map(|file| file.executable).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!((outputs.files[2].blob, outputs.files[2].bytes), (BlobId::of(b"result"), 6));
    assert_eq!(content(&blobs, outputs.files[2].blob).await.unwrap(), b"result");
    assert_eq!(outputs.skipped_count, 0);
    assert_eq!(names(&collect(&blobs, directory.path(), &["*.bin"]).await), [] as [&str; 0]);
}

// FEATURES: C11
#[tokio::test]
async fn links_are_never_followed() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let secret = fixture.directory.path().join("secret");
    fs::write(&secret, "secret of the host").unwrap();
    let directory = directory();
    symlink(&secret, directory.path().join("link")).unwrap();
    symlink(fixture.directory.path(), directory.path().join("linked-directory")).unwrap();
    symlink("loop", directory.path().join("loop")).unwrap();
    symlink(".", directory.path().join("self")).unwrap();
    let outputs = collect(&blobs, directory.path(), &["**"]).await;
    assert_eq!(names(&outputs), ["out/a.bin", "out/deep/b.bin", "result.txt"]);
    assert_eq!(outputs.skipped_count, 4);
    assert!(outputs.skipped.iter().all(|skipped| skipped.why.contains("link")), "{outputs:?}");
    // Links that match no glob are not reported.
    assert_eq!(collect(&blobs, directory.path(), &["*.txt"]).await.skipped_count, 0);
}

#[tokio::test]
async fn pipes_sockets_and_devices_are_skipped_without_blocking() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let directory = directory();
    assert!(Command::new("mkfifo").arg(directory.path().join("pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
    let made = Command::new("mknod").arg(directory.path().join("zero")).args(["c", "1", "5"]).output().unwrap();
    let outputs = collect(&blobs, directory.path(), &["*"]).await;
    assert_eq!(names(&outputs), ["result.txt"]);
    assert_eq!(outputs.skipped_count, 2 + usize::from(made.status.success()), "{outputs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_replaced_by_a_link_does_not_leak_a_secret() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("target")).unwrap();
    fs::write(outside.path().join("target/file"), "secret").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    // Alternates between a directory and a link to another directory, as fast as possible.
    let swapper = {
        let (root, outside, stop) = (directory.path().to_path_buf(), outside.path().to_path_buf(), Arc::clone(&stop));
        std::thread::spawn(move || {
            let (name, real, link) = (root.join("d"), root.join("real"), root.join("link"));
            fs::create_dir(&real).unwrap();
            fs::write(real.join("file"), "harmless").unwrap();
            symlink(outside.join("target"), &link).unwrap();
            while !stop.load(Ordering::Relaxed) {
                fs::rename(&real, &name).unwrap();
                fs::rename(&name, &real).unwrap();
                fs::rename(&link, &name).unwrap();
                fs::rename(&name, &link).unwrap();
            }
        })
    };
    let mut collected = 0;
    for _ in 0..2000 {
        // An error is expected if the directory disappears while it is read.
        if let Ok(outputs) = blobs.collect_outputs(directory.path(), &globs(&["d/file"]), LIMITS).await {
            for file in &outputs.files {
                assert_eq!(file.blob, BlobId::of(b"harmless"));
                collected += 1;
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(blobs.stat(BlobId::of(b"secret")).await.unwrap().is_none());
    eprintln!("collected {collected} times");
}

#[tokio::test]
async fn outputs_are_accepted_up_to_the_limits() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let directory = directory();
    let collect = async |files, bytes| {
        blobs.collect_outputs(directory.path(), &globs(&["**"]), OutputLimits { files, bytes }).await
    };
    assert_eq!(collect(3, 8).await.unwrap().files.len(), 3);
    assert!(matches!(collect(2, 8).await, Err(Error::TooMany { limit: 2, .. })));
    assert!(matches!(collect(3, 7).await, Err(Error::TooLarge { limit: 7, .. })));
    // Sparse file.
    fs::File::create(directory.path().join("hole")).unwrap().set_len(1 << 40).unwrap();
    assert!(matches!(collect(10, 1 << 30).await, Err(Error::TooLarge { .. })));
}

#[tokio::test]
async fn directories_that_are_too_deep_are_reported() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let directory = tempfile::tempdir().unwrap();
    let deep = ["d"; limits::PATH_DEPTH_MAX].join("/");
    fs::create_dir_all(directory.path().join(&deep)).unwrap();
    let parent = &deep[..deep.len() - 2];
    fs::write(directory.path().join(parent).join("last"), "x").unwrap();
    let outputs = collect(&blobs, directory.path(), &["**"]).await;
    assert_eq!(names(&outputs), [format!("{parent}/last")]);
    assert_eq!(outputs.skipped.len(), 1);
    assert!(outputs.skipped[0].path == deep && outputs.skipped[0].why.contains("deep"), "{outputs:?}");
}

#[tokio::test]
async fn skipped_files_beyond_the_limit_are_only_counted() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let directory = tempfile::tempdir().unwrap();
    for number in 0..=limits::SKIPPED_NAMED_MAX {
        symlink("x", directory.path().join(number.to_string())).unwrap();
    }
    let outputs = collect(&blobs, directory.path(), &["*"]).await;
    assert_eq!(
        (outputs.skipped.len(), outputs.skipped_count),
        (limits::SKIPPED_NAMED_MAX, limits::SKIPPED_NAMED_MAX + 1)
    );
}

#[tokio::test]
async fn a_missing_directory_is_an_error() {
    let fixture = Fixture::new();
    let blobs = fixture.open().await;
    let outcome = blobs.collect_outputs(&fixture.directory.path().join("none"), &globs(&["*"]), LIMITS).await;
    assert!(matches!(outcome, Err(Error::Io { .. })));
}
