//! What goes into a shard and what comes out.

use bytes::Bytes;
use model::id::{Attempt, Incarnation, JobId, QueueId, RunnerId};
use model::job::Job;
use model::machine::Ignored;
use model::message::{FromRunner, ToRunner};
use model::queue::{Queue, QueueRef, QueueState, QueueToken};
use model::spec::{Digest, KeyHash, PackedSpec};
use model::state::State;
use model::time::Millis;
use model::verdict::{Approval, Decision};

use crate::fetch::{Fetch, Fetched};

/// Names a question of the shell's, so that the answer finds its way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A job to accept.
#[derive(Debug, Clone)]
pub struct Submission {
    pub spec: PackedSpec,
    /// Absent: the implicit queue of its tenant.
    pub queue: Option<QueueRef>,
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
    },
    Retract {
        request: RequestId,
        job: JobId,
    },
    Retry {
        request: RequestId,
        job: JobId,
    },
    Remove {
        request: RequestId,
        job: JobId,
    },
    Release {
        request: RequestId,
        job: JobId,
    },
    Approve {
        request: RequestId,
        job: JobId,
        approval: Approval,
    },
    CreateQueue {
        request: RequestId,
        queue: Box<NewQueue>,
    },
    DrainQueue {
        request: RequestId,
        queue: QueueRef,
    },
    CancelQueue {
        request: RequestId,
        queue: QueueRef,
    },
    RemoveQueue {
        request: RequestId,
        queue: QueueRef,
    },
    /// The policy's answer to [`Effect::CheckPolicy`].
    Verdict {
        job: JobId,
        decision: Decision,
    },
    /// The content scan's answer.
    Scanned {
        job: JobId,
        clean: bool,
        message: Option<String>,
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
        digest: Digest,
        spec: Bytes,
    },
    Fetch(Fetch),
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
    Queue(Box<Queue>),
    /// The queue was created before, under the same key; it may be gone by now.
    QueueExists(QueueId),
    QueueRemoved,
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
}
