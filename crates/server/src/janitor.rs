//! Janitor: garbage collection of blobs, and removal of output files that a crash left behind.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::{Duration, SystemTime};

use blobs::Blobs;
use model::batch::Keyspace;
use model::blob::{BlobId, named_in};
use model::id::{ShardId, Shards};
use shard::reads;
use store::{Order, Range, Store};
use tokio::sync::watch;

use crate::error::Error;

/// Records per page of a scan.
const PAGE: usize = 500;

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
    loop {
        tokio::select! {
            () = tokio::time::sleep(janitor.interval) => {}
            _ = janitor.stopping.wait_for(|stopping| *stopping) => return,
        }
        match collect(&janitor).await {
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
async fn collect(janitor: &Janitor) -> Result<Option<blobs::SweepStats>, Error> {
    // Before marking: blobs put from here on are not swept.
    let collection = janitor.blobs.begin_collection()?;
    let (store, shards) = (janitor.store.clone(), janitor.shards);
    let marked = tokio::task::spawn_blocking(move || mark(&store, shards)).await;
    let Some(in_use) = marked.map_err(|error| Error::Panicked(error.to_string()))?? else { return Ok(None) };
    Ok(Some(collection.sweep(|blob| in_use.contains(blob), SystemTime::now()).await?))
}

/// Keyspaces of workflows with references to blobs: definitions, inputs, task results, outputs. Live workflows are scanned twice:
/// one that ends during the scan is found under `WorkflowsDone`, a rerun one by the second scan.
const WORKFLOW_KEYSPACES: [Keyspace; 8] = [
    Keyspace::Workflows,
    Keyspace::WorkflowsDone,
    Keyspace::WorkflowSpecs,
    Keyspace::Definitions,
    Keyspace::Tasks,
    Keyspace::Signals,
    Keyspace::Schedules,
    Keyspace::Workflows,
];

/// All blobs that a job, workflow or schedule on record refers to. Holds the store for one page at a time, so that it
/// can be closed.
fn mark(store: &Weak<dyn Store>, shards: Shards) -> Result<Option<HashSet<BlobId>>, Error> {
    let mut in_use = HashSet::new();
    for shard in shards.all() {
        // `Live` twice: a job that ends during the scan is found under `Done`, a retried one by the second scan.
        for keyspace in [Keyspace::Live, Keyspace::Done, Keyspace::Live] {
            let is_open = for_each_record(store, shard, keyspace, |store, value| {
                let job = reads::complete(store, shard, reads::decode(shard, value)?)?;
                in_use.extend(job.blobs().map_err(|source| Error::record(shard, source))?);
                Ok(())
            })?;
            if !is_open {
                return Ok(None);
            }
        }
        for keyspace in WORKFLOW_KEYSPACES {
            let is_open = for_each_record(store, shard, keyspace, |_, value| {
                in_use.extend(named_in(value));
                Ok(())
            })?;
            if !is_open {
                return Ok(None);
            }
        }
    }
    Ok(Some(in_use))
}

/// Scans a keyspace page by page. False after the node has stopped.
fn for_each_record(
    store: &Weak<dyn Store>,
    shard: ShardId,
    keyspace: Keyspace,
    mut visit: impl FnMut(&dyn Store, &[u8]) -> Result<(), Error>,
) -> Result<bool, Error> {
    let mut range = Range::all();
    loop {
        let Some(store) = store.upgrade() else { return Ok(false) };
        let page = store.scan(shard, keyspace, range, Order::Ascending, PAGE)?;
        page.iter().try_for_each(|(_, value)| visit(store.as_ref(), value))?;
        match page.last() {
            Some((last, _)) if page.len() == PAGE => range = Range::all().after(last),
            Some(_) | None => return Ok(true),
        }
    }
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
