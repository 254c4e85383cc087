//! Reads of records that are not in memory. The engine requests them, the shell answers: the engine does no I/O.

use std::sync::Arc;

use model::audit::{Action, Head, Link};
use model::batch::Keyspace;
use model::id::{JobId, WorkflowId};
use model::job::Job;
use model::key::{Day, KeyEntry};
use model::spec::{Digest, KeyHash};
use model::time::Millis;
use model::workflow::{Signal, TaskKey, TaskRecord, Workflow, WorkflowSpec};
use workflow::Plan;

/// A read request to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetch {
    /// A terminal job with its spec.
    Job { id: JobId },
    /// The entries of these idempotency keys on either day; the newer day wins.
    Keys { keys: Vec<KeyHash>, days: [Day; 2] },
    /// Terminal jobs after `after`, oldest first.
    Finished { after: JobId, limit: usize },
    /// Idempotency keys recorded before a day.
    OldKeys { before: Day, limit: usize },
    /// The oldest entries of the audit log: those after `after`, up to the first that is not older than `before` or does
    /// not continue the chain.
    OldAudit { after: Head, before: Millis, limit: usize },
    /// A workflow that has ended, with all its records.
    Workflow { id: WorkflowId },
    /// Workflows that have ended after `after`, oldest first.
    FinishedWorkflows { after: WorkflowId, limit: usize },
    /// The keys of a workflow's task and signal records.
    WorkflowRows { id: WorkflowId, limit: usize },
    /// The definitions without users among the next `limit` ones; see [`crate::find_unused_definitions`].
    UnusedDefinitions { after: Option<Digest>, limit: usize },
}

/// The store's answer, read at some time after the request.
#[derive(Debug)]
pub enum Fetched {
    Job {
        id: JobId,
        job: Option<Box<Job>>,
    },
    Keys {
        entries: Vec<(KeyHash, Option<KeyEntry>)>,
    },
    /// The record exists but is damaged.
    UnreadableJob {
        id: JobId,
    },
    UnreadableKeys {
        keys: Vec<KeyHash>,
    },
    /// `more`: there may be more records after the last one.
    Finished {
        jobs: Vec<Job>,
        more: bool,
    },
    OldKeys {
        keys: Vec<Vec<u8>>,
        more: bool,
    },
    OldAudit {
        entries: Vec<OldAuditEntry>,
        more: bool,
    },
    /// Absent: no workflow with this id has ended.
    Workflow {
        id: WorkflowId,
        found: Option<Box<StoredWorkflow>>,
    },
    UnreadableWorkflow {
        id: WorkflowId,
    },
    FinishedWorkflows {
        workflows: Vec<Workflow>,
        more: bool,
    },
    WorkflowRows {
        id: WorkflowId,
        rows: Vec<(Keyspace, Vec<u8>)>,
        more: bool,
    },
    UnusedDefinitions {
        unused: Vec<Digest>,
        /// Where to continue. Absent at the end.
        after: Option<Digest>,
    },
}

/// An old entry of the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldAuditEntry {
    pub number: u64,
    pub link: Link,
    pub at: Millis,
    pub action: Action,
}

/// All records of a workflow.
#[derive(Debug)]
pub struct StoredWorkflow {
    pub record: Workflow,
    pub spec: WorkflowSpec,
    /// Compiled from `spec`.
    pub plan: Arc<Plan>,
    pub tasks: Vec<(TaskKey, TaskRecord)>,
    pub signals: Vec<(u32, Signal)>,
}
