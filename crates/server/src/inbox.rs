//! The way to a shard: one queue, many senders, answers by return.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use engine::{Answer, Fetched, Input, RequestId, Stats, Topics};
use model::id::{JobId, WorkflowId};
use model::job::Job;
use model::message::FromRunner;
use model::spec::Lane;
use model::workflow::Workflow;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::keeping::Kept;
use crate::measures::{Histogram, Snapshot};

/// Beyond this many waiting requests a shard is busy: clients are told to come back, memory stays bounded.
const REQUESTS_WAITING_MAX: usize = 20_000;

/// Gets a job's record when it has ended; hung up without one when the store has to be asked.
pub(crate) type Watch = oneshot::Sender<Arc<Job>>;
pub(crate) type Watched = oneshot::Receiver<Arc<Job>>;

/// The same for a workflow.
pub(crate) type FlowWatch = oneshot::Sender<Arc<Workflow>>;
pub(crate) type FlowWatched = oneshot::Receiver<Arc<Workflow>>;

/// Who is told when what a request has made has ended.
pub(crate) enum Ended {
    Job(Watch),
    Workflow(FlowWatch),
}

/// What a shard's thread is told.
pub(crate) enum Message {
    Request {
        request: RequestId,
        input: Input,
        reply: oneshot::Sender<Answer>,
        /// For a submit of one job, or a start of a workflow: told when that has ended.
        ended: Option<Ended>,
    },
    /// Tell when a job has ended; hang up if it is not live.
    Watch {
        job: JobId,
        ended: Watch,
    },
    /// Tell when a workflow has ended; hang up if it has.
    WatchWorkflow {
        workflow: WorkflowId,
        ended: FlowWatch,
    },
    /// A large result was stored, or could not be.
    Kept(Result<Kept, String>),
    Runner(Vec<FromRunner>),
    Fetched(Fetched),
    /// Something that nobody waits for an answer to.
    Input(Box<Input>),
    Stop,
}

/// Numbers that a shard shows after each round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    pub stats: Stats,
    pub topics: Topics,
    pub live_jobs: usize,
    pub live_workflows: usize,
    pub open_scans: usize,
    pub runners: u32,
    pub ready: [usize; Lane::ALL.len()],
    pub with_runners: [u32; Lane::ALL.len()],
    pub commits: u64,
}

/// A request that got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    Busy,
    Stopping,
}

/// Cheap to clone; every API handler has one.
#[derive(Clone)]
pub(crate) struct Inbox {
    sender: mpsc::Sender<Message>,
    waiting: Arc<AtomicUsize>,
    requests: Arc<AtomicU64>,
    status: Arc<Mutex<Status>>,
    commit_times: Arc<Histogram>,
}

/// The shard's end.
pub(crate) struct Outlet {
    pub receiver: mpsc::Receiver<Message>,
    pub waiting: Arc<AtomicUsize>,
    pub status: Arc<Mutex<Status>>,
    pub commit_times: Arc<Histogram>,
}

impl Inbox {
    pub fn new() -> (Self, Outlet) {
        let (sender, receiver) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let status = Arc::new(Mutex::new(Status::default()));
        let commit_times: Arc<Histogram> = Arc::default();
        let (their_waiting, their_status, their_times) = (waiting.clone(), status.clone(), commit_times.clone());
        let outlet = Outlet { receiver, waiting: their_waiting, status: their_status, commit_times: their_times };
        (Self { sender, waiting, requests: Arc::default(), status, commit_times }, outlet)
    }

    pub async fn ask(&self, input: impl FnOnce(RequestId) -> Input) -> Result<Answer, Unanswered> {
        self.request(input, None)?.await.map_err(|_| Unanswered::Stopping)
    }

    /// Like [`Inbox::ask`], and tells when the one submitted job has ended.
    pub async fn ask_and_watch(&self, input: impl FnOnce(RequestId) -> Input) -> Result<(Answer, Watched), Unanswered> {
        let (ended, watch) = oneshot::channel();
        let answer = self.request(input, Some(Ended::Job(ended)))?.await.map_err(|_| Unanswered::Stopping)?;
        Ok((answer, watch))
    }

    /// Like [`Inbox::ask`], and tells when the workflow that is started has ended.
    pub async fn ask_and_watch_workflow(
        &self,
        input: impl FnOnce(RequestId) -> Input,
    ) -> Result<(Answer, FlowWatched), Unanswered> {
        let (ended, watch) = oneshot::channel();
        let answer = self.request(input, Some(Ended::Workflow(ended)))?.await.map_err(|_| Unanswered::Stopping)?;
        Ok((answer, watch))
    }

    fn request(
        &self,
        input: impl FnOnce(RequestId) -> Input,
        ended: Option<Ended>,
    ) -> Result<oneshot::Receiver<Answer>, Unanswered> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= REQUESTS_WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Unanswered::Busy);
        }
        let request = RequestId(self.requests.fetch_add(1, Ordering::Relaxed));
        let (reply, answer) = oneshot::channel();
        self.post(Message::Request { request, input: input(request), reply, ended })?;
        Ok(answer)
    }

    /// Resolves when the job has ended; with an error at once if it is not live.
    pub fn watch(&self, job: JobId) -> Result<Watched, Unanswered> {
        let (ended, watch) = oneshot::channel();
        self.post(Message::Watch { job, ended })?;
        Ok(watch)
    }

    /// The same for a workflow.
    pub fn watch_workflow(&self, workflow: WorkflowId) -> Result<FlowWatched, Unanswered> {
        let (ended, watch) = oneshot::channel();
        self.post(Message::WatchWorkflow { workflow, ended })?;
        Ok(watch)
    }

    pub fn post(&self, message: Message) -> Result<(), Unanswered> {
        self.sender.send(message).map_err(|_| Unanswered::Stopping)
    }

    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    /// How many requests the shard has not taken up yet.
    pub fn requests_waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub fn commit_times(&self) -> Snapshot {
        self.commit_times.snapshot()
    }
}
