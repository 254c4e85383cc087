//! Content scan: searches results for secrets and personal data, and has the policy decide about the findings.
//!
//! Shards request a scan after the commit of a success and receive the outcome as an input. If a scan fails, the fail
//! mode of the topic decides about the result.

mod content;
mod decision;
mod log;

use std::sync::Arc;
use std::time::{Duration, Instant};

use blobs::Blobs;
use engine::Input;
use hashbrown::HashMap;
use model::id::{Epoch, ShardId};
use model::job::{Job, LogRef, Scan};
use model::message::AttemptRef;
use model::verdict::OutputVerdict;
use parking_lot::Mutex;
use scan::Scanner;
use shard::reads;
use store::Store;
use tokio::sync::{Semaphore, mpsc};

use crate::policy::PolicyChecks;
use content::Content;
pub(crate) use decision::check_metadata;

/// Time limit of one scan.
const SCAN_TIMEOUT: Duration = Duration::from_secs(30);

/// Concurrent scans. Low, because scans compete with jobs for CPU.
const SCANS_AT_ONCE: usize = 2;

/// Dependencies of a scan.
pub(crate) struct ScanContext {
    pub store: Arc<dyn Store>,
    pub blobs: Blobs,
    pub policy: PolicyChecks,
}

/// Handle to the scan tasks. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Scanning {
    requests: mpsc::UnboundedSender<(ShardId, AttemptRef)>,
    pending: Pending,
}

/// Attempts whose scan is requested or running, with the newest owner of their shard that asked. A repeated request
/// starts no other scan.
type Pending = Arc<Mutex<HashMap<AttemptRef, Epoch, foldhash::fast::FixedState>>>;

impl Scanning {
    pub fn start(context: ScanContext) -> Self {
        let (requests, mut receiver) = mpsc::unbounded_channel();
        let (context, permits) = (Arc::new(context), Arc::new(Semaphore::new(SCANS_AT_ONCE)));
        let pending = Pending::default();
        let done = pending.clone();
        tokio::spawn(async move {
            // Created on first use: compiling the patterns is slow, and many servers scan nothing.
            let mut scanner: Option<Scanner> = None;
            while let Some((shard, attempt_ref)) = receiver.recv().await {
                let scanner = scanner.get_or_insert_default().clone();
                let Ok(permit) = permits.clone().acquire_owned().await else { return };
                let (context, pending) = (context.clone(), done.clone());
                tokio::spawn(async move {
                    let input = scan(&context, &scanner, shard, attempt_ref).await;
                    let epoch = pending.lock().remove(&attempt_ref);
                    if let (Some(epoch), Some(input)) = (epoch, input) {
                        context.policy.reply(shard, epoch, input);
                    }
                    drop(permit);
                });
            }
        });
        Self { requests, pending }
    }

    /// Requests a scan of the result of an attempt.
    pub fn request(&self, shard: ShardId, epoch: Epoch, attempt_ref: AttemptRef) {
        if self.pending.lock().insert(attempt_ref, epoch).is_some() {
            return;
        }
        // Without a receiver the node is stopping; the shard repeats the request after the restart.
        let _ = self.requests.send((shard, attempt_ref));
    }
}

/// Scans the result of an attempt. None: nothing is left to scan.
async fn scan(context: &ScanContext, scanner: &Scanner, shard: ShardId, attempt_ref: AttemptRef) -> Option<Input> {
    let AttemptRef { job, attempt } = attempt_ref;
    let start = Instant::now();
    let scanned = tokio::time::timeout(SCAN_TIMEOUT, scan_result(context, scanner, shard, attempt_ref)).await;
    let input = match scanned {
        Ok(Ok(Some(scan))) => Input::Scanned { job, attempt, scan: Box::new(scan) },
        // The job was removed or retried during the scan.
        Ok(Ok(None)) => return None,
        Ok(Err(message)) => {
            tracing::warn!(%job, message, "cannot scan a result");
            Input::ScanFailed { job, attempt, message }
        }
        Err(_) => {
            let message = format!("the scan took longer than {} s", SCAN_TIMEOUT.as_secs());
            tracing::warn!(%job, "cannot scan a result: {message}");
            Input::ScanFailed { job, attempt, message }
        }
    };
    context.policy.measures().content.observe(start.elapsed());
    Some(input)
}

async fn scan_result(
    context: &ScanContext,
    scanner: &Scanner,
    shard: ShardId,
    attempt_ref: AttemptRef,
) -> Result<Option<Scan>, String> {
    let store = context.store.clone();
    let read = tokio::task::spawn_blocking(move || reads::job(store.as_ref(), shard, attempt_ref.job)).await;
    let job = read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    let Some(job) = job.filter(|job| job.attempt == attempt_ref.attempt) else { return Ok(None) };
    let content = Content::scan(&context.blobs, scanner, &job).await?;
    let checked = decision::decide(&context.policy, &job, &content).await?;
    let redacted = match checked.decision.verdict {
        OutputVerdict::Redact => content.redact(&context.blobs, scanner, &job, checked.keep_original).await?,
        OutputVerdict::Allow | OutputVerdict::Quarantine | OutputVerdict::Deny => None,
    };
    Ok(Some(Scan { decision: checked.decision, redacted }))
}

/// Log of the attempt that produced the result.
fn log_of(job: &Job) -> Option<LogRef> {
    job.last_attempt().and_then(|attempt| attempt.log.as_deref().copied())
}
