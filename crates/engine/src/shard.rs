//! The shard's memory.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use model::id::{Epoch, IdSource, Incarnation, JobId, QueueId, RunnerId, Slot};
use model::job::Job;
use model::key::KeyEntry;
use model::machine::Fault;
use model::queue::{Queue, QueueToken};
use model::spec::{KeyHash, Lane};
use model::state::State;
use model::time::Millis;

use crate::backlog::Backlog;
use crate::config::Config;
use crate::input::{Input, RequestId};
use crate::keys::KeyWaiter;
use crate::operate::{Operation, WaitingOperation};
use crate::ready::{Ready, TenantNumber};
use crate::retention::Sweep;
use crate::runners::Runner;
use crate::step::Step;
use crate::submit::OpenSubmit;
use crate::timers::Timers;

/// Hashes the same in every run: the simulation must replay.
pub(crate) type Hasher = foldhash::fast::FixedState;
pub(crate) type Map<K, V> = HashMap<K, V, Hasher>;

/// A job that is not terminal, with what is derived from its record.
#[derive(Debug)]
pub(crate) struct Entry {
    pub job: Job,
    /// Changed since the last flush.
    pub dirty: bool,
    /// There is a record of it under `Live`.
    pub stored: bool,
    /// It came back from this terminal state; there is a record of it under `Done`.
    pub was_done: Option<State>,
    /// It stands in the ready index.
    pub in_ready: bool,
    /// When it is to be looked at again, if it waits for a time or for an answer of the policy.
    pub wakes_at: Option<Millis>,
    /// The inventory question that was the newest when the current attempt was given out.
    pub dispatched_after: u64,
    /// What is decided about the attempt in hand, and waits in the backlog for its step.
    pub decided: Option<Decided>,
}

/// What becomes of an attempt after its runner was restarted, was lost, or does not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decided {
    /// This newer incarnation of its runner has it in hand. Its slot counts as taken there from the decision on.
    Adopt(Incarnation),
    Lose(Fault),
}

impl Entry {
    /// The runner that has the current attempt in hand, also where the record is still to be told.
    pub fn holder(&self) -> Option<(RunnerId, Incarnation)> {
        let (runner, known) = self.job.runner()?;
        match self.decided {
            Some(Decided::Adopt(newer)) => Some((runner, newer)),
            Some(Decided::Lose(_)) | None => Some((runner, known)),
        }
    }
}

/// A queue with what is derived from its jobs.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    pub queue: Queue,
    pub dirty: bool,
    /// Its jobs that are not terminal.
    pub active: BTreeSet<JobId>,
    /// How many of them are with runners.
    pub on_runner: u32,
    pub expiry_armed: bool,
    /// Jobs up to this one have been told of the queue's cancellation.
    pub cancelled_through: JobId,
}

/// Counts of things that are no errors but worth knowing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    pub submitted: u64,
    pub deduplicated: u64,
    pub refused: u64,
    pub dispatched: u64,
    pub retried: u64,
    /// Attempts that outlived their runner and were found again by its next incarnation.
    pub adopted: u64,
    pub ended: [u64; State::ALL.len()],
    pub ignored: [u64; 6],
    pub duplicate_words: u64,
    pub gaps: u64,
}

/// One shard of the scheduler.
#[derive(Debug)]
pub struct Shard {
    pub(crate) config: Config,
    pub(crate) epoch: Epoch,
    pub(crate) now: Millis,
    pub(crate) home: Slot,
    pub(crate) ids: IdSource,
    pub(crate) last_id: u64,
    pub(crate) jobs: Map<JobId, Box<Entry>>,
    pub(crate) dirty_jobs: Vec<JobId>,
    pub(crate) queues: Map<QueueId, Box<QueueEntry>>,
    pub(crate) dirty_queues: Vec<QueueId>,
    pub(crate) tokens: Map<QueueToken, QueueId>,
    /// tenant → its implicit queue.
    pub(crate) implicit: Map<String, QueueId>,
    pub(crate) tenant_numbers: Map<String, TenantNumber>,
    pub(crate) cancelling_queues: BTreeSet<QueueId>,
    pub(crate) ready: Ready,
    pub(crate) timers: Timers,
    pub(crate) runners: Vec<(RunnerId, Runner)>,
    /// Runners of which no word could be applied yet, and when they were asked to begin at the beginning.
    pub(crate) strangers: Map<RunnerId, Millis>,
    /// Idempotency keys of live jobs.
    pub(crate) keys: Map<KeyHash, KeyEntry>,
    /// Keys that were asked for, and who waits for them.
    pub(crate) asked_keys: Map<KeyHash, Vec<KeyWaiter>>,
    /// Keys to ask for at the end of this step.
    pub(crate) keys_to_ask: Vec<KeyHash>,
    pub(crate) open_submits: Map<RequestId, OpenSubmit>,
    /// Operations that wait for a terminal job to be fetched, in their order.
    pub(crate) asked_jobs: Map<JobId, Vec<WaitingOperation>>,
    pub(crate) sweep: Sweep,
    /// About how much the flush will write of the jobs that have changed.
    pub(crate) dirty_bytes: usize,
    pub(crate) backlog: Backlog,
    pub(crate) stats: Stats,
}

impl Shard {
    /// An empty shard. Records are put into it with `restore_*`, then [`Shard::resume`] sets it going.
    pub fn new(config: Config, epoch: Epoch, now: Millis) -> Self {
        Self {
            home: config.shards.home_slot(config.shard),
            epoch,
            now,
            ids: IdSource::default(),
            last_id: 0,
            jobs: Map::default(),
            dirty_jobs: Vec::new(),
            queues: Map::default(),
            dirty_queues: Vec::new(),
            tokens: Map::default(),
            implicit: Map::default(),
            tenant_numbers: Map::default(),
            cancelling_queues: BTreeSet::new(),
            ready: Ready::new(config.interactive_ages_after, config.batch_ages_after),
            timers: Timers::default(),
            runners: Vec::new(),
            strangers: Map::default(),
            keys: Map::default(),
            asked_keys: Map::default(),
            keys_to_ask: Vec::new(),
            open_submits: Map::default(),
            asked_jobs: Map::default(),
            sweep: Sweep::new(now),
            dirty_bytes: 0,
            backlog: Backlog::default(),
            stats: Stats::default(),
            config,
        }
    }

    /// Takes one input. What it leads to is in `step` after [`Shard::flush`].
    pub fn handle(&mut self, now: Millis, input: Input, step: &mut Step) {
        // Wall clocks jump; the engine's time stands still until they have caught up.
        self.now = self.now.max(now);
        match input {
            Input::Submit { request, jobs } => self.submit(request, jobs, step),
            Input::Cancel { request, job } => self.operate(Some(request), job, Operation::Cancel, step),
            Input::Retract { request, job } => self.operate(Some(request), job, Operation::Retract, step),
            Input::Retry { request, job } => self.operate(Some(request), job, Operation::Retry, step),
            Input::Remove { request, job } => self.operate(Some(request), job, Operation::Remove, step),
            Input::Release { request, job } => self.operate(Some(request), job, Operation::Release, step),
            Input::Approve { request, job, approval } => {
                self.operate(Some(request), job, Operation::Approve(Box::new(approval)), step);
            }
            Input::CreateQueue { request, queue } => self.create_queue(request, *queue, step),
            Input::DrainQueue { request, queue } => self.drain_queue(request, queue, step),
            Input::CancelQueue { request, queue } => self.cancel_queue(request, queue, step),
            Input::RemoveQueue { request, queue } => self.remove_queue(request, queue, step),
            Input::Verdict { job, decision } => self.verdict(job, decision, step),
            Input::Scanned { job, clean, message } => {
                self.operate(None, job, Operation::Scanned { clean, message }, step);
            }
            Input::Runner(word) => self.runner_word(word, step),
            Input::RunnerLost { runner, incarnation } => self.runner_lost(runner, incarnation),
            Input::Fetched(fetched) => self.fetched(fetched, step),
            Input::Tick => self.tick(step),
        }
        self.work_off(step);
        self.fill_runners(step);
    }

    /// When the shard wants its next [`Input::Tick`], at the latest. Past means: now.
    pub fn next_tick(&self) -> Millis {
        if !self.cancelling_queues.is_empty() || self.backlog.is_due() {
            return self.now;
        }
        let timer = [self.timers.next(), self.next_runner_check()].into_iter().flatten().min();
        timer.map_or(self.sweep.next, |timer| timer.min(self.sweep.next))
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn now(&self) -> Millis {
        self.now
    }

    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// How many jobs are not terminal.
    pub fn live_jobs(&self) -> usize {
        self.jobs.len()
    }

    /// How many wait for a runner, and how many runners have in hand, of one kind.
    pub fn load(&self, lane: Lane) -> (usize, u32) {
        let held = self.runners.iter().map(|(_, runner)| runner.held(lane)).sum();
        (self.ready.len(lane), held)
    }

    /// A job that is not terminal.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).map(|entry| &entry.job)
    }

    pub fn queue(&self, id: QueueId) -> Option<&Queue> {
        self.queues.get(&id).map(|entry| &entry.queue)
    }

    pub(crate) fn next_id(&mut self, slot: Slot) -> u64 {
        self.last_id = self.ids.next(self.now, slot);
        self.last_id
    }
}
