//! Shards and their shell: take the waiting inputs, handle them, commit once, then perform the effects. Processes crash
//! at every point of it.

mod counts;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::{Effect, Fetch, Input, Settings};
use model::batch::Batch;
use model::blob::BlobId;
use model::id::{Epoch, NodeId};
use model::job::{Job, Outcome, SpilledResult};
use model::json::Json;
use model::message::{AttemptRef, ShardMessage};
use model::spec::ExecutorKind;
use model::time::{Millis, Now};
use parking_lot::Mutex;
use shard::{Outcomes, Owner};
use store::{Error, ModelStore, ShardOwner, Store};

use crate::coverage::{Coverage, Fault};
use crate::crash::Crash;
use crate::invariants::{self, Checked, DispatchSnapshot, Violation};
use crate::ledger::{CheckContext, Commit};
use crate::partitions::Direction;
use crate::rng::{Rate, Rng};
use crate::sabotage::Sabotage;
use crate::scanner::Scanner;
use crate::scenario::{SECOND, Time};
use crate::world::{Event, Inbound, Reply, World, trace};

/// Longest sleep of an idle shard, so that it notices a clock jump.
const SLEEP_MAX: Time = 2 * SECOND;

/// The processes of one shard: usually one, none after a crash, two after a takeover until the old owner is fenced. The
/// newest is the last.
#[derive(Debug, Default)]
pub struct Host {
    pub processes: Vec<Process>,
    pub clock_offset: i64,
    furthest_offset: i64,
    /// Drift of the steady clock, in parts per million.
    pub drift_ppm: i64,
}

/// A process that owns or owned a shard.
#[derive(Debug)]
pub struct Process {
    pub number: u64,
    pub owner: Owner,
    inbox: VecDeque<Inbound>,
    /// Time of the next round.
    next_round: Option<Time>,
    /// Number of the newest settings it received.
    settings_number: usize,
    /// Settings in force during this round, in order.
    settings: Vec<Arc<Settings>>,
    /// Attempts dispatched in this round.
    dispatched: BTreeMap<AttemptRef, DispatchSnapshot>,
    /// Number of effects of this round already inspected.
    effects_seen: usize,
}

/// The parts of a node that take the outcomes of attempts.
struct Node<'a> {
    scanner: &'a Scanner,
    coverage: &'a mut Coverage,
    /// Results to be stored.
    spills: Vec<(Epoch, AttemptRef, Json)>,
}

impl Outcomes for Node<'_> {
    fn check_metadata(&mut self, _: &Job, attempt_ref: AttemptRef, outcome: &mut Outcome) {
        outcome.policy = self.scanner.metadata_decision(attempt_ref).map(Box::new);
        if outcome.policy.is_some() {
            self.coverage.count("metadata decisions on results");
        }
    }

    fn spill(&mut self, epoch: Epoch, attempt_ref: AttemptRef, result: &Json) {
        self.coverage.count("large results stored");
        self.spills.push((epoch, attempt_ref, result.clone()));
    }
}

impl Process {
    fn new(number: u64, owner: Owner, settings_number: usize) -> Self {
        Self {
            number,
            settings: vec![owner.shard().settings().clone()],
            owner,
            inbox: VecDeque::new(),
            next_round: None,
            settings_number,
            dispatched: BTreeMap::new(),
            effects_seen: 0,
        }
    }

    fn begin_round(&mut self, now: Now, node: &mut Node<'_>) {
        self.owner.begin_round(now, node);
        self.inspect_effects();
    }

    fn handle(&mut self, now: Now, inbound: Inbound, node: &mut Node<'_>) {
        match inbound {
            Inbound::Request { request, operation } => self.owner.handle(now, operation.input(request)),
            Inbound::RunnerFrame(frame) => self.owner.receive(now, frame, node),
            Inbound::Reply { epoch, reply } => self.handle_reply(now, epoch, reply, node),
            // Overtaken by newer settings.
            Inbound::Settings { number, .. } if number <= self.settings_number => {}
            Inbound::Settings { number, settings } => {
                self.settings_number = number;
                self.settings.push(settings.clone());
                self.owner.handle(now, Input::Settings(settings));
            }
            Inbound::FromShard { from, message } => self.owner.handle(now, Input::FromShard { from, message }),
            Inbound::RunnerLost { runner, incarnation } => {
                self.owner.handle(now, Input::RunnerLost { runner, incarnation });
            }
        }
        self.inspect_effects();
    }

    fn handle_reply(&mut self, now: Now, epoch: Epoch, reply: Reply, node: &mut Node<'_>) {
        let input = match reply {
            Reply::Verdict { job, decision } => Input::Verdict { job, decision },
            Reply::PolicyUnavailable { job } => Input::PolicyUnavailable { job, message: "no service".to_owned() },
            Reply::Scanned { attempt_ref: AttemptRef { job, attempt }, scan } => Input::Scanned { job, attempt, scan },
            Reply::ScanFailed { attempt_ref: AttemptRef { job, attempt } } => {
                Input::ScanFailed { job, attempt, message: "disk unavailable".to_owned() }
            }
            Reply::Fetched(fetched) => Input::Fetched(fetched),
            Reply::ReadFailed => return self.owner.fail_read(epoch, "injected".to_owned()),
            Reply::Spilled { attempt_ref, spilled } => {
                return self.owner.finish_spill(now, epoch, attempt_ref, spilled, node);
            }
        };
        self.owner.reply(now, epoch, input);
    }

    /// Notes the attempts that the last input has dispatched.
    fn inspect_effects(&mut self) {
        let policy = self.owner.shard().settings().policy;
        let seen = std::mem::replace(&mut self.effects_seen, self.owner.step().effects.len());
        let run = |effect: &Effect| match effect {
            Effect::Send { message, .. } => match message.message() {
                Some(ShardMessage::Run { attempt_ref, .. }) => Some(*attempt_ref),
                Some(_) | None => None,
            },
            _ => None,
        };
        let dispatched: Vec<AttemptRef> = self.owner.step().effects[seen..].iter().filter_map(run).collect();
        for attempt_ref in dispatched {
            if let Some(job) = self.owner.shard().job(attempt_ref.job) {
                self.dispatched.insert(attempt_ref, DispatchSnapshot::new(policy, job));
            }
        }
    }

    /// Ends the round. The last settings stay in force.
    fn end_round(&mut self) {
        self.owner.end_round();
        self.settings.drain(..self.settings.len() - 1);
        self.dispatched.clear();
        self.effects_seen = 0;
    }

    /// Settings in force during this round.
    pub fn settings(&self) -> &[Arc<Settings>] {
        &self.settings
    }
}

/// A commit that its owner has given up, on its way to the store.
#[derive(Debug)]
pub struct LateCommit {
    shard: usize,
    epoch: Epoch,
    process: u64,
    batch: Batch,
    now: Millis,
    settings: Vec<Arc<Settings>>,
    dispatched: BTreeMap<AttemptRef, DispatchSnapshot>,
}

impl Host {
    pub fn new(drift_ppm: i64) -> Self {
        Self { drift_ppm, ..Self::default() }
    }

    pub fn jump(&mut self, by: i64) {
        self.clock_offset += by;
        self.furthest_offset = self.furthest_offset.max(self.clock_offset);
    }

    /// Sets the clock to the furthest offset ever used, so that time does not go backwards.
    pub fn set_clock_to_furthest(&mut self) {
        self.clock_offset = self.furthest_offset;
    }

    /// Work that is not finished.
    pub fn unfinished_work(&self, shard: usize) -> Vec<String> {
        let [process] = self.processes.as_slice() else {
            return vec![format!("shard {shard} has {} owners", self.processes.len())];
        };
        let load = |executor| process.owner.shard().load(executor).1;
        let in_flight: u32 = ExecutorKind::ALL.into_iter().map(load).sum();
        let mut left = Vec::new();
        if in_flight > 0 {
            left.push(format!("shard {shard} has {in_flight} attempts in flight"));
        }
        if !process.inbox.is_empty() {
            left.push(format!("shard {shard} has {} messages waiting", process.inbox.len()));
        }
        left
    }
}

/// Faults of the store.
#[derive(Debug, Clone)]
pub struct StoreFaults {
    /// The fault of the next commit.
    commit: Arc<Mutex<store::Fault>>,
    reads: Arc<Mutex<ReadFaults>>,
}

/// Faults of reads, drawn from a sequence of their own: not every reader is part of the world.
#[derive(Debug)]
struct ReadFaults {
    rng: Rng,
    rate: Rate,
    failed: u64,
}

impl StoreFaults {
    pub fn install(store: &ModelStore, seed: u64) -> Self {
        let reads = ReadFaults { rng: Rng::new(seed), rate: Rate::NEVER, failed: 0 };
        let faults = Self { commit: Arc::default(), reads: Arc::new(Mutex::new(reads)) };
        let (commit, reads) = (faults.commit.clone(), faults.reads.clone());
        store.plan_faults(move |_, _| std::mem::take(&mut *commit.lock()));
        store.plan_read_faults(move || {
            let mut reads = reads.lock();
            let rate = reads.rate;
            let fails = reads.rng.chance(rate);
            reads.failed += u64::from(fails);
            fails
        });
        faults
    }

    fn set_next(&self, fault: store::Fault) {
        *self.commit.lock() = fault;
    }

    /// Runs an operation whose reads fail at this rate. Also returns the number of failed ones.
    fn with_read_faults<T>(&self, rate: Rate, operation: impl FnOnce() -> T) -> (T, u64) {
        self.reads.lock().rate = rate;
        let result = operation();
        let mut reads = self.reads.lock();
        reads.rate = Rate::NEVER;
        (result, std::mem::take(&mut reads.failed))
    }
}

/// The fault of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoundFault {
    None,
    CrashBefore,
    Store(store::Fault),
    CrashAfter,
    CrashDuringEffects,
}

impl World {
    /// Starts a process that opens the shard and rehydrates it.
    pub(crate) fn start_shard(&mut self, shard: usize) -> Checked {
        if !self.hosts[shard].processes.is_empty() && self.is_healed() {
            return Ok(());
        }
        self.processes += 1;
        let number = self.processes;
        let id = self.shard_id(shard);
        let config = self.scenario.config(id);
        let options = shard::Options {
            owner: ShardOwner { node: NodeId(number), nonce: number },
            config,
            settings: self.operators.newest_settings(),
            round_bytes_max: config.step_bytes_max,
            result_bytes_max: self.scenario.result_bytes_max,
        };
        let now = self.clocks(shard);
        let open = || Owner::open(&self.store, &self.plans, options, now);
        let (opened, failed_reads) = self.store_faults.with_read_faults(self.scenario.store.fail_read, open);
        let owner = match opened {
            Ok(owner) => owner,
            Err(error) if error.is_transient() && failed_reads > 0 => {
                trace!(self, "shard {shard} process {number} cannot be rehydrated: {error}");
                self.coverage.count_fault(Fault::RehydrationFailed);
                // The epoch may be taken: the owner before is superseded.
                if let Some((epoch, owner)) = self.store.owner(id).filter(|(_, owner)| owner.0 == number) {
                    self.ledger.opened(id, epoch, owner.0)?;
                }
                self.restart_later(shard);
                return Ok(());
            }
            Err(error) => return Err(Violation { invariant: "records_can_be_read", detail: error.to_string() }),
        };
        invariants::invariant_records_can_be_read(owner.unreadable())?;
        let (epoch, jobs) = (owner.epoch(), owner.shard().live_jobs());
        trace!(self, "shard {shard} process {number} epoch {} {jobs} jobs", epoch.0);
        self.ledger.opened(id, epoch, number)?;
        let process = Process::new(number, owner, self.operators.newest());
        self.hosts[shard].processes.push(process);
        self.notify_of_lost_runners(shard);
        self.wake(shard, number, 0);
        Ok(())
    }

    /// Schedules the next round of a process within `delay`.
    fn wake(&mut self, shard: usize, number: u64, delay: Time) {
        let at = self.now + delay;
        let Some(process) = self.hosts[shard].processes.iter_mut().find(|process| process.number == number) else {
            return;
        };
        if process.next_round.is_none_or(|next| at < next) {
            process.next_round = Some(at);
            self.at(at, Event::Round { shard, process: number });
        }
    }

    /// Delivers a message to an owner of the shard.
    pub(crate) fn deliver(&mut self, shard: usize, inbound: Inbound) {
        let Some(inbound) = self.sabotaged_inbound(inbound) else { return };
        // A message to a shard without a process is lost.
        if let Some(number) = self.receiver(shard, &inbound) {
            self.enqueue(shard, number, inbound);
        }
    }

    /// A reply reaches the process that asked, or a later one on its node. The network delivers other messages to the
    /// owner, sometimes to a superseded one.
    fn receiver(&mut self, shard: usize, inbound: &Inbound) -> Option<u64> {
        let processes = &self.hosts[shard].processes;
        if let Inbound::Reply { epoch, .. } = inbound
            && let Some(asked) = processes.iter().find(|process| process.owner.epoch() == *epoch)
        {
            return Some(asked.number);
        }
        let is_stale = processes.len() > 1 && self.rng.one_in(3);
        let chosen = if is_stale { processes.first() } else { processes.last() };
        chosen.map(|process| process.number)
    }

    pub(crate) fn enqueue(&mut self, shard: usize, number: u64, inbound: Inbound) {
        let delay = self.rng.below(3);
        let processes = &mut self.hosts[shard].processes;
        if let Some(process) = processes.iter_mut().find(|process| process.number == number) {
            process.inbox.push_back(inbound);
            self.wake(shard, number, delay);
        }
    }

    /// Answers a read of a shard. Reads fail, and some are slow and return stale data.
    pub(crate) fn read_store(&mut self, shard: usize, epoch: Epoch, fetch: Fetch) -> Checked {
        let id = self.shard_id(shard);
        let answer = || shard::answer(&self.store, &self.plans, id, fetch);
        let (answer, failed_reads) = self.store_faults.with_read_faults(self.scenario.store.fail_read, answer);
        let replies = match answer {
            Ok(answers) => {
                answers.iter().try_for_each(invariants::invariant_fetched_records_can_be_read)?;
                answers.into_iter().map(Reply::Fetched).collect()
            }
            Err(_) if failed_reads > 0 => {
                self.coverage.count_fault(Fault::ReadFailed);
                vec![Reply::ReadFailed]
            }
            Err(error) => return Err(Violation { invariant: "records_can_be_read", detail: error.to_string() }),
        };
        for reply in replies {
            let delay = if self.rng.one_in(8) { self.rng.below(3 * SECOND) } else { self.rng.below(20) };
            self.after(delay, Event::Deliver { shard, inbound: Inbound::Reply { epoch, reply } });
        }
        Ok(())
    }

    pub(crate) fn round(&mut self, shard: usize, number: u64) -> Checked {
        let processes = &mut self.hosts[shard].processes;
        let Some(index) = processes.iter().position(|process| process.number == number) else { return Ok(()) };
        if processes[index].next_round != Some(self.now) {
            return Ok(());
        }
        let mut process = processes.remove(index);
        process.next_round = None;
        let now = self.clocks(shard);
        let was_resuming = process.owner.is_resuming();
        let mut node = Node { scanner: &self.scanner, coverage: &mut self.coverage, spills: Vec::new() };
        process.begin_round(now, &mut node);
        let mut spills = node.spills;
        let inputs = if was_resuming { 0 } else { self.rng.between(1, self.scenario.inputs_per_round_max) };
        for _ in 0..inputs {
            if process.owner.is_full() {
                break;
            }
            let Some(inbound) = process.inbox.pop_front() else { break };
            self.count_late_inbound(&process, &inbound);
            let mut node = Node { scanner: &self.scanner, coverage: &mut self.coverage, spills };
            process.handle(now, inbound, &mut node);
            spills = node.spills;
        }
        self.store_results(shard, spills);
        invariants::invariant_engine_counters_equal_a_recount(process.owner.shard().recount())?;
        process.owner.flush();
        invariants::invariant_engine_counters_equal_a_recount(process.owner.shard().recount())?;
        let survives = self.finish_round(shard, &mut process)?;
        let stale_replies = process.owner.take_stale_replies();
        self.coverage.count_faults(Fault::StaleReply, stale_replies);
        if survives {
            let delay = self.sleep(&process, now);
            self.hosts[shard].processes.insert(index, process);
            self.wake(shard, number, delay);
        } else {
            self.process_died(shard, &process);
        }
        Ok(())
    }

    /// Stores large results. Some cannot be stored.
    fn store_results(&mut self, shard: usize, spills: Vec<(Epoch, AttemptRef, Json)>) {
        for (epoch, attempt_ref, result) in spills {
            let spilled = if self.rng.chance(self.scenario.store.fail_spill) {
                self.coverage.count_fault(Fault::SpillFailed);
                Err("disk full".to_owned())
            } else {
                Ok(spilled_form(&result))
            };
            let delay = if self.rng.one_in(8) { self.rng.below(3 * SECOND) } else { self.rng.below(50) };
            let reply = Reply::Spilled { attempt_ref, spilled };
            self.after(delay, Event::Deliver { shard, inbound: Inbound::Reply { epoch, reply } });
        }
    }

    fn sleep(&mut self, process: &Process, now: Now) -> Time {
        if process.inbox.is_empty() || process.owner.is_resuming() {
            process.owner.idle_for(now).0.clamp(1, SLEEP_MAX)
        } else {
            self.rng.between(1, 3)
        }
    }

    /// A process has crashed. Schedules a restart unless another process has taken over.
    fn process_died(&mut self, shard: usize, process: &Process) {
        trace!(self, "shard {shard} process {} died", process.number);
        self.count_stats(process.owner.shard().stats());
        self.count_interrupted_workflows(shard);
        self.restart_later(shard);
    }

    fn restart_later(&mut self, shard: usize) {
        if self.hosts[shard].processes.is_empty() {
            let delay = self.rng.between(1, self.scenario.restart_max);
            self.after(delay, Event::StartShard { shard });
        }
    }

    /// Commits the round, then performs its effects. Returns whether the process survives.
    fn finish_round(&mut self, shard: usize, process: &mut Process) -> Result<bool, Violation> {
        invariants::invariant_no_anomalies(&process.owner.step().anomalies)?;
        let has_writes = process.owner.has_writes();
        let round_fault = if has_writes { self.next_round_fault() } else { self.draw_round_fault() };
        let alive = if round_fault == RoundFault::CrashBefore {
            self.coverage.count_fault(Fault::CrashBeforeCommit);
            self.sabotage_before_commit(shard, process)?;
            false
        } else {
            let is_owner =
                if has_writes { self.commit(shard, process, round_fault)? } else { self.confirm(shard, process)? };
            is_owner && self.perform_effects(shard, process, round_fault)?
        };
        process.end_round();
        Ok(alive)
    }

    /// Whether a process without anything to commit still owns its shard.
    fn confirm(&mut self, shard: usize, process: &mut Process) -> Result<bool, Violation> {
        if self.sabotage == Some(Sabotage::AnswerUnconfirmed) {
            return Ok(true);
        }
        match process.owner.commit(&self.store) {
            Ok(()) => return Ok(true),
            Err(shard::Error::Store(Error::Fenced { .. })) => {
                trace!(self, "shard {shard} process {} is superseded", process.number);
                self.coverage.count_fault(Fault::StaleAnswerPrevented);
            }
            Err(error) => self.expect_transient(shard, process, &error)?,
        }
        Ok(false)
    }

    /// Any other error than an injected one is a violation.
    fn expect_transient(&mut self, shard: usize, process: &Process, error: &shard::Error) -> Checked {
        trace!(self, "shard {shard} process {} fails: {error}", process.number);
        invariants::invariant_errors_are_transient(error)
    }

    /// Fault of a round with a commit.
    fn next_round_fault(&mut self) -> RoundFault {
        self.commits += 1;
        match self.crash {
            Some(Crash::Before(number)) if number == self.commits => RoundFault::CrashBefore,
            Some(Crash::After(number)) if number == self.commits => RoundFault::CrashAfter,
            Some(_) | None => self.draw_round_fault(),
        }
    }

    fn draw_round_fault(&mut self) -> RoundFault {
        let commits = self.scenario.commits;
        let faults = [
            (commits.crash_before, RoundFault::CrashBefore),
            (commits.refuse, RoundFault::Store(store::Fault::Refuse)),
            (commits.lands_but_errors, RoundFault::Store(store::Fault::LandsButErrors)),
            (commits.late, RoundFault::Store(store::Fault::Late)),
            (commits.torn, RoundFault::Store(store::Fault::Torn { lands: self.rng.one_in(2) })),
            (commits.crash_after, RoundFault::CrashAfter),
            (commits.crash_during_effects, RoundFault::CrashDuringEffects),
        ];
        let drawn = faults.into_iter().find(|(rate, _)| self.rng.chance(*rate));
        drawn.map_or(RoundFault::None, |(_, round_fault)| round_fault)
    }

    /// Commits the batch. Returns whether the process knows that it is durable.
    fn commit(&mut self, shard: usize, process: &mut Process, round_fault: RoundFault) -> Result<bool, Violation> {
        let id = self.shard_id(shard);
        let fault = if let RoundFault::Store(fault) = round_fault { fault } else { store::Fault::None };
        let limit = self.scenario.config(id).step_bytes_max;
        let bytes = process.owner.step().batch.as_bytes().len();
        invariants::invariant_commits_are_bounded(bytes, limit)?;
        self.store_faults.set_next(fault);
        let result = match self.stolen_token(shard) {
            Some(mut token) => self.store.commit(&mut token, &process.owner.step().batch).map(drop).map_err(Into::into),
            None => process.owner.commit(&self.store),
        };
        self.store_faults.set_next(store::Fault::None);
        let landed = match &result {
            Ok(()) => true,
            Err(shard::Error::Store(Error::Failed { .. })) => fault.lands(),
            Err(shard::Error::Store(Error::Fenced { .. })) => {
                trace!(self, "shard {shard} process {} is fenced", process.number);
                self.coverage.count_fault(Fault::StaleCommitRefused);
                return Ok(false);
            }
            Err(error) => {
                self.expect_transient(shard, process, error)?;
                return Ok(false);
            }
        };
        trace!(
            self,
            "shard {shard} process {} commits {} ops, {bytes} bytes: {fault:?}",
            process.number,
            process.owner.step().batch.len(),
        );
        self.count_store_fault(fault);
        if landed {
            self.observe_round(shard, process)?;
        } else if fault == store::Fault::Late {
            self.delay_commit(shard, process);
        }
        Ok(result.is_ok())
    }

    /// Checks the landed commit of a round.
    fn observe_round(&mut self, shard: usize, process: &mut Process) -> Checked {
        let (epoch, now) = (process.owner.epoch(), process.owner.shard().now());
        let batch = std::mem::take(&mut process.owner.step().batch);
        let commit = Commit {
            shard: self.shard_id(shard),
            epoch,
            process: process.number,
            batch: &batch,
            now,
            settings: process.settings(),
            dispatched: &process.dispatched,
        };
        self.observe(commit)?;
        process.owner.step().batch = batch;
        self.check_lost_attempts(shard)
    }

    /// The commit stays under way after its owner has given it up.
    fn delay_commit(&mut self, shard: usize, process: &mut Process) {
        self.late_commits.push_back(LateCommit {
            shard,
            epoch: process.owner.epoch(),
            process: process.number,
            batch: process.owner.step().batch.clone(),
            now: process.owner.shard().now(),
            settings: process.settings.clone(),
            dispatched: process.dispatched.clone(),
        });
        // Before or after the next owner opens the shard.
        let delay = self.rng.below(2 * self.scenario.restart_max);
        self.after(delay, Event::CommitArrives);
    }

    /// The oldest late commit reaches the store. It is written unless the shard has a new owner.
    pub(crate) fn commit_arrives(&mut self) -> Checked {
        let (Some(late), Some(result)) = (self.late_commits.pop_front(), self.store.land_late()) else {
            return Ok(());
        };
        let LateCommit { shard, epoch, process, batch, now, settings, dispatched } = late;
        trace!(self, "late commit of shard {shard} process {process}: {}", result.is_ok());
        if result.is_err() {
            self.coverage.count_fault(Fault::LateCommitRefused);
            return Ok(());
        }
        self.coverage.count_fault(Fault::LateCommitLanded);
        let (settings, dispatched) = (&settings[..], &dispatched);
        let commit = Commit { shard: self.shard_id(shard), epoch, process, batch: &batch, now, settings, dispatched };
        self.observe(commit)?;
        self.check_lost_attempts(shard)
    }

    /// Checks a landed commit against all invariants.
    pub(crate) fn observe(&mut self, commit: Commit<'_>) -> Checked {
        let config = self.scenario.config(commit.shard);
        let dispatch_tries_max = self.scenario.dispatch_tries_max;
        let context = CheckContext {
            config: &config,
            dispatch_tries_max,
            tenants: &self.scenario.tenants,
            policy: &self.policy,
            scanner: &self.scanner,
        };
        self.ledger.observe(commit, context, &mut self.coverage)
    }

    /// Attempts given up by the newest commit must not be among those their runner recovered and registered with this
    /// shard. After the runner was declared lost, they may be given up.
    fn check_lost_attempts(&self, shard: usize) -> Checked {
        self.ledger.lost_attempts.iter().try_for_each(|lost| {
            let newest_incarnation = self.ledger.newest_incarnation(self.shard_id(shard), lost.runner);
            let registered = self.runners.iter().any(|runner| {
                runner.id == lost.runner
                    && Some(runner.incarnation) == newest_incarnation
                    && runner.recovered.contains(&lost.attempt_ref)
                    && runner.lost_before.is_none_or(|incarnation| incarnation < lost.incarnation)
            });
            invariants::invariant_registered_attempts_are_not_lost(lost, registered, newest_incarnation)
        })
    }

    fn count_store_fault(&mut self, fault: store::Fault) {
        match fault {
            store::Fault::None => {}
            store::Fault::Refuse => self.coverage.count_fault(Fault::CommitRefused),
            store::Fault::LandsButErrors => self.coverage.count_fault(Fault::CommitLandsButErrors),
            store::Fault::Torn { lands: true } => self.coverage.count_fault(Fault::CommitTornLanded),
            store::Fault::Torn { lands: false } => self.coverage.count_fault(Fault::CommitTornLost),
            store::Fault::Late => self.coverage.count_fault(Fault::CommitLate),
        }
    }

    /// Performs the effects, or a part of them if the process crashes.
    fn perform_effects(
        &mut self,
        shard: usize,
        process: &mut Process,
        round_fault: RoundFault,
    ) -> Result<bool, Violation> {
        let effects = std::mem::take(&mut process.owner.step().effects);
        let all = effects.len();
        let (performed, alive) = match round_fault {
            RoundFault::CrashAfter => {
                self.coverage.count_fault(Fault::CrashAfterCommit);
                (0, false)
            }
            RoundFault::CrashDuringEffects => {
                self.coverage.count_fault(Fault::CrashDuringEffects);
                (self.rng.index(all + 1), false)
            }
            RoundFault::None | RoundFault::CrashBefore | RoundFault::Store(_) => (all, true),
        };
        for effect in effects.into_iter().take(performed) {
            self.perform(shard, process, effect)?;
        }
        Ok(alive)
    }

    pub(crate) fn perform(&mut self, shard: usize, process: &Process, effect: Effect) -> Checked {
        let epoch = process.owner.epoch();
        match effect {
            Effect::Answer { request, answer } => {
                let newest = self.ledger.newest_epoch(self.shard_id(shard));
                invariants::invariant_only_the_owner_answers(epoch, newest)?;
                return self.answer(request, answer);
            }
            Effect::CheckPolicy { job, .. } => {
                self.check_policy((shard, epoch), job, process.owner.shard().settings().policy);
            }
            Effect::ScanOutput { job, attempt } => self.scan_output((shard, epoch), AttemptRef { job, attempt }),
            Effect::ToShard { shard: to, message } => {
                let from = self.shard_id(shard);
                if self.is_cut(Direction::BetweenShards { from: shard, to: usize::from(to.0) }) {
                    return Ok(());
                }
                for delay in self.message_delays() {
                    self.coverage.count("messages between shards");
                    let inbound = Inbound::FromShard { from, message };
                    self.after(delay, Event::Deliver { shard: usize::from(to.0), inbound });
                }
            }
            Effect::Fetch(fetch) => {
                let delay = self.rng.below(20);
                self.after(delay, Event::ReadStore { shard, epoch, fetch });
            }
            Effect::Send { runner, incarnation, message } => {
                let message = self.sabotaged_message(message);
                if let Some(ShardMessage::Run { attempt_ref, constraints, .. }) = message.message() {
                    let record = self.ledger.jobs.get(&attempt_ref.job).map(|known| &known.record);
                    invariants::invariant_runners_receive_the_constraints(
                        *attempt_ref,
                        constraints.as_deref(),
                        record,
                    )?;
                }
                let Some(runner) = self.runners.iter().position(|other| other.id == runner) else { return Ok(()) };
                if self.is_cut(Direction::ToRunner { runner, shard }) {
                    return Ok(());
                }
                for delay in self.message_delays() {
                    self.after(delay, Event::ToRunner { runner, incarnation, shard, message: message.clone() });
                }
            }
        }
        Ok(())
    }
}

/// The reference that replaces a large result.
pub fn spilled_form(result: &Json) -> SpilledResult {
    SpilledResult { blob: BlobId::of(result.as_bytes()), bytes: result.as_bytes().len() as u64 }
}
