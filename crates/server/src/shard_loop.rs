//! Thread of a shard. Each round handles the waiting messages, commits once, then performs the effects.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Duration;

use engine::{Answer, Effect, Input, RequestId, SignRequest};
use hashbrown::HashMap;
use model::id::{Epoch, Incarnation, JobId, NodeId, RunnerId, ShardId, Shards, WorkflowId};
use model::job::{Job, Outcome};
use model::json::Json;
use model::message::{AttemptRef, Load, RunnerFrame, ToRunner};
use model::spec::ExecutorKind;
use model::time::{Millis, Now};
use shard::Owner;
use store::Store;
use tokio::sync::oneshot;

use crate::clock;
use crate::cluster::Peers;
use crate::error::Error;
use crate::fetcher::FetchSender;
use crate::inbox::{EndWatch, Inbox, InboxReceiver, Message, Watch, WorkflowWatch};
use crate::policy::{CheckRequest, PolicyChecks};
use crate::result_spill::ResultSpiller;
use crate::runners::Runners;
use crate::scanning::{self, Scanning};

/// Limit of messages per round.
const ROUND_MESSAGES_MAX: usize = 4096;
/// Limit of bytes to write per round.
pub(crate) const ROUND_BYTES_MAX: usize = 8 << 20;
/// Longest sleep, so that a forward jump of the clock is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// Interval of the counts of attempts in flight by runner.
const COUNT_INTERVAL: Millis = Millis(500);

type Map<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

struct Reply {
    answer: oneshot::Sender<Answer>,
    ended: Option<EndWatch>,
}

/// A shard and everything it needs to perform effects.
pub(crate) struct ShardLoop<'a> {
    id: ShardId,
    owner: Owner,
    context: &'a ShardContext,
    replies: Map<RequestId, Reply>,
    watchers: Map<JobId, Vec<Watch>>,
    workflow_watchers: Map<WorkflowId, Vec<WorkflowWatch>>,
    /// Messages to one runner, of the effects that are being performed.
    to_runner: Vec<ToRunner>,
    commits: u64,
    published_commits: u64,
    /// When the attempts in flight of all runners were counted last.
    counted_at: Millis,
    /// Clocks of this round. Reading the clock for each message would cost more than handling some of them.
    now: Now,
}

/// What all owners of a shard in this process have in common.
pub(crate) struct ShardContext {
    pub store: Arc<dyn Store>,
    pub inbox: InboxReceiver,
    pub runners: Runners,
    pub fetches: FetchSender,
    pub policy: PolicyChecks,
    /// Inboxes of all shards, by number.
    pub peers: Vec<Inbox>,
    pub scanning: Scanning,
    pub spiller: ResultSpiller,
    /// Signs checkpoints of the audit log.
    pub audit_key: Arc<signing::Key>,
}

impl shard::Outcomes for &ShardContext {
    fn check_metadata(&mut self, job: &Job, _: AttemptRef, outcome: &mut Outcome) {
        if self.policy.checks_results() {
            outcome.policy = scanning::check_metadata(&self.policy, job, outcome).map(Box::new);
        }
    }

    fn spill(&mut self, epoch: Epoch, attempt_ref: AttemptRef, result: &Json) {
        self.spiller.spill(epoch, attempt_ref, result);
    }
}

impl<'a> ShardLoop<'a> {
    pub fn new(id: ShardId, owner: Owner, context: &'a ShardContext) -> Self {
        Self {
            id,
            owner,
            context,
            replies: Map::default(),
            watchers: Map::default(),
            workflow_watchers: Map::default(),
            to_runner: Vec::new(),
            commits: 0,
            published_commits: 0,
            counted_at: Millis(0),
            now: clock::read(),
        }
    }

    /// Resumes the rehydrated shard, in as many rounds as it takes; then it is ready. Errors are those of
    /// [`ShardLoop::run`].
    pub fn resume(&mut self) -> Result<(), Error> {
        while self.owner.is_resuming() {
            self.owner.begin_round(clock::read(), &mut &*self.context);
            self.finish_round()?;
        }
        Ok(())
    }

    /// Runs rounds until [`Message::Stop`]. After an error memory may be ahead of the disk: this owner must not be used
    /// any more.
    pub fn run(mut self) -> Result<(), Error> {
        let mut stopping = false;
        loop {
            self.now = clock::read();
            self.owner.begin_round(self.now, &mut &*self.context);
            stopping |= self.gather();
            self.finish_round()?;
            // The last messages report stopped attempts. Handled, they cost their jobs no retry.
            if stopping && !self.owner.has_messages() {
                return Ok(());
            }
        }
    }

    /// Waits for a message and handles all that are waiting. True after [`Message::Stop`].
    fn gather(&mut self) -> bool {
        let Some(first) = self.wait() else { return false };
        self.now = clock::read();
        let mut stopping = self.handle(first);
        for _ in 1..ROUND_MESSAGES_MAX {
            if stopping || self.owner.is_full() {
                break;
            }
            match self.context.inbox.receiver.try_recv() {
                Ok(message) => stopping = self.handle(message),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
        stopping
    }

    fn wait(&mut self) -> Option<Message> {
        let idle_for = self.owner.idle_for(self.now);
        if idle_for.0 == 0 {
            return self.context.inbox.receiver.try_recv().ok();
        }
        match self.context.inbox.receiver.recv_timeout(Duration::from_millis(idle_for.0).min(SLEEP_MAX)) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Message::Stop),
        }
    }

    fn handle(&mut self, message: Message) -> bool {
        let now = self.now;
        match message {
            Message::Request { request, input, reply, ended } => {
                self.context.inbox.waiting.fetch_sub(1, Ordering::Relaxed);
                self.replies.insert(request, Reply { answer: reply, ended });
                self.owner.handle(now, input);
            }
            Message::Watch { job, ended } => {
                if self.owner.shard().job(job).is_some() {
                    watch(&mut self.watchers, job, ended);
                }
            }
            Message::WatchWorkflow { workflow, ended } => {
                // A workflow that ends in this step is not in the store yet, so a reader would not find its end there.
                let live = self.owner.shard().workflow(workflow);
                let is_live = live.is_some_and(|workflow| !workflow.state.is_terminal());
                if is_live || self.owner.step().ended_workflows.iter().any(|ended| ended.id == workflow) {
                    watch(&mut self.workflow_watchers, workflow, ended);
                }
            }
            Message::Spilled { epoch, attempt_ref, spilled } => {
                self.owner.finish_spill(now, epoch, attempt_ref, spilled, &mut &*self.context);
            }
            Message::Reply { epoch, input } => self.owner.reply(now, epoch, *input),
            Message::ReadFailed { epoch, reason } => self.owner.fail_read(epoch, reason),
            Message::Runner(delivery) => self.owner.receive(now, delivery.into_frame(), &mut &*self.context),
            Message::Input(input) => self.owner.handle(now, *input),
            Message::Stop => return true,
        }
        false
    }

    /// Commits the round, then performs its effects.
    fn finish_round(&mut self) -> Result<(), Error> {
        self.owner.flush();
        let store = self.context.store.as_ref();
        if self.owner.has_writes() {
            self.context.inbox.commit_times.time(|| self.owner.commit(store))?;
            self.commits += 1;
        } else {
            self.owner.commit(store)?;
        }
        for (anomaly, during) in self.owner.step().anomalies.drain(..) {
            tracing::error!(shard = %self.id, %anomaly, during, "unexpected state, please report it; the shard continues");
        }
        self.perform();
        self.publish();
        self.owner.end_round();
        Ok(())
    }

    fn perform(&mut self) {
        let mut addressee = (RunnerId(0), Incarnation(0));
        let epoch = self.owner.epoch();
        for effect in std::mem::take(&mut self.owner.step().effects) {
            match effect {
                Effect::Answer { request, answer } => self.answer(request, answer),
                Effect::Send { runner, incarnation, message } => {
                    if (runner, incarnation) != addressee {
                        self.post_to_runner(addressee);
                        addressee = (runner, incarnation);
                    }
                    self.to_runner.push(message);
                }
                Effect::Fetch(fetch) => self.context.fetches.request(self.id, epoch, fetch),
                Effect::CheckPolicy { job, spec, submitter } => {
                    self.context.policy.request(CheckRequest { shard: self.id, epoch, job, spec, submitter });
                }
                Effect::SignAudit(request) => self.sign_audit(epoch, &request),
                Effect::ToShard { shard, message } => self.send_to_shard(shard, message),
                Effect::ScanOutput { job, attempt } => {
                    self.context.scanning.request(self.id, epoch, AttemptRef { job, attempt })
                }
            }
        }
        self.post_to_runner(addressee);
        for ended in self.owner.step().ended.drain(..) {
            if let Some(watchers) = self.watchers.remove(&ended.job().id) {
                let job = Arc::new(ended.into_job());
                for watcher in watchers {
                    let _ = watcher.send(job.clone());
                }
            }
        }
        for ended in self.owner.step().ended_workflows.drain(..) {
            if let Some(watchers) = self.workflow_watchers.remove(&ended.id) {
                let workflow = Arc::new(ended);
                for watcher in watchers {
                    let _ = watcher.send(workflow.clone());
                }
            }
        }
    }

    /// A signature takes microseconds, so the shard's own thread makes it.
    fn sign_audit(&self, epoch: Epoch, request: &SignRequest) {
        match self.context.audit_key.sign(request.checkpoint, request.previous.as_ref()) {
            Ok(signed) => {
                if let Some(own) = self.context.peers.get(usize::from(self.id.0)) {
                    let input = Box::new(Input::AuditSigned { signed: Box::new(signed) });
                    let _ = own.post(Message::Reply { epoch, input });
                }
            }
            // The shard requests it again with the next sweep.
            Err(invalid) => {
                tracing::error!(shard = %self.id, %invalid, "the audit log is not shortened any more; run `outlast audit verify`");
            }
        }
    }

    /// The message may be lost: a stopped peer receives the current state again after its restart.
    fn send_to_shard(&self, shard: ShardId, message: engine::PeerMessage) {
        if let Some(peer) = self.context.peers.get(usize::from(shard.0)) {
            let _ = peer.post(Message::Input(Box::new(Input::FromShard { from: self.id, message })));
        }
    }

    fn post_to_runner(&mut self, (runner, incarnation): (RunnerId, Incarnation)) {
        if !self.to_runner.is_empty() {
            self.context.runners.send(runner, incarnation, self.id, std::mem::take(&mut self.to_runner));
        }
    }

    fn answer(&mut self, request: RequestId, answer: Answer) {
        let Some(reply) = self.replies.remove(&request) else { return };
        // Only what is live or ends in this step is watched. Anything else is read from the store.
        match (reply.ended, &answer) {
            (Some(EndWatch::Job(ended)), Answer::Submitted(results)) => {
                if let [Ok(accepted)] = results.as_slice()
                    && accepted.state.is_some()
                {
                    watch(&mut self.watchers, accepted.id, ended);
                }
            }
            (Some(EndWatch::Workflow(ended)), Answer::Workflow(workflow)) if !workflow.state.is_terminal() => {
                watch(&mut self.workflow_watchers, workflow.id, ended);
            }
            (Some(_) | None, _) => {}
        }
        // The client may have disconnected.
        let _ = reply.answer.send(answer);
    }

    fn publish(&mut self) {
        let stale_replies = self.owner.take_stale_replies();
        let shard = self.owner.shard();
        let mut status = self.context.inbox.status.lock();
        status.stats.clone_from(shard.stats());
        status.topics.clone_from(shard.topics());
        status.live_jobs = shard.live_jobs();
        status.live_workflows = shard.live_workflows();
        status.suspended_workflows = shard.suspended_workflows();
        status.open_scans = shard.open_scans();
        status.runners = shard.connected_runners();
        if self.now.steady >= self.counted_at + COUNT_INTERVAL {
            self.counted_at = self.now.steady;
            status.in_flight = shard.in_flight().collect();
            status.health = shard.runner_health();
        }
        status.commits += self.commits - std::mem::replace(&mut self.published_commits, self.commits);
        status.stale_replies += stale_replies;
        for executor in ExecutorKind::ALL {
            let (ready, with_runners) = shard.load(executor);
            status.ready[executor as usize] = ready;
            status.with_runners[executor as usize] = with_runners;
        }
    }
}

/// Adds a watcher. Whenever their number reaches a power of two, closed ones are removed: a job may outlive many polls.
fn watch<K: Eq + Hash, T>(watchers: &mut Map<K, Vec<oneshot::Sender<T>>>, key: K, ended: oneshot::Sender<T>) {
    let watchers = watchers.entry(key).or_default();
    if watchers.len() >= 8 && watchers.len().is_power_of_two() {
        watchers.retain(|watcher| !watcher.is_closed());
    }
    watchers.push(ended);
}

/// Connection of the runner to the shards of this process.
pub(crate) struct Uplink {
    pub runner: RunnerId,
    pub inboxes: Vec<crate::inbox::Inbox>,
    pub peers: Peers,
}

impl runner::Uplink for Uplink {
    fn deliver(&self, shard: ShardId, frame: RunnerFrame) {
        if let Some(inbox) = self.inboxes.get(usize::from(shard.0)) {
            let _ = inbox.post(Message::Runner(frame.into()));
        }
    }

    fn load(&self, incarnation: Incarnation, load: Load) {
        self.peers.set_load(NodeId(self.runner.0), load);
        for inbox in &self.inboxes {
            let _ = inbox.post(Message::Input(Box::new(Input::Load { runner: self.runner, incarnation, load })));
        }
    }

    fn progress(&self, attempt_ref: AttemptRef, report: runner::ProgressReport) {
        let shards = u16::try_from(self.inboxes.len()).ok().and_then(Shards::new);
        let owner = shards.map(|shards| usize::from(shards.owner(attempt_ref.job.slot()).0));
        if let Some(inbox) = owner.and_then(|owner| self.inboxes.get(owner)) {
            let runner::ProgressReport { percent, message } = report;
            let _ = inbox.post(Message::Input(Box::new(Input::Progressed { attempt_ref, percent, message })));
        }
    }
}
