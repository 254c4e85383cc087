//! Thread of a shard. Each round handles the waiting messages, commits once, then performs the effects.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Duration;

use engine::{Answer, Effect, Input, RequestId, Shard, Step};
use hashbrown::HashMap;
use model::id::{Epoch, Incarnation, JobId, RunnerId, ShardId, Shards, WorkflowId};
use model::job::{End, SpilledResult};
use model::message::{AttemptRef, FromRunner, Load, RunnerFrame, RunnerMessage, ToRunner};
use model::spec::ExecutorKind;
use model::time::{Millis, Now};
use store::Store;
use tokio::sync::oneshot;

use crate::clock;
use crate::error::Error;
use crate::fetcher::FetchSender;
use crate::inbox::{EndWatch, Inbox, InboxReceiver, Message, Watch, WorkflowWatch};
use crate::policy::{CheckRequest, PolicyChecks};
use crate::result_spill::{self, ResultSpiller};
use crate::runners::Runners;
use crate::scanning::{self, Scanning};

/// Limit of messages per round.
const ROUND_MESSAGES_MAX: usize = 4096;
/// Limit of bytes to write per round. The input that reaches it may write [`engine::INPUT_BYTES_MAX`] more.
const ROUND_BYTES_MAX: usize = 8 << 20;
/// Longest sleep, so that a forward jump of the clock is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(500);

type Map<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

struct Reply {
    answer: oneshot::Sender<Answer>,
    ended: Option<EndWatch>,
}

/// A shard and everything it needs to perform effects.
pub(crate) struct ShardLoop<'a> {
    id: ShardId,
    shard: Shard,
    step: Step,
    context: &'a ShardContext,
    replies: Map<RequestId, Reply>,
    watchers: Map<JobId, Vec<Watch>>,
    workflow_watchers: Map<WorkflowId, Vec<WorkflowWatch>>,
    /// Messages to one runner, of the effects that are being performed.
    to_runner: Vec<ToRunner>,
    /// Runner messages that did not fit into their round.
    messages: VecDeque<FromRunner>,
    /// The large result of the first of them is being stored; messages are applied in order.
    spilling: bool,
    commits: u64,
    published_commits: u64,
    /// Replies to an earlier owner of the shard.
    stale_replies: u64,
    /// A read from the store failed: the shard cannot go on without its answer.
    failed: Option<String>,
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
}

impl<'a> ShardLoop<'a> {
    pub fn new(id: ShardId, shard: Shard, context: &'a ShardContext) -> Self {
        let largest = ROUND_BYTES_MAX + engine::INPUT_BYTES_MAX;
        assert!(largest <= context.store.commit_bytes_max(), "the store must take every commit of a shard");
        Self {
            id,
            shard,
            step: Step::new(),
            context,
            replies: Map::default(),
            watchers: Map::default(),
            workflow_watchers: Map::default(),
            to_runner: Vec::new(),
            messages: VecDeque::new(),
            spilling: false,
            commits: 0,
            published_commits: 0,
            stale_replies: 0,
            failed: None,
            now: clock::read(),
        }
    }

    /// Resumes the rehydrated shard, in as many rounds as it takes; then it is ready. Errors are those of
    /// [`ShardLoop::run`].
    pub fn resume(&mut self) -> Result<(), Error> {
        loop {
            let finished = self.shard.resume(clock::read(), &mut self.step);
            self.finish_round()?;
            if finished {
                return Ok(());
            }
        }
    }

    /// Runs rounds until [`Message::Stop`]. After an error memory may be ahead of the disk: this owner must not be used
    /// any more.
    pub fn run(mut self) -> Result<(), Error> {
        let mut stopping = false;
        loop {
            // Work left from earlier rounds comes first, so that new inputs cannot starve it.
            self.now = clock::read();
            if self.shard.tick_in(self.now) == Millis(0) {
                self.shard.handle(self.now, Input::Tick, &mut self.step);
            }
            stopping |= self.gather();
            if let Some(reason) = self.failed.take() {
                return Err(Error::Read { shard: self.id.0, reason });
            }
            self.finish_round()?;
            // The last messages report stopped attempts. Handled, they cost their jobs no retry.
            if stopping && self.messages.is_empty() {
                return Ok(());
            }
        }
    }

    /// Waits for a message and handles all that are waiting. True after [`Message::Stop`].
    fn gather(&mut self) -> bool {
        self.handle_runner_messages();
        let Some(first) = self.wait() else { return false };
        self.now = clock::read();
        let mut stopping = self.handle(first);
        for _ in 1..ROUND_MESSAGES_MAX {
            if stopping || self.is_full() {
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

    /// Whether this round has reached its limit of bytes.
    fn is_full(&self) -> bool {
        self.shard.pending_bytes(&self.step) >= ROUND_BYTES_MAX
    }

    /// Handles the runner's messages in order, as many as fit into this round.
    fn handle_runner_messages(&mut self) {
        while !self.is_full()
            && !self.is_spilling()
            && let Some(mut message) = self.messages.pop_front()
        {
            self.check_metadata(&mut message);
            self.shard.handle(self.now, Input::Runner(message), &mut self.step);
        }
    }

    /// Whether the next message waits for its large result to be stored.
    fn is_spilling(&mut self) -> bool {
        if !self.spilling
            && let Some(FromRunner { message: RunnerMessage::Ended { attempt_ref, outcome, .. }, .. }) =
                self.messages.front()
            && let Some(job) = self.shard.job(attempt_ref.job)
            && let Some(result) = result_spill::too_large(job, outcome)
        {
            self.context.spiller.spill(self.shard.epoch(), *attempt_ref, result);
            self.spilling = true;
        }
        self.spilling
    }

    /// The large result of an attempt was stored, or could not be. Its end is the next message.
    fn finish_spill(&mut self, of: AttemptRef, spilled: Result<SpilledResult, String>) {
        let Some(FromRunner { message: RunnerMessage::Ended { attempt_ref, outcome, .. }, .. }) =
            self.messages.front_mut().filter(|_| self.spilling)
        else {
            return self.stale_replies += 1;
        };
        if *attempt_ref != of {
            return self.stale_replies += 1;
        }
        self.spilling = false;
        result_spill::replace(outcome, spilled);
        self.handle_runner_messages();
    }

    /// Whether a reply is for this owner of the shard. One for an earlier owner is dropped and counted.
    fn is_current(&mut self, epoch: Epoch) -> bool {
        let is_current = epoch == self.shard.epoch();
        self.stale_replies += u64::from(!is_current);
        is_current
    }

    /// Adds the decision of the metadata check to the end of an attempt.
    fn check_metadata(&self, message: &mut FromRunner) {
        if let RunnerMessage::Ended { attempt_ref, outcome, .. } = &mut message.message
            && outcome.end == End::Succeeded
            && self.context.policy.checks_results()
            && let Some(job) = self.shard.job(attempt_ref.job)
        {
            outcome.policy = scanning::check_metadata(&self.context.policy, job, outcome).map(Box::new);
        }
    }

    fn wait(&mut self) -> Option<Message> {
        let until = self.shard.tick_in(self.now);
        let has_messages = !self.messages.is_empty() && !self.spilling;
        if until.0 == 0 || has_messages || !self.step.batch.is_empty() {
            return self.context.inbox.receiver.try_recv().ok();
        }
        match self.context.inbox.receiver.recv_timeout(Duration::from_millis(until.0).min(SLEEP_MAX)) {
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
                self.shard.handle(now, input, &mut self.step);
            }
            Message::Watch { job, ended } => {
                if self.shard.job(job).is_some() {
                    watch(&mut self.watchers, job, ended);
                }
            }
            Message::WatchWorkflow { workflow, ended } => {
                // A workflow that ends in this step is not in the store yet, so a reader would not find its end there.
                let is_live = self.shard.workflow(workflow).is_some_and(|workflow| !workflow.state.is_terminal());
                if is_live || self.step.ended_workflows.iter().any(|ended| ended.id == workflow) {
                    watch(&mut self.workflow_watchers, workflow, ended);
                }
            }
            Message::Spilled { epoch, attempt_ref, spilled } => {
                if self.is_current(epoch) {
                    self.finish_spill(attempt_ref, spilled);
                }
            }
            Message::Reply { epoch, input } => {
                if self.is_current(epoch) {
                    self.shard.handle(now, *input, &mut self.step);
                }
            }
            Message::ReadFailed { epoch, reason } => {
                if self.is_current(epoch) {
                    self.failed = Some(reason);
                }
            }
            Message::Runner(frame) => {
                self.shard.handle(now, Input::RunnerHeader(frame.header), &mut self.step);
                self.messages.extend(frame.messages);
                self.handle_runner_messages();
            }
            Message::Input(input) => self.shard.handle(now, *input, &mut self.step),
            Message::Stop => return true,
        }
        false
    }

    /// Commits the round, then performs its effects.
    fn finish_round(&mut self) -> Result<(), Error> {
        self.shard.flush(&mut self.step);
        if !self.step.batch.is_empty() {
            let commit = || self.context.store.commit(self.id, self.shard.epoch(), &self.step.batch);
            self.context.inbox.commit_times.time(commit)?;
            self.commits += 1;
        } else if !self.step.effects.is_empty() {
            // Whatever the effects say is only true if nobody else owns the shard.
            self.context.store.confirm(self.id, self.shard.epoch())?;
        }
        for (anomaly, during) in self.step.anomalies.drain(..) {
            tracing::error!(shard = %self.id, %anomaly, during, "unexpected state, please report it; the shard continues");
        }
        self.perform();
        self.publish();
        self.step.clear();
        Ok(())
    }

    fn perform(&mut self) {
        let mut addressee = (RunnerId(0), Incarnation(0));
        for effect in std::mem::take(&mut self.step.effects) {
            match effect {
                Effect::Answer { request, answer } => self.answer(request, answer),
                Effect::Send { runner, incarnation, message } => {
                    if (runner, incarnation) != addressee {
                        self.post_to_runner(addressee);
                        addressee = (runner, incarnation);
                    }
                    self.to_runner.push(message);
                }
                Effect::Fetch(fetch) => self.context.fetches.request(self.id, self.shard.epoch(), fetch),
                Effect::CheckPolicy { job, spec, submitter } => {
                    self.context.policy.request(CheckRequest {
                        shard: self.id,
                        epoch: self.shard.epoch(),
                        job,
                        spec,
                        submitter,
                    });
                }
                Effect::ToShard { shard, message } => self.send_to_shard(shard, message),
                Effect::ScanOutput { job, attempt } => {
                    self.context.scanning.request(self.id, self.shard.epoch(), AttemptRef { job, attempt })
                }
            }
        }
        self.post_to_runner(addressee);
        for ended in self.step.ended.drain(..) {
            if let Some(watchers) = self.watchers.remove(&ended.job().id) {
                let job = Arc::new(ended.into_job());
                for watcher in watchers {
                    let _ = watcher.send(job.clone());
                }
            }
        }
        for ended in self.step.ended_workflows.drain(..) {
            if let Some(watchers) = self.workflow_watchers.remove(&ended.id) {
                let workflow = Arc::new(ended);
                for watcher in watchers {
                    let _ = watcher.send(workflow.clone());
                }
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
        let mut status = self.context.inbox.status.lock();
        status.stats.clone_from(self.shard.stats());
        status.topics.clone_from(self.shard.topics());
        status.live_jobs = self.shard.live_jobs();
        status.live_workflows = self.shard.live_workflows();
        status.suspended_workflows = self.shard.suspended_workflows();
        status.open_scans = self.shard.open_scans();
        status.runners = self.shard.connected_runners();
        status.commits += self.commits - std::mem::replace(&mut self.published_commits, self.commits);
        status.stale_replies += std::mem::take(&mut self.stale_replies);
        for executor in ExecutorKind::ALL {
            let (ready, with_runners) = self.shard.load(executor);
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
}

impl runner::Uplink for Uplink {
    fn deliver(&self, shard: ShardId, frame: RunnerFrame) {
        if let Some(inbox) = self.inboxes.get(usize::from(shard.0)) {
            let _ = inbox.post(Message::Runner(frame));
        }
    }

    fn load(&self, incarnation: Incarnation, load: Load) {
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
