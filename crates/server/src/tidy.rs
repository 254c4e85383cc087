//! Clearing away what nothing refers to any more: blobs of jobs that are gone, and output that a crash has left.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::{Duration, SystemTime};

use blobs::Blobs;
use model::batch::Keyspace;
use model::blob::{BlobId, named_in};
use model::id::{ShardId, Shards};
use store::{Embedded, Order, Range, Store};
use tokio::sync::watch;

use crate::error::Error;
use crate::reads;

/// How many records are read at once.
const PAGE: usize = 500;

/// What is kept tidy.
pub(crate) struct House {
    pub store: Weak<Embedded>,
    pub shards: Shards,
    pub logs: PathBuf,
    pub blobs: Blobs,
    pub interval: Duration,
    pub stopping: watch::Receiver<bool>,
}

/// Tidies up now and then, until the node stops.
pub(crate) async fn keep_tidy(mut house: House) {
    let (store, shards, logs) = (house.store.clone(), house.shards, house.logs.clone());
    // Without it nothing but disk space is lost.
    let _ = tokio::task::spawn_blocking(move || clear_orphaned_logs(&store, shards, &logs)).await;
    loop {
        tokio::select! {
            () = tokio::time::sleep(house.interval) => {}
            _ = house.stopping.wait_for(|stopping| *stopping) => return,
        }
        match collect(&house).await {
            Ok(Some(swept)) => tracing::info!(?swept, "blobs that nothing refers to were removed"),
            Ok(None) => return,
            // What cannot be read is not known to be unused: nothing was removed.
            Err(error) => tracing::warn!(%error, "unused blobs cannot be found"),
        }
        if let Err(error) = house.blobs.remove_abandoned_uploads(SystemTime::now()).await {
            tracing::warn!(%error, "abandoned uploads cannot be removed");
        }
    }
}

/// Removes the blobs that no job on record and no worker refers to. `None` when the node is gone.
async fn collect(house: &House) -> Result<Option<blobs::Swept>, Error> {
    // First: whatever is put from here on is safe.
    let collection = house.blobs.begin_collection()?;
    let (store, shards) = (house.store.clone(), house.shards);
    let marked = tokio::task::spawn_blocking(move || mark(&store, shards)).await;
    let Some(in_use) = marked.map_err(|error| Error::Panicked(error.to_string()))?? else { return Ok(None) };
    Ok(Some(collection.sweep(|blob| in_use.contains(blob), SystemTime::now()).await?))
}

/// Where workflows keep what names blobs: what they were started with, what their tasks hand on, what they come to. The
/// live ones twice: one that ends meanwhile is found among those that have ended, one that is run again among these.
const NAMING: [Keyspace; 7] = [
    Keyspace::Workflows,
    Keyspace::WorkflowsDone,
    Keyspace::WorkflowSpecs,
    Keyspace::Tasks,
    Keyspace::Signals,
    Keyspace::Schedules,
    Keyspace::Workflows,
];

/// Every blob that a job, a workflow or a schedule on record refers to. Holds the store only for a page at a time, so
/// that it can be closed.
fn mark(store: &Weak<Embedded>, shards: Shards) -> Result<Option<HashSet<BlobId>>, Error> {
    let mut in_use = HashSet::new();
    for shard in shards.all() {
        // Live last: a job that ends meanwhile is found in one of the two, one that is retried in the other.
        for keyspace in [Keyspace::Live, Keyspace::Done, Keyspace::Live] {
            let is_there = each(store, shard, keyspace, |store, value| {
                let job = reads::complete(store, shard, reads::decode(shard, value)?)?;
                in_use.extend(job.blobs().map_err(|source| Error::Record { shard: shard.0, source })?);
                Ok(())
            })?;
            if !is_there {
                return Ok(None);
            }
        }
        for keyspace in NAMING {
            let is_there = each(store, shard, keyspace, |_, value| {
                in_use.extend(named_in(value));
                Ok(())
            })?;
            if !is_there {
                return Ok(None);
            }
        }
    }
    Ok(Some(in_use))
}

/// Goes through a keyspace page by page. False when the node is gone.
fn each(
    store: &Weak<Embedded>,
    shard: ShardId,
    keyspace: Keyspace,
    mut take: impl FnMut(&Embedded, &[u8]) -> Result<(), Error>,
) -> Result<bool, Error> {
    let mut range = Range::all();
    loop {
        let Some(store) = store.upgrade() else { return Ok(false) };
        let page = store.scan(shard, keyspace, range, Order::Ascending, PAGE)?;
        page.iter().try_for_each(|(_, value)| take(&store, value))?;
        match page.last() {
            Some((last, _)) if page.len() == PAGE => range = Range::all().after(last),
            Some(_) | None => return Ok(true),
        }
    }
}

/// Looks through all output files: those of jobs that are gone, or that have ended and whose output is a blob, go.
fn clear_orphaned_logs(store: &Weak<Embedded>, shards: Shards, logs: &Path) {
    for file in entries(logs).flat_map(|directory| entries(&directory)) {
        let Some(ticket) = runner::logs::ticket_of(&file) else { continue };
        let Some(store) = store.upgrade() else { return };
        let needed = match reads::job(store.as_ref(), shards.owner(ticket.job.slot()), ticket.job) {
            Ok(Some(job)) => {
                let ended = job.attempts.iter().find(|attempt| attempt.attempt == ticket.attempt);
                // One without an end may still be under way to it.
                ended.is_none_or(|attempt| attempt.ended_at.is_none())
            }
            Ok(None) => false,
            // What cannot be read is not known to be gone.
            Err(_) => true,
        };
        if !needed && let Err(error) = fs::remove_file(&file) {
            tracing::warn!(file = %file.display(), %error, "an output file cannot be removed");
        }
    }
}

fn entries(of: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(of).into_iter().flatten().flatten().map(|entry| entry.path())
}
