//! Shards and the shell around them: take what is waiting, handle it, commit once, and only then act. And all the
//! ways in which a process dies in between.

mod notes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::{Effect, Fetch, Input, Setup, Shard, Step};
use model::id::NodeId;
use model::message::{ShardFace, Ticket, ToRunner};
use model::spec::Lane;
use model::time::Millis;
use parking_lot::Mutex;
use store::{Error, ModelStore, Store};

use crate::coverage::Fault;
use crate::crash::Crash;
use crate::invariants::{self, Begun, Checked};
use crate::ledger::{Commit, Speakers};
use crate::plan::{SECOND, Time};
use crate::rehydrate;
use crate::world::{Event, Inbound, World, trace};

/// The longest sleep of an idle shard, so that a clock that jumps ahead is noticed.
const SLEEP_MAX: Time = 2 * SECOND;

/// Where one shard lives. Usually in one process; in none after a crash, in two when it was taken over from an owner
/// that does not know it yet. The last one is the newest.
#[derive(Debug, Default)]
pub struct Host {
    pub processes: Vec<Process>,
    pub clock_offset: i64,
    furthest_offset: i64,
}

/// One incarnation of a shard.
#[derive(Debug)]
pub struct Process {
    pub number: u64,
    pub shard: Shard,
    step: Step,
    inbox: VecDeque<Inbound>,
    /// When its next round is.
    next_round: Option<Time>,
    /// How much of what operators have said it has heard.
    heard: usize,
    /// What they had said in the course of this round, in order.
    setups: Vec<Arc<Setup>>,
    /// The attempts that were given out in this round.
    begun: BTreeMap<Ticket, Begun>,
    /// How many of this round's effects have been looked at.
    effects_seen: usize,
}

impl Process {
    fn new(number: u64, shard: Shard, step: Step, heard: usize) -> Self {
        Self {
            number,
            setups: vec![shard.setup().clone()],
            shard,
            step,
            inbox: VecDeque::new(),
            next_round: None,
            heard,
            begun: BTreeMap::new(),
            effects_seen: 0,
        }
    }

    fn handle(&mut self, now: Millis, inbound: Inbound) {
        if let Inbound::Setup { number, setup } = &inbound {
            // What was said later has come first: there is nothing new in this.
            if *number <= self.heard {
                return;
            }
            self.heard = *number;
            self.setups.push(setup.clone());
        }
        for input in inbound.inputs() {
            self.give(now, input);
        }
    }

    fn give(&mut self, now: Millis, input: Input) {
        self.shard.handle(now, input, &mut self.step);
        let gate = self.shard.setup().gate;
        for effect in &self.step.effects[self.effects_seen..] {
            if let Effect::Send { message: ToRunner::Run { ticket, .. }, .. } = effect
                && let Some(job) = self.shard.job(ticket.job)
            {
                self.begun.insert(*ticket, Begun::new(gate, job));
            }
        }
        self.effects_seen = self.step.effects.len();
    }

    /// The round is over; the next one begins with what this one has ended with.
    fn forget_round(&mut self) {
        self.setups.drain(..self.setups.len() - 1);
        self.begun.clear();
        self.effects_seen = 0;
    }

    /// What it has been told last.
    pub fn setups(&self) -> &[Arc<Setup>] {
        &self.setups
    }
}

impl Host {
    pub fn jump(&mut self, by: i64) {
        self.clock_offset += by;
        self.furthest_offset = self.furthest_offset.max(self.clock_offset);
    }

    /// To a time at which no clock of this host has been before, so that time goes on at once.
    pub fn set_clock_right(&mut self) {
        self.clock_offset = self.furthest_offset;
    }

    /// What is not at rest here.
    pub fn left_over(&self, shard: usize) -> Vec<String> {
        let [process] = self.processes.as_slice() else {
            return vec![format!("shard {shard} has {} owners", self.processes.len())];
        };
        let held: u32 = Lane::ALL.into_iter().map(|lane| process.shard.load(lane).1).sum();
        let mut left = Vec::new();
        if held > 0 {
            left.push(format!("shard {shard} believes that {held} attempts are with runners"));
        }
        if !process.inbox.is_empty() {
            left.push(format!("shard {shard} has {} messages waiting", process.inbox.len()));
        }
        left
    }
}

/// Tells the store what is to happen to the next commit.
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

    fn plan(&self, fault: store::Fault) {
        *self.next.lock() = fault;
    }
}

/// What becomes of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Good,
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
    /// A process takes the shard over and brings it back as its records say.
    pub(crate) fn start_shard(&mut self, shard: usize) -> Checked {
        if !self.hosts[shard].processes.is_empty() && self.is_healed() {
            return Ok(());
        }
        self.processes += 1;
        let number = self.processes;
        let id = self.shard_id(shard);
        let now = self.clock(shard);
        let setup = self.operators.newest_setup();
        let restored = rehydrate::rehydrate(&self.store, &self.plans, NodeId(number), self.plan.config(id), setup, now);
        let (shard_state, step) =
            restored.map_err(|detail| invariants::Violation { invariant: "records_can_be_read", detail })?;
        trace!(self, "shard {shard} process {number} epoch {} {} jobs", shard_state.epoch().0, shard_state.live_jobs());
        self.ledger.opened(id, shard_state.epoch(), number)?;
        let process = Process::new(number, shard_state, step, self.operators.newest());
        self.hosts[shard].processes.push(process);
        self.tell_of_lost_runners(shard);
        self.wake(shard, number, 0);
        Ok(())
    }

    /// Has a process go round at the latest in `delay`.
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

    /// A message from the network, for whoever is thought to own the shard.
    pub(crate) fn deliver(&mut self, shard: usize, inbound: Inbound) {
        let Some(mut inbound) = self.heard(inbound) else { return };
        if let Inbound::Words(words) = &mut inbound {
            self.look_at_metadata(words);
        }
        let owners = self.hosts[shard].processes.len();
        let stale = owners > 1 && self.rng.one_in(3);
        let chosen = if stale { 0 } else { owners.saturating_sub(1) };
        // To a shard that is down it is lost.
        let Some(number) = self.hosts[shard].processes.get(chosen).map(|process| process.number) else { return };
        self.hand_over(shard, number, inbound);
    }

    pub(crate) fn hand_over(&mut self, shard: usize, number: u64, inbound: Inbound) {
        let delay = self.rng.below(3);
        let processes = &mut self.hosts[shard].processes;
        if let Some(process) = processes.iter_mut().find(|process| process.number == number) {
            process.inbox.push_back(inbound);
            self.wake(shard, number, delay);
        }
    }

    pub(crate) fn read_store(&mut self, shard: usize, number: u64, fetch: &Fetch) {
        // The store of the simulation answers every read.
        if let Ok(fetched) = rehydrate::answer(&self.store, &self.plans, self.shard_id(shard), fetch) {
            // Now and then a read is slow: what it brings is old by then.
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
        let now = self.clock(shard);
        for _ in 0..self.rng.between(1, self.plan.inputs_per_round_max) {
            let Some(inbound) = process.inbox.pop_front() else { break };
            self.note_inbound(&process, &inbound);
            process.handle(now, inbound);
        }
        if process.shard.next_tick() <= now {
            process.give(now, Input::Tick);
        }
        invariants::invariant_the_engine_counts_right(process.shard.recount())?;
        process.shard.flush(&mut process.step);
        invariants::invariant_the_engine_counts_right(process.shard.recount())?;
        if self.finish_round(shard, &mut process)? {
            let delay = self.sleep(&process, now);
            self.hosts[shard].processes.insert(index, process);
            self.wake(shard, number, delay);
        } else {
            self.bury(shard, &process);
        }
        Ok(())
    }

    fn sleep(&mut self, process: &Process, now: Millis) -> Time {
        if process.inbox.is_empty() {
            process.shard.next_tick().saturating_sub(now).0.clamp(1, SLEEP_MAX)
        } else {
            self.rng.between(1, 3)
        }
    }

    /// A process is gone; unless another has taken over already, one comes.
    fn bury(&mut self, shard: usize, process: &Process) {
        trace!(self, "shard {shard} process {} is gone", process.number);
        self.note_stats(process.shard.stats());
        self.note_flows_left(shard);
        if self.hosts[shard].processes.is_empty() {
            let delay = self.rng.between(1, self.plan.restart_max);
            self.after(delay, Event::StartShard { shard });
        }
    }

    /// Commits what the round has come to, then acts on it. Whether the process lives on.
    fn finish_round(&mut self, shard: usize, process: &mut Process) -> Result<bool, invariants::Violation> {
        let mut step = std::mem::take(&mut process.step);
        let fate = if step.batch.is_empty() { self.draw_fate() } else { self.next_fate() };
        let alive = if fate == Fate::CrashBefore {
            self.coverage.fault(Fault::CrashBeforeCommit);
            self.sabotage_before_commit(shard, process, &mut step)?;
            false
        } else if !step.batch.is_empty() && !self.commit(shard, process, &step, fate)? {
            false
        } else {
            self.act(shard, process, &mut step, fate)?
        };
        step.clear();
        process.step = step;
        process.forget_round();
        Ok(alive)
    }

    /// What becomes of a round that has something to commit.
    fn next_fate(&mut self) -> Fate {
        self.commits += 1;
        match self.crash {
            Some(Crash::Before(number)) if number == self.commits => Fate::CrashBefore,
            Some(Crash::After(number)) if number == self.commits => Fate::CrashAfter,
            Some(_) | None => self.draw_fate(),
        }
    }

    fn draw_fate(&mut self) -> Fate {
        let commits = self.plan.commits;
        let fates = [
            (commits.crash_before, Fate::CrashBefore),
            (commits.refuse, Fate::Store(store::Fault::Refuse)),
            (commits.lands_but_errors, Fate::Store(store::Fault::LandsButErrors)),
            (commits.torn, Fate::Store(store::Fault::Torn { lands: self.rng.one_in(2) })),
            (commits.crash_after, Fate::CrashAfter),
            (commits.crash_during_effects, Fate::CrashDuringEffects),
        ];
        let drawn = fates.into_iter().find(|(rate, _)| self.rng.chance(*rate));
        drawn.map_or(Fate::Good, |(_, fate)| fate)
    }

    /// Whether the process knows that its batch is durable.
    fn commit(
        &mut self,
        shard: usize,
        process: &Process,
        step: &Step,
        fate: Fate,
    ) -> Result<bool, invariants::Violation> {
        let id = self.shard_id(shard);
        let fault = if let Fate::Store(fault) = fate { fault } else { store::Fault::None };
        self.store_faults.plan(fault);
        let epoch = self.sabotaged_epoch(shard, process.shard.epoch());
        let result = self.store.commit(id, epoch, &step.batch);
        self.store_faults.plan(store::Fault::None);
        let landed = match &result {
            Ok(_) => true,
            Err(Error::Fenced { .. }) => {
                trace!(self, "shard {shard} process {} is fenced", process.number);
                self.coverage.fault(Fault::StaleCommitRefused);
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
        self.note_store_fault(fault);
        if landed {
            let (epoch, now) = (process.shard.epoch(), process.shard.now());
            let (setups, begun) = (process.setups(), &process.begun);
            let commit = Commit { shard: id, epoch, process: process.number, batch: &step.batch, now, setups, begun };
            self.observe(commit)?;
            self.check_losses(shard)?;
        }
        Ok(result.is_ok())
    }

    /// A commit has landed: everybody's words are held against it.
    pub(crate) fn observe(&mut self, commit: Commit<'_>) -> Checked {
        let config = self.plan.config(commit.shard);
        let dispatch_tries_max = self.plan.dispatch_tries_max;
        let speakers = Speakers {
            config: &config,
            dispatch_tries_max,
            tenants: &self.plan.tenants,
            policy: &self.policy,
            scanner: &self.scanner,
        };
        self.ledger.observe(commit, speakers, &mut self.coverage)
    }

    /// What the newest commit has given up must not be what the shard has heard to be alive. Once a runner was declared
    /// lost, it may be given up all the same.
    fn check_losses(&self, shard: usize) -> Checked {
        self.ledger.losses.iter().try_for_each(|loss| {
            let heard_as = self.ledger.heard_as(self.shard_id(shard), loss.runner);
            let found = self.runners.iter().any(|runner| {
                runner.id == loss.runner
                    && Some(runner.incarnation) == heard_as
                    && runner.found.contains(&loss.ticket)
                    && runner.lost_before.is_none_or(|lost| lost < loss.incarnation)
            });
            invariants::invariant_what_is_alive_is_not_lost(loss, found, heard_as)
        })
    }

    fn note_store_fault(&mut self, fault: store::Fault) {
        match fault {
            store::Fault::None => {}
            store::Fault::Refuse => self.coverage.fault(Fault::CommitRefused),
            store::Fault::LandsButErrors => self.coverage.fault(Fault::CommitLandsButErrors),
            store::Fault::Torn { lands: true } => self.coverage.fault(Fault::CommitTornLanded),
            store::Fault::Torn { lands: false } => self.coverage.fault(Fault::CommitTornLost),
        }
    }

    /// Performs the effects, or as many of them as the process lives to perform.
    fn act(
        &mut self,
        shard: usize,
        process: &Process,
        step: &mut Step,
        fate: Fate,
    ) -> Result<bool, invariants::Violation> {
        let all = step.effects.len();
        let (performed, alive) = match fate {
            Fate::CrashAfter => {
                self.coverage.fault(Fault::CrashAfterCommit);
                (0, false)
            }
            Fate::CrashDuringEffects => {
                self.coverage.fault(Fault::CrashDuringEffects);
                (self.rng.index(all + 1), false)
            }
            Fate::Good | Fate::CrashBefore | Fate::Store(_) => (all, true),
        };
        for effect in step.effects.drain(..).take(performed) {
            self.perform(shard, process, effect)?;
        }
        Ok(alive)
    }

    pub(crate) fn perform(&mut self, shard: usize, process: &Process, effect: Effect) -> Checked {
        match effect {
            Effect::Answer { request, answer } => return self.answer(request, answer),
            Effect::CheckPolicy { job, .. } => self.ask_policy(shard, job, process.shard.setup().gate),
            Effect::ScanOutput { job, attempt } => self.scan_output(shard, Ticket { job, attempt }),
            Effect::ToShard { shard: to, message } => {
                let from = self.shard_id(shard);
                for delay in self.message_delays() {
                    self.coverage.note("words between shards");
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
                if let ToRunner::Run { ticket, constraints, .. } = &message {
                    let record = self.ledger.jobs.get(&ticket.job).map(|known| &known.record);
                    invariants::invariant_runners_are_told_the_limits(*ticket, constraints.as_deref(), record)?;
                }
                let face = ShardFace { shard: self.shard_id(shard), epoch: process.shard.epoch() };
                let Some(runner) = self.runners.iter().position(|other| other.id == runner) else { return Ok(()) };
                for delay in self.message_delays() {
                    self.after(delay, Event::ToRunner { runner, incarnation, face, message: message.clone() });
                }
            }
        }
        Ok(())
    }
}
