//! What the API shows: the JSON shapes that server, client and command line share.

mod audit;
mod content;
mod governance;
mod schedule;
mod task;
mod why;
mod workflow;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::blob::BlobId;
use crate::id::{Attempt, JobId, NodeId, QueueId, ScheduleId, WorkflowId};
use crate::job::{Artifact, Job, LogRef};
use crate::json::Json;
use crate::queue::{Counters, Queue, QueueState};
use crate::spec::{JobSpec, Limits, Priority, Run, Sandbox};
use crate::state::State;
use crate::time::Timestamp;

pub use audit::{
    AuditEntryView, AuditHeadView, AuditReportView, BrokenView, ExportedEntry, ExportedHead, ShardAuditView,
};
pub use content::{
    BlobList, BlobView, FunctionView, MissingView, UploadView, WorkerDetailView, WorkerFileView, WorkerView,
};
pub use governance::{
    ApprovalDetailView, ApprovalView, ApprovalWord, ApprovalWordView, CheckView, ConstraintsView, DecisionView,
    LetterDetailView, LetterView, OriginalView, OutputDecisionView, ParkedView, PolicyView, PurgedView, RulesView,
    SpokenView, TenantLimitsView, TenantView, digest_as_text, digest_of_text, is_hidden, is_withheld,
};
pub use schedule::{ScheduleStart, ScheduleView};
pub use task::{CompensationView, ProgressView, TaskKind, TaskRefView, TaskView};
pub use why::{PlacedView, PlacementView, RunnerWhyView, WaitsForView, WhyView};
pub use workflow::{
    CancelWorkflow, DiagnosticView, FromScheduleView, OriginView, ParentView, PlaceView, ProgressReport, ReasonView,
    RerunWorkflow, RollbackView, SignalledView, TallyView, UsageView, ValidView, WorkflowEventView,
    WorkflowHistoryView, WorkflowStart, WorkflowView,
};

/// A state and when it was entered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateView {
    pub state: State,
    pub at: Timestamp,
}

/// A job as the API shows it: what was asked for, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    pub id: JobId,
    pub seq: u64,
    pub state: State,
    /// Why it is in this state, as a stable code.
    pub reason: Option<String>,
    /// The same for people.
    pub message: Option<String>,
    pub queue: QueueId,
    pub attempt: Attempt,
    pub retries: u32,
    pub created_at: Timestamp,
    pub states: Vec<StateView>,
    /// The runner that has it in hand, or had it last.
    pub runner: Option<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub cpu_seconds: Option<f64>,
    /// Of one core, while it runs and its node knows.
    #[serde(default)]
    pub cpu_percent: Option<f64>,
    pub memory_peak_bytes: Option<u64>,
    pub result: Option<Json>,
    /// The files that its `outputs` have caught.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    /// When it is looked at next, while it waits.
    pub eligible_at: Option<Timestamp>,
    pub topic: String,
    pub tenant: String,
    pub priority: Priority,
    pub run: Run,
    pub timeout_ms: Option<u64>,
    pub deadline: Option<Timestamp>,
    pub not_before: Option<Timestamp>,
    /// Its own, or its queue's.
    pub max_retries: u32,
    pub labels: BTreeMap<String, String>,
    pub sandbox: Option<Sandbox>,
    #[serde(default)]
    pub inputs: BTreeMap<String, BlobId>,
    #[serde(default)]
    pub outputs: Vec<String>,
    #[serde(default)]
    pub limits: Limits,
    pub idempotency_key: Option<String>,
    /// Who submitted it, as far as the server was told.
    #[serde(default)]
    pub submitter: Option<String>,
    /// Capabilities that its runner must have.
    #[serde(default)]
    pub requires: Vec<String>,
    /// What the policy limits.
    #[serde(default)]
    pub constraints: Option<ConstraintsView>,
    /// A person's word on it.
    #[serde(default)]
    pub approval: Option<ApprovalWordView>,
    /// The task of a workflow that it does or undoes.
    #[serde(default)]
    pub origin: Option<OriginView>,
}

impl JobView {
    /// `spec` is the job's own, decoded. A result that nobody may see (yet), see [`is_hidden`], is left out with its
    /// files.
    pub fn new(job: &Job, spec: JobSpec) -> Self {
        let hidden = is_hidden(job);
        let last = job.last_attempt();
        let usage = last.and_then(|attempt| attempt.usage);
        Self {
            id: job.id,
            seq: job.seq,
            state: job.state,
            reason: job.reason.as_ref().map(|reason| reason.code.as_str().to_owned()),
            message: job.reason.as_ref().and_then(|reason| reason.message.clone()),
            queue: job.queue,
            attempt: job.attempt,
            retries: job.retries,
            created_at: Timestamp(job.created_at),
            states: job.states.iter().map(|entry| StateView { state: entry.state, at: Timestamp(entry.at) }).collect(),
            runner: last.map(|attempt| attempt.runner.to_string()),
            exit_code: last.and_then(|attempt| attempt.exit_code),
            signal: last.and_then(|attempt| attempt.signal),
            cpu_seconds: usage.map(|usage| usage.cpu.0 as f64 / 1000.0),
            memory_peak_bytes: usage.map(|usage| usage.memory_peak_bytes),
            cpu_percent: None,
            result: job.result.clone().filter(|_| !hidden),
            artifacts: if hidden { Vec::new() } else { job.artifacts().to_vec() },
            topic: spec.topic,
            tenant: spec.tenant,
            priority: spec.priority,
            run: spec.run,
            timeout_ms: job.timeout.map(|timeout| timeout.0),
            deadline: spec.deadline,
            not_before: spec.not_before,
            max_retries: job.max_retries,
            labels: spec.labels,
            sandbox: spec.sandbox,
            inputs: spec.inputs,
            outputs: spec.outputs,
            limits: spec.limits,
            idempotency_key: spec.idempotency_key,
            submitter: job.submitter.as_deref().map(str::to_owned),
            requires: spec.requires,
            constraints: job.constraints.as_deref().map(Into::into),
            approval: job.approval.as_deref().map(Into::into),
            origin: job.origin.as_deref().map(OriginView::new),
            eligible_at: (!job.state.is_terminal() && job.eligible_at > job.created_at)
                .then_some(Timestamp(job.eligible_at)),
        }
    }
}

/// The answer to a submit: what is needed to find the job again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedView {
    pub id: JobId,
    pub seq: u64,
    pub state: State,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deduplicated: bool,
}

/// One answer of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BatchItem {
    Accepted(AcceptedView),
    Refused { error: Problem },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchView {
    pub results: Vec<BatchItem>,
}

/// One try at a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptView {
    pub attempt: Attempt,
    pub runner: String,
    pub dispatched_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Absent while it runs, and when nobody knows how it ended.
    pub end: Option<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub cpu_seconds: Option<f64>,
    pub memory_peak_bytes: Option<u64>,
    /// Its output, once it is kept as a blob.
    #[serde(default)]
    pub log: Option<LogRef>,
    pub message: Option<String>,
    /// Why it went to this runner. Absent where there was no other.
    #[serde(default)]
    pub placement: Option<PlacementView>,
}

/// A job's life: states, attempts, decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryView {
    pub id: JobId,
    pub state: State,
    pub states: Vec<StateView>,
    /// How many states were left out of the middle of a long life.
    pub states_dropped: u32,
    pub attempts: Vec<AttemptView>,
    pub attempts_dropped: u32,
    /// What the policy said of the job.
    pub decisions: Vec<DecisionView>,
    /// What a person said of it, when the policy had asked.
    #[serde(default)]
    pub approval: Option<ApprovalWordView>,
    /// What the policy said of its results.
    #[serde(default)]
    pub output_decisions: Vec<OutputDecisionView>,
}

impl HistoryView {
    /// Where the output of an attempt is that nobody may see (yet), see [`is_withheld`], is left out.
    pub fn new(job: &Job) -> Self {
        let attempt_view = |attempt: &crate::job::AttemptRecord| AttemptView {
            attempt: attempt.attempt,
            runner: attempt.runner.to_string(),
            dispatched_at: Timestamp(attempt.dispatched_at),
            started_at: attempt.started_at.map(Timestamp),
            ended_at: attempt.ended_at.map(Timestamp),
            end: attempt.end.map(|end| end.as_str().to_owned()),
            exit_code: attempt.exit_code,
            signal: attempt.signal,
            cpu_seconds: attempt.usage.map(|usage| usage.cpu.0 as f64 / 1000.0),
            memory_peak_bytes: attempt.usage.map(|usage| usage.memory_peak_bytes),
            log: attempt.log.as_deref().copied().filter(|_| !is_withheld(job, attempt)),
            message: attempt.message.clone(),
            placement: attempt.placement.as_deref().map(Into::into),
        };
        Self {
            id: job.id,
            state: job.state,
            states: job.states.iter().map(|entry| StateView { state: entry.state, at: Timestamp(entry.at) }).collect(),
            states_dropped: job.states_dropped,
            attempts: job.attempts.iter().map(attempt_view).collect(),
            attempts_dropped: job.attempts_dropped,
            decisions: job.decisions.iter().map(Into::into).collect(),
            approval: job.approval.as_deref().map(Into::into),
            output_decisions: job.output_decisions().iter().map(Into::into).collect(),
        }
    }
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the next page begins; absent on the last one. A page may be short, or empty, and still have a next one.
    pub next_cursor: Option<String>,
}

/// A queue as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    pub id: QueueId,
    /// Shown to whoever creates the queue or already knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    pub tag: String,
    pub tenant: String,
    pub state: QueueState,
    pub max_retries: u32,
    pub max_running: Option<u32>,
    pub created_at: Timestamp,
    /// It belongs to its tenant's jobs that name no queue.
    pub implicit: bool,
    pub counters: Counters,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deduplicated: bool,
}

impl QueueView {
    /// Without its token.
    pub fn new(queue: &Queue) -> Self {
        Self {
            id: queue.id,
            token: None,
            tag: queue.tag.clone(),
            tenant: queue.tenant.clone(),
            state: queue.state,
            max_retries: queue.max_retries,
            max_running: queue.max_running,
            created_at: Timestamp(queue.created_at),
            implicit: queue.implicit,
            counters: queue.counters,
            deduplicated: false,
        }
    }
}

/// The body of a request for a new queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSpec {
    pub tag: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
}

/// One change, as subscribers get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeView {
    /// Where to go on after this one.
    pub cursor: String,
    /// `job`, `queue`, `workflow`, `task` or `schedule`, or one of the first three or the last with `_removed`.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Absent for schedules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowId>,
    /// The task of the workflow that has entered a state, by number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<PlaceView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleId>,
    /// The state that it has entered; of a schedule `active` or `paused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub at: Timestamp,
}

/// An error, as RFC 9457 has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    /// Stable, snake_case.
    pub code: String,
    /// The value at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The blobs that the server lacks, where that is the problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobId>,
    /// Where an upload goes on, where that is the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Everything that is wrong with a definition, where that is the problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<DiagnosticView>,
}

/// A node as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    pub id: NodeId,
    /// Counts its starts.
    pub incarnation: u64,
    pub version: String,
    /// How many jobs of each kind it takes at once.
    pub capacity: CapacityView,
    /// What programs could still get without anything being killed.
    pub memory_available_bytes: Option<u64>,
    /// What keeps jobs from its host and within their limits.
    pub protections: Vec<ProtectionView>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityView {
    pub process: u32,
    pub wasm: u32,
    pub echo: u32,
}

/// A protection or a limit, and how it is kept on a node, or why it is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectionView {
    pub name: String,
    pub in_force: bool,
    pub how: String,
}
