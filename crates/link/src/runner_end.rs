//! The runner's end of the conversation with one shard.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use model::id::{Epoch, Incarnation, RunnerId};
use model::job::{End, Outcome};
use model::message::{
    AttemptRef, Capacity, FromRunner, Profile, ReportedAttempt, RunnerFrame, RunnerHeader, RunnerMessage, Session,
    ShardMessage, ToRunner,
};
use model::spec::ExecutorKind;
use model::time::Millis;
use model::verdict::Constraints;

use crate::lease::{Lease, Leases};
use crate::outbox::Outbox;

/// Most messages of one frame.
const FRAME_MESSAGES_MAX: usize = 4_096;

/// Most messages that are kept because they have overtaken others. The shard sends the rest again.
const EARLY_MAX: u64 = 1_024;

/// A runner with nothing else to send sends a header at this interval. It keeps dispatches valid.
pub const HEARTBEAT: Millis = Millis(1_000);

type Hasher = foldhash::fast::FixedState;

/// What the runner does about a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Start this attempt, or decline it with [`End::Busy`]. One with a lease is killed when it runs out:
    /// [`RunnerEnd::hold_lease`].
    Run { attempt_ref: AttemptRef, spec: Bytes, constraints: Option<Box<Constraints>>, lease: Option<Lease> },
    /// Stop this attempt, which is in flight.
    Stop { attempt_ref: AttemptRef },
    /// The ends of these attempts are committed: what is kept of them can be removed.
    Committed { attempts: Vec<AttemptRef> },
    /// These leases last longer now.
    Renewed { leases: Vec<(AttemptRef, Lease)> },
}

/// An attempt in flight, with what its runner keeps about it.
#[derive(Debug)]
pub struct InFlight<T> {
    executor: ExecutorKind,
    /// When its program was started. Compact: a runner may have many attempts in flight.
    started_at: Option<NonZeroU64>,
    value: T,
}

impl<T> InFlight<T> {
    pub fn new(executor: ExecutorKind, value: T) -> Self {
        Self { executor, started_at: None, value }
    }

    /// An attempt whose program runs since `started_at`.
    pub fn started(executor: ExecutorKind, started_at: Millis, value: T) -> Self {
        Self { executor, started_at: NonZeroU64::new(started_at.0), value }
    }

    pub fn executor(&self) -> ExecutorKind {
        self.executor
    }

    pub fn value(&self) -> &T {
        &self.value
    }
}

/// All times are the runner's own steady clock.
#[derive(Debug)]
pub struct RunnerEnd<T> {
    runner: RunnerId,
    incarnation: Incarnation,
    capacity: Capacity,
    profile: Arc<Profile>,
    /// Newest session of the shard; messages of older ones are ignored.
    session: Session,
    /// Sequence of the last message obeyed in that session.
    received: u64,
    /// The message after it.
    next: Option<(Millis, ShardMessage)>,
    /// Later messages, by sequence.
    early: BTreeMap<u64, (Millis, ShardMessage)>,
    /// Attempts whose ends are committed.
    committed: Vec<AttemptRef>,
    /// Messages that the shard has not committed.
    outbox: Outbox<RunnerMessage>,
    /// Messages up to this sequence are under way.
    transmitted: u64,
    /// An unacknowledged registration was replaced by one that answers this request. The shard may have seen the old one
    /// only.
    register_again: Option<u64>,
    /// Attempts whose end is in the outbox.
    ended: HashSet<AttemptRef, Hasher>,
    in_flight: HashMap<AttemptRef, InFlight<T>, Hasher>,
    leases: Leases,
    /// Leases that were renewed and not passed on yet.
    renewed: Vec<(AttemptRef, Lease)>,
    /// Attempts in flight per executor.
    counts: [u32; ExecutorKind::ALL.len()],
    /// The shard waits for an acknowledgement.
    owes_header: bool,
    heartbeat_at: Millis,
}

impl<T> RunnerEnd<T> {
    /// The first message registers the runner with `adopted`, the attempts of earlier incarnations that are in flight.
    pub fn new(
        now: Millis,
        (runner, incarnation): (RunnerId, Incarnation),
        capacity: Capacity,
        profile: Arc<Profile>,
        adopted: impl IntoIterator<Item = (AttemptRef, InFlight<T>)>,
    ) -> Self {
        let mut end = Self {
            runner,
            incarnation,
            capacity,
            profile,
            session: Session { epoch: Epoch(0), number: 0 },
            received: 0,
            next: None,
            early: BTreeMap::new(),
            committed: Vec::new(),
            outbox: Outbox::default(),
            transmitted: 0,
            register_again: None,
            ended: HashSet::default(),
            in_flight: HashMap::default(),
            leases: Leases::default(),
            renewed: Vec::new(),
            counts: [0; ExecutorKind::ALL.len()],
            owes_header: false,
            heartbeat_at: now,
        };
        for (attempt_ref, attempt) in adopted {
            end.add(attempt_ref, attempt);
        }
        end.send_register(now, 0);
        end
    }

    /// Takes a message of the shard, which must be addressed to this incarnation of the runner. Then
    /// [`RunnerEnd::next_action`] tells what to do.
    pub fn receive(&mut self, now: Millis, message: ToRunner) {
        let session = message.session();
        if session < self.session {
            return;
        }
        if session > self.session {
            (self.session, self.received) = (session, 0);
            self.next = None;
            self.early.clear();
        }
        match message {
            ToRunner::Committed { sequence, .. } => self.acknowledged(now, sequence),
            ToRunner::Renewed { heard, .. } => self.renewed.extend(self.leases.renew(heard)),
            ToRunner::Message { sequence, heard, message, .. } => {
                self.owes_header = true;
                if sequence == self.received + 1 {
                    self.next = Some((heard, message));
                } else if sequence > self.received && sequence - self.received <= EARLY_MAX {
                    self.early.insert(sequence, (heard, message));
                }
            }
        }
    }

    /// What to do about the messages received so far, one action after the other. Each one must be carried out before
    /// the next call: whether an attempt is in flight decides about the message after it.
    pub fn next_action(&mut self, now: Millis) -> Option<Action> {
        if !self.committed.is_empty() {
            return Some(Action::Committed { attempts: std::mem::take(&mut self.committed) });
        }
        if !self.renewed.is_empty() {
            return Some(Action::Renewed { leases: std::mem::take(&mut self.renewed) });
        }
        loop {
            let next = self.next.take().or_else(|| self.early.remove(&(self.received + 1)));
            let (heard, message) = next?;
            self.received += 1;
            if let Some(action) = self.obey(now, heard, message) {
                return Some(action);
            }
        }
    }

    /// The shard has committed the messages up to a sequence.
    fn acknowledged(&mut self, now: Millis, sequence: u64) {
        let (ended, attempts) = (&mut self.ended, &mut self.committed);
        let mut registered = false;
        self.outbox.acknowledge(now, sequence, |message| match message {
            RunnerMessage::Ended { attempt_ref, .. } => {
                ended.remove(&attempt_ref);
                attempts.push(attempt_ref);
            }
            RunnerMessage::Register { .. } => registered = true,
            RunnerMessage::Accepted { .. } | RunnerMessage::Started { .. } => {}
        });
        if registered && let Some(request) = self.register_again.take() {
            self.send_register(now, request);
        }
    }

    fn obey(&mut self, now: Millis, heard: Millis, message: ShardMessage) -> Option<Action> {
        match message {
            ShardMessage::Run { attempt_ref, .. } if self.is_known(attempt_ref) => None,
            ShardMessage::Run { attempt_ref, valid_for, .. } if now.saturating_sub(heard) > valid_for => {
                // The shard may have given it up already.
                self.send_ended(now, attempt_ref, Outcome::of(End::Busy));
                None
            }
            ShardMessage::Run { attempt_ref, lease: Some(lease), .. } if heard + lease <= now => {
                self.send_ended(now, attempt_ref, Outcome::of(End::Busy));
                None
            }
            ShardMessage::Run { attempt_ref, spec, constraints, lease, .. } => {
                let lease = lease.map(|duration| Lease::granted(heard, duration));
                Some(Action::Run { attempt_ref, spec, constraints, lease })
            }
            ShardMessage::Stop { attempt_ref } if self.is_in_flight(attempt_ref) => Some(Action::Stop { attempt_ref }),
            ShardMessage::Stop { attempt_ref } if self.is_known(attempt_ref) => None,
            ShardMessage::Stop { attempt_ref } => {
                self.send_ended(now, attempt_ref, Outcome::of(End::Stopped));
                None
            }
            ShardMessage::Inventory { request } => {
                self.transmitted = 0;
                self.send_register(now, request);
                None
            }
        }
    }

    /// Whether the attempt is in flight, or has ended and the shard may not know it yet.
    pub fn is_known(&self, attempt_ref: AttemptRef) -> bool {
        self.in_flight.contains_key(&attempt_ref) || self.ended.contains(&attempt_ref)
    }

    pub fn is_in_flight(&self, attempt_ref: AttemptRef) -> bool {
        self.in_flight.contains_key(&attempt_ref)
    }

    pub fn get_mut(&mut self, attempt_ref: AttemptRef) -> Option<&mut T> {
        self.in_flight.get_mut(&attempt_ref).map(|attempt| &mut attempt.value)
    }

    pub fn in_flight(&self) -> impl Iterator<Item = (AttemptRef, &InFlight<T>)> {
        self.in_flight.iter().map(|(attempt_ref, attempt)| (*attempt_ref, attempt))
    }

    /// Attempts whose end the shard has not committed.
    pub fn ended(&self) -> impl Iterator<Item = AttemptRef> {
        self.ended.iter().copied()
    }

    /// Sequence of the newest message.
    pub fn last_sequence(&self) -> u64 {
        self.outbox.last()
    }

    /// Sequence of the oldest message that the shard has not acknowledged, or of the next one if there is none.
    pub fn oldest_unacknowledged(&self) -> u64 {
        self.outbox.oldest()
    }

    /// Ends after a sequence that the shard has not acknowledged, with their sequences, oldest first.
    pub fn unacknowledged_ends(&self, after: u64) -> impl Iterator<Item = (u64, AttemptRef, &Outcome)> {
        self.outbox.after(after).filter_map(|(sequence, message)| match message {
            RunnerMessage::Ended { attempt_ref, outcome } => Some((sequence, *attempt_ref, &**outcome)),
            RunnerMessage::Register { .. } | RunnerMessage::Accepted { .. } | RunnerMessage::Started { .. } => None,
        })
    }

    pub fn has_free_slot(&self, executor: ExecutorKind) -> bool {
        self.counts[executor as usize] < self.capacity.of(executor)
    }

    /// The attempt has a slot.
    pub fn add(&mut self, attempt_ref: AttemptRef, attempt: InFlight<T>) {
        self.counts[attempt.executor as usize] += 1;
        self.in_flight.insert(attempt_ref, attempt);
    }

    /// The attempt, which is in flight, has a lease.
    pub fn hold_lease(&mut self, attempt_ref: AttemptRef, lease: Lease) {
        debug_assert!(self.is_in_flight(attempt_ref), "only an attempt in flight has a lease");
        self.leases.insert(attempt_ref, lease);
    }

    /// The lease of an attempt in flight that has not run out.
    pub fn lease(&self, attempt_ref: AttemptRef) -> Option<Lease> {
        self.leases.get(attempt_ref)
    }

    /// When the next lease runs out.
    pub fn next_expiry(&self) -> Option<Millis> {
        self.leases.next_expiry()
    }

    /// Attempts whose lease has run out, each one once: they must be killed at once. They stay in flight until their end
    /// is sent.
    pub fn take_expired(&mut self, now: Millis) -> Vec<AttemptRef> {
        self.leases.take_expired(now)
    }

    /// Registers again if the capacity has changed.
    pub fn set_capacity(&mut self, now: Millis, capacity: Capacity) {
        if self.capacity != capacity {
            self.capacity = capacity;
            self.send_register(now, 0);
        }
    }

    /// The attempt has a slot; its program is being set up.
    pub fn send_accepted(&mut self, now: Millis, attempt_ref: AttemptRef) {
        self.outbox.push(now, RunnerMessage::Accepted { attempt_ref });
    }

    /// The attempt's program was started; `at` is the time on the wall clock.
    pub fn send_started(&mut self, now: Millis, attempt_ref: AttemptRef, at: Millis) {
        if let Some(attempt) = self.in_flight.get_mut(&attempt_ref) {
            attempt.started_at = attempt.started_at.or(NonZeroU64::new(now.0));
        }
        self.outbox.push(now, RunnerMessage::Started { attempt_ref, at });
    }

    pub fn send_ended(&mut self, now: Millis, attempt_ref: AttemptRef, outcome: Outcome) {
        if let Some(attempt) = self.in_flight.remove(&attempt_ref) {
            self.counts[attempt.executor as usize] -= 1;
            self.leases.remove(attempt_ref);
        }
        // A declined attempt may be dispatched again.
        if outcome.end != End::Busy {
            self.ended.insert(attempt_ref);
        }
        self.outbox.push(now, RunnerMessage::Ended { attempt_ref, outcome: Box::new(outcome) });
    }

    /// Answers an inventory request, or registers unasked (request 0). A registration that is the newest message is
    /// replaced, so that they do not accumulate while the shard cannot be reached; the new one answers its request.
    fn send_register(&mut self, now: Millis, request: u64) {
        let unacknowledged = match self.outbox.newest_mut() {
            Some(RunnerMessage::Register { request, .. }) => Some(*request),
            _ => None,
        };
        let request = request.max(unacknowledged.unwrap_or(0));
        let report = |(attempt_ref, attempt): (&AttemptRef, &InFlight<T>)| ReportedAttempt {
            attempt_ref: *attempt_ref,
            running_for: attempt.started_at.map(|started_at| now.saturating_sub(Millis(started_at.get()))),
        };
        let mut in_flight: Vec<ReportedAttempt> = self.in_flight.iter().map(report).collect();
        in_flight.sort_unstable_by_key(|reported| reported.attempt_ref);
        let (capacity, profile, oldest_kept) = (self.capacity, self.profile.clone(), self.outbox.oldest());
        let register = RunnerMessage::Register { capacity, profile, in_flight, request, oldest_kept };
        if let Some(newest @ RunnerMessage::Register { .. }) = self.outbox.newest_mut() {
            *newest = register;
            self.register_again = Some(request);
            self.transmitted = self.transmitted.min(self.outbox.last() - 1);
        } else {
            self.outbox.push(now, register);
        }
    }

    /// The next frame to send, if anything is due. Call it until there is none.
    pub fn poll(&mut self, now: Millis) -> Option<RunnerFrame> {
        if self.outbox.take_retransmission(now) {
            self.transmitted = 0;
        }
        let (runner, incarnation) = (self.runner, self.incarnation);
        let unsent = self.outbox.after(self.transmitted).take(FRAME_MESSAGES_MAX);
        let messages: Vec<FromRunner> = unsent
            .map(|(sequence, message)| FromRunner { runner, incarnation, sequence, message: message.clone() })
            .collect();
        if messages.is_empty() && !self.owes_header && now < self.heartbeat_at {
            return None;
        }
        if let Some(last) = messages.last() {
            self.transmitted = last.sequence;
        }
        self.owes_header = false;
        self.heartbeat_at = now + HEARTBEAT;
        let header = RunnerHeader { runner, incarnation, session: self.session, received: self.received, at: now };
        Some(RunnerFrame { header, messages })
    }

    /// When [`RunnerEnd::poll`] is due, if nothing happens before.
    pub fn poll_at(&self) -> Millis {
        self.outbox.retransmit_at().map_or(self.heartbeat_at, |at| at.min(self.heartbeat_at))
    }
}
