//! Runners: the runner's end of `link` as it ships, with attempts that take drawn times and have drawn ends. Runners crash,
//! are partitioned, are declared lost and continue to work. For their processes during a crash see [`crate::spawner`].

use std::collections::{BTreeMap, BTreeSet};

use link::{Action, InFlight, Lease, RunnerEnd};
use model::id::{Incarnation, RunnerId};
use model::job::{End, Outcome};
use model::message::{AttemptRef, Capacity, RunnerFrame, ToRunner};
use model::spec::{EchoFailure, EchoRun, ExecutorKind, Run, decode_run};
use model::time::Millis;

use crate::coverage::Fault;
use crate::invariants::{self, Checked};
use crate::partitions::Direction;
use crate::rng::Rate;
use crate::scenario::{SECOND, Time};
use crate::spawner::Orphan;
use crate::world::{Event, Inbound, World, trace};

/// Interval at which a runner sends what is due on its links.
const POLL_EVERY: Time = link::HEARTBEAT.0;

#[derive(Debug)]
pub struct Runner {
    pub id: RunnerId,
    /// Drift of its steady clock, in parts per million.
    pub drift_ppm: i64,
    pub incarnation: Incarnation,
    up: bool,
    partitioned: bool,
    /// Incarnation that the cluster has declared lost.
    declared_lost: Option<Incarnation>,
    /// Newest incarnation ever declared lost.
    pub lost_before: Option<Incarnation>,
    next_capacity_change: Time,
    /// Connections to the shards.
    pub links: BTreeMap<usize, Link>,
    /// Ends of attempts that ran here and whose end is not known to be committed.
    pub ends: BTreeMap<AttemptRef, End>,
    /// Attempts that ever succeeded here.
    pub succeeded: BTreeSet<AttemptRef>,
    /// Attempts left to the spawner, by shard.
    pub orphans: BTreeMap<usize, BTreeMap<AttemptRef, Orphan>>,
    /// Attempts this incarnation recovered at its start.
    pub recovered: BTreeSet<AttemptRef>,
    /// Leases of attempts left to the spawner.
    pub orphan_leases: BTreeMap<AttemptRef, Lease>,
    /// When its leases are checked next.
    pub lease_check_at: Option<Time>,
}

/// Connection to one shard.
pub type Link = RunnerEnd<AttemptPhase>;

/// Progress of an in-flight attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptPhase {
    Waiting,
    Started,
    Stopping,
}

impl Runner {
    pub fn new(id: RunnerId, drift_ppm: i64) -> Self {
        Self {
            id,
            drift_ppm,
            incarnation: Incarnation(0),
            up: false,
            partitioned: false,
            declared_lost: None,
            lost_before: None,
            next_capacity_change: 0,
            links: BTreeMap::new(),
            ends: BTreeMap::new(),
            succeeded: BTreeSet::new(),
            orphans: BTreeMap::new(),
            recovered: BTreeSet::new(),
            orphan_leases: BTreeMap::new(),
            lease_check_at: None,
        }
    }

    pub fn drift_ppm(&self) -> i64 {
        self.drift_ppm
    }

    pub fn is_up(&self) -> bool {
        self.up
    }

    /// The cluster declares an incarnation lost.
    pub fn declare_lost(&mut self, incarnation: Incarnation) {
        self.declared_lost = Some(incarnation);
        self.lost_before = self.lost_before.max(Some(incarnation));
    }

    fn is_reachable(&self) -> bool {
        self.up && !self.partitioned
    }

    /// Whether the cluster has declared this incarnation lost at some time.
    fn was_lost(&self) -> bool {
        self.lost_before.is_some_and(|lost| lost >= self.incarnation)
    }
}

impl World {
    pub(crate) fn draw_capacity(&mut self) -> Capacity {
        let most = self.scenario.slots_max;
        let mut draw = || self.rng.between(1, most) as u32;
        Capacity { process: draw(), echo: draw(), wasm: draw() }
    }

    /// The steady clock of a runner.
    pub(crate) fn steady(&self, index: usize) -> Millis {
        self.drifted(self.runners[index].drift_ppm)
    }

    /// Starts a new incarnation of a runner, with the attempts its spawner still has.
    pub(crate) fn runner_starts(&mut self, index: usize) {
        if self.runners[index].up {
            return;
        }
        let runner = &mut self.runners[index];
        runner.incarnation = Incarnation(runner.incarnation.0 + 1);
        runner.up = true;
        runner.recovered.clear();
        runner.ends.clear();
        let (id, incarnation) = (runner.id, runner.incarnation);
        trace!(self, "{id} starts as {}", incarnation.0);
        for shard in 0..self.hosts.len() {
            self.recover_attempts(index, shard);
        }
        self.after(1, Event::RunnerTick { runner: index, incarnation });
    }

    /// Sends what is due: heartbeats and unacknowledged messages.
    pub(crate) fn runner_tick(&mut self, index: usize, incarnation: Incarnation) {
        if !self.runners[index].up || self.runners[index].incarnation != incarnation {
            return;
        }
        let changes = self.now >= self.runners[index].next_capacity_change;
        if changes {
            self.runners[index].next_capacity_change = self.now + self.scenario.capacity_interval;
        }
        for shard in 0..self.hosts.len() {
            if changes {
                self.change_capacity(index, shard);
            }
            self.send_due(index, shard);
        }
        self.after(POLL_EVERY, Event::RunnerTick { runner: index, incarnation });
    }

    /// Changes the capacity, as memory pressure does.
    fn change_capacity(&mut self, index: usize, shard: usize) {
        if self.rng.chance(self.scenario.capacity_changes) {
            self.coverage.count_fault(Fault::CapacityChanged);
            let capacity = if self.rng.one_in(3) { Capacity::default() } else { self.draw_capacity() };
            let now = self.steady(index);
            if let Some(link) = self.runners[index].links.get_mut(&shard) {
                link.set_capacity(now, capacity);
            }
        }
    }

    /// Sends what is due on one link. The frames of an unreachable runner are lost.
    pub(crate) fn send_due(&mut self, index: usize, shard: usize) {
        let now = self.steady(index);
        let mut frames = Vec::new();
        if let Some(link) = self.runners[index].links.get_mut(&shard) {
            frames.extend(std::iter::from_fn(|| link.poll(now)));
        }
        if !self.runners[index].is_reachable() {
            return;
        }
        for frame in frames {
            if self.cluster.is_active() {
                self.send_over_link(index, shard, frame);
            } else if !self.is_cut(Direction::FromRunner { runner: index, shard }) {
                self.transmit(shard, frame);
            }
        }
    }

    /// Delivers a frame with faults, in some scenarios each of its messages by itself.
    fn transmit(&mut self, shard: usize, frame: RunnerFrame) {
        let frames = if frame.messages.len() > 1 && self.rng.chance(self.scenario.network.split) {
            self.coverage.count_fault(Fault::FrameSplit);
            let header = frame.header;
            frame.messages.into_iter().map(|message| RunnerFrame { header, messages: vec![message] }).collect()
        } else {
            vec![frame]
        };
        for frame in frames {
            for delay in self.message_delays() {
                self.after(delay, Event::Deliver { shard, inbound: Inbound::RunnerFrame(frame.clone()) });
            }
        }
    }

    pub(crate) fn runner_receives(
        &mut self,
        index: usize,
        incarnation: Incarnation,
        shard: usize,
        message: ToRunner,
    ) -> Checked {
        let now = self.steady(index);
        let runner = &mut self.runners[index];
        if !runner.is_reachable() || runner.incarnation != incarnation {
            return Ok(());
        }
        let Some(link) = runner.links.get_mut(&shard) else { return Ok(()) };
        link.receive(now, message);
        while let Some(action) = self.next_action(index, shard) {
            match action {
                Action::Run { attempt_ref, lease, .. } => {
                    self.runner_accepts(index, shard, attempt_ref)?;
                    self.hold_lease(index, shard, attempt_ref, lease);
                }
                Action::Renewed { .. } => self.watch_leases(index),
                Action::Stop { attempt_ref } => self.runner_stops(index, shard, attempt_ref),
                Action::Committed { attempts } => {
                    for attempt_ref in attempts {
                        self.runners[index].ends.remove(&attempt_ref);
                    }
                }
            }
        }
        self.send_due(index, shard);
        Ok(())
    }

    fn next_action(&mut self, index: usize, shard: usize) -> Option<Action> {
        let now = self.steady(index);
        self.runners[index].links.get_mut(&shard)?.next_action(now)
    }

    fn runner_accepts(&mut self, index: usize, shard: usize, attempt_ref: AttemptRef) -> Checked {
        let record = self.ledger.jobs.get(&attempt_ref.job).map(|known| &known.record);
        let is_lost = self.ledger.losses.dispatches.contains(&attempt_ref);
        // A failover may have lost the record of the dispatch.
        if !is_lost {
            invariants::invariant_dispatches_are_on_record(attempt_ref, record)?;
        }
        // Nobody waits for an attempt that is abandoned with its runner: its dispatch may still arrive.
        let is_abandoned = self.ledger.abandoned.contains(&attempt_ref);
        if !is_lost && !is_abandoned && !self.runners[index].was_lost() {
            invariants::invariant_no_dispatch_is_accepted_after_it_was_given_up(attempt_ref, record)?;
        }
        let executor = record.map_or(ExecutorKind::Echo, |job| job.executor);
        trace!(self, "{} accepts {}/{}", self.runners[index].id, attempt_ref.job, attempt_ref.attempt);
        let (now, incarnation) = (self.steady(index), self.runners[index].incarnation);
        let is_busy = self.rng.chance(self.scenario.attempts.busy);
        let Some(link) = self.runners[index].links.get_mut(&shard) else { return Ok(()) };
        if is_busy || !link.has_free_slot(executor) {
            self.coverage.count_fault(Fault::RunnerBusy);
            link.send_ended(now, attempt_ref, Outcome::of(End::Busy));
            return Ok(());
        }
        link.add(attempt_ref, InFlight::new(executor, AttemptPhase::Waiting));
        link.send_accepted(now, attempt_ref);
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
        let link = self.runners[index].links.get_mut(&shard);
        let Some(phase) = link.and_then(|link| link.get_mut(attempt_ref)) else { return };
        if *phase == AttemptPhase::Stopping {
            return;
        }
        *phase = AttemptPhase::Stopping;
        let delay = self.rng.below(2 * SECOND);
        self.after(delay, Event::AttemptEnds { runner: index, incarnation, shard, attempt_ref, end: End::Stopped });
    }

    pub(crate) fn attempt_starts(
        &mut self,
        index: usize,
        incarnation: Incarnation,
        shard: usize,
        attempt_ref: AttemptRef,
    ) -> Checked {
        let now = self.steady(index);
        let runner = &mut self.runners[index];
        if !runner.up || runner.incarnation != incarnation {
            return Ok(());
        }
        let Some(link) = runner.links.get_mut(&shard) else { return Ok(()) };
        match link.get_mut(attempt_ref) {
            Some(phase @ AttemptPhase::Waiting) => *phase = AttemptPhase::Started,
            Some(AttemptPhase::Started | AttemptPhase::Stopping) | None => return Ok(()),
        }
        link.send_started(now, attempt_ref, Millis(0));
        let is_first = self.alive.insert(attempt_ref) && !self.ended_before.contains(&attempt_ref);
        // The number of an attempt is used again if a failover has lost its dispatch.
        let is_lost = self.ledger.losses.dispatches.contains(&attempt_ref);
        if is_lost && !is_first {
            self.coverage.count("attempts whose dispatch was lost started again");
        }
        invariants::invariant_an_attempt_starts_once(attempt_ref, is_first || is_lost)?;
        self.check_compensation_runs_alone(attempt_ref)?;
        self.check_exclusive_runs_alone(attempt_ref)?;
        self.send_due(index, shard);
        self.schedule_end(index, incarnation, shard, attempt_ref);
        Ok(())
    }

    /// 6: while a compensation starts, no attempt of the task that it compensates runs, but on runners that were
    /// declared lost, and but those whose dispatch a failover has lost.
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
            if !runner.up || runner.was_lost() {
                continue;
            }
            let attempts = runner.links.values().flat_map(RunnerEnd::in_flight);
            let mut running = attempts.filter(|(_, it)| *it.value() != AttemptPhase::Waiting).map(|(it, _)| it);
            // Processes of an incarnation that was declared lost may outlive it: the next one adopts them.
            let was_given_up = |it: &AttemptRef| runner.lost_before.is_some() && runner.recovered.contains(it);
            let is_lost = |it: &AttemptRef| self.ledger.losses.dispatches.contains(it);
            let beside = running.find(|it| is_beside(*it) && !was_given_up(it) && !is_lost(it));
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

    /// What the runner reports of an attempt that ended.
    pub(crate) fn outcome(&self, attempt_ref: AttemptRef, end: End) -> Outcome {
        let job = self.ledger.jobs.get(&attempt_ref.job).map(|known| &known.record);
        let result = (end == End::Succeeded).then(|| {
            job.map_or_else(|| invariants::result_of(attempt_ref), |job| invariants::result_of_job(job, attempt_ref))
        });
        Outcome { result, ..Outcome::of(end) }
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
        let runner = &self.runners[index];
        if !runner.up || runner.incarnation != incarnation {
            return;
        }
        if !runner.links.get(&shard).is_some_and(|link| link.is_in_flight(attempt_ref)) {
            return;
        }
        if runner.declared_lost == Some(incarnation) {
            self.coverage.count_fault(Fault::RunnerWorkedOn);
        }
        let newest = self.ledger.jobs.get(&attempt_ref.job).map(|known| known.record.attempt);
        if end == End::Succeeded && newest.is_some_and(|newest| newest > attempt_ref.attempt) {
            self.coverage.count("late results of attempts given elsewhere");
        }
        self.end_attempt(index, shard, attempt_ref, end);
        self.send_due(index, shard);
    }

    /// An attempt that ran on a runner has ended.
    pub(crate) fn end_attempt(&mut self, index: usize, shard: usize, attempt_ref: AttemptRef, end: End) {
        let (now, outcome) = (self.steady(index), self.outcome(attempt_ref, end));
        let runner = &mut self.runners[index];
        runner.ends.insert(attempt_ref, end);
        if end == End::Succeeded {
            runner.succeeded.insert(attempt_ref);
        }
        if let Some(link) = runner.links.get_mut(&shard) {
            link.send_ended(now, attempt_ref, outcome);
        }
        self.alive.remove(&attempt_ref);
        self.ended_before.insert(attempt_ref);
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
        let dies = self.rng.chance(self.scenario.nemesis.spawner_dies);
        self.orphan_attempts(index, dies);
        let down = self.rng.between(SECOND, 30 * SECOND);
        self.after(down, Event::RunnerStarts { runner: index });
        self.after(self.scenario.lost_after, Event::DeclareLost { runner: index, incarnation });
    }

    /// Ends the server process of a runner. Its processes end too if the spawner dies.
    pub(crate) fn stop_runner(&mut self, index: usize, spawner_dies: bool) {
        self.runners[index].up = false;
        self.orphan_attempts(index, spawner_dies);
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
        runner.declare_lost(incarnation);
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
        if self.cluster.is_active() {
            // A control node does not: the shard's own grace period ends.
            return;
        }
        for index in 0..self.runners.len() {
            let lost = self.runners[index].declared_lost.filter(|_| !self.runners[index].is_reachable());
            if let Some(incarnation) = lost {
                self.notify_lost(index, shard, incarnation);
            }
        }
    }

    /// Restarts all runners. Hanging attempts end within a minute.
    pub(crate) fn heal_runners(&mut self) {
        for index in (0..self.runners.len()).filter(|index| !self.stays_dead(*index)).collect::<Vec<_>>() {
            self.runners[index].partitioned = false;
            self.runners[index].declared_lost = None;
            self.runner_starts(index);
            for shard in 0..self.hosts.len() {
                let (now, capacity) = (self.steady(index), self.draw_capacity());
                if let Some(link) = self.runners[index].links.get_mut(&shard) {
                    link.set_capacity(now, capacity);
                }
            }
            let incarnation = self.runners[index].incarnation;
            let in_flight: Vec<(usize, AttemptRef)> = self.runners[index]
                .links
                .iter()
                .flat_map(|(shard, link)| link.in_flight().map(|(attempt_ref, _)| (*shard, attempt_ref)))
                .collect();
            for (shard, attempt_ref) in in_flight {
                let delay = self.rng.below(60 * SECOND);
                let end = self.scripted_end(attempt_ref).unwrap_or(End::Succeeded);
                self.after(delay, Event::AttemptEnds { runner: index, incarnation, shard, attempt_ref, end });
            }
        }
    }
}
