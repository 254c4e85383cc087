//! Inbox of a shard: one queue of messages, many senders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use engine::{Answer, Input, RequestId, Stats, TopicStats};
use model::id::{Epoch, JobId, RunnerId, WorkflowId};
use model::job::{Job, SpilledResult};
use model::message::{AttemptRef, RunnerFrame};
use model::spec::ExecutorKind;
use model::workflow::Workflow;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::measures::{Histogram, Snapshot};
use crate::request::{self, Request, RequestError};

/// Limit of waiting requests. Beyond it requests are refused as busy, which bounds memory.
const REQUESTS_WAITING_MAX: usize = 20_000;

/// Receives the record of a job when it ends. Closed without one when the record must be read from the store.
pub(crate) type Watch = oneshot::Sender<Arc<Job>>;
pub(crate) type Watched = oneshot::Receiver<Arc<Job>>;

/// The same for a workflow.
pub(crate) type WorkflowWatch = oneshot::Sender<Arc<Workflow>>;
pub(crate) type WorkflowWatched = oneshot::Receiver<Arc<Workflow>>;

/// Watch of the job or workflow that a request creates.
pub(crate) enum EndWatch {
    Job(Watch),
    Workflow(WorkflowWatch),
}

/// A frame of a runner, with the room that it takes until the shard has taken it.
pub(crate) struct Delivery {
    frame: RunnerFrame,
    _room: Option<OwnedSemaphorePermit>,
}

impl Delivery {
    /// Of a runner on another node, whose waiting frames are limited.
    pub fn with_room(frame: RunnerFrame, room: OwnedSemaphorePermit) -> Self {
        Self { frame, _room: Some(room) }
    }

    pub fn into_frame(self) -> RunnerFrame {
        self.frame
    }
}

/// Of the runner of this node, whose slots limit its frames.
impl From<RunnerFrame> for Delivery {
    fn from(frame: RunnerFrame) -> Self {
        Self { frame, _room: None }
    }
}

/// Message to the thread of a shard.
pub(crate) enum Message {
    Request {
        request: RequestId,
        input: Input,
        reply: oneshot::Sender<Answer>,
        /// Watch of the submitted job or started workflow.
        ended: Option<EndWatch>,
    },
    /// Watches a job. The watch is closed at once if the job is not live.
    Watch {
        job: JobId,
        ended: Watch,
    },
    /// Watches a workflow. The watch is closed at once if the workflow has ended.
    WatchWorkflow {
        workflow: WorkflowId,
        ended: WorkflowWatch,
    },
    /// The large result of an attempt was stored, or storing it failed.
    Spilled {
        epoch: Epoch,
        attempt_ref: AttemptRef,
        spilled: Result<SpilledResult, String>,
    },
    Runner(Delivery),
    /// The answer to a request of the shard. One to an earlier owner of the shard is dropped.
    Reply {
        epoch: Epoch,
        input: Box<Input>,
    },
    /// A request to the store failed: the shard restarts.
    ReadFailed {
        epoch: Epoch,
        reason: String,
    },
    /// An input without an answer.
    Input(Box<Input>),
    Stop,
}

/// Numbers that a shard publishes after each step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    pub stats: Stats,
    pub topics: TopicStats,
    pub live_jobs: usize,
    pub live_workflows: usize,
    pub suspended_workflows: usize,
    pub open_scans: usize,
    pub runners: u32,
    /// Attempts in flight of each runner by executor, updated twice a second.
    pub in_flight: BTreeMap<RunnerId, [u32; ExecutorKind::ALL.len()]>,
    /// How the runners have done, updated twice a second.
    pub health: Vec<engine::RunnerHealth>,
    pub ready: [usize; ExecutorKind::ALL.len()],
    pub with_runners: [u32; ExecutorKind::ALL.len()],
    pub commits: u64,
    /// Replies to an earlier owner of the shard, dropped.
    pub stale_replies: u64,
    /// Restarts of the shard since the node started.
    pub restarts: u64,
    /// Why the shard does not serve requests. Absent while it does.
    pub down: Option<String>,
}

/// Why a request got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    Busy,
    Stopping,
    /// The shard restarted before it answered. The outcome is unknown.
    Interrupted,
}

/// Sending end. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Inbox {
    sender: mpsc::Sender<Message>,
    waiting: Arc<AtomicUsize>,
    requests: Arc<AtomicU64>,
    status: Arc<Mutex<Status>>,
    commit_times: Arc<Histogram>,
    is_stopping: Arc<AtomicBool>,
}

/// Receiving end. Owned by the shard.
pub(crate) struct InboxReceiver {
    pub receiver: mpsc::Receiver<Message>,
    pub waiting: Arc<AtomicUsize>,
    pub status: Arc<Mutex<Status>>,
    pub commit_times: Arc<Histogram>,
}

impl InboxReceiver {
    /// The shard does not serve requests until it has restarted.
    pub fn set_down(&self, reason: String) {
        let mut status = self.status.lock();
        status.restarts += 1;
        status.down = Some(reason);
    }

    pub fn set_up(&self) {
        self.status.lock().down = None;
    }
}

impl Inbox {
    pub fn new() -> (Self, InboxReceiver) {
        let (sender, receiver) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let status = Arc::new(Mutex::new(Status::default()));
        let commit_times: Arc<Histogram> = Arc::default();
        let inbox = InboxReceiver {
            receiver,
            waiting: waiting.clone(),
            status: status.clone(),
            commit_times: commit_times.clone(),
        };
        (Self { sender, waiting, requests: Arc::default(), status, commit_times, is_stopping: Arc::default() }, inbox)
    }

    /// Sends a request and waits for its answer.
    pub async fn request<R: Request>(&self, request: R) -> Result<R::Answer, RequestError> {
        self.send(request, None).await
    }

    /// Like [`Inbox::request`] for the submit of a single job; also a watch of the end of that job.
    pub async fn request_and_watch<R: Request>(&self, request: R) -> Result<(R::Answer, Watched), RequestError> {
        let (ended, watch) = oneshot::channel();
        Ok((self.send(request, Some(EndWatch::Job(ended))).await?, watch))
    }

    /// Like [`Inbox::request`] for the start of a workflow; also a watch of its end.
    pub async fn request_and_watch_workflow<R: Request>(
        &self,
        request: R,
    ) -> Result<(R::Answer, WorkflowWatched), RequestError> {
        let (ended, watch) = oneshot::channel();
        Ok((self.send(request, Some(EndWatch::Workflow(ended))).await?, watch))
    }

    async fn send<R: Request>(&self, request: R, ended: Option<EndWatch>) -> Result<R::Answer, RequestError> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= REQUESTS_WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Unanswered::Busy.into());
        }
        let id = RequestId(self.requests.fetch_add(1, Ordering::Relaxed));
        let (reply, answer) = oneshot::channel();
        self.post(Message::Request { request: id, input: request.input(id), reply, ended })?;
        request::check::<R>(answer.await.map_err(|_| self.lost())?)
    }

    /// Why the answer to a request was lost.
    fn lost(&self) -> Unanswered {
        if self.is_stopping.load(Ordering::Relaxed) { Unanswered::Stopping } else { Unanswered::Interrupted }
    }

    /// Tells the shard to stop.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let _ = self.post(Message::Stop);
    }

    /// Resolves when the job ends; with an error at once if it is not live.
    pub fn watch(&self, job: JobId) -> Result<Watched, Unanswered> {
        let (ended, watch) = oneshot::channel();
        self.post(Message::Watch { job, ended })?;
        Ok(watch)
    }

    /// The same for a workflow.
    pub fn watch_workflow(&self, workflow: WorkflowId) -> Result<WorkflowWatched, Unanswered> {
        let (ended, watch) = oneshot::channel();
        self.post(Message::WatchWorkflow { workflow, ended })?;
        Ok(watch)
    }

    pub fn post(&self, message: Message) -> Result<(), Unanswered> {
        self.sender.send(message).map_err(|_| Unanswered::Stopping)
    }

    /// Why the shard does not serve requests. Absent while it does.
    pub fn down(&self) -> Option<String> {
        self.status.lock().down.clone()
    }

    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// Number of requests that the shard has not received yet.
    pub fn requests_waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub fn commit_times(&self) -> Snapshot {
        self.commit_times.snapshot()
    }
}
