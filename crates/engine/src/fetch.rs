//! What is not in memory, the engine asks for; it stays pure.

use model::id::JobId;
use model::job::Job;
use model::key::{Day, KeyEntry};
use model::spec::KeyHash;

/// A question to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetch {
    /// A terminal job with its spec.
    Job { id: JobId },
    /// What these idempotency keys led to, on either day (the newer one counts).
    Keys { keys: Vec<KeyHash>, days: [Day; 2] },
    /// Terminal jobs after `after`, oldest first.
    Finished { after: JobId, limit: usize },
    /// Idempotency keys filed before a day.
    OldKeys { before: Day, limit: usize },
}

/// The store's answer, as of some moment after the question.
#[derive(Debug)]
pub enum Fetched {
    Job {
        id: JobId,
        job: Option<Box<Job>>,
    },
    Keys {
        entries: Vec<(KeyHash, Option<KeyEntry>)>,
    },
    /// There is a record, but it is damaged: whoever asked gets no better answer than that.
    UnreadableJob {
        id: JobId,
    },
    UnreadableKeys {
        keys: Vec<KeyHash>,
    },
    /// `more`: there may be others behind the last one.
    Finished {
        jobs: Vec<Job>,
        more: bool,
    },
    OldKeys {
        keys: Vec<Vec<u8>>,
        more: bool,
    },
}
