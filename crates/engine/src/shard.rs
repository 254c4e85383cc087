//! The shard's memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use model::id::{Epoch, IdSource, Incarnation, JobId, QueueId, RunnerId, Slot};
use model::job::Job;
use model::key::KeyEntry;
use model::machine::Fault;
use model::queue::{Queue, QueueToken};
use model::spec::{KeyHash, Lane};
use model::state::State;
use model::time::Millis;

use crate::audit::Chain;
use crate::backlog::Backlog;
use crate::config::Config;
use crate::flows::Flows;
use crate::input::{Input, RequestId};
use crate::keys::KeyWaiter;
use crate::leases::Leases;
use crate::operate::{Operation, WaitingOperation};
use crate::output::Scans;
use crate::parked::Parked;
use crate::placement::ask::AskId;
use crate::placement::runner_list::Runners;
use crate::ready::{Ready, TenantNumber};
use crate::retention::Sweep;
use crate::setup::Setup;
use crate::stats::{Stats, Topics};
use crate::step::Step;
use crate::submit::OpenSubmit;
use crate::tenancy::Tenancy;
use crate::timers::Timers;

/// Hashes the same in every run: the simulation must replay.
pub(crate) type Hasher = foldhash::fast::FixedState;
pub(crate) type Map<K, V> = HashMap<K, V, Hasher>;
pub(crate) type Set<K> = HashSet<K, Hasher>;

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
    /// What it asks of a runner, once that is known.
    pub ask: Option<AskId>,
    /// When it is to be looked at again, if it waits for a time or for an answer of the policy.
    pub wakes_at: Option<Millis>,
    /// The inventory question that was the newest when the current attempt was given out.
    pub dispatched_after: u64,
    /// How often in a row the policy could not be asked about it.
    pub policy_misses: u8,
    /// Its result, once it is shown, is to be scanned.
    pub scan_after: bool,
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
    /// How many workflows that have not ended are in it.
    pub flows: u32,
    /// Jobs up to this one have been told of the queue's cancellation.
    pub cancelled_through: JobId,
}

/// One shard of the scheduler.
#[derive(Debug)]
pub struct Shard {
    pub(crate) config: Config,
    pub(crate) setup: Arc<Setup>,
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
    pub(crate) runners: Runners,
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
    pub(crate) tenancy: Tenancy,
    pub(crate) chain: Chain,
    pub(crate) scans: Scans,
    /// Whether any topic has its results scanned, so that the rest need not be asked for theirs.
    pub(crate) scans_outputs: bool,
    pub(crate) flows: Flows,
    pub(crate) parked: Parked,
    pub(crate) stats: Stats,
}

impl Shard {
    /// An empty shard. Records are put into it with `restore_*`, then [`Shard::resume`] sets it going.
    pub fn new(config: Config, setup: Arc<Setup>, epoch: Epoch, now: Millis) -> Self {
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
            ready: Ready::new(
                setup.clone(),
                Leases::new(config.shard, config.shards, epoch),
                config.interactive_ages_after,
                config.batch_ages_after,
            ),
            timers: Timers::default(),
            runners: Runners::default(),
            strangers: Map::default(),
            keys: Map::default(),
            asked_keys: Map::default(),
            keys_to_ask: Vec::new(),
            open_submits: Map::default(),
            asked_jobs: Map::default(),
            sweep: Sweep::new(now),
            dirty_bytes: 0,
            backlog: Backlog::default(),
            tenancy: Tenancy::default(),
            chain: Chain::default(),
            scans: Scans::default(),
            scans_outputs: setup.scans_outputs(),
            flows: Flows::default(),
            parked: Parked::default(),
            stats: Stats::default(),
            setup,
            config,
        }
    }

    /// Takes one input. What it leads to is in `step` after [`Shard::flush`].
    pub fn handle(&mut self, now: Millis, input: Input, step: &mut Step) {
        // Wall clocks jump; the engine's time stands still until they have caught up.
        self.now = self.now.max(now);
        self.ready.leases.tick(self.now);
        match input {
            Input::Submit { request, jobs } => self.submit(request, jobs, step),
            Input::Cancel { request, job, by } => self.operate_by(Some(request), job, by, Operation::Cancel, step),
            Input::Retract { request, job, by } => self.operate_by(Some(request), job, by, Operation::Retract, step),
            Input::Retry { request, job, by } => self.operate_by(Some(request), job, by, Operation::Retry, step),
            Input::Remove { request, job, by } => self.operate_by(Some(request), job, by, Operation::Remove, step),
            Input::Release { request, job, by } => self.operate_by(Some(request), job, by, Operation::Release, step),
            Input::Purge { request, job, by } => self.operate_by(Some(request), job, by, Operation::Purge, step),
            Input::ReadOriginal { request, job, by } => {
                self.operate_by(Some(request), job, by, Operation::ReadOriginal, step);
            }
            Input::Approve { request, job, word } => {
                let by = word.by.clone();
                self.operate_by(Some(request), job, by, Operation::Approve(word), step);
            }
            Input::CreateQueue { request, queue } => self.create_queue(request, *queue, step),
            Input::DrainQueue { request, queue, by } => self.drain_queue(request, queue, &by, step),
            Input::CancelQueue { request, queue, by } => self.cancel_queue(request, queue, &by, step),
            Input::RemoveQueue { request, queue, by } => self.remove_queue(request, queue, &by, step),
            Input::StartWorkflow { request, workflow } => self.start_workflow(request, workflow, step),
            Input::CancelWorkflow { request, workflow, by, compensate } => {
                self.cancel_workflow(request, workflow, by, compensate, step);
            }
            Input::PauseWorkflow { request, workflow, by } => self.pause_workflow(request, workflow, &by, step),
            Input::ResumeWorkflow { request, workflow, by } => self.resume_workflow(request, workflow, &by, step),
            Input::RerunWorkflow { request, workflow, from, by } => {
                self.rerun_workflow(request, workflow, from, by, step);
            }
            Input::SignalWorkflow { request, workflow, signal } => {
                self.signal_workflow(request, workflow, *signal, step);
            }
            Input::RemoveWorkflow { request, workflow, by } => self.remove_workflow(request, workflow, by, step),
            Input::Progress { request, job, percent, message } => self.progress(request, job, percent, message, step),
            Input::Progressed { ticket, percent, message } => self.progressed(ticket, percent, message, step),
            Input::CreateSchedule { request, schedule } => self.create_schedule(request, *schedule, step),
            Input::PauseSchedule { request, schedule, paused, by } => {
                self.pause_schedule(request, schedule, paused, &by, step);
            }
            Input::RemoveSchedule { request, schedule, by } => self.remove_schedule(request, schedule, &by, step),
            Input::TriggerSchedule { request, schedule, by } => self.trigger_schedule(request, schedule, &by, step),
            Input::Verdict { job, decision } => self.verdict(job, decision, step),
            Input::PolicyUnavailable { job, message } => self.policy_unavailable(job, message, step),
            Input::Scanned { job, attempt, scan } => self.scanned(job, attempt, scan, step),
            Input::ScanFailed { job, attempt, message } => self.scan_failed(job, attempt, message, step),
            Input::Setup(setup) => self.set_up(setup, step),
            Input::FromShard { from, message } => self.hear_shard(from, &message),
            Input::Explain { request, job } => self.explain(request, job, step),
            Input::Load { runner, incarnation, load } => self.runner_load(runner, incarnation, load),
            Input::Runner(word) => self.runner_word(word, step),
            Input::RunnerLost { runner, incarnation } => self.runner_lost(runner, incarnation),
            Input::Fetched(fetched) => self.fetched(fetched, step),
            Input::Tick => self.tick(step),
        }
        self.work_off(step);
        self.serve_freed(step);
        self.hear_jobs(step);
        self.go_on_with_flows(step);
        self.fill_runners(step);
    }

    /// When the shard wants its next [`Input::Tick`], at the latest. Past means: now.
    pub fn next_tick(&self) -> Millis {
        if !self.cancelling_queues.is_empty() || self.backlog.is_due() {
            return self.now;
        }
        let timer = [
            self.timers.next(),
            self.runners.next_check(),
            self.scans.next(),
            self.ready.leases.next_tick(),
            self.tenancy.next(),
            self.flows.next(),
        ]
        .into_iter()
        .flatten()
        .min();
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

    /// What is counted by topic.
    pub fn topics(&self) -> &Topics {
        self.ready.asks.topics.topics()
    }

    /// How many runners are connected.
    pub fn connected_runners(&self) -> u32 {
        self.ready.connected
    }

    /// How many jobs are not terminal.
    pub fn live_jobs(&self) -> usize {
        self.jobs.len()
    }

    /// How many wait for a runner, and how many runners have in hand, of one kind.
    pub fn load(&self, lane: Lane) -> (usize, u32) {
        (self.ready.len(lane), self.ready.held[lane as usize])
    }

    /// How many results were shown and are still to be scanned.
    pub fn open_scans(&self) -> usize {
        self.scans.len()
    }

    pub fn setup(&self) -> &Arc<Setup> {
        &self.setup
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
