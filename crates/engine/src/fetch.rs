//! What is not in memory, the engine asks for; it stays pure.

use std::sync::Arc;

use model::batch::Keyspace;
use model::id::{JobId, WorkflowId};
use model::job::Job;
use model::key::{Day, KeyEntry};
use model::spec::KeyHash;
use model::workflow::{Place, Signal, TaskRecord, Workflow, WorkflowSpec};
use workflow::Plan;

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
    /// A workflow that has ended, with all that is kept of it.
    Workflow { id: WorkflowId },
    /// Workflows that have ended after `after`, oldest first.
    FinishedWorkflows { after: WorkflowId, limit: usize },
    /// The keys of what is kept of the tasks and signals of a workflow.
    WorkflowRows { id: WorkflowId, limit: usize },
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
    /// Absent: there is none that has ended.
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
}

/// Everything that is kept of a workflow.
#[derive(Debug)]
pub struct StoredWorkflow {
    pub record: Workflow,
    pub spec: WorkflowSpec,
    /// What `spec` says, read.
    pub plan: Arc<Plan>,
    pub tasks: Vec<(Place, TaskRecord)>,
    pub signals: Vec<(u32, Signal)>,
}
