//! Jobs: submit, show, history.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::blob::BlobId;
use model::id::{Attempt, JobId, QueueId};
use model::job::{Artifact, AttemptRecord, Job, LogRef};
use model::json::Json;
use model::spec::{JobSpec, Limits, Priority, Run, Sandbox};
use model::state::State;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::visibility::{is_hidden, is_withheld};
use crate::{
    ApprovalDecisionView, ConstraintsView, DecisionView, OriginView, OutputDecisionView, PlacementView, Problem,
};

/// A state and the time it was entered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = StateAt)]
pub struct StateView {
    pub state: State,
    pub at: Timestamp,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Job)]
pub struct JobView {
    pub id: JobId,
    pub seq: u64,
    pub state: State,
    /// Stable code of the reason for the state.
    pub reason: Option<String>,
    /// The same as a sentence.
    pub message: Option<String>,
    pub queue: QueueId,
    pub attempt: Attempt,
    pub retries: u32,
    pub created_at: Timestamp,
    pub states: Vec<StateView>,
    /// Runner of the last attempt.
    pub runner: Option<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub cpu_seconds: Option<f64>,
    /// Current use in percent of one core. Null unless the job runs and its node measures it.
    #[serde(default)]
    pub cpu_percent: Option<f64>,
    pub memory_peak_bytes: Option<u64>,
    pub result: Option<Json>,
    /// Files matched by `outputs`.
    #[serde(default)]
    #[schema(required)]
    pub artifacts: Vec<Artifact>,
    /// When a waiting job is next considered.
    pub eligible_at: Option<Timestamp>,
    pub topic: String,
    pub tenant: String,
    pub priority: Priority,
    pub run: Run,
    pub timeout_ms: Option<u64>,
    pub deadline: Option<Timestamp>,
    pub not_before: Option<Timestamp>,
    /// The job's own, or that of its queue.
    pub max_retries: u32,
    pub labels: BTreeMap<String, String>,
    pub sandbox: Option<Sandbox>,
    #[serde(default)]
    #[schema(required)]
    pub inputs: BTreeMap<String, BlobId>,
    #[serde(default)]
    #[schema(required)]
    pub outputs: Vec<String>,
    #[serde(default)]
    #[schema(required)]
    pub limits: Limits,
    pub idempotency_key: Option<String>,
    /// `Outlast-Actor` of the submit.
    #[serde(default)]
    pub submitter: Option<String>,
    /// Capabilities required of the runner.
    #[serde(default)]
    #[schema(required)]
    pub requires: Vec<String>,
    /// No two attempts of the job run at the same time.
    #[serde(default)]
    #[schema(required)]
    pub exclusive: bool,
    /// Limits set by the policy.
    #[serde(default)]
    pub constraints: Option<ConstraintsView>,
    /// Approval or rejection by a person.
    #[serde(default)]
    pub approval: Option<ApprovalDecisionView>,
    /// The task of a workflow that the job executes or compensates.
    #[serde(default)]
    pub origin: Option<OriginView>,
}

impl JobView {
    /// `spec` is the decoded spec of the job. A withheld result ([`is_hidden`]) and its artifacts are left out.
    pub fn new(job: &Job, spec: JobSpec) -> Self {
        let hidden = is_hidden(job);
        let last = job.last_attempt();
        let usage = last.and_then(|attempt| attempt.usage.as_deref());
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
            exclusive: spec.exclusive,
            constraints: job.constraints.as_deref().map(Into::into),
            approval: job.approval.as_deref().map(Into::into),
            origin: job.origin.as_deref().map(OriginView::new),
            eligible_at: (!job.state.is_terminal() && job.eligible_at > job.created_at)
                .then_some(Timestamp(job.eligible_at)),
        }
    }
}

/// Response to a submit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Accepted)]
pub struct AcceptedView {
    pub id: JobId,
    pub seq: u64,
    pub state: State,
    pub created_at: Timestamp,
    /// The job was accepted before, under the same idempotency key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deduplicated: bool,
}

/// Response to a submit that waits for the end of the job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = AwaitedJob)]
pub struct AwaitedView {
    #[serde(flatten)]
    pub job: JobView,
    /// The job was accepted before, under the same idempotency key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deduplicated: bool,
}

/// Several jobs in one request.
///
/// `J` is the form of a job: its spec, or a slice of the body on the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(bound = "")]
#[serde(deny_unknown_fields)]
pub struct BatchSpec<J = JobSpec> {
    #[schema(value_type = Vec<JobSpec>)]
    pub jobs: Vec<J>,
}

/// Body of a submit: one job, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum SubmitBody {
    Batch(BatchSpec),
    Job(Box<JobSpec>),
}

/// Response to the submit of new work: the whole job with `wait_ms`, else what identifies it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum SubmitView {
    Awaited(Box<AwaitedView>),
    Accepted(AcceptedView),
}

/// Response to a batch, or to the submit of a job that was accepted before under the same idempotency key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchOrSubmitView {
    Batch(BatchView),
    Awaited(Box<AwaitedView>),
    Accepted(AcceptedView),
}

/// A piece of a job's output: the data of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = LogPiece)]
pub struct LogPieceView<'a> {
    pub attempt: Attempt,
    pub at: Timestamp,
    /// Bytes of the stream before this piece that were dropped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub text: Option<Cow<'a, str>>,
    /// Output that is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub base64: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Result for one job of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchItem {
    Accepted(AcceptedView),
    Refused(BatchRefusal),
}

/// A job of a batch that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchRefusal {
    pub error: Problem,
}

/// Response to a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Batch)]
pub struct BatchView {
    /// In the order of the request.
    pub results: Vec<BatchItem>,
}

/// An attempt of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = JobAttempt)]
pub struct AttemptView {
    pub attempt: Attempt,
    pub runner: String,
    pub dispatched_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Null while the attempt runs, and if its end is unknown.
    pub end: Option<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub cpu_seconds: Option<f64>,
    pub memory_peak_bytes: Option<u64>,
    /// The log, once it is stored as a blob.
    #[serde(default)]
    pub log: Option<LogRef>,
    pub message: Option<String>,
    /// Why this runner was chosen. Null if there was no other.
    #[serde(default)]
    pub placement: Option<PlacementView>,
}

/// History of a job: states, attempts, decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = History)]
pub struct HistoryView {
    pub id: JobId,
    pub state: State,
    pub states: Vec<StateView>,
    /// Number of states dropped from the middle of a long history.
    pub states_dropped: u32,
    pub attempts: Vec<AttemptView>,
    pub attempts_dropped: u32,
    /// Policy decisions about the job.
    pub decisions: Vec<DecisionView>,
    /// Approval or rejection by a person.
    #[serde(default)]
    pub approval: Option<ApprovalDecisionView>,
    /// Policy decisions about the results.
    #[serde(default)]
    #[schema(required)]
    pub output_decisions: Vec<OutputDecisionView>,
}

impl HistoryView {
    /// Logs of withheld attempts ([`is_withheld`]) are left out.
    pub fn new(job: &Job) -> Self {
        let attempt_view = |attempt: &AttemptRecord| AttemptView {
            attempt: attempt.attempt,
            runner: attempt.runner.to_string(),
            dispatched_at: Timestamp(attempt.dispatched_at),
            started_at: attempt.started_at.map(Timestamp),
            ended_at: attempt.ended_at.map(Timestamp),
            end: attempt.end.map(|end| end.as_str().to_owned()),
            exit_code: attempt.exit_code,
            signal: attempt.signal,
            cpu_seconds: attempt.usage.as_deref().map(|usage| usage.cpu.0 as f64 / 1000.0),
            memory_peak_bytes: attempt.usage.as_deref().map(|usage| usage.memory_peak_bytes),
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
