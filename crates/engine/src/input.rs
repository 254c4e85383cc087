//! Inputs and effects of a shard.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use model::audit::{Checkpoint, SignedCheckpoint};
use model::change::NodeEvent;
use model::id::{Attempt, Incarnation, JobId, NodeId, QueueId, RunnerId, ScheduleId, ShardId, WorkflowId};
use model::job::{Job, Scan};
use model::json::Json;
use model::machine::Ignored;
use model::message::{AttemptRef, FromRunner, Load, RunnerHeader, ToRunner};
use model::queue::{Queue, QueueRef, QueueState, QueueToken};
use model::spec::{Digest, KeyHash, PackedSpec};
use model::state::State;
use model::time::Millis;
use model::verdict::Decision;
use model::workflow::{Schedule, ScheduleSpec, Signal, Workflow, WorkflowState};
use workflow::Plan;
use workflow::cron::Cron;

use crate::fetch::{Fetch, Fetched};
use crate::peers::PeerMessage;
use crate::placement::why::Why;
use crate::settings::Settings;

/// Correlates a request of the shell with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A job to accept.
#[derive(Debug, Clone)]
pub struct Submission {
    pub spec: PackedSpec,
    /// Absent: the implicit queue of its tenant.
    pub queue: Option<QueueRef>,
    pub submitter: Actor,
    /// A cached policy decision. Valid only if its policy version is still in force.
    pub decision: Option<Box<Decision>>,
}

impl Submission {
    /// A submission without submitter and without a cached policy decision.
    pub fn new(spec: PackedSpec, queue: Option<QueueRef>) -> Self {
        Self { spec, queue, submitter: None, decision: None }
    }
}

/// The authenticated name of a caller, if known.
pub type Actor = Option<Box<str>>;

/// A person's answer to a job that requires approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDecision {
    pub by: Actor,
    pub approved: bool,
    pub comment: Option<String>,
    /// Digest of the content that was reviewed; absent: the current content.
    pub digest: Option<Digest>,
    /// The rule that it answers; absent: the rule that currently requires approval.
    pub rule: Option<String>,
}

/// A queue to create. The token's secret comes from outside: the engine has no randomness.
#[derive(Debug, Clone)]
pub struct NewQueue {
    pub token: QueueToken,
    pub tag: String,
    pub tenant: String,
    pub max_retries: u32,
    pub max_running: Option<u32>,
    /// An idempotency key and the digest of the request that carried it.
    pub key: Option<(KeyHash, Digest)>,
}

/// A workflow to start.
#[derive(Debug, Clone)]
pub struct NewWorkflow {
    pub plan: Arc<Plan>,
    /// All inputs with their values, from [`Plan::bind`].
    pub inputs: Json,
    /// The queue of its jobs; absent: the implicit queue of its tenant.
    pub queue: Option<QueueRef>,
    pub tenant: String,
    pub submitter: Actor,
    pub labels: BTreeMap<String, String>,
    /// An idempotency key and the digest of the request that carried it.
    pub key: Option<(KeyHash, Digest)>,
}

/// A schedule to create.
#[derive(Debug, Clone)]
pub struct NewSchedule {
    pub name: String,
    pub tenant: String,
    pub queue: Option<QueueRef>,
    pub spec: ScheduleSpec,
    /// Compiled from `spec`.
    pub plan: Arc<Plan>,
    pub cron: Arc<Cron>,
    pub submitter: Actor,
    pub paused: bool,
}

/// All inputs of a shard.
#[derive(Debug)]
pub enum Input {
    Submit {
        request: RequestId,
        jobs: Vec<Submission>,
    },
    Cancel {
        request: RequestId,
        job: JobId,
        by: Actor,
    },
    Retract {
        request: RequestId,
        job: JobId,
        by: Actor,
    },
    Retry {
        request: RequestId,
        job: JobId,
        by: Actor,
    },
    Remove {
        request: RequestId,
        job: JobId,
        by: Actor,
    },
    Release {
        request: RequestId,
        job: JobId,
        by: Actor,
    },
    Approve {
        request: RequestId,
        job: JobId,
        decision: Box<ApprovalDecision>,
    },
    /// Deletes a dead letter together with its job.
    Purge {
        request: RequestId,
        job: JobId,
        by: Actor,
    },
    /// Reads the original of a redacted result. Audited.
    ReadOriginal {
        request: RequestId,
        job: JobId,
        by: Actor,
    },
    CreateQueue {
        request: RequestId,
        queue: Box<NewQueue>,
    },
    DrainQueue {
        request: RequestId,
        queue: QueueRef,
        by: Actor,
    },
    CancelQueue {
        request: RequestId,
        queue: QueueRef,
        by: Actor,
    },
    RemoveQueue {
        request: RequestId,
        queue: QueueRef,
        by: Actor,
    },
    StartWorkflow {
        request: RequestId,
        workflow: Box<NewWorkflow>,
    },
    CancelWorkflow {
        request: RequestId,
        workflow: WorkflowId,
        by: Actor,
        /// Whether succeeded tasks are compensated.
        compensate: bool,
    },
    PauseWorkflow {
        request: RequestId,
        workflow: WorkflowId,
        by: Actor,
    },
    ResumeWorkflow {
        request: RequestId,
        workflow: WorkflowId,
        by: Actor,
    },
    /// Reruns a workflow that has ended, from a task; absent: from all tasks that did not succeed.
    RerunWorkflow {
        request: RequestId,
        workflow: WorkflowId,
        from: Option<String>,
        by: Actor,
    },
    SignalWorkflow {
        request: RequestId,
        workflow: WorkflowId,
        signal: Box<Signal>,
    },
    /// Deletes the records of a workflow that has ended.
    RemoveWorkflow {
        request: RequestId,
        workflow: WorkflowId,
        by: Actor,
    },
    /// Submits a compensation whose job could not be rendered before.
    RetryCompensation {
        request: RequestId,
        workflow: WorkflowId,
        /// Its dead letter.
        letter: JobId,
        by: Actor,
    },
    /// Deletes the dead letter of a compensation whose job could not be rendered.
    PurgeCompensation {
        request: RequestId,
        workflow: WorkflowId,
        letter: JobId,
        by: Actor,
    },
    /// Progress of a running task, reported through the API.
    Progress {
        request: RequestId,
        job: JobId,
        percent: u8,
        message: Option<String>,
    },
    /// Progress of a running task, found by its runner in the task's output.
    Progressed {
        attempt_ref: AttemptRef,
        percent: u8,
        message: Option<String>,
    },
    CreateSchedule {
        request: RequestId,
        schedule: Box<NewSchedule>,
    },
    PauseSchedule {
        request: RequestId,
        schedule: ScheduleId,
        paused: bool,
        by: Actor,
    },
    RemoveSchedule {
        request: RequestId,
        schedule: ScheduleId,
        by: Actor,
    },
    /// Triggers the schedule immediately.
    TriggerSchedule {
        request: RequestId,
        schedule: ScheduleId,
        by: Actor,
    },
    /// The policy's answer to [`Effect::CheckPolicy`].
    Verdict {
        job: JobId,
        decision: Decision,
    },
    /// The policy check failed: no decision.
    PolicyUnavailable {
        job: JobId,
        message: String,
    },
    /// The answer to [`Effect::ScanOutput`].
    Scanned {
        job: JobId,
        attempt: Attempt,
        scan: Box<Scan>,
    },
    /// The result could not be scanned.
    ScanFailed {
        job: JobId,
        attempt: Attempt,
        message: String,
    },
    /// The answer to [`Effect::SignAudit`].
    AuditSigned {
        signed: Box<SignedCheckpoint>,
    },
    FromShard {
        from: ShardId,
        message: PeerMessage,
    },
    /// Explains why a job is not running.
    Explain {
        request: RequestId,
        job: JobId,
    },
    /// New settings for topics, pools, tenants and the policy.
    Settings(Arc<Settings>),
    /// A runner's load report. Not stored: the next one arrives within a second.
    Load {
        runner: RunnerId,
        incarnation: Incarnation,
        load: Load,
    },
    /// Comes before the messages of its frame.
    RunnerHeader(RunnerHeader),
    Runner(FromRunner),
    /// This incarnation of the runner is gone for good.
    RunnerLost {
        runner: RunnerId,
        incarnation: Incarnation,
    },
    /// The connection to a runner ended. It gets no dispatches until it registers again; its attempts may go on.
    RunnerDisconnected {
        runner: RunnerId,
        incarnation: Incarnation,
    },
    /// Take back all attempts of a runner that is drained or abandoned. Repeated until none is left.
    RetractAll {
        runner: RunnerId,
    },
    /// End all attempts of a runner that is given up and that no other runner can replace: their jobs end as abandoned.
    /// Repeated until none is left.
    AbandonAll {
        runner: RunnerId,
    },
    /// A change of a node, for subscribers. The shard only writes it into the stream of changes.
    NodeChanged {
        node: NodeId,
        event: NodeEvent,
    },
    Fetched(Fetched),
    /// Timers may be due.
    Tick,
}

/// What the shell does once the step's batch is durable.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    Answer {
        request: RequestId,
        answer: Answer,
    },
    /// Addressed to this incarnation only. Any other incarnation must ignore it.
    Send {
        runner: RunnerId,
        incarnation: Incarnation,
        message: ToRunner,
    },
    CheckPolicy {
        job: JobId,
        spec: Bytes,
        submitter: Actor,
    },
    /// Scan the content of this job's result. Its record is in the store.
    ScanOutput {
        job: JobId,
        attempt: Attempt,
    },
    /// Sign a checkpoint of the audit log. Without an answer it is requested again.
    SignAudit(Box<SignRequest>),
    Fetch(Fetch),
    /// A message to another shard. It may be lost.
    ToShard {
        shard: ShardId,
        message: PeerMessage,
    },
}

/// A checkpoint of the audit log to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignRequest {
    pub checkpoint: Checkpoint,
    /// The checkpoint on record. If its own signature is invalid, the new one must not be signed.
    pub previous: Option<SignedCheckpoint>,
}

/// A job that was accepted, now or earlier under the same idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    pub id: JobId,
    pub seq: u64,
    /// Absent for an earlier job that is no longer in memory.
    pub state: Option<State>,
    pub attempt: Attempt,
    pub created_at: Millis,
    pub deduplicated: bool,
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// One result per submitted job, in the same order.
    Submitted(Vec<Result<Accepted, Refusal>>),
    /// The job as it is now.
    Job(Box<Job>),
    Removed,
    Why(Box<Why>),
    Queue(Box<Queue>),
    /// The queue was created earlier under the same key. It may have been deleted since.
    QueueExists(QueueId),
    QueueRemoved,
    /// The workflow as it is now.
    Workflow(Box<Workflow>),
    /// The workflow was started earlier under the same key. It may have been deleted since.
    WorkflowExists(WorkflowId),
    WorkflowRemoved,
    Schedule(Box<Schedule>),
    ScheduleRemoved,
    Progressed,
    Refused(Refusal),
}

/// Why a request was refused. The shard is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no job {0}")]
    UnknownJob(JobId),
    #[error("there is no queue {0}")]
    UnknownQueue(QueueRef),
    #[error("the queue is {} and accepts no new jobs: submit to another queue", .0.as_str())]
    QueueClosed(QueueState),
    #[error("the queue has {0} live jobs or workflows: cancel it, or drain it and wait")]
    QueueNotEmpty(u64),
    #[error("the implicit queue of a tenant cannot be changed or deleted")]
    QueueImplicit,
    #[error("the job is {state}: it cannot be {what}")]
    WrongState { state: State, what: &'static str, why: Ignored },
    #[error("the job has used all of its {max} retries: submit it again as a new job")]
    RetriesUsedUp { max: u32 },
    #[error("the idempotency key was used before with a different request: use a new key")]
    KeyConflict,
    #[error("the shard that keeps the idempotency key does not answer: try again with the same key")]
    KeyHomeSilent { retry_after: Millis },
    #[error("the tenant has reached its limit of {max} idempotency keys a day: send fewer keys or try again tomorrow")]
    TooManyKeys { max: u64 },
    #[error("the server has too many live jobs: try again later")]
    Full { retry_after: Millis },
    #[error("the limit of {max} queues is reached: delete unused queues first")]
    TooManyQueues { max: usize },
    #[error("a record that the request needs is damaged: stop the server and run `outlast doctor --verify`")]
    Unreadable,
    #[error("the job has changed since it was reviewed: review it again")]
    OtherContent,
    #[error("another rule requires approval now: review the job again")]
    OtherRule,
    #[error("{by} has already {} the job", if *.approved { "approved" } else { "rejected" })]
    AlreadyDecided { approved: bool, by: String },
    #[error("the job was not approved or rejected in time: submit it again")]
    ApprovalExpired,
    #[error("the queue belongs to tenant `{tenant}`: submit the job for that tenant, or to another queue")]
    OtherTenant { tenant: String },
    #[error("the job is {0}: it has no dead letter")]
    NoDeadLetter(State),
    #[error("there is no dead letter {0}: it was retried or purged")]
    UnknownDeadLetter(JobId),
    #[error("the compensation cannot be submitted: {message}")]
    CompensationUnreadable { message: String },
    #[error("no original of the result is stored")]
    NoOriginal,
    #[error("the tenant has reached its limit of {max} live jobs: try again later")]
    TenantFull { max: u32, retry_after: Millis },
    #[error("there is no workflow {0}")]
    UnknownWorkflow(WorkflowId),
    #[error(
        "{0} is suspended: this version of the server cannot read it. Start the version that wrote it, or a newer one"
    )]
    WorkflowSuspended(WorkflowId),
    #[error("the workflow is {state}: it cannot be {what}")]
    WorkflowState { state: WorkflowState, what: &'static str },
    #[error("the workflow has no task `{name}`")]
    UnknownTask { name: String },
    #[error("all tasks of the workflow have succeeded: name the task to rerun from")]
    NothingToRerun,
    #[error("the workflow is a sub-workflow of {0}: use the parent instead")]
    PartOfWorkflow(WorkflowId),
    #[error("the job belongs to {0}: rerun the workflow from the job's task instead")]
    JobOfWorkflow(WorkflowId),
    #[error("the workflow has {max} signals that no task has received yet, which is the limit: try again later")]
    TooManySignals { max: usize },
    #[error("there is no schedule {0}")]
    UnknownSchedule(ScheduleId),
    #[error("a schedule named `{name}` exists already: delete it first, or choose another name")]
    ScheduleNameTaken { name: String },
    #[error("the limit of {max} schedules is reached: delete some first")]
    TooManySchedules { max: usize },
    #[error("the job is not a running task of a workflow: only those report progress")]
    NoProgress,
    #[error("the tenant has reached its limit of {max} submissions per second: try again later")]
    TenantTooFast { max: u32, retry_after: Millis },
}
