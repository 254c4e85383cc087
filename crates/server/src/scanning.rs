//! Looks through results for what must not get out, and asks the policy about what it finds.
//!
//! Shards ask for a look once a success is durable; what comes of it is an input to them. A look that cannot be had is
//! told as such: what becomes of the result then is for its topic to say.

mod content;
mod log;
mod ruling;

use std::sync::Arc;
use std::time::{Duration, Instant};

use blobs::Blobs;
use engine::Input;
use hashbrown::HashSet;
use model::id::ShardId;
use model::job::{Job, LogRef, Scan};
use model::message::Ticket;
use model::verdict::OutputVerdict;
use parking_lot::Mutex;
use scan::Scanner;
use store::Embedded;
use tokio::sync::{Semaphore, mpsc};

use crate::policy::PolicyService;
use crate::reads;
use content::Content;
pub(crate) use ruling::glance;

/// The longest look at one result.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// How many results are looked through at once: this is work beside the work.
const LOOKS_AT_ONCE: usize = 2;

/// What it takes to look at results.
pub(crate) struct Parts {
    pub store: Arc<Embedded>,
    pub blobs: Blobs,
    pub policy: PolicyService,
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Scanning {
    asked: mpsc::UnboundedSender<(ShardId, Ticket)>,
    open: Open,
}

/// What was asked for and is not done yet: asked for again, it is not looked at twice.
type Open = Arc<Mutex<HashSet<Ticket, foldhash::fast::FixedState>>>;

impl Scanning {
    pub fn start(parts: Parts) -> Self {
        let (asked, mut questions) = mpsc::unbounded_channel();
        let (parts, turns) = (Arc::new(parts), Arc::new(Semaphore::new(LOOKS_AT_ONCE)));
        let open = Open::default();
        let done = open.clone();
        tokio::spawn(async move {
            // The patterns take a moment to prepare; servers that scan nothing need not.
            let mut scanner: Option<Scanner> = None;
            while let Some((shard, ticket)) = questions.recv().await {
                let scanner = scanner.get_or_insert_default().clone();
                let Ok(turn) = turns.clone().acquire_owned().await else { return };
                let (parts, done) = (parts.clone(), done.clone());
                tokio::spawn(async move {
                    look(&parts, &scanner, shard, ticket).await;
                    done.lock().remove(&ticket);
                    drop(turn);
                });
            }
        });
        Self { asked, open }
    }

    /// Wants the result of a job's attempt looked at.
    pub fn ask(&self, shard: ShardId, ticket: Ticket) {
        if !self.open.lock().insert(ticket) {
            return;
        }
        // Whoever does not listen any more is about to stop, and the shard asks again after the next start.
        let _ = self.asked.send((shard, ticket));
    }
}

async fn look(parts: &Parts, scanner: &Scanner, shard: ShardId, ticket: Ticket) {
    let Ticket { job, attempt } = ticket;
    let began = Instant::now();
    let looked = tokio::time::timeout(LOOK_MAX, examine(parts, scanner, shard, ticket)).await;
    let input = match looked {
        Ok(Ok(Some(scan))) => Input::Scanned { job, attempt, scan: Box::new(scan) },
        // It was removed, or tried again, meanwhile.
        Ok(Ok(None)) => return,
        Ok(Err(message)) => {
            tracing::warn!(%job, message, "a result could not be scanned");
            Input::ScanFailed { job, attempt, message }
        }
        Err(_) => {
            let message = format!("it took longer than {} s", LOOK_MAX.as_secs());
            tracing::warn!(%job, "a result could not be scanned: {message}");
            Input::ScanFailed { job, attempt, message }
        }
    };
    parts.policy.measures().content.observe(began.elapsed());
    parts.policy.tell(shard, input);
}

async fn examine(parts: &Parts, scanner: &Scanner, shard: ShardId, ticket: Ticket) -> Result<Option<Scan>, String> {
    let job = reads::job(parts.store.as_ref(), shard, ticket.job).map_err(|error| error.to_string())?;
    let Some(job) = job.filter(|job| job.attempt == ticket.attempt) else { return Ok(None) };
    let content = Content::scan(&parts.blobs, scanner, &job).await?;
    let ruling = ruling::rule(&parts.policy, &job, &content).await?;
    let redacted = match ruling.decision.verdict {
        OutputVerdict::Redact => content.redact(&parts.blobs, scanner, &job, ruling.keep_original).await?,
        OutputVerdict::Allow | OutputVerdict::Quarantine | OutputVerdict::Deny => None,
    };
    Ok(Some(Scan { decision: ruling.decision, redacted }))
}

/// The log of the attempt that brought the result.
fn log_of(job: &Job) -> Option<LogRef> {
    job.last_attempt().and_then(|attempt| attempt.log.as_deref().copied())
}
