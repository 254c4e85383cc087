//! Runners as documented in `model::message`: an outbox with retransmission until messages are committed, attempts by
//! `AttemptRef`, an inventory on request. They crash, are partitioned, are declared lost and continue to work. For their
//! processes during a crash see [`crate::spawner`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::id::{Epoch, Incarnation, RunnerId};
use model::job::{End, Outcome};
use model::json::Json;
use model::message::{AttemptRef, Capacity, FromRunner, Profile, RunnerMessage, ShardEpoch, ToRunner};
use model::spec::{EchoFailure, EchoRun, Run, decode_run};

use crate::coverage::Fault;
use crate::invariants::{self, Checked};
use crate::rng::Rate;
use crate::scenario::{SECOND, Time};
use crate::spawner::Orphan;
use crate::world::{Event, Inbound, World, trace};

/// Retransmission interval of uncommitted messages.
const RETRANSMIT_EVERY: Time = SECOND;

#[derive(Debug)]
pub struct Runner {
    pub id: RunnerId,
    pub incarnation: Incarnation,
    profile: Arc<Profile>,
    up: bool,
    partitioned: bool,
    /// Incarnation that the cluster has declared lost.
    declared_lost: Option<Incarnation>,
    /// Newest incarnation ever declared lost.
    pub lost_before: Option<Incarnation>,
    next_register: Time,
    pub links: BTreeMap<usize, Link>,
    /// Attempts left to the spawner, by shard.
    pub orphans: BTreeMap<usize, BTreeMap<AttemptRef, Orphan>>,
    /// Attempts this incarnation recovered at its start.
    pub recovered: BTreeSet<AttemptRef>,
}

/// Connection to one shard.
#[derive(Debug)]
pub struct Link {
    epoch: Epoch,
    capacity: Capacity,
    sequence: u64,
    outbox: VecDeque<FromRunner>,
    pub in_flight: BTreeMap<AttemptRef, AttemptPhase>,
    /// Attempts whose end is in the outbox, with the end if they were in flight here.
    pub ended: BTreeMap<AttemptRef, Option<End>>,
}

/// Progress of an in-flight attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptPhase {
    Waiting,
    Started,
    Stopping,
}

impl Runner {
    pub fn new(id: RunnerId) -> Self {
        Self {
            id,
            incarnation: Incarnation(0),
            profile: Arc::default(),
            up: false,
            partitioned: false,
            declared_lost: None,
            lost_before: None,
            next_register: 0,
            links: BTreeMap::new(),
            orphans: BTreeMap::new(),
            recovered: BTreeSet::new(),
        }
    }

    fn is_reachable(&self) -> bool {
        self.up && !self.partitioned
    }

    /// Appends a message to the outbox.
    pub fn push_message(&mut self, shard: usize, message: RunnerMessage) {
        let (runner, incarnation) = (self.id, self.incarnation);
        let Some(link) = self.links.get_mut(&shard) else { return };
        link.sequence += 1;
        link.outbox.push_back(FromRunner { runner, incarnation, sequence: link.sequence, message });
    }

    pub fn send_register(&mut self, shard: usize, request: u64) {
        let Some(link) = self.links.get(&shard) else { return };
        let oldest_kept = link.outbox.front().map_or(link.sequence + 1, |message| message.sequence);
        let (capacity, in_flight) = (link.capacity, link.in_flight.keys().copied().collect());
        let profile = self.profile.clone();
        self.push_message(shard, RunnerMessage::Register { capacity, profile, in_flight, request, oldest_kept });
    }

    pub fn send_ended(&mut self, shard: usize, attempt_ref: AttemptRef, end: End, result: Json) {
        let Some(link) = self.links.get_mut(&shard) else { return };
        let was_in_flight = link.in_flight.remove(&attempt_ref).is_some();
        // After a refusal for lack of capacity the shard may send the same attempt again.
        if end != End::Busy {
            link.ended.insert(attempt_ref, was_in_flight.then_some(end));
        }
        let result = (end == End::Succeeded).then_some(result);
        let outcome = Box::new(Outcome { result, ..Outcome::of(end) });
        self.push_message(shard, RunnerMessage::Ended { attempt_ref, at: model::time::Millis(0), outcome });
    }
}

impl Link {
    fn acknowledge(&mut self, sequence: u64) {
        while let Some(message) = self.outbox.front().filter(|message| message.sequence <= sequence) {
            if let RunnerMessage::Ended { attempt_ref, .. } = message.message {
                self.ended.remove(&attempt_ref);
            }
            self.outbox.pop_front();
        }
    }
}

impl World {
    fn draw_capacity(&mut self) -> Capacity {
        let most = self.scenario.slots_max;
        let mut draw = || self.rng.between(1, most) as u32;
        Capacity { process: draw(), echo: draw(), wasm: draw() }
    }

    /// Starts a new incarnation of a runner, with the attempts its spawner still has.
    pub(crate) fn runner_starts(&mut self, index: usize) {
        if self.runners[index].up {
            return;
        }
        let mut links = BTreeMap::new();
        for shard in 0..self.hosts.len() {
            let link = Link {
                epoch: Epoch(0),
                capacity: self.draw_capacity(),
                sequence: 0,
                outbox: VecDeque::new(),
                in_flight: BTreeMap::new(),
                ended: BTreeMap::new(),
            };
            links.insert(shard, link);
        }
        let runner = &mut self.runners[index];
        runner.incarnation = Incarnation(runner.incarnation.0 + 1);
        (runner.up, runner.links) = (true, links);
        runner.recovered.clear();
        let (id, incarnation) = (runner.id, runner.incarnation);
        trace!(self, "{id} starts as {}", incarnation.0);
        for shard in 0..self.hosts.len() {
            self.recover_attempts(index, shard);
        }
        self.after(1, Event::RunnerTick { runner: index, incarnation });
    }

    /// Retransmits uncommitted messages and registers periodically.
    pub(crate) fn runner_tick(&mut self, index: usize, incarnation: Incarnation) {
        if !self.runners[index].up || self.runners[index].incarnation != incarnation {
            return;
        }
        let registers = self.now >= self.runners[index].next_register;
        if registers {
            self.runners[index].next_register = self.now + self.scenario.register_every;
        }
        for shard in 0..self.hosts.len() {
            // At most one uncommitted registration.
            let idle = self.runners[index].links.get(&shard).is_some_and(|link| link.outbox.is_empty());
            if registers && idle {
                self.change_capacity(index, shard);
                self.runners[index].send_register(shard, 0);
            }
            self.send_outbox(index, shard, 0);
        }
        self.after(RETRANSMIT_EVERY, Event::RunnerTick { runner: index, incarnation });
    }

    /// Changes the capacity, as memory pressure does.
    fn change_capacity(&mut self, index: usize, shard: usize) {
        if self.rng.chance(self.scenario.capacity_changes) {
            self.coverage.count_fault(Fault::CapacityChanged);
            let capacity = if self.rng.one_in(3) { Capacity::default() } else { self.draw_capacity() };
            if let Some(link) = self.runners[index].links.get_mut(&shard) {
                link.capacity = capacity;
            }
        }
    }

    /// Sends the messages of the outbox with a sequence above `after`.
    fn send_outbox(&mut self, index: usize, shard: usize, after: u64) {
        let runner = &self.runners[index];
        if !runner.is_reachable() {
            return;
        }
        let Some(link) = runner.links.get(&shard) else { return };
        let messages: Vec<FromRunner> =
            link.outbox.iter().filter(|message| message.sequence > after).cloned().collect();
        if messages.is_empty() {
            return;
        }
        for delay in self.message_delays() {
            self.after(delay, Event::Deliver { shard, inbound: Inbound::RunnerMessages(messages.clone()) });
        }
    }

    pub(crate) fn runner_receives(
        &mut self,
        index: usize,
        incarnation: Incarnation,
        shard_epoch: ShardEpoch,
        message: ToRunner,
    ) -> Checked {
        let shard = usize::from(shard_epoch.shard.0);
        let runner = &mut self.runners[index];
        if !runner.is_reachable() || runner.incarnation != incarnation {
            return Ok(());
        }
        let Some(link) = runner.links.get_mut(&shard) else { return Ok(()) };
        if shard_epoch.epoch < link.epoch {
            return Ok(());
        }
        link.epoch = shard_epoch.epoch;
        let last_sequence = link.sequence;
        match message {
            ToRunner::Run { attempt_ref, .. } => self.runner_accepts(index, shard, attempt_ref)?,
            ToRunner::Stop { attempt_ref } => self.runner_stops(index, shard, attempt_ref),
            ToRunner::Committed { sequence } => link.acknowledge(sequence),
            ToRunner::Inventory { request } => {
                self.runners[index].send_register(shard, request);
                self.send_outbox(index, shard, 0);
                return Ok(());
            }
        }
        self.send_outbox(index, shard, last_sequence);
        Ok(())
    }

    fn runner_accepts(&mut self, index: usize, shard: usize, attempt_ref: AttemptRef) -> Checked {
        let record = self.ledger.jobs.get(&attempt_ref.job).map(|known| &known.record);
        invariants::invariant_dispatches_are_on_record(attempt_ref, record)?;
        let id = self.runners[index].id;
        let Some(link) = self.runners[index].links.get_mut(&shard) else { return Ok(()) };
        if link.in_flight.contains_key(&attempt_ref) || link.ended.contains_key(&attempt_ref) {
            self.coverage.count("duplicate dispatches");
            return Ok(());
        }
        trace!(self, "{id} accepts {}/{}", attempt_ref.job, attempt_ref.attempt);
        let Some(link) = self.runners[index].links.get_mut(&shard) else { return Ok(()) };
        let Capacity { process, echo, wasm } = link.capacity;
        let slots = (process + echo + wasm) as usize;
        if self.rng.chance(self.scenario.attempts.busy) || link.in_flight.len() >= 2 * slots {
            self.coverage.count_fault(Fault::RunnerBusy);
            self.runners[index].send_ended(shard, attempt_ref, End::Busy, Json::null());
            return Ok(());
        }
        link.in_flight.insert(attempt_ref, AttemptPhase::Waiting);
        self.runners[index].push_message(shard, RunnerMessage::Accepted { attempt_ref, at: model::time::Millis(0) });
        let incarnation = self.runners[index].incarnation;
        let delay = if self.rng.chance(self.scenario.attempts.slow_start) {
            self.rng.below(40 * SECOND)
        } else {
            self.rng.below(5)
        };
        self.after(delay, Event::AttemptStarts { runner: index, incarnation, shard, attempt_ref });
        Ok(())
    }

    fn runner_stops(&mut self, index: usize, shard: usize, attempt_ref: AttemptRef) {
        let incarnation = self.runners[index].incarnation;
        let Some(link) = self.runners[index].links.get_mut(&shard) else { return };
        match link.in_flight.get_mut(&attempt_ref) {
            Some(AttemptPhase::Stopping) => {}
            Some(phase) => {
                *phase = AttemptPhase::Stopping;
                let delay = self.rng.below(2 * SECOND);
                self.after(
                    delay,
                    Event::AttemptEnds { runner: index, incarnation, shard, attempt_ref, end: End::Stopped },
                );
            }
            None if link.ended.contains_key(&attempt_ref) => {}
            None => self.runners[index].send_ended(shard, attempt_ref, End::Stopped, Json::null()),
        }
    }

    pub(crate) fn attempt_starts(
        &mut self,
        index: usize,
        incarnation: Incarnation,
        shard: usize,
        attempt_ref: AttemptRef,
    ) -> Checked {
        let runner = &mut self.runners[index];
        if !runner.up || runner.incarnation != incarnation {
            return Ok(());
        }
        let Some(link) = runner.links.get_mut(&shard) else { return Ok(()) };
        let last_sequence = link.sequence;
        match link.in_flight.get_mut(&attempt_ref) {
            Some(phase @ AttemptPhase::Waiting) => *phase = AttemptPhase::Started,
            Some(AttemptPhase::Started | AttemptPhase::Stopping) | None => return Ok(()),
        }
        invariants::invariant_an_attempt_starts_once(attempt_ref, self.alive.insert(attempt_ref))?;
        self.check_compensation_runs_alone(attempt_ref)?;
        self.runners[index].push_message(shard, RunnerMessage::Started { attempt_ref, at: model::time::Millis(0) });
        self.send_outbox(index, shard, last_sequence);
        self.schedule_end(index, incarnation, shard, attempt_ref);
        Ok(())
    }

    /// 6: while a compensation starts, no attempt of the task that it compensates runs, but on runners that were
    /// declared lost.
    fn check_compensation_runs_alone(&self, attempt_ref: AttemptRef) -> Checked {
        let origin = |it: AttemptRef| self.ledger.jobs.get(&it.job).and_then(|known| known.record.origin.as_deref());
        let Some(own) = origin(attempt_ref).filter(|origin| origin.compensation) else { return Ok(()) };
        let row = self.ledger.workflows.known.get(&own.workflow).and_then(|known| known.rows.get(&own.task_key));
        let compensation = row.and_then(|row| row.compensation.as_ref());
        if compensation.is_none_or(|compensation| compensation.job != Some(attempt_ref.job)) {
            // An operator has retried the compensation of an earlier run.
            return Ok(());
        }
        let is_beside = |it: AttemptRef| {
            origin(it).is_some_and(|other| {
                !other.compensation && other.workflow == own.workflow && other.task_key == own.task_key
            })
        };
        for runner in &self.runners {
            if !runner.up || runner.lost_before.is_some_and(|lost| lost >= runner.incarnation) {
                continue;
            }
            let attempts = runner.links.values().flat_map(|link| &link.in_flight);
            let running = attempts.filter(|(_, phase)| **phase != AttemptPhase::Waiting).map(|(it, _)| *it);
            let beside = running.into_iter().find(|it| is_beside(*it) && !self.ended_before.contains(it));
            invariants::invariant_no_compensation_beside_its_task(attempt_ref, beside)?;
        }
        Ok(())
    }

    /// Draws and schedules the end of an attempt.
    pub(crate) fn schedule_end(
        &mut self,
        index: usize,
        incarnation: Incarnation,
        shard: usize,
        attempt_ref: AttemptRef,
    ) {
        if self.rng.chance(self.scenario.attempts.hang) {
            self.coverage.count_fault(Fault::RunnerHung);
            return;
        }
        let end = self.draw_end(attempt_ref);
        let duration = self.rng.below(self.scenario.attempts.duration_max);
        self.after(duration, Event::AttemptEnds { runner: index, incarnation, shard, attempt_ref, end });
    }

    /// Result of a successful attempt.
    pub(crate) fn result_of(&self, attempt_ref: AttemptRef) -> Json {
        let job = self.ledger.jobs.get(&attempt_ref.job).map(|known| &known.record);
        job.map_or_else(|| invariants::result_of(attempt_ref), |job| invariants::result_of_job(job, attempt_ref))
    }

    /// End of a workflow job whose definition makes it fail.
    fn scripted_end(&self, attempt_ref: AttemptRef) -> Option<End> {
        let job = &self.ledger.jobs.get(&attempt_ref.job)?.record;
        let origin = job.origin.as_ref()?;
        // A compensation retried by an operator succeeds: its cause is assumed fixed.
        let fixed = origin.compensation && attempt_ref.attempt.0 > 1;
        match decode_run(&job.spec) {
            Ok(Run::Echo(EchoRun { fail: Some(EchoFailure::Error), .. })) => Some(End::Error),
            Ok(Run::Echo(EchoRun { fail: Some(EchoFailure::Fatal), .. })) => (!fixed).then_some(End::Fatal),
            Ok(Run::Echo(_) | Run::Process(_) | Run::Wasm(_)) | Err(_) => None,
        }
    }

    pub(crate) fn draw_end(&mut self, attempt_ref: AttemptRef) -> End {
        if let Some(end) = self.scripted_end(attempt_ref) {
            return end;
        }
        let attempts = self.scenario.attempts;
        let ends: [(Rate, End); 4] = [
            (attempts.error, End::Error),
            (attempts.fatal, End::Fatal),
            (attempts.infrastructure, End::Infrastructure),
            (attempts.drained, End::Stopped),
        ];
        let drawn = ends.into_iter().find(|(rate, _)| self.rng.chance(*rate));
        drawn.map_or(End::Succeeded, |(_, end)| end)
    }

    pub(crate) fn attempt_ends(
        &mut self,
        index: usize,
        incarnation: Incarnation,
        (shard, attempt_ref): (usize, AttemptRef),
        end: End,
    ) {
        let runner = &mut self.runners[index];
        if !runner.up || runner.incarnation != incarnation {
            return;
        }
        let Some(link) = runner.links.get_mut(&shard).filter(|link| link.in_flight.contains_key(&attempt_ref)) else {
            return;
        };
        let last_sequence = link.sequence;
        if runner.declared_lost == Some(incarnation) {
            self.coverage.count_fault(Fault::RunnerWorkedOn);
        }
        let result = self.result_of(attempt_ref);
        self.runners[index].send_ended(shard, attempt_ref, end, result);
        self.alive.remove(&attempt_ref);
        self.ended_before.insert(attempt_ref);
        self.send_outbox(index, shard, last_sequence);
    }

    pub(crate) fn crash_runner(&mut self, index: usize) {
        let runner = &mut self.runners[index];
        if !runner.up {
            return;
        }
        runner.up = false;
        let (id, incarnation) = (runner.id, runner.incarnation);
        trace!(self, "{id} crashes");
        self.coverage.count_fault(Fault::RunnerCrashed);
        self.orphan_attempts(index);
        let down = self.rng.between(SECOND, 30 * SECOND);
        self.after(down, Event::RunnerStarts { runner: index });
        self.after(self.scenario.lost_after, Event::DeclareLost { runner: index, incarnation });
    }

    pub(crate) fn partition_runner(&mut self, index: usize) {
        let runner = &mut self.runners[index];
        if !runner.is_reachable() {
            return;
        }
        runner.partitioned = true;
        let (id, incarnation) = (runner.id, runner.incarnation);
        trace!(self, "{id} is partitioned");
        self.coverage.count_fault(Fault::RunnerPartitioned);
        let silent = self.rng.between(SECOND, 40 * SECOND);
        self.after(silent, Event::RunnerReconnects { runner: index });
        self.after(self.scenario.lost_after, Event::DeclareLost { runner: index, incarnation });
    }

    pub(crate) fn runner_reconnects(&mut self, index: usize) {
        let runner = &mut self.runners[index];
        runner.partitioned = false;
        runner.declared_lost = None;
        trace!(self, "{} is reachable again", self.runners[index].id);
    }

    /// Notifies every shard that this incarnation is lost, if it is still unreachable.
    pub(crate) fn declare_lost(&mut self, index: usize, incarnation: Incarnation) {
        let runner = &mut self.runners[index];
        let silent = runner.incarnation == incarnation && !runner.is_reachable();
        if !silent {
            return;
        }
        runner.declared_lost = Some(incarnation);
        runner.lost_before = runner.lost_before.max(Some(incarnation));
        trace!(self, "{} is declared lost", self.runners[index].id);
        self.coverage.count_fault(Fault::RunnerDeclaredLost);
        for shard in 0..self.hosts.len() {
            self.notify_lost(index, shard, incarnation);
        }
    }

    fn notify_lost(&mut self, index: usize, shard: usize, incarnation: Incarnation) {
        let runner = self.runners[index].id;
        let delay = self.rng.below(500);
        self.after(delay, Event::Deliver { shard, inbound: Inbound::RunnerLost { runner, incarnation } });
    }

    /// Repeats the notifications of lost runners to a restarted shard, as the cluster does.
    pub(crate) fn notify_of_lost_runners(&mut self, shard: usize) {
        for index in 0..self.runners.len() {
            let lost = self.runners[index].declared_lost.filter(|_| !self.runners[index].is_reachable());
            if let Some(incarnation) = lost {
                self.notify_lost(index, shard, incarnation);
            }
        }
    }

    /// Restarts all runners. Hanging attempts end within a minute.
    pub(crate) fn heal_runners(&mut self) {
        for index in 0..self.runners.len() {
            self.runners[index].partitioned = false;
            self.runners[index].declared_lost = None;
            self.runner_starts(index);
            for shard in 0..self.hosts.len() {
                let capacity = self.draw_capacity();
                if let Some(link) = self.runners[index].links.get_mut(&shard) {
                    link.capacity = capacity;
                }
            }
            let incarnation = self.runners[index].incarnation;
            let in_flight: Vec<(usize, AttemptRef)> = self.runners[index]
                .links
                .iter()
                .flat_map(|(shard, link)| link.in_flight.keys().map(|attempt_ref| (*shard, *attempt_ref)))
                .collect();
            for (shard, attempt_ref) in in_flight {
                let delay = self.rng.below(60 * SECOND);
                let end = self.scripted_end(attempt_ref).unwrap_or(End::Succeeded);
                self.after(delay, Event::AttemptEnds { runner: index, incarnation, shard, attempt_ref, end });
            }
        }
    }
}
