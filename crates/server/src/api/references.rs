//! References of jobs to blobs and workers, which must exist before a job is accepted.
//!
//! Most jobs have none, and cost no lookup.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use blobs::Blobs;
use blobs::limits::IDS_MAX;
use blobs::workers::Manifest;
use model::blob::{BlobId, WorkerId};
use model::spec::{JobSpec, Run};

use super::problem::{ProblemKind, Refused};

/// The references of a job.
#[derive(Debug, Default)]
pub(crate) struct References {
    blobs: Vec<BlobId>,
    worker: Option<WorkerId>,
    function: Option<String>,
}

impl References {
    pub fn of(spec: &JobSpec) -> Self {
        let (worker, function) = match &spec.run {
            Run::Process(process) => (process.worker, process.function.clone()),
            Run::Wasm(_) | Run::Echo(_) => (None, None),
        };
        Self { blobs: spec.blobs().collect(), worker, function }
    }

    /// References to blobs only.
    pub fn of_blobs(blobs: Vec<BlobId>) -> Self {
        Self { blobs, ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty() && self.worker.is_none()
    }
}

/// Which of the references of some jobs exist.
pub(crate) struct Available {
    missing: BTreeSet<BlobId>,
    workers: BTreeMap<WorkerId, Option<Arc<Manifest>>>,
}

impl Available {
    /// Looks each reference up once. Existing blobs are safe from garbage collection for the grace period, which is long
    /// enough for the jobs to become durable.
    pub async fn of(blobs: &Blobs, jobs: impl Iterator<Item = &References> + Clone) -> Result<Self, Refused> {
        let ids: BTreeSet<BlobId> = jobs.clone().flat_map(|references| references.blobs.iter().copied()).collect();
        let ids: Vec<BlobId> = ids.into_iter().collect();
        let mut missing = BTreeSet::new();
        for some in ids.chunks(IDS_MAX) {
            missing.extend(blobs.missing(some).await?);
        }
        let mut workers = BTreeMap::new();
        for id in jobs.filter_map(|references| references.worker).collect::<BTreeSet<_>>() {
            let manifest = match blobs.manifest(id).await {
                Ok(manifest) => Some(manifest),
                Err(blobs::Error::WorkerNotFound { .. }) => None,
                Err(error) => return Err(error.into()),
            };
            workers.insert(id, manifest);
        }
        Ok(Self { missing, workers })
    }

    /// Checks the references of a job.
    pub fn check(&self, references: &References) -> Result<(), Refused> {
        let mut missing: Vec<BlobId> =
            references.blobs.iter().copied().filter(|id| self.missing.contains(id)).collect();
        missing.sort_unstable();
        missing.dedup();
        if let Some(first) = missing.first() {
            let are_missing = match missing.len() - 1 {
                0 => "is missing".to_owned(),
                others => format!("and {others} more are missing"),
            };
            let detail = format!("{first} {are_missing}. Upload the blobs listed in `blobs`, then submit again");
            return Err(Refused::detailed(ProblemKind::BlobMissing, detail).missing_blobs(missing));
        }
        let Some(id) = references.worker else { return Ok(()) };
        let Some(manifest) = self.workers.get(&id).and_then(Option::as_ref) else {
            let detail = format!("the worker {id} is not registered. Register it, then submit again");
            return Err(Refused::detailed(ProblemKind::WorkerMissing, detail).at("run.process.worker"));
        };
        match &references.function {
            Some(function) if manifest.resolve_function(function).is_none() => {
                let offered: Vec<&str> = manifest.functions.iter().map(|offered| offered.name.as_str()).collect();
                let detail = match offered.as_slice() {
                    [] => format!("the worker has no functions: give a command instead of `{function}`"),
                    some => format!("the worker has no function `{function}`; its functions are: {}", some.join(", ")),
                };
                Err(Refused::detailed(ProblemKind::InvalidField, detail).at("run.process.function"))
            }
            _ => Ok(()),
        }
    }
}
