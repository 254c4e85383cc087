//! Runners as the shard sees them, and the handling of their messages.
//!
//! Messages arrive at least once and in any order. They are applied exactly once, in sequence order.

mod checks;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use link::ShardEnd;
use model::id::{Incarnation, JobId, RunnerId};
use model::job::Job;
use model::machine::{Event, Fault, Ignored};
use model::message::{
    AttemptRef, Capacity, FromRunner, Load, Profile, ReportedAttempt, RunnerCursor, RunnerHeader, RunnerMessage,
    Session, ShardMessage, ToRunner,
};
use model::rejected::RejectedMessage;
use model::spec::ExecutorKind;
use model::state::State;
use model::time::Millis;

use crate::anomaly::Anomaly;
use crate::config::Config;
use crate::health::RunnerHealth;
use crate::input::Effect;
use crate::jobs::{LiveJob, PendingDecision};
use crate::placement::attributes::{EffectiveProfile, RunnerIndex};
use crate::placement::candidate_set::Availability;
use crate::shard::{Map, Shard};
use crate::step::Step;

/// Minimum interval between inventory requests to a runner.
const INVENTORY_INTERVAL: Millis = Millis(1_000);

/// Minimum interval between renewals of a runner's leases. Shorter than the interval of its heartbeats.
const RENEWAL_INTERVAL: Millis = Millis(500);

/// Interval of inventory requests to an unregistered runner.
const UNREGISTERED_INVENTORY_INTERVAL: Millis = Millis(5_000);

/// A runner as this shard sees it.
#[derive(Debug)]
pub(crate) struct Runner {
    pub incarnation: Incarnation,
    /// Sequence number of the last applied message.
    pub sequence: u64,
    /// Number of the newest inventory request.
    pub inventory: u64,
    requested_at: Millis,
    capacity: Capacity,
    load: Load,
    in_flight: [u32; ExecutorKind::ALL.len()],
    /// Lingering attempts: given up by the shard, not yet confirmed as stopped. They occupy their slots.
    lingering: Map<AttemptRef, ExecutorKind>,
    /// Since when `lingering` is not empty.
    lingers_since: Millis,
    /// Attempts in dispatch order, to find those that are neither accepted nor started.
    dispatched: VecDeque<(Millis, AttemptRef)>,
    /// Accepted attempts with the time of their acceptance, to find those that never start.
    accepted: BTreeSet<(Millis, AttemptRef)>,
    /// No registration since this incarnation, or this owner of the shard, started. Attempts of earlier incarnations
    /// stay undecided until then.
    pub is_unregistered: bool,
    /// Registered, and not lost since.
    is_connected: bool,
    /// Declared lost, and not registered since.
    is_lost: bool,
    /// Its connection ended, and nothing has arrived since.
    is_disconnected: bool,
    /// Messages to the runner until it has received them.
    link: ShardEnd,
    /// When leases were renewed last.
    renewed_at: Millis,
    /// Since when it is not connected and silent.
    silent_since: Millis,
    pub dirty: bool,
    /// Time of the next check.
    pub check_at: Option<Millis>,
}

impl Runner {
    pub fn new(cursor: RunnerCursor, session: Session, now: Millis) -> Self {
        Self {
            incarnation: cursor.incarnation,
            sequence: cursor.sequence,
            inventory: 0,
            requested_at: Millis(0),
            // No slots until it registers.
            capacity: Capacity::default(),
            load: Load::default(),
            in_flight: [0; ExecutorKind::ALL.len()],
            lingering: Map::default(),
            lingers_since: Millis(0),
            dispatched: VecDeque::new(),
            accepted: BTreeSet::new(),
            is_unregistered: true,
            is_connected: false,
            is_lost: false,
            is_disconnected: false,
            link: ShardEnd::new(now, session),
            renewed_at: Millis(0),
            silent_since: now,
            dirty: false,
            check_at: None,
        }
    }

    pub fn cursor(&self) -> RunnerCursor {
        RunnerCursor { incarnation: self.incarnation, sequence: self.sequence }
    }

    pub fn in_flight(&self, executor: ExecutorKind) -> u32 {
        self.in_flight[executor as usize]
    }

    pub fn availability(&self, is_cordoned: bool) -> [Availability; ExecutorKind::ALL.len()] {
        let availability = |executor| Availability::new(executor, self.capacity, &self.in_flight, self.load);
        ExecutorKind::ALL.map(|executor| match is_cordoned || self.is_disconnected {
            true => availability(executor).cordoned(),
            false => availability(executor),
        })
    }

    /// Counts a dispatched attempt.
    pub fn take(&mut self, executor: ExecutorKind, attempt_ref: AttemptRef, now: Millis) {
        self.in_flight[executor as usize] += 1;
        self.dispatched.push_back((now, attempt_ref));
    }

    fn release(&mut self, executor: ExecutorKind) {
        self.in_flight[executor as usize] = self.in_flight[executor as usize].saturating_sub(1);
    }

    /// When the next inventory request is due, if any.
    fn next_inventory(&self, stop_timeout: Millis) -> Option<Millis> {
        let lingering = (!self.lingering.is_empty()).then(|| self.lingers_since.max(self.requested_at) + stop_timeout);
        let unregistered = self.is_unregistered.then(|| self.requested_at + UNREGISTERED_INVENTORY_INTERVAL);
        [lingering, unregistered].into_iter().flatten().min()
    }

    /// When the start of an attempt or the confirmation of a stop becomes overdue, or an inventory is due.
    #[inline]
    fn next_check(&self, config: &Config) -> Option<Millis> {
        let accept = self.dispatched.front().map(|(at, _)| *at + config.dispatch_timeout);
        let start = self.accepted.first().map(|(at, _)| *at + config.setup_timeout);
        let inventory = self.next_inventory(config.stop_timeout);
        let expiry = self.may_expire().then(|| self.silent_since + config.runner_expiry);
        [accept, start, inventory, self.link.retransmit_at(), expiry].into_iter().flatten().min()
    }

    /// Whether it is forgotten once it is silent for long. One that has not registered yet is lost first.
    fn may_expire(&self) -> bool {
        !self.is_connected && !self.is_unregistered
    }

    /// An attempt that was not accepted, or not started, in time.
    fn pop_overdue(&mut self, now: Millis, config: &Config) -> Option<AttemptRef> {
        let is_overdue = |at: Millis, timeout: Millis| at <= now.saturating_sub(timeout);
        if self.dispatched.front().is_some_and(|(at, _)| is_overdue(*at, config.dispatch_timeout)) {
            return self.dispatched.pop_front().map(|(_, attempt_ref)| attempt_ref);
        }
        if self.accepted.first().is_some_and(|(at, _)| is_overdue(*at, config.setup_timeout)) {
            return self.accepted.pop_first().map(|(_, attempt_ref)| attempt_ref);
        }
        None
    }

    pub fn lingering(&self) -> usize {
        self.lingering.len()
    }

    /// Occupies a slot for an attempt that no job waits for, until the runner reports its end.
    fn linger(&mut self, executor: ExecutorKind, attempt_ref: AttemptRef, now: Millis) {
        if self.lingering.is_empty() {
            self.lingers_since = now;
        }
        // An earlier entry may have been made while the job still existed, so its executor is more reliable.
        self.lingering.entry(attempt_ref).or_insert_with(|| {
            self.in_flight[executor as usize] += 1;
            executor
        });
    }

    /// Frees the slot of a lingering attempt; returns whether there was one.
    fn release_lingering(&mut self, attempt_ref: AttemptRef) -> bool {
        let executor = self.lingering.remove(&attempt_ref);
        if let Some(executor) = executor {
            self.release(executor);
        }
        executor.is_some()
    }

    /// When the newest time of the runner's clock arrived, or when this shard got to know it.
    pub fn heard_at(&self) -> Millis {
        self.link.heard_at()
    }

    /// The renewal of all its leases, if it is due.
    pub fn renew_leases(&mut self, now: Millis) -> Option<ToRunner> {
        if self.is_lost || now < self.renewed_at + RENEWAL_INTERVAL {
            return None;
        }
        self.renewed_at = now;
        self.link.renew()
    }

    /// Marks a lost runner: no more slots, no more confirmations expected. What it has not received is given up; if it
    /// comes back, it continues with a new session.
    pub fn close(&mut self, session: Session, now: Millis) {
        self.link.restart(session);
        self.silent_since = now;
        self.capacity = Capacity::default();
        self.is_connected = false;
        self.is_lost = true;
        self.is_unregistered = false;
        self.dispatched.clear();
        self.accepted.clear();
        for executor in std::mem::take(&mut self.lingering).into_values() {
            self.release(executor);
        }
    }
}

impl Shard {
    pub(crate) fn runner_mut(&mut self, id: RunnerId) -> Option<&mut Runner> {
        let index = self.runners.index(id)?;
        self.runners.get_mut(index)
    }

    /// Adds a runner or replaces its earlier incarnation.
    pub(crate) fn put_runner(&mut self, id: RunnerId, runner: Runner) {
        let index = match self.runners.index(id) {
            Some(index) => index,
            None => {
                let index = self.runners.add(id, runner);
                self.ready.add_runner(index, id);
                return self.runner_changed(index);
            }
        };
        if let Some(old) = self.runners.get_mut(index) {
            let (dirty, check_at) = (old.dirty, old.check_at);
            *old = Runner { dirty, check_at, ..runner };
        }
        self.runner_changed(index);
    }

    /// Attempts of the runners that have any, by executor: of any incarnation, and those not confirmed as stopped. A
    /// restarted runner that has not registered yet still has its attempts.
    pub fn in_flight(&self) -> impl Iterator<Item = (RunnerId, [u32; ExecutorKind::ALL.len()])> {
        let counts = self.runners.iter().map(|(id, runner)| (*id, self.attempts_on(*id, runner)));
        counts.filter(|(_, in_flight)| in_flight.iter().any(|count| *count > 0))
    }

    fn attempts_on(&self, id: RunnerId, runner: &Runner) -> [u32; ExecutorKind::ALL.len()] {
        // Once it has registered, its slots tell without looking at every job.
        if !runner.is_unregistered && runner.is_connected {
            return runner.in_flight;
        }
        let mut counts = [0; ExecutorKind::ALL.len()];
        let assigned = self.runners.jobs_of(id).filter_map(|job| self.jobs.get(job)).map(|entry| entry.job.executor);
        for executor in assigned.chain(runner.lingering.values().copied()) {
            counts[executor as usize] += 1;
        }
        counts
    }

    /// How all runners have done, as this shard has seen it.
    pub fn runner_health(&self) -> Vec<RunnerHealth> {
        let health = |(id, runner): &(RunnerId, Runner)| {
            let index = self.runners.index(*id)?;
            let is_usable = runner.is_connected && !runner.is_disconnected && !runner.is_lost;
            let pools = self.ready.runner(index)?.profile.pools().map(str::to_owned).collect();
            Some(self.health.report(*id, is_usable, pools))
        };
        self.runners.iter().filter_map(health).collect()
    }

    /// A new session with a runner.
    pub(crate) fn new_session(&mut self) -> Session {
        Session { epoch: self.epoch, number: self.runners.next_session() }
    }

    /// Sends a message to a runner. Dropped if this is not its current incarnation, or if it is lost: in both cases its
    /// next registration decides about its attempts.
    pub(crate) fn send_to_runner(
        &mut self,
        id: RunnerId,
        incarnation: Incarnation,
        message: ShardMessage,
        step: &mut Step,
    ) {
        let now = self.steady;
        let Some(index) = self.runners.index(id) else { return };
        let Some(runner) = self.runners.get_mut(index).filter(|runner| runner.incarnation == incarnation) else {
            return;
        };
        if runner.is_lost && !matches!(message, ShardMessage::Inventory { .. }) {
            return;
        }
        let message = runner.link.send(now, message);
        let retransmit_at = runner.link.retransmit_at();
        step.effects.push(Effect::Send { runner: id, incarnation, message });
        self.runners.check(index, retransmit_at);
    }

    /// Acknowledges a runner's messages. The effect is performed after their commit.
    pub(crate) fn acknowledge(&mut self, id: RunnerId, cursor: RunnerCursor, step: &mut Step) {
        let RunnerCursor { incarnation, sequence } = cursor;
        if let Some(runner) = self.runner_mut(id).filter(|runner| runner.incarnation == incarnation) {
            let message = runner.link.acknowledge(sequence);
            step.effects.push(Effect::Send { runner: id, incarnation, message });
        }
    }

    /// Applies the header of a runner's frame. A runner that is unknown or was lost is asked to register.
    pub(crate) fn runner_header(&mut self, header: &RunnerHeader, step: &mut Step) {
        let (id, incarnation, now) = (header.runner, header.incarnation, self.steady);
        match self.runner_mut(id) {
            Some(runner) if runner.incarnation > incarnation => {}
            Some(runner) if runner.incarnation == incarnation => {
                runner.link.receive(now, header);
                runner.silent_since = now;
                if runner.is_lost {
                    self.request_inventory(id, incarnation, step);
                }
                self.runner_connected(id);
                self.renew_leases(id, incarnation, step);
            }
            Some(_) | None => {
                self.admit_incarnation(id, incarnation);
                if let Some(runner) = self.runner_mut(id) {
                    runner.link.receive(now, header);
                }
                self.request_inventory(id, incarnation, step);
            }
        }
    }

    /// Something has arrived from a runner.
    fn runner_connected(&mut self, id: RunnerId) {
        if let Some(runner) = self.runner_mut(id)
            && std::mem::take(&mut runner.is_disconnected)
        {
            self.runner_changed_by_id(id);
        }
    }

    pub(crate) fn is_disconnected(&self, id: RunnerId) -> bool {
        let runner = self.runners.index(id).and_then(|index| self.runners.get(index));
        runner.is_some_and(|(_, runner)| runner.is_disconnected)
    }

    /// The connection to a runner ended. Its attempts may go on, but it cannot be given new ones.
    pub(crate) fn runner_disconnected(&mut self, id: RunnerId, incarnation: Incarnation) {
        if let Some(runner) = self.runner_mut(id).filter(|runner| runner.incarnation == incarnation) {
            runner.is_disconnected = true;
            self.runner_changed_by_id(id);
        }
    }

    /// Updates placement and the next check after a change of a runner.
    pub(crate) fn runner_changed(&mut self, index: RunnerIndex) {
        let Some((id, runner)) = self.runners.get(index) else {
            return self.anomalies.note(Anomaly::MissingRunnerIndex(index.0), "runner changed");
        };
        let is_connected = runner.is_connected;
        let is_cordoned = !self.settings.cordoned.is_empty() && self.settings.cordoned.contains(id);
        self.ready.runner_availability(index, runner.availability(is_cordoned), runner.in_flight);
        if !is_connected {
            self.ready.runner_leaves(index);
        }
        let at = runner.next_check(&self.config);
        self.runners.check(index, at);
    }

    pub(crate) fn runner_changed_by_id(&mut self, id: RunnerId) {
        if let Some(index) = self.runners.index(id) {
            self.runner_changed(index);
        }
    }

    /// Restores the assignment of a job to its runner.
    pub(crate) fn restore_assignment(&mut self, job: &Job) {
        self.ready.count_running(job, true);
        let Some((id, incarnation)) = job.runner() else { return };
        self.runners.assign(id, job.id);
        let attempt_ref = AttemptRef { job: job.id, attempt: job.attempt };
        let now = self.steady;
        self.change_runner(id, incarnation, |runner| runner.take(job.executor, attempt_ref, now));
        if job.exclusive {
            self.exclusive.note_dispatched(id, job.id);
        }
    }

    /// Requests an inventory from every runner after a restart.
    pub(crate) fn resume_runners(&mut self, step: &mut Step) {
        let mut runners: Vec<_> = self.runners.iter().map(|(id, runner)| (*id, runner.incarnation)).collect();
        runners.sort_unstable();
        for (id, incarnation) in runners {
            self.request_inventory(id, incarnation, step);
        }
    }

    /// Changes a runner if this is its current incarnation.
    fn change_runner(&mut self, id: RunnerId, incarnation: Incarnation, change: impl FnOnce(&mut Runner)) {
        if let Some(index) = self.runners.index(id)
            && let Some(runner) = self.runners.get_mut(index)
            && runner.incarnation == incarnation
        {
            change(runner);
            self.runner_changed(index);
        }
    }

    /// Frees the slot of an ended attempt.
    pub(crate) fn free_slot(&mut self, id: RunnerId, incarnation: Incarnation, executor: ExecutorKind) {
        self.change_runner(id, incarnation, |runner| runner.release(executor));
    }

    /// The job has given up an attempt that its runner may still run: it becomes a lingering attempt.
    pub(crate) fn mark_lingering(
        &mut self,
        id: RunnerId,
        incarnation: Incarnation,
        attempt_ref: AttemptRef,
        executor: ExecutorKind,
    ) {
        let now = self.steady;
        self.change_runner(id, incarnation, |runner| {
            // It takes over the slot of the job, not an additional one.
            runner.release(executor);
            runner.linger(executor, attempt_ref, now);
        });
    }

    /// Applies a load report.
    pub(crate) fn runner_load(&mut self, id: RunnerId, incarnation: Incarnation, load: Load) {
        self.change_runner(id, incarnation, |runner| runner.load = load);
    }

    pub(crate) fn runner_message(&mut self, message: FromRunner, step: &mut Step) {
        let (id, incarnation) = (message.runner, message.incarnation);
        let known = self.runner_mut(id).map(|runner| (runner.incarnation, runner.sequence));
        let applied = match known {
            Some((current, _)) if incarnation < current => return,
            Some((current, sequence)) if incarnation == current => sequence,
            Some(_) | None => 0,
        };
        if message.sequence <= applied {
            self.stats.duplicate_messages += 1;
            // The runner retransmits because it missed the acknowledgement.
            return self.acknowledge(id, RunnerCursor { incarnation, sequence: applied }, step);
        }
        if known.is_none_or(|(current, _)| incarnation > current) {
            self.admit_incarnation(id, incarnation);
        }
        self.runner_connected(id);
        let applied = match message.message {
            // The messages before are gone. Those that the runner still has are applied first, when they come again.
            RunnerMessage::Register { oldest_kept, .. } => applied.max(oldest_kept.saturating_sub(1)),
            RunnerMessage::Accepted { .. } | RunnerMessage::Started { .. } | RunnerMessage::Ended { .. } => applied,
        };
        if message.sequence > applied + 1 {
            self.stats.gaps += 1;
            self.advance_cursor(id, applied);
            return self.request_inventory(id, incarnation, step);
        }
        self.advance_cursor(id, message.sequence);
        match message.message {
            RunnerMessage::Register { capacity, profile, in_flight, request, .. } => {
                let mut attempts: Vec<AttemptRef> = in_flight.iter().map(|reported| reported.attempt_ref).collect();
                attempts.sort_unstable();
                self.register(id, capacity, &attempts, request, step);
                for reported in in_flight {
                    if !self.is_elsewhere(id, reported.attempt_ref) {
                        self.resume_runtime_limit(reported);
                    }
                }
                self.apply_profile(id, profile);
            }
            RunnerMessage::Accepted { attempt_ref } if self.is_elsewhere(id, attempt_ref) => {}
            RunnerMessage::Accepted { attempt_ref } => self.accepted(id, attempt_ref),
            RunnerMessage::Started { attempt_ref, .. } if self.is_elsewhere(id, attempt_ref) => {
                self.send_to_runner(id, incarnation, ShardMessage::Stop { attempt_ref }, step);
            }
            RunnerMessage::Started { attempt_ref, at } => {
                let started = self.fire(attempt_ref.job, Event::Started { attempt: attempt_ref.attempt, at }, step);
                if let Err(Ignored::Terminal | Ignored::StaleAttempt) = started {
                    // The attempt was given up while its start was under way.
                    self.send_to_runner(id, incarnation, ShardMessage::Stop { attempt_ref }, step);
                }
            }
            RunnerMessage::Ended { attempt_ref, outcome } => {
                if let Some(runner) = self.runner_mut(id)
                    && runner.release_lingering(attempt_ref)
                {
                    self.runner_changed_by_id(id);
                }
                if self.is_elsewhere(id, attempt_ref) {
                    self.ignore(Ignored::StaleAttempt);
                    return;
                }
                let outcome = match outcome.beyond_limits() {
                    None => outcome,
                    Some(why) => {
                        let rejected = RejectedMessage {
                            at: self.now,
                            runner: id,
                            incarnation,
                            sequence: message.sequence,
                            job: attempt_ref.job,
                            attempt: attempt_ref.attempt,
                            why,
                        };
                        self.reject_outcome(*outcome, rejected, step)
                    }
                };
                let (end, node_at_fault) = (outcome.end, outcome.node_at_fault);
                self.ended(attempt_ref, outcome, step);
                self.note_health(id, attempt_ref.job, end, node_at_fault, step);
                self.confirm_stopped(id, attempt_ref, step);
                self.confirm_exclusive(id, attempt_ref, step);
            }
        }
    }

    /// Whether another runner has, or had, the attempt. Either this one lies, or the store has lost the record of the
    /// dispatch to it, and the attempt's number was used again.
    fn is_elsewhere(&self, id: RunnerId, attempt_ref: AttemptRef) -> bool {
        let last = self.jobs.get(attempt_ref.job).and_then(|entry| entry.job.last_attempt());
        last.is_some_and(|last| last.attempt == attempt_ref.attempt && last.runner != id)
    }

    /// Notes the last applied message of a runner.
    fn advance_cursor(&mut self, id: RunnerId, sequence: u64) {
        let Some(index) = self.runners.index(id) else { return };
        if let Some(runner) = self.runners.get_mut(index).filter(|runner| runner.sequence < sequence) {
            runner.sequence = sequence;
            self.runners.mark_dirty(index);
        }
    }

    /// Jobs with an attempt in flight on a runner, in id order.
    pub(crate) fn on_runner(&self, id: RunnerId, matches: impl Fn(Incarnation) -> bool) -> Vec<JobId> {
        let holds = |assignment: Option<(RunnerId, Incarnation)>| {
            assignment.is_some_and(|(other, inc)| other == id && matches(inc))
        };
        let in_flight = |job: &JobId| self.jobs.get(*job).is_some_and(|entry| holds(entry.assignment()));
        let mut jobs: Vec<JobId> = self.runners.jobs_of(id).filter(in_flight).collect();
        jobs.sort_unstable();
        jobs
    }

    /// Requests an inventory from a runner, at most once per interval.
    pub(crate) fn request_inventory(&mut self, id: RunnerId, incarnation: Incarnation, step: &mut Step) {
        let now = self.steady;
        let Some(runner) = self.runner_mut(id).filter(|runner| runner.incarnation == incarnation) else { return };
        if runner.inventory != 0 && now < runner.requested_at + INVENTORY_INTERVAL {
            return;
        }
        let inventory = self.runners.next_inventory(self.epoch);
        if let Some(runner) = self.runner_mut(id) {
            (runner.requested_at, runner.inventory) = (now, inventory);
        }
        self.send_to_runner(id, incarnation, ShardMessage::Inventory { request: inventory }, step);
    }

    /// Applies a registration. `in_flight` is sorted.
    fn register(
        &mut self,
        id: RunnerId,
        capacity: Capacity,
        in_flight: &[AttemptRef],
        inventory: u64,
        step: &mut Step,
    ) {
        let Some(runner) = self.runner_mut(id) else {
            return self.anomalies.note(Anomaly::MissingRunner(id), "register");
        };
        runner.capacity = capacity;
        (runner.is_connected, runner.is_lost) = (true, false);
        let incarnation = runner.incarnation;
        let answers = inventory != 0 && inventory == runner.inventory;
        if runner.is_unregistered {
            self.decide_orphans(id, incarnation, in_flight);
        }
        for attempt_ref in in_flight {
            self.check_in_flight(id, incarnation, *attempt_ref, step);
        }
        if answers {
            self.reconcile(id, incarnation, in_flight, inventory);
        }
        let answered = if answers { inventory } else { 0 };
        self.confirm_absent(id, incarnation, in_flight, answered, step);
        self.confirm_exclusive_absent(id, incarnation, in_flight, answered, step);
    }

    /// After a restart the limit of a running attempt is known once its runner has reported how long it has been running.
    fn resume_runtime_limit(&mut self, reported: ReportedAttempt) {
        let ReportedAttempt { attempt_ref, running_for } = reported;
        let Some(entry) = self.jobs.get_mut(attempt_ref.job) else { return };
        let is_unlimited =
            entry.job.attempt == attempt_ref.attempt && entry.job.state == State::Running && entry.limit_at().is_none();
        if is_unlimited && let Some(limit) = entry.job.runtime_limit() {
            let left = limit.saturating_sub(running_for.unwrap_or_default());
            self.timers.set_limit(entry, self.steady + left);
        }
    }

    /// Updates placement with the profile of a registered runner.
    fn apply_profile(&mut self, id: RunnerId, profile: Arc<Profile>) {
        let Some(index) = self.runners.index(id) else {
            return self.anomalies.note(Anomaly::MissingRunner(id), "apply profile");
        };
        self.runner_changed(index);
        let Some(runner) = self.ready.runner(index) else { return };
        if runner.is_connected && *runner.profile.profile() == profile {
            return;
        }
        let profile = EffectiveProfile::new(profile, self.ready.settings());
        self.ready.runner_leaves(index);
        self.ready.runner_joins(index, profile);
    }

    /// Checks an attempt that a runner reports as in flight. An attempt it should not run is stopped.
    fn check_in_flight(&mut self, id: RunnerId, incarnation: Incarnation, attempt_ref: AttemptRef, step: &mut Step) {
        let entry = self.jobs.get(attempt_ref.job);
        let its_own = entry.filter(|entry| {
            let given_up = matches!(entry.pending(), Some(PendingDecision::Lose { .. }));
            entry.job.attempt == attempt_ref.attempt && entry.assignment() == Some((id, incarnation)) && !given_up
        });
        match its_own {
            Some(entry) if !entry.job.is_to_stop() => return self.accepted(id, attempt_ref),
            Some(_) => {}
            None => {
                // The executor of a removed job is unknown. Only processes outlive their records.
                let executor = entry.map_or(ExecutorKind::Process, |entry| entry.job.executor);
                let now = self.steady;
                self.change_runner(id, incarnation, |runner| runner.linger(executor, attempt_ref, now));
            }
        }
        self.send_to_runner(id, incarnation, ShardMessage::Stop { attempt_ref }, step);
    }

    /// Reconciles an inventory with the attempts dispatched before its request.
    fn reconcile(&mut self, id: RunnerId, incarnation: Incarnation, in_flight: &[AttemptRef], inventory: u64) {
        for job in self.on_runner(id, |assigned_incarnation| assigned_incarnation == incarnation) {
            let Some(entry) = self.jobs.get(job) else {
                self.anomalies.note(Anomaly::MissingJob(job), "reconcile");
                continue;
            };
            let attempt_ref = AttemptRef { job, attempt: entry.job.attempt };
            if entry.dispatched_after() >= inventory || in_flight.binary_search(&attempt_ref).is_ok() {
                continue;
            }
            // Either the dispatch or the outcome was lost. Only in the second case may the job be at fault.
            let fault = match entry.job.state {
                State::Running if !entry.job.executor.restarts_free_of_charge() => Fault::Unknown,
                _ => Fault::NotTheJob,
            };
            self.declare_lost(job, fault, true);
        }
        let Some(runner) = self.runner_mut(id) else {
            return self.anomalies.note(Anomaly::MissingRunner(id), "reconcile");
        };
        let gone = |(attempt_ref, _): &(&AttemptRef, &ExecutorKind)| in_flight.binary_search(attempt_ref).is_err();
        let gone: Vec<AttemptRef> = runner.lingering.iter().filter(gone).map(|(attempt_ref, _)| *attempt_ref).collect();
        for attempt_ref in gone {
            runner.release_lingering(attempt_ref);
        }
        self.runner_changed_by_id(id);
    }

    /// A runner has accepted an attempt and sets it up: the setup timeout replaces the dispatch timeout.
    fn accepted(&mut self, id: RunnerId, attempt_ref: AttemptRef) {
        let waits = |entry: &&mut LiveJob| {
            entry.job.state == State::Dispatched && entry.job.attempt == attempt_ref.attempt && !entry.is_accepted()
        };
        // Otherwise the message is a duplicate or outdated.
        let Some(entry) = self.jobs.get_mut(attempt_ref.job).filter(waits) else { return };
        entry.set_accepted(true);
        let now = self.steady;
        if let Some(runner) = self.runner_mut(id) {
            runner.accepted.insert((now, attempt_ref));
        }
        self.runner_changed_by_id(id);
    }

    /// Removes attempts that have started or ended.
    fn trim_dispatched(&mut self, index: RunnerIndex) {
        let jobs = &self.jobs;
        let Some(runner) = self.runners.get_mut(index) else {
            return self.anomalies.note(Anomaly::MissingRunnerIndex(index.0), "trim dispatched");
        };
        let waits = |attempt_ref: &AttemptRef, accepted: bool| {
            jobs.get(attempt_ref.job).is_some_and(|entry| {
                entry.job.state == State::Dispatched
                    && entry.job.attempt == attempt_ref.attempt
                    && entry.is_accepted() == accepted
            })
        };
        while runner.dispatched.front().is_some_and(|(_, attempt_ref)| !waits(attempt_ref, false)) {
            runner.dispatched.pop_front();
        }
        while runner.accepted.first().is_some_and(|(_, attempt_ref)| !waits(attempt_ref, true)) {
            runner.accepted.pop_first();
        }
        // A slow start at the front must not retain thousands of ended attempts.
        let in_flight = runner.in_flight.iter().map(|in_flight| *in_flight as usize).sum::<usize>();
        if runner.dispatched.len() > 2 * in_flight + 1024 {
            runner.dispatched.retain(|(_, attempt_ref)| waits(attempt_ref, false));
        }
        if runner.accepted.len() > 2 * in_flight + 1024 {
            runner.accepted.retain(|(_, attempt_ref)| waits(attempt_ref, true));
        }
    }

    /// The cursors that have moved since the last flush.
    pub(crate) fn take_moved_cursors(&mut self) -> Vec<(RunnerId, RunnerCursor)> {
        let mut moved = Vec::new();
        for index in self.runners.take_dirty() {
            self.trim_dispatched(index);
            moved.extend(self.runners.get(index).map(|(id, runner)| (*id, runner.cursor())));
        }
        moved
    }
}
