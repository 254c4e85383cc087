//! Shards and their shell: take the waiting inputs, handle them, commit once, then perform the effects. Processes crash
//! at every point of it.

mod counts;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::{Effect, Fetch, Input, Settings, Shard, Step};
use model::id::NodeId;
use model::message::{AttemptRef, ShardMessage};
use model::spec::ExecutorKind;
use model::time::{Millis, Now};
use parking_lot::Mutex;
use store::{Error, ModelStore, Store};

use crate::coverage::Fault;
use crate::crash::Crash;
use crate::invariants::{self, Checked, DispatchSnapshot};
use crate::ledger::{CheckContext, Commit};
use crate::rehydrate;
use crate::sabotage::Sabotage;
use crate::scenario::{SECOND, Time};
use crate::world::{Event, Inbound, World, trace};

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
    pub shard: Shard,
    step: Step,
    /// Inputs wait until the shard has resumed.
    is_resuming: bool,
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

impl Process {
    fn new(number: u64, shard: Shard, settings_number: usize) -> Self {
        Self {
            number,
            settings: vec![shard.settings().clone()],
            shard,
            step: Step::new(),
            is_resuming: true,
            inbox: VecDeque::new(),
            next_round: None,
            settings_number,
            dispatched: BTreeMap::new(),
            effects_seen: 0,
        }
    }

    /// Resumes the shard as far as one step allows.
    fn resume(&mut self, now: Now) {
        self.is_resuming = !self.shard.resume(now, &mut self.step);
        self.inspect_effects();
    }

    fn handle(&mut self, now: Now, inbound: Inbound) {
        if let Inbound::Settings { number, settings } = &inbound {
            // Overtaken by newer settings.
            if *number <= self.settings_number {
                return;
            }
            self.settings_number = *number;
            self.settings.push(settings.clone());
        }
        for input in inbound.inputs() {
            self.handle_input(now, input);
        }
    }

    fn handle_input(&mut self, now: Now, input: Input) {
        self.shard.handle(now, input, &mut self.step);
        self.inspect_effects();
    }

    /// Notes the attempts that the last input has dispatched.
    fn inspect_effects(&mut self) {
        let policy = self.shard.settings().policy;
        for effect in &self.step.effects[self.effects_seen..] {
            if let Effect::Send { message, .. } = effect
                && let Some(ShardMessage::Run { attempt_ref, .. }) = message.message()
                && let Some(job) = self.shard.job(attempt_ref.job)
            {
                self.dispatched.insert(*attempt_ref, DispatchSnapshot::new(policy, job));
            }
        }
        self.effects_seen = self.step.effects.len();
    }

    /// Ends the round. The last settings stay in force.
    fn end_round(&mut self) {
        self.settings.drain(..self.settings.len() - 1);
        self.dispatched.clear();
        self.effects_seen = 0;
    }

    /// Settings in force during this round.
    pub fn settings(&self) -> &[Arc<Settings>] {
        &self.settings
    }
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
        let in_flight: u32 = ExecutorKind::ALL.into_iter().map(|executor| process.shard.load(executor).1).sum();
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

/// The fault of the store's next commit.
#[derive(Debug, Clone, Default)]
pub struct StoreFaults {
    next: Arc<Mutex<store::Fault>>,
}

impl StoreFaults {
    pub fn install(store: &ModelStore) -> Self {
        let faults = Self::default();
        let next = faults.next.clone();
        store.plan_faults(move |_, _| std::mem::take(&mut *next.lock()));
        faults
    }

    fn set_next(&self, fault: store::Fault) {
        *self.next.lock() = fault;
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

fn lands(fault: store::Fault) -> bool {
    match fault {
        store::Fault::None | store::Fault::LandsButErrors | store::Fault::Torn { lands: true } => true,
        store::Fault::Refuse | store::Fault::Torn { lands: false } => false,
    }
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
        let now = self.clocks(shard);
        let settings = self.operators.newest_settings();
        let restored =
            rehydrate::rehydrate(&self.store, &self.plans, NodeId(number), self.scenario.config(id), settings, now);
        let shard_state =
            restored.map_err(|detail| invariants::Violation { invariant: "records_can_be_read", detail })?;
        trace!(self, "shard {shard} process {number} epoch {} {} jobs", shard_state.epoch().0, shard_state.live_jobs());
        self.ledger.opened(id, shard_state.epoch(), number)?;
        let process = Process::new(number, shard_state, self.operators.newest());
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

    /// Delivers a network message to the owner of the shard, sometimes to a stale one.
    pub(crate) fn deliver(&mut self, shard: usize, inbound: Inbound) {
        let Some(mut inbound) = self.sabotaged_inbound(inbound) else { return };
        if let Inbound::RunnerFrame(frame) = &mut inbound {
            self.attach_metadata_decisions(&mut frame.messages);
        }
        let owners = self.hosts[shard].processes.len();
        let stale = owners > 1 && self.rng.one_in(3);
        let chosen = if stale { 0 } else { owners.saturating_sub(1) };
        // A message to a shard without a process is lost.
        let Some(number) = self.hosts[shard].processes.get(chosen).map(|process| process.number) else { return };
        self.enqueue(shard, number, inbound);
    }

    pub(crate) fn enqueue(&mut self, shard: usize, number: u64, inbound: Inbound) {
        let delay = self.rng.below(3);
        let processes = &mut self.hosts[shard].processes;
        if let Some(process) = processes.iter_mut().find(|process| process.number == number) {
            process.inbox.push_back(inbound);
            self.wake(shard, number, delay);
        }
    }

    pub(crate) fn read_store(&mut self, shard: usize, number: u64, fetch: &Fetch) {
        // Reads of the simulated store do not fail.
        if let Ok(fetched) = rehydrate::answer(&self.store, &self.plans, self.shard_id(shard), fetch) {
            // Some reads are slow and return stale data.
            let delay = if self.rng.one_in(8) { self.rng.below(3 * SECOND) } else { self.rng.below(20) };
            self.after(delay, Event::Fetched { shard, process: number, fetched });
        }
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
        if process.is_resuming {
            process.resume(now);
        } else {
            let step_bytes_max = self.scenario.config(self.shard_id(shard)).step_bytes_max;
            for _ in 0..self.rng.between(1, self.scenario.inputs_per_round_max) {
                if process.shard.pending_bytes(&process.step) >= step_bytes_max {
                    break;
                }
                let Some(inbound) = process.inbox.pop_front() else { break };
                self.count_late_inbound(&process, &inbound);
                process.handle(now, inbound);
            }
        }
        if !process.is_resuming && process.shard.tick_in(now) == Millis(0) {
            process.handle_input(now, Input::Tick);
        }
        invariants::invariant_engine_counters_equal_a_recount(process.shard.recount())?;
        process.shard.flush(&mut process.step);
        invariants::invariant_engine_counters_equal_a_recount(process.shard.recount())?;
        if self.finish_round(shard, &mut process)? {
            let delay = self.sleep(&process, now);
            self.hosts[shard].processes.insert(index, process);
            self.wake(shard, number, delay);
        } else {
            self.process_died(shard, &process);
        }
        Ok(())
    }

    fn sleep(&mut self, process: &Process, now: Now) -> Time {
        if process.is_resuming {
            1
        } else if process.inbox.is_empty() {
            process.shard.tick_in(now).0.clamp(1, SLEEP_MAX)
        } else {
            self.rng.between(1, 3)
        }
    }

    /// A process has crashed. Schedules a restart unless another process has taken over.
    fn process_died(&mut self, shard: usize, process: &Process) {
        trace!(self, "shard {shard} process {} died", process.number);
        self.count_stats(process.shard.stats());
        self.count_interrupted_workflows(shard);
        if self.hosts[shard].processes.is_empty() {
            let delay = self.rng.between(1, self.scenario.restart_max);
            self.after(delay, Event::StartShard { shard });
        }
    }

    /// Commits the round, then performs its effects. Returns whether the process survives.
    fn finish_round(&mut self, shard: usize, process: &mut Process) -> Result<bool, invariants::Violation> {
        let mut step = std::mem::take(&mut process.step);
        invariants::invariant_no_anomalies(&step.anomalies)?;
        let round_fault = if step.batch.is_empty() { self.draw_round_fault() } else { self.next_round_fault() };
        let alive = if round_fault == RoundFault::CrashBefore {
            self.coverage.count_fault(Fault::CrashBeforeCommit);
            self.sabotage_before_commit(shard, process, &mut step)?;
            false
        } else if !step.batch.is_empty() && !self.commit(shard, process, &step, round_fault)? {
            false
        } else if step.batch.is_empty() && !step.effects.is_empty() && !self.confirm(shard, process) {
            trace!(self, "shard {shard} process {} is superseded", process.number);
            self.coverage.count_fault(Fault::StaleAnswerPrevented);
            false
        } else {
            self.perform_effects(shard, process, &mut step, round_fault)?
        };
        step.clear();
        process.step = step;
        process.end_round();
        Ok(alive)
    }

    /// Whether a process without anything to commit still owns its shard.
    fn confirm(&self, shard: usize, process: &Process) -> bool {
        self.sabotage == Some(Sabotage::AnswerUnconfirmed)
            || self.store.confirm(self.shard_id(shard), process.shard.epoch()).is_ok()
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
            (commits.torn, RoundFault::Store(store::Fault::Torn { lands: self.rng.one_in(2) })),
            (commits.crash_after, RoundFault::CrashAfter),
            (commits.crash_during_effects, RoundFault::CrashDuringEffects),
        ];
        let drawn = faults.into_iter().find(|(rate, _)| self.rng.chance(*rate));
        drawn.map_or(RoundFault::None, |(_, round_fault)| round_fault)
    }

    /// Commits the batch. Returns whether the process knows that it is durable.
    fn commit(
        &mut self,
        shard: usize,
        process: &Process,
        step: &Step,
        round_fault: RoundFault,
    ) -> Result<bool, invariants::Violation> {
        let id = self.shard_id(shard);
        let fault = if let RoundFault::Store(fault) = round_fault { fault } else { store::Fault::None };
        self.store_faults.set_next(fault);
        let epoch = self.sabotaged_epoch(shard, process.shard.epoch());
        let limit = self.scenario.config(id).step_bytes_max;
        invariants::invariant_commits_are_bounded(step.batch.as_bytes().len(), limit)?;
        let result = self.store.commit(id, epoch, &step.batch);
        self.store_faults.set_next(store::Fault::None);
        let landed = match &result {
            Ok(_) => true,
            Err(Error::Fenced { .. }) => {
                trace!(self, "shard {shard} process {} is fenced", process.number);
                self.coverage.count_fault(Fault::StaleCommitRefused);
                return Ok(false);
            }
            Err(_) => lands(fault),
        };
        trace!(
            self,
            "shard {shard} process {} commits {} ops, {} bytes: {fault:?}",
            process.number,
            step.batch.len(),
            step.batch.as_bytes().len()
        );
        self.count_store_fault(fault);
        if landed {
            let (epoch, now) = (process.shard.epoch(), process.shard.now());
            let (settings, dispatched) = (process.settings(), &process.dispatched);
            let commit =
                Commit { shard: id, epoch, process: process.number, batch: &step.batch, now, settings, dispatched };
            self.observe(commit)?;
            self.check_lost_attempts(shard)?;
        }
        Ok(result.is_ok())
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
        }
    }

    /// Performs the effects, or a part of them if the process crashes.
    fn perform_effects(
        &mut self,
        shard: usize,
        process: &Process,
        step: &mut Step,
        round_fault: RoundFault,
    ) -> Result<bool, invariants::Violation> {
        let all = step.effects.len();
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
        for effect in step.effects.drain(..).take(performed) {
            self.perform(shard, process, effect)?;
        }
        Ok(alive)
    }

    pub(crate) fn perform(&mut self, shard: usize, process: &Process, effect: Effect) -> Checked {
        match effect {
            Effect::Answer { request, answer } => {
                let newest = self.ledger.newest_epoch(self.shard_id(shard));
                invariants::invariant_only_the_owner_answers(process.shard.epoch(), newest)?;
                return self.answer(request, answer);
            }
            Effect::CheckPolicy { job, .. } => self.check_policy(shard, job, process.shard.settings().policy),
            Effect::ScanOutput { job, attempt } => self.scan_output(shard, AttemptRef { job, attempt }),
            Effect::ToShard { shard: to, message } => {
                let from = self.shard_id(shard);
                for delay in self.message_delays() {
                    self.coverage.count("messages between shards");
                    let inbound = Inbound::FromShard { from, message };
                    self.after(delay, Event::Deliver { shard: usize::from(to.0), inbound });
                }
            }
            Effect::Fetch(fetch) => {
                let delay = self.rng.below(20);
                self.after(delay, Event::ReadStore { shard, process: process.number, fetch });
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
                for delay in self.message_delays() {
                    self.after(delay, Event::ToRunner { runner, incarnation, shard, message: message.clone() });
                }
            }
        }
        Ok(())
    }
}
