//! The shard: its components, and the routing of inputs to them.
//!
//! Each component owns its state privately. An operation on several components is a method of the shard, in the module
//! of the component it is mainly about.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use model::change::Change;
use model::id::{Epoch, JobId, QueueId};
use model::job::Job;
use model::queue::Queue;
use model::spec::ExecutorKind;
use model::time::{Millis, Now};

use crate::anomaly::Anomalies;
use crate::audit::AuditChain;
use crate::backlog::Backlog;
use crate::claims::Claims;
use crate::config::Config;
use crate::exclusive::Exclusive;
use crate::health::Health;
use crate::ids::Ids;
use crate::input::Input;
use crate::jobs::{Jobs, PendingDecision};
use crate::keys::Keys;
use crate::leases::Leases;
use crate::operations::{Operation, WaitingOperations};
use crate::output::Scans;
use crate::placement::Ready;
use crate::placement::runner_list::Runners;
use crate::queues::Queues;
use crate::rehydrate::Resuming;
use crate::rejected::RejectedMessages;
use crate::retention::Sweep;
use crate::settings::Settings;
use crate::stats::{Stats, TopicStats};
use crate::step::Step;
use crate::submit::Submits;
use crate::tenancy::Tenancy;
use crate::timers::Timers;
use crate::workflows::{LetterOperation, Workflows};

/// Deterministic hashing: the simulation must replay.
pub(crate) type Hasher = foldhash::fast::FixedState;
pub(crate) type Map<K, V> = HashMap<K, V, Hasher>;
pub(crate) type Set<K> = HashSet<K, Hasher>;

/// One shard of the scheduler.
#[derive(Debug)]
pub struct Shard {
    pub(crate) config: Config,
    pub(crate) settings: Arc<Settings>,
    pub(crate) epoch: Epoch,
    /// Wall clock of the current input.
    pub(crate) now: Millis,
    /// Monotonic clock of the current input.
    pub(crate) steady: Millis,
    pub(crate) ids: Ids,
    pub(crate) jobs: Jobs,
    pub(crate) queues: Queues,
    pub(crate) ready: Ready,
    pub(crate) timers: Timers,
    pub(crate) runners: Runners,
    pub(crate) exclusive: Exclusive,
    pub(crate) health: Health,
    pub(crate) keys: Keys,
    pub(crate) claims: Claims,
    pub(crate) submits: Submits,
    pub(crate) operations: WaitingOperations,
    pub(crate) sweep: Sweep,
    pub(crate) backlog: Backlog,
    pub(crate) tenancy: Tenancy,
    pub(crate) audit: AuditChain,
    pub(crate) scans: Scans,
    pub(crate) workflows: Workflows,
    pub(crate) rejected: RejectedMessages,
    pub(crate) stats: Stats,
    pub(crate) anomalies: Anomalies,
    /// All names are indexed, see [`crate::names`].
    pub(crate) names_indexed: bool,
    /// What [`Shard::resume`] has not done yet.
    pub(crate) resuming: Option<VecDeque<Resuming>>,
}

impl Shard {
    /// An empty shard. Records are added with `restore_*`, then [`Shard::resume`] starts it.
    pub fn new(config: Config, settings: Arc<Settings>, epoch: Epoch, now: Now) -> Self {
        config.validate();
        let leases = Leases::new(config.shard, config.shards, epoch);
        Self {
            ids: Ids::new(config.shards.home_slot(config.shard)),
            epoch,
            now: now.wall,
            steady: now.steady,
            jobs: Jobs::default(),
            queues: Queues::default(),
            ready: Ready::new(settings.clone(), leases, config.interactive_ages_after, config.batch_ages_after),
            timers: Timers::default(),
            runners: Runners::default(),
            exclusive: Exclusive::new(now.steady),
            health: Health::default(),
            keys: Keys::default(),
            claims: Claims::default(),
            submits: Submits::default(),
            operations: WaitingOperations::default(),
            sweep: Sweep::new(now.wall),
            backlog: Backlog::default(),
            tenancy: Tenancy::default(),
            audit: AuditChain::default(),
            scans: Scans::new(&settings),
            workflows: Workflows::default(),
            rejected: RejectedMessages::default(),
            stats: Stats::default(),
            anomalies: Anomalies::default(),
            names_indexed: false,
            resuming: None,
            settings,
            config,
        }
    }

    /// Handles one input. Its outcome is in `step` after [`Shard::flush`].
    pub fn handle(&mut self, now: Now, input: Input, step: &mut Step) {
        debug_assert!(self.resuming.is_none(), "inputs wait until the shard has resumed");
        self.advance_to(now);
        self.ready.tick(self.steady);
        match input {
            Input::Submit { request, jobs } => self.submit(request, jobs, step),
            Input::Cancel { request, job, by } => self.operate(Some(request), job, by, Operation::Cancel, step),
            Input::Retract { request, job, by } => self.operate(Some(request), job, by, Operation::Retract, step),
            Input::Retry { request, job, by } => self.operate(Some(request), job, by, Operation::Retry, step),
            Input::Remove { request, job, by } => self.operate(Some(request), job, by, Operation::Remove, step),
            Input::Release { request, job, by } => self.operate(Some(request), job, by, Operation::Release, step),
            Input::Purge { request, job, by } => self.operate(Some(request), job, by, Operation::Purge, step),
            Input::ReadOriginal { request, job, by } => {
                self.operate(Some(request), job, by, Operation::ReadOriginal, step);
            }
            Input::Approve { request, job, decision } => {
                let by = decision.by.clone();
                self.operate(Some(request), job, by, Operation::Approve(decision), step);
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
            Input::RetryCompensation { request, workflow, letter, by } => {
                self.compensation_letter(request, workflow, letter, LetterOperation::Retry, by, step);
            }
            Input::PurgeCompensation { request, workflow, letter, by } => {
                self.compensation_letter(request, workflow, letter, LetterOperation::Purge, by, step);
            }
            Input::Progress { request, job, percent, message } => self.progress(request, job, percent, message, step),
            Input::Progressed { attempt_ref, percent, message } => self.progressed(attempt_ref, percent, message, step),
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
            Input::AuditSigned { signed } => self.audit_signed(*signed, step),
            Input::Settings(settings) => self.apply_settings(settings, step),
            Input::FromShard { from, message } => self.receive_from_shard(from, message, step),
            Input::Explain { request, job } => self.explain(request, job, step),
            Input::Load { runner, incarnation, load } => self.runner_load(runner, incarnation, load),
            Input::RunnerHeader(header) => self.runner_header(&header, step),
            Input::Runner(message) => self.runner_message(message, step),
            Input::RunnerDisconnected { runner, incarnation } => self.runner_disconnected(runner, incarnation),
            Input::RetractAll { runner } => self.end_attempts(runner, PendingDecision::Retract),
            Input::AbandonAll { runner } => self.end_attempts(runner, PendingDecision::Abandon),
            Input::NodeChanged { node, event } => step.announce(&Change::Node { id: node, event, at: self.now }),
            Input::RunnerLost { runner, incarnation } => self.runner_lost(runner, incarnation, step),
            Input::Fetched(fetched) => self.fetched(fetched, step),
            Input::Tick => self.tick(step),
        }
        self.process_backlog(step);
        self.serve_freed(step);
        self.apply_job_updates(step);
        self.continue_workflows(step);
        self.fill_runners(step);
    }

    /// The engine's clocks never go back. After a backward jump of the wall clock it stands still.
    pub(crate) fn advance_to(&mut self, now: Now) {
        self.now = self.now.max(now.wall);
        self.steady = self.steady.max(now.steady);
    }

    /// Both clocks, as of the current input.
    pub(crate) fn clocks(&self) -> Now {
        Now { wall: self.now, steady: self.steady }
    }

    /// Time until the next [`Input::Tick`]; zero if one is due.
    pub fn tick_in(&self, now: Now) -> Millis {
        if self.queues.is_cancelling() || self.backlog.is_due() {
            return Millis(0);
        }
        let wall = [Some(self.sweep.next()), self.timers.next(), self.scans.next(), self.workflows.next()];
        let steady = [
            self.timers.next_steady(),
            self.runners.next_check(),
            self.exclusive.next(),
            self.ready.next_tick(),
            self.tenancy.next(),
            self.claims.next(),
        ];
        let wall = wall.into_iter().flatten().map(|at| at.saturating_sub(now.wall));
        let steady = steady.into_iter().flatten().map(|at| at.saturating_sub(now.steady));
        wall.chain(steady).min().unwrap_or_default()
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

    /// Counters by topic.
    pub fn topics(&self) -> &TopicStats {
        self.ready.topics()
    }

    /// Number of connected runners.
    pub fn connected_runners(&self) -> u32 {
        self.ready.connected()
    }

    /// Number of jobs that are not terminal.
    pub fn live_jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Jobs waiting for a runner, and attempts in flight, of one executor.
    pub fn load(&self, executor: ExecutorKind) -> (usize, u32) {
        (self.ready.len(executor), self.ready.in_flight(executor))
    }

    /// Results that are shown and not scanned yet.
    pub fn open_scans(&self) -> usize {
        self.scans.len()
    }

    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// A job that is not terminal.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(id).map(|entry| &*entry.job)
    }

    pub fn queue(&self, id: QueueId) -> Option<&Queue> {
        self.queues.get(id).map(|entry| entry.queue())
    }
}
