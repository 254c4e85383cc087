//! Killed processes: acknowledged blobs are present, partial ones are not visible.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use blobs::Blobs;
use model::blob::BlobId;

use crate::support::{Fixture, content, files_below, noise, options_at};

const CHILD_DIRECTORY: &str = "BLOBS_TEST_CHILD_DIRECTORY";
const KILLS: u64 = 20;

/// Some small, some large enough for a scratch file.
fn original(number: u64) -> bytes::Bytes {
    noise(if number.is_multiple_of(3) { 3_000_000 } else { 10_000 }, number)
}

/// Not a test: the process that is killed. It prints the acknowledged puts.
#[tokio::test]
async fn child_that_puts_until_it_is_killed() {
    let Ok(directory) = std::env::var(CHILD_DIRECTORY) else { return };
    let blobs = Blobs::open(options_at(Path::new(&directory))).await.unwrap();
    let start = files_below(&Path::new(&directory).join("store/blobs")).len() as u64;
    for number in start.. {
        let id = blobs.put(original(number)).await.unwrap();
        let pinned = blobs.materialise(id).await.unwrap();
        assert!(pinned.path().exists());
        println!("put {number}");
    }
}

// FEATURES: C11
#[tokio::test]
async fn a_killed_process_leaves_only_complete_blobs() {
    let fixture = Fixture::new();
    let mut acknowledged = Vec::new();
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child_that_puts_until_it_is_killed", "--nocapture"])
            .env(CHILD_DIRECTORY, fixture.directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Varies the time of the kill.
        std::thread::sleep(Duration::from_millis(60 + 17 * kill % 90));
        child.kill().unwrap();
        let mut printed = String::new();
        child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        child.wait().unwrap();
        acknowledged.extend(
            printed
                .lines()
                .filter_map(|line| line.split_once("put "))
                .filter_map(|(_, number)| number.parse::<u64>().ok()),
        );
    }
    assert!(acknowledged.len() > 10, "{acknowledged:?}");
    let blobs = fixture.open().await;
    for number in &acknowledged {
        let original = original(*number);
        assert!(content(&blobs, BlobId::of(&original)).await.unwrap() == original, "{number}");
    }
    // All visible blobs are complete.
    for path in files_below(&fixture.directory.path().join("store/blobs")) {
        let id = format!("blob:{}", path.file_name().unwrap().to_str().unwrap()).parse().unwrap();
        content(&blobs, id).await.unwrap();
        blobs.materialise(id).await.unwrap();
    }
    // Opening has removed the scratch directories of the killed processes.
    for scratch in ["store/scratch", "work/scratch"] {
        let scratch = fixture.directory.path().join(scratch);
        assert_eq!(files_below(&scratch), [] as [&Path; 0]);
        assert_eq!(fs::read_dir(scratch).unwrap().count(), 1);
    }
}
