//! What goes into a shard and what comes out.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use model::id::{Attempt, Incarnation, JobId, QueueId, RunnerId, ScheduleId, ShardId, WorkflowId};
use model::job::{Job, Scan};
use model::json::Json;
use model::machine::Ignored;
use model::message::{FromRunner, Load, Ticket, ToRunner};
use model::queue::{Queue, QueueRef, QueueState, QueueToken};
use model::spec::{Digest, KeyHash, PackedSpec};
use model::state::State;
use model::time::Millis;
use model::verdict::Decision;
use model::workflow::{Schedule, ScheduleSpec, Signal, Workflow, WorkflowState};
use workflow::Plan;
use workflow::cron::Cron;

use crate::fetch::{Fetch, Fetched};
use crate::leases::Message;
use crate::placement::why::Why;
use crate::setup::Setup;

/// Names a question of the shell's, so that the answer finds its way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A job to accept.
#[derive(Debug, Clone)]
pub struct Submission {
    pub spec: PackedSpec,
    /// Absent: the implicit queue of its tenant.
    pub queue: Option<QueueRef>,
    pub submitter: Actor,
    /// What the policy is known to say of such a job. It counts if that policy is still in force.
    pub decision: Option<Box<Decision>>,
}

impl Submission {
    /// A job of nobody in particular, about which nobody was asked yet.
    pub fn new(spec: PackedSpec, queue: Option<QueueRef>) -> Self {
        Self { spec, queue, submitter: None, decision: None }
    }
}

/// Who does something, as far as the server was told.
pub type Actor = Option<Box<str>>;

/// A person's word on a job that waits for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub by: Actor,
    pub approved: bool,
    pub comment: Option<String>,
    /// What was looked at; absent: the job as it is.
    pub digest: Option<Digest>,
    /// The rule that it is for; absent: the one that asks.
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
    /// Every input with its value, as [`Plan::bind`] gives them.
    pub inputs: Json,
    /// Where its jobs stand in line; absent: the implicit queue of its tenant.
    pub queue: Option<QueueRef>,
    pub tenant: String,
    pub submitter: Actor,
    pub labels: BTreeMap<String, String>,
    /// An idempotency key and the digest of the request that carried it.
    pub key: Option<(KeyHash, Digest)>,
}

/// A schedule to make.
#[derive(Debug, Clone)]
pub struct NewSchedule {
    pub name: String,
    pub tenant: String,
    pub queue: Option<QueueRef>,
    pub spec: ScheduleSpec,
    /// What `spec` says, read.
    pub plan: Arc<Plan>,
    pub cron: Arc<Cron>,
    pub submitter: Actor,
    pub paused: bool,
}

/// Everything a shard can be told.
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
        word: Box<Word>,
    },
    /// An operator is done with a dead letter: it goes, and its job with it.
    Purge {
        request: RequestId,
        job: JobId,
        by: Actor,
    },
    /// Somebody wants to see what the policy had removed from a result.
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
        /// Whether what was done is undone.
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
    /// Runs a workflow that has ended again, from a task; absent: from whatever did not succeed.
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
    /// Takes a workflow that has ended off the records.
    RemoveWorkflow {
        request: RequestId,
        workflow: WorkflowId,
        by: Actor,
    },
    /// A running task of a workflow says how far it is.
    Progress {
        request: RequestId,
        job: JobId,
        percent: u8,
        message: Option<String>,
    },
    /// The same, seen by its runner in what it prints.
    Progressed {
        ticket: Ticket,
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
    /// Starts what a schedule starts, now.
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
    /// The policy could not be asked.
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
    /// What another shard says about the limits of tenants.
    FromShard {
        from: ShardId,
        message: Message,
    },
    /// Why a job is not with a runner.
    Explain {
        request: RequestId,
        job: JobId,
    },
    /// What operators say about topics, pools, tenants and the policy, from now on.
    Setup(Arc<Setup>),
    /// How busy a runner's machine is. Not kept: the next word comes within a second.
    Load {
        runner: RunnerId,
        incarnation: Incarnation,
        load: Load,
    },
    Runner(FromRunner),
    /// Runners are known to be gone for good in this incarnation.
    RunnerLost {
        runner: RunnerId,
        incarnation: Incarnation,
    },
    Fetched(Fetched),
    /// Time has passed.
    Tick,
}

/// What the shell is to do once the step's batch is durable.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    Answer {
        request: RequestId,
        answer: Answer,
    },
    /// For this incarnation of the runner only; for any other it is void.
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
    /// Look at the result of this job. Its record is in the store.
    ScanOutput {
        job: JobId,
        attempt: Attempt,
    },
    Fetch(Fetch),
    /// For another shard, about the limits of tenants. It may be lost.
    ToShard {
        shard: ShardId,
        message: Message,
    },
}

/// A job that was accepted, now or under the same key before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    pub id: JobId,
    pub seq: u64,
    /// Absent for a job that was accepted before and is not in memory any more.
    pub state: Option<State>,
    pub attempt: Attempt,
    pub created_at: Millis,
    pub deduplicated: bool,
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// One for each job of a submit, in its order.
    Submitted(Vec<Result<Accepted, Refusal>>),
    /// The job as it is now.
    Job(Box<Job>),
    Removed,
    Why(Box<Why>),
    Queue(Box<Queue>),
    /// The queue was created before, under the same key; it may be gone by now.
    QueueExists(QueueId),
    QueueRemoved,
    /// The workflow as it is now.
    Workflow(Box<Workflow>),
    /// The workflow was started before, under the same key; it may be gone by now.
    WorkflowExists(WorkflowId),
    WorkflowRemoved,
    Schedule(Box<Schedule>),
    ScheduleRemoved,
    Progressed,
    Refused(Refusal),
}

/// Why a request was refused. The shard is as it was before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no job {0}")]
    UnknownJob(JobId),
    #[error("there is no queue {0}")]
    UnknownQueue(QueueRef),
    #[error("the queue is {}: it takes no new jobs", .0.as_str())]
    QueueClosed(QueueState),
    #[error("the queue has {0} jobs that have not ended: cancel or drain it first")]
    QueueNotEmpty(u64),
    #[error("the implicit queue of a tenant cannot be changed or removed")]
    QueueImplicit,
    #[error("the job is {state}: it cannot be {what}")]
    WrongState { state: State, what: &'static str, why: Ignored },
    #[error("the job has used all of its {max} retries")]
    RetriesUsedUp { max: u32 },
    #[error("the idempotency key was used before with another body")]
    KeyConflict,
    #[error("the tenant has used {max} idempotency keys within a day, which is the limit")]
    TooManyKeys { max: u64 },
    #[error("too many jobs that have not ended: try again later")]
    Full { retry_after: Millis },
    #[error("too many queues: remove some first")]
    TooManyQueues { max: usize },
    #[error("the record of it is damaged: stop the server and look with `outlast doctor --verify`")]
    Unreadable,
    #[error("the approval is about another content of the job: look at it again")]
    OtherContent,
    #[error("the approval is for another rule than the one that asks now: look at the job again")]
    OtherRule,
    #[error("{by} has {} the job already", if *.approved { "approved" } else { "rejected" })]
    AlreadyDecided { approved: bool, by: String },
    #[error("nobody approved or rejected the job in time: submit it again")]
    ApprovalExpired,
    #[error("the queue belongs to the tenant `{tenant}`: name it in the job")]
    OtherTenant { tenant: String },
    #[error("the job is {0}: it has left no dead letter")]
    NoLetter(State),
    #[error("nothing was kept of what the policy removed from the result")]
    NoOriginal,
    #[error("the tenant has {max} jobs that have not ended, which is its limit: try again later")]
    TenantFull { max: u32, retry_after: Millis },
    #[error("there is no workflow {0}")]
    UnknownWorkflow(WorkflowId),
    #[error("the workflow is {state}: it cannot be {what}")]
    WorkflowState { state: WorkflowState, what: &'static str },
    #[error("the workflow has no task `{name}`")]
    UnknownTask { name: String },
    #[error("all tasks of the workflow have succeeded: name the task from which it is to run again")]
    NothingToRerun,
    #[error("the workflow is part of {0}: do it there")]
    PartOfWorkflow(WorkflowId),
    #[error("the job belongs to {0}: run the workflow again from its task instead")]
    JobOfWorkflow(WorkflowId),
    #[error("{max} signals wait in the workflow, which is the limit: no task has taken them yet")]
    TooManySignals { max: usize },
    #[error("there is no schedule {0}")]
    UnknownSchedule(ScheduleId),
    #[error("there is a schedule `{name}` already: remove it first, or choose another name")]
    ScheduleNameTaken { name: String },
    #[error("too many schedules: remove some first")]
    TooManySchedules { max: usize },
    #[error("the job is no running task of a workflow: there is nothing to report progress of")]
    NoProgress,
    #[error("the tenant may submit {max} jobs a second: try again later")]
    TenantTooFast { max: u32, retry_after: Millis },
}
