//! What jobs refer to: blobs and workers that must be there before a job is accepted.
//!
//! Most jobs refer to nothing, and nothing is asked for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use blobs::Blobs;
use blobs::limits::IDS_MAX;
use blobs::workers::Manifest;
use model::blob::{BlobId, WorkerId};
use model::spec::{JobSpec, Run};

use super::problem::{ContentFault, Fault, Refused};

/// What one job refers to.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    blobs: Vec<BlobId>,
    worker: Option<WorkerId>,
    function: Option<String>,
}

impl Needs {
    pub fn of(spec: &JobSpec) -> Self {
        let (worker, function) = match &spec.run {
            Run::Process(process) => (process.worker, process.function.clone()),
            Run::Wasm(_) | Run::Echo(_) => (None, None),
        };
        Self { blobs: spec.blobs().collect(), worker, function }
    }

    /// Blobs alone.
    pub fn of_blobs(blobs: Vec<BlobId>) -> Self {
        Self { blobs, ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty() && self.worker.is_none()
    }
}

/// What is there of all that some jobs refer to.
pub(crate) struct Stock {
    missing: BTreeSet<BlobId>,
    workers: BTreeMap<WorkerId, Option<Arc<Manifest>>>,
}

impl Stock {
    /// Asks for everything once, however many jobs refer to it. What is there is safe from collection for the grace
    /// period, long enough for the jobs to become records.
    pub async fn look(blobs: &Blobs, jobs: impl Iterator<Item = &Needs> + Clone) -> Result<Self, Refused> {
        let asked: BTreeSet<BlobId> = jobs.clone().flat_map(|needs| needs.blobs.iter().copied()).collect();
        let asked: Vec<BlobId> = asked.into_iter().collect();
        let mut missing = BTreeSet::new();
        for some in asked.chunks(IDS_MAX) {
            missing.extend(blobs.missing(some).await?);
        }
        let mut workers = BTreeMap::new();
        for id in jobs.filter_map(|needs| needs.worker).collect::<BTreeSet<_>>() {
            let manifest = match blobs.manifest(id).await {
                Ok(manifest) => Some(manifest),
                Err(blobs::Error::WorkerNotFound { .. }) => None,
                Err(error) => return Err(error.into()),
            };
            workers.insert(id, manifest);
        }
        Ok(Self { missing, workers })
    }

    /// Whether a job's needs are met; if not, what to do about it.
    pub fn check(&self, needs: &Needs) -> Result<(), Refused> {
        let mut lacking: Vec<BlobId> = needs.blobs.iter().copied().filter(|id| self.missing.contains(id)).collect();
        lacking.sort_unstable();
        lacking.dedup();
        if let Some(first) = lacking.first() {
            let others = match lacking.len() - 1 {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            let detail = format!("there is no {first}{others}. Upload what `blobs` names, then submit again");
            return Err(Refused::saying(ContentFault::BlobMissing.into(), detail).lacking(lacking));
        }
        let Some(id) = needs.worker else { return Ok(()) };
        let Some(manifest) = self.workers.get(&id).and_then(Option::as_ref) else {
            let detail = format!("no worker {id} is registered. Register its directory, then submit again");
            return Err(Refused::saying(ContentFault::WorkerMissing.into(), detail).at("run.process.worker"));
        };
        match &needs.function {
            Some(function) if manifest.function_called(function).is_none() => {
                let offered: Vec<&str> = manifest.functions.iter().map(|offered| offered.name.as_str()).collect();
                let detail = match offered.as_slice() {
                    [] => format!("the worker has no functions, so none is `{function}`: name a command instead"),
                    some => format!("the worker has no function `{function}`; it has: {}", some.join(", ")),
                };
                Err(Refused::saying(Fault::InvalidField, detail).at("run.process.function"))
            }
            _ => Ok(()),
        }
    }
}
