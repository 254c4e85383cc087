//! Janitor: garbage collection of blobs, and removal of output files that a crash left behind.

mod marks;
mod ranges;
mod records;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use blobs::Blobs;
use model::id::Shards;
use parking_lot::Mutex;
use shard::reads;
use store::Store;
use tokio::sync::watch;

use crate::error::Error;
use marks::Marker;

/// How often the marks follow the commits between collections. The journal keeps commits for longer, also at its highest
/// rate.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Janitor {
    pub store: Weak<dyn Store>,
    pub shards: Shards,
    pub logs: PathBuf,
    pub blobs: Blobs,
    pub interval: Duration,
    pub stopping: watch::Receiver<bool>,
}

/// Runs at every interval until the node stops.
pub(crate) async fn run_janitor(mut janitor: Janitor) {
    let (store, shards, logs) = (janitor.store.clone(), janitor.shards, janitor.logs.clone());
    // A failure costs disk space only.
    let _ = tokio::task::spawn_blocking(move || clear_orphaned_logs(&store, shards, &logs)).await;
    let marker = Arc::new(Mutex::new(Marker::new(shards)));
    while wait(&mut janitor, &marker).await {
        match collect(&janitor, &marker).await {
            Ok(Some(swept)) => tracing::info!(?swept, "unreferenced blobs removed"),
            Ok(None) => return,
            // An unreadable record may refer to any blob: nothing was removed.
            Err(error) => tracing::warn!(%error, "garbage collection of blobs failed"),
        }
        if let Err(error) = janitor.blobs.remove_abandoned_uploads(SystemTime::now()).await {
            tracing::warn!(%error, "cannot remove abandoned uploads");
        }
    }
}

/// Removes the blobs that no record and no worker refers to. `None` after the node has stopped.
async fn collect(janitor: &Janitor, marker: &Arc<Mutex<Marker>>) -> Result<Option<blobs::SweepStats>, Error> {
    // Before marking: blobs put from here on are not swept.
    let collection = janitor.blobs.begin_collection()?;
    let (store, marks) = (janitor.store.clone(), Arc::clone(marker));
    let marked = tokio::task::spawn_blocking(move || marks.lock().mark(&store)).await;
    let Some(in_use) = marked.map_err(|error| Error::Panicked(error.to_string()))?? else { return Ok(None) };
    let mut sweep = std::pin::pin!(collection.sweep(|blob| in_use.contains(blob), SystemTime::now()));
    loop {
        tokio::select! {
            swept = &mut sweep => return Ok(Some(swept?)),
            // A large bucket takes long.
            () = tokio::time::sleep(FOLLOW_INTERVAL) => {
                follow(janitor, marker).await;
            }
        }
    }
}

/// Waits for the next collection, while the marks follow the commits. False after the node has stopped.
async fn wait(janitor: &mut Janitor, marker: &Arc<Mutex<Marker>>) -> bool {
    let since = Instant::now();
    loop {
        let remaining = janitor.interval.saturating_sub(since.elapsed());
        tokio::select! {
            () = tokio::time::sleep(remaining.min(FOLLOW_INTERVAL)) => {}
            _ = janitor.stopping.wait_for(|stopping| *stopping) => return false,
        }
        if remaining <= FOLLOW_INTERVAL {
            return true;
        }
        if !follow(janitor, marker).await {
            return false;
        }
    }
}

/// Lets the marks follow the commits. False after the node has stopped.
async fn follow(janitor: &Janitor, marker: &Arc<Mutex<Marker>>) -> bool {
    let (store, marker) = (janitor.store.clone(), Arc::clone(marker));
    let is_open = tokio::task::spawn_blocking(move || marker.lock().follow(&store)).await;
    // After a panic the marks are gone, and the next collection reads all records.
    is_open.unwrap_or(true)
}

/// Removes the output files of deleted jobs, and of ended attempts, whose output is a blob.
fn clear_orphaned_logs(store: &Weak<dyn Store>, shards: Shards, logs: &Path) {
    for file in entries(logs).flat_map(|directory| entries(&directory)) {
        let Some(attempt_ref) = runner::logs::attempt_of(&file) else { continue };
        let Some(store) = store.upgrade() else { return };
        let needed = match reads::job(store.as_ref(), shards.owner(attempt_ref.job.slot()), attempt_ref.job) {
            Ok(Some(job)) => {
                let ended = job.attempts.iter().find(|attempt| attempt.attempt == attempt_ref.attempt);
                // The end of an attempt without one may still be on its way.
                ended.is_none_or(|attempt| attempt.ended_at.is_none())
            }
            Ok(None) => false,
            // An unreadable job may still exist.
            Err(_) => true,
        };
        if !needed && let Err(error) = fs::remove_file(&file) {
            tracing::warn!(file = %file.display(), %error, "cannot remove an output file");
        }
    }
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}
