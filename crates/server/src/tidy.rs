//! Clearing away what a crash has left: output of jobs whose records are gone.
//!
//! A removal's commit comes first, and the files go after it. Between the two the process may die; no record says so
//! afterwards, so the files themselves are asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Weak;

use model::id::{JobId, Shards};
use store::Embedded;

use crate::error::Error;
use crate::reads;

/// Looks through all kept output, in the background. It ends early when the node stops.
pub(crate) fn clear_orphaned_logs(store: &Weak<Embedded>, shards: Shards, logs: &Path) {
    for (job, directory) in directories(logs).flat_map(|level| directories(&level)).filter_map(job_of) {
        let Some(store) = store.upgrade() else { return };
        let kept: Result<bool, Error> =
            reads::job(store.as_ref(), shards.owner(job.slot()), job).map(|record| record.is_some());
        // What cannot be read is not known to be gone.
        if let Ok(false) = kept
            && let Err(error) = fs::remove_dir_all(&directory)
        {
            tracing::warn!(directory = %directory.display(), %error, "the output of a removed job cannot be removed");
        }
    }
}

fn directories(of: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(of).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn job_of(directory: PathBuf) -> Option<(JobId, PathBuf)> {
    let job = directory.file_name()?.to_str()?.parse().ok()?;
    Some((job, directory))
}
