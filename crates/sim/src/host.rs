//! Shards and their shell: take the waiting inputs, handle them, commit once, then perform the effects. Processes crash
//! at every point of it.

mod commits;
mod counts;
mod process;

use engine::{Effect, Fetch};
use model::blob::BlobId;
use model::id::{Epoch, NodeId};
use model::job::SpilledResult;
use model::json::Json;
use model::message::{AttemptRef, ShardMessage};
use model::spec::ExecutorKind;
use model::time::Now;
use shard::Owner;
use store::{Error, ShardOwner};

pub use commits::{LateCommit, RoundFault, StoreFaults};
use process::Node;
pub use process::Process;

use crate::coverage::Fault;
use crate::failover::CommitFate;
use crate::invariants::{self, Checked, Violation};
use crate::partitions::Direction;
use crate::sabotage::Sabotage;
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

    /// Moves the round that is due now to a later time.
    pub fn postpone_round(&mut self, number: u64, now: Time, until: Time) {
        let process = self.processes.iter_mut().find(|process| process.number == number);
        if let Some(process) = process.filter(|process| process.next_round == Some(now)) {
            process.next_round = Some(until);
        }
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
        if self.ledger.audit.is_shortened(id) {
            self.coverage.count("audit checkpoints rehydrated");
        }
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

    /// Crashes all processes of a shard.
    pub(crate) fn crash_shard(&mut self, shard: usize) {
        for process in std::mem::take(&mut self.hosts[shard].processes) {
            self.process_died(shard, &process);
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
            let round_fault = match is_owner && has_writes {
                true => self.maybe_fail_over_before_effects(shard, round_fault)?,
                false => round_fault,
            };
            let alive = is_owner && self.perform_effects(shard, process, round_fault)?;
            self.commit_fate = CommitFate::Current;
            alive
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
        if let shard::Error::Store(Error::Diverged { .. } | Error::FailedOver { .. }) = error {
            self.coverage.count_fault(Fault::EarlierOwnerRefused);
        }
        invariants::invariant_errors_are_transient(error)
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
                // The owner cannot know yet that the store has failed over since its commit.
                if self.commit_fate == CommitFate::Current {
                    invariants::invariant_only_the_owner_answers(epoch, newest)?;
                }
                return self.answer(request, answer);
            }
            Effect::CheckPolicy { job, .. } => {
                self.check_policy((shard, epoch), job, process.owner.shard().settings().policy);
            }
            Effect::ScanOutput { job, attempt } => self.scan_output((shard, epoch), AttemptRef { job, attempt }),
            Effect::SignAudit(request) => return self.sign_audit((shard, epoch), &request),
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
                // Of a lost commit there is no record to compare with.
                if let Some(ShardMessage::Run { attempt_ref, constraints, .. }) = message.message()
                    && self.commit_fate != CommitFate::Lost
                {
                    let record = self.ledger.jobs.get(&attempt_ref.job).map(|known| &known.record);
                    invariants::invariant_runners_receive_the_constraints(
                        *attempt_ref,
                        constraints.as_deref(),
                        record,
                    )?;
                }
                let Some(runner) = self.runners.iter().position(|other| other.id == runner) else { return Ok(()) };
                if self.cluster.is_active() {
                    self.tell_dispatch(runner, &message);
                    self.send_to_node(runner, incarnation, shard, message);
                    return Ok(());
                }
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
