//! A shard's thread: take what is waiting, handle it, commit once, and only then act.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Duration;

use engine::{Answer, Effect, Input, RequestId, Shard, Step};
use hashbrown::HashMap;
use model::id::{Incarnation, JobId, RunnerId, ShardId, Shards, WorkflowId};
use model::job::End;
use model::message::{FromRunner, Load, RunnerWord, ShardFace, Ticket, ToRunner};
use model::spec::Lane;
use model::time::Millis;
use store::Store;
use tokio::sync::oneshot;

use crate::clock;
use crate::error::Error;
use crate::fetcher::Fetches;
use crate::inbox::{Ended, FlowWatch, Message, Outlet, Watch};
use crate::keeping::{self, Keeper, Kept};
use crate::policy::{PolicyService, Question};
use crate::scanning::{self, Scanning};

/// How many messages one commit carries at the most.
const ROUND_MESSAGES_MAX: usize = 4096;
/// A round that has gathered this much to write takes no more.
const ROUND_BYTES_MAX: usize = 8 << 20;
/// The longest sleep, so that a clock that jumps ahead is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(500);

type Map<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

struct Reply {
    answer: oneshot::Sender<Answer>,
    ended: Option<Ended>,
}

/// One shard and everything it needs to act.
pub(crate) struct ShardLoop {
    id: ShardId,
    shard: Shard,
    step: Step,
    store: Arc<dyn Store>,
    outlet: Outlet,
    runner: runner::Handle,
    fetches: Fetches,
    policy: PolicyService,
    scanning: Scanning,
    keeper: Keeper,
    replies: Map<RequestId, Reply>,
    watchers: Map<JobId, Vec<Watch>>,
    flow_watchers: Map<WorkflowId, Vec<FlowWatch>>,
    to_runner: Vec<ToRunner>,
    /// Words of the runner that did not fit into their round.
    words: VecDeque<FromRunner>,
    /// The first of them has a large result that is being stored; they are heard in their order.
    keeping: bool,
    commits: u64,
    /// The time of this round: reading the clock for each of its messages would cost more than some of them.
    now: Millis,
}

/// What a loop is made of.
pub(crate) struct Parts {
    pub id: ShardId,
    pub shard: Shard,
    /// What coming back asks for; performed after the first commit.
    pub step: Step,
    pub store: Arc<dyn Store>,
    pub outlet: Outlet,
    pub runner: runner::Handle,
    pub fetches: Fetches,
    pub policy: PolicyService,
    pub scanning: Scanning,
    pub keeper: Keeper,
}

impl ShardLoop {
    pub fn new(parts: Parts) -> Self {
        let Parts { id, shard, step, store, outlet, runner, fetches, policy, scanning, keeper } = parts;
        Self {
            id,
            shard,
            step,
            store,
            outlet,
            runner,
            fetches,
            policy,
            scanning,
            keeper,
            replies: Map::default(),
            watchers: Map::default(),
            flow_watchers: Map::default(),
            to_runner: Vec::new(),
            words: VecDeque::new(),
            keeping: false,
            commits: 0,
            now: clock::now(),
        }
    }

    /// Does what coming back asks for; then the shard is ready. Errors are those of [`ShardLoop::run`].
    pub fn resume(&mut self) -> Result<(), Error> {
        self.finish_round()
    }

    /// Goes round until it is told to stop. An error means that memory may be ahead of the disk: nothing of
    /// this shard may be used after it.
    pub fn run(mut self) -> Result<(), Error> {
        let mut stopping = false;
        loop {
            // What waits from earlier rounds comes first, so that new inputs cannot keep it waiting for ever.
            self.now = clock::now();
            if self.shard.next_tick() <= self.now {
                self.shard.handle(self.now, Input::Tick, &mut self.step);
            }
            stopping |= self.gather();
            self.finish_round()?;
            // The last words are those of attempts that were stopped: heard, they cost their jobs nothing.
            if stopping && self.words.is_empty() {
                return Ok(());
            }
        }
    }

    /// Waits for something to do and handles everything that is waiting. Says whether it is time to stop.
    fn gather(&mut self) -> bool {
        self.hear_words();
        let Some(first) = self.wait() else { return false };
        self.now = clock::now();
        let mut stopping = self.take(first);
        for _ in 1..ROUND_MESSAGES_MAX {
            if stopping || self.is_full() {
                break;
            }
            match self.outlet.receiver.try_recv() {
                Ok(message) => stopping = self.take(message),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
        stopping
    }

    /// Whether this round has enough to write.
    fn is_full(&self) -> bool {
        self.shard.pending_bytes(&self.step) >= ROUND_BYTES_MAX
    }

    /// Hears the runner's words in their order, as many as fit into this round.
    fn hear_words(&mut self) {
        while !self.is_full()
            && !self.is_to_be_kept()
            && let Some(mut word) = self.words.pop_front()
        {
            self.look_at_result(&mut word);
            self.shard.handle(self.now, Input::Runner(word), &mut self.step);
        }
    }

    /// Whether the next word must wait because its result is too large to be handed on and is stored first.
    fn is_to_be_kept(&mut self) -> bool {
        if !self.keeping
            && let Some(FromRunner { word: RunnerWord::Ended { ticket, outcome, .. }, .. }) = self.words.front()
            && let Some(job) = self.shard.job(ticket.job)
            && let Some(result) = keeping::too_large(job, outcome)
        {
            self.keeper.keep(result);
            self.keeping = true;
        }
        self.keeping
    }

    /// The large result of the next word was stored, or could not be.
    fn kept(&mut self, kept: Result<Kept, String>) {
        self.keeping = false;
        if let Some(FromRunner { word: RunnerWord::Ended { outcome, .. }, .. }) = self.words.front_mut() {
            keeping::replace(outcome, kept);
        }
        self.hear_words();
    }

    /// Adds to the end of an attempt what the policy has against its result, as far as that shows at a glance.
    fn look_at_result(&self, word: &mut FromRunner) {
        if let RunnerWord::Ended { ticket, outcome, .. } = &mut word.word
            && outcome.end == End::Succeeded
            && self.policy.judges_results()
            && let Some(job) = self.shard.job(ticket.job)
        {
            outcome.policy = scanning::glance(&self.policy, job, outcome).map(Box::new);
        }
    }

    fn wait(&mut self) -> Option<Message> {
        let until = self.shard.next_tick().saturating_sub(self.now);
        let has_words = !self.words.is_empty() && !self.keeping;
        if until.0 == 0 || has_words || !self.step.batch.is_empty() {
            return self.outlet.receiver.try_recv().ok();
        }
        match self.outlet.receiver.recv_timeout(Duration::from_millis(until.0).min(SLEEP_MAX)) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Message::Stop),
        }
    }

    fn take(&mut self, message: Message) -> bool {
        let now = self.now;
        match message {
            Message::Request { request, input, reply, ended } => {
                self.outlet.waiting.fetch_sub(1, Ordering::Relaxed);
                self.replies.insert(request, Reply { answer: reply, ended });
                self.shard.handle(now, input, &mut self.step);
            }
            Message::Watch { job, ended } => {
                if self.shard.job(job).is_some() {
                    watch(&mut self.watchers, job, ended);
                }
            }
            Message::WatchWorkflow { workflow, ended } => {
                // What ends with this very step is not in the store yet: whoever looked there now would not see it.
                let is_live = self.shard.workflow(workflow).is_some_and(|workflow| !workflow.state.is_terminal());
                if is_live || self.step.ended_workflows.iter().any(|ended| ended.id == workflow) {
                    watch(&mut self.flow_watchers, workflow, ended);
                }
            }
            Message::Kept(kept) => self.kept(kept),
            Message::Runner(words) => {
                self.words.extend(words);
                self.hear_words();
            }
            Message::Input(input) => self.shard.handle(now, *input, &mut self.step),
            Message::Fetched(fetched) => self.shard.handle(now, Input::Fetched(fetched), &mut self.step),
            Message::Stop => return true,
        }
        false
    }

    /// Commits what the round has come to, then acts on it.
    fn finish_round(&mut self) -> Result<(), Error> {
        self.shard.flush(&mut self.step);
        if !self.step.batch.is_empty() {
            let commit = || self.store.commit(self.id, self.shard.epoch(), &self.step.batch);
            self.outlet.commit_times.time(commit)?;
            self.commits += 1;
        }
        self.perform();
        self.publish();
        self.step.clear();
        Ok(())
    }

    fn perform(&mut self) {
        let mut incarnation = Incarnation(0);
        for effect in std::mem::take(&mut self.step.effects) {
            match effect {
                Effect::Answer { request, answer } => self.answer(request, answer),
                Effect::Send { incarnation: to, message, .. } => {
                    if to != incarnation {
                        self.post_to_runner(incarnation);
                        incarnation = to;
                    }
                    self.to_runner.push(message);
                }
                Effect::Fetch(fetch) => self.fetches.ask(self.id, fetch),
                Effect::CheckPolicy { job, spec, submitter } => {
                    self.policy.ask(Question { shard: self.id, job, spec, submitter });
                }
                Effect::ToShard { shard, message } => {
                    self.policy.tell(shard, Input::FromShard { from: self.id, message });
                }
                Effect::ScanOutput { job, attempt } => self.scanning.ask(self.id, Ticket { job, attempt }),
            }
        }
        self.post_to_runner(incarnation);
        for ended in self.step.ended.drain(..) {
            if let Some(watchers) = self.watchers.remove(&ended.job().id) {
                let job = Arc::new(ended.into_job());
                for watcher in watchers {
                    let _ = watcher.send(job.clone());
                }
            }
        }
        for ended in self.step.ended_workflows.drain(..) {
            if let Some(watchers) = self.flow_watchers.remove(&ended.id) {
                let workflow = Arc::new(ended);
                for watcher in watchers {
                    let _ = watcher.send(workflow.clone());
                }
            }
        }
    }

    fn post_to_runner(&mut self, incarnation: Incarnation) {
        if !self.to_runner.is_empty() {
            let face = ShardFace { shard: self.id, epoch: self.shard.epoch() };
            self.runner.send(face, incarnation, std::mem::take(&mut self.to_runner));
        }
    }

    fn answer(&mut self, request: RequestId, answer: Answer) {
        let Some(reply) = self.replies.remove(&request) else { return };
        // What is live, or ends with this very step, tells when it ends; of any other the store knows.
        match (reply.ended, &answer) {
            (Some(Ended::Job(ended)), Answer::Submitted(results)) => {
                if let [Ok(accepted)] = results.as_slice()
                    && accepted.state.is_some()
                {
                    watch(&mut self.watchers, accepted.id, ended);
                }
            }
            (Some(Ended::Workflow(ended)), Answer::Workflow(workflow)) if !workflow.state.is_terminal() => {
                watch(&mut self.flow_watchers, workflow.id, ended);
            }
            (Some(_) | None, _) => {}
        }
        // A client that has gone away needs no answer.
        let _ = reply.answer.send(answer);
    }

    fn publish(&mut self) {
        let mut status = self.outlet.status.lock();
        status.stats.clone_from(self.shard.stats());
        status.topics.clone_from(self.shard.topics());
        status.live_jobs = self.shard.live_jobs();
        status.live_workflows = self.shard.live_workflows();
        status.open_scans = self.shard.open_scans();
        status.runners = self.shard.connected_runners();
        status.commits = self.commits;
        for lane in Lane::ALL {
            let (ready, held) = self.shard.load(lane);
            status.ready[lane as usize] = ready;
            status.with_runners[lane as usize] = held;
        }
    }
}

/// One more to tell. Now and then those are forgotten whose clients have gone away: what is watched may live long, a
/// poll does not.
fn watch<K: Eq + Hash, T>(watchers: &mut Map<K, Vec<oneshot::Sender<T>>>, of: K, ended: oneshot::Sender<T>) {
    let watchers = watchers.entry(of).or_default();
    if watchers.len() >= 8 && watchers.len().is_power_of_two() {
        watchers.retain(|watcher| !watcher.is_closed());
    }
    watchers.push(ended);
}

/// The runner's way to the shards of this process.
pub(crate) struct Uplink {
    pub runner: RunnerId,
    pub inboxes: Vec<crate::inbox::Inbox>,
}

impl runner::Uplink for Uplink {
    fn deliver(&self, shard: ShardId, words: Vec<FromRunner>) {
        if let Some(inbox) = self.inboxes.get(usize::from(shard.0)) {
            // A shard that has stopped asks for everything again when it comes back.
            let _ = inbox.post(Message::Runner(words));
        }
    }

    fn load(&self, incarnation: Incarnation, load: Load) {
        for inbox in &self.inboxes {
            let _ = inbox.post(Message::Input(Box::new(Input::Load { runner: self.runner, incarnation, load })));
        }
    }

    fn progress(&self, ticket: Ticket, said: runner::Said) {
        let shards = u16::try_from(self.inboxes.len()).ok().and_then(Shards::new);
        let owner = shards.map(|shards| usize::from(shards.owner(ticket.job.slot()).0));
        if let Some(inbox) = owner.and_then(|owner| self.inboxes.get(owner)) {
            let runner::Said { percent, message } = said;
            let _ = inbox.post(Message::Input(Box::new(Input::Progressed { ticket, percent, message })));
        }
    }
}
