//! A runner that follows the protocol; the test decides the course of its attempts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::id::{Incarnation, RunnerId};
use model::job::{End, Outcome};
use model::json::Json;
use model::message::{
    AttemptRef, Capacity, FromRunner, Profile, ReportedAttempt, RunnerHeader, RunnerMessage, ShardMessage, ToRunner,
};
use model::time::Millis;

#[derive(Debug)]
pub struct Runner {
    id: RunnerId,
    pub incarnation: Incarnation,
    capacity: Capacity,
    pub profile: Arc<Profile>,
    sequence: u64,
    /// Unacknowledged messages.
    outbox: VecDeque<FromRunner>,
    pub in_flight: BTreeSet<AttemptRef>,
    /// With the time of their start.
    started: BTreeMap<AttemptRef, Millis>,
    pub now: Millis,
    pub to_stop: BTreeSet<AttemptRef>,
    finished: BTreeSet<AttemptRef>,
    /// Number of renewals of its leases.
    pub renewals: u32,
}

impl Runner {
    pub fn new(id: RunnerId, incarnation: Incarnation, capacity: Capacity) -> Self {
        Self {
            id,
            incarnation,
            capacity,
            profile: Arc::new(Profile { keeps_leases: true, ..Profile::default() }),
            sequence: 0,
            outbox: VecDeque::new(),
            in_flight: BTreeSet::new(),
            started: BTreeMap::new(),
            now: Millis(0),
            to_stop: BTreeSet::new(),
            finished: BTreeSet::new(),
            renewals: 0,
        }
    }

    /// The next incarnation, with these attempts alive.
    pub fn restarted(&self, capacity: Capacity, alive: &[AttemptRef]) -> Self {
        let mut next = Self::new(self.id, Incarnation(self.incarnation.0 + 1), capacity);
        next.profile = self.profile.clone();
        next.in_flight = alive.iter().copied().collect();
        next.now = self.now;
        next.started = self.started.clone();
        next.started.retain(|attempt_ref, _| alive.contains(attempt_ref));
        next
    }

    fn send(&mut self, message: RunnerMessage) -> FromRunner {
        self.sequence += 1;
        let message = FromRunner { runner: self.id, incarnation: self.incarnation, sequence: self.sequence, message };
        self.outbox.push_back(message.clone());
        message
    }

    pub fn register(&mut self, request: u64) -> FromRunner {
        let oldest_kept = self.outbox.front().map_or(self.sequence + 1, |oldest| oldest.sequence);
        let running_for = |of: &AttemptRef| self.started.get(of).map(|started_at| self.now - *started_at);
        let report = |of: &AttemptRef| ReportedAttempt { attempt_ref: *of, running_for: running_for(of) };
        let in_flight = self.in_flight.iter().map(report).collect();
        let (capacity, profile) = (self.capacity, self.profile.clone());
        self.send(RunnerMessage::Register { capacity, profile, in_flight, request, oldest_kept })
    }

    pub fn set_capacity(&mut self, capacity: Capacity) {
        self.capacity = capacity;
    }

    pub fn accept(&mut self, attempt_ref: AttemptRef) -> FromRunner {
        self.send(RunnerMessage::Accepted { attempt_ref })
    }

    pub fn start(&mut self, attempt_ref: AttemptRef, at: Millis) -> FromRunner {
        self.started.insert(attempt_ref, self.now);
        self.send(RunnerMessage::Started { attempt_ref, at })
    }

    pub fn has_started(&self, attempt_ref: AttemptRef) -> bool {
        self.started.contains_key(&attempt_ref)
    }

    pub fn end(&mut self, attempt_ref: AttemptRef, end: End) -> FromRunner {
        self.end_with(attempt_ref, Outcome { result: Some(Json::of(&attempt_ref.attempt.0)), ..Outcome::of(end) })
    }

    pub fn end_with(&mut self, attempt_ref: AttemptRef, outcome: Outcome) -> FromRunner {
        self.in_flight.remove(&attempt_ref);
        self.to_stop.remove(&attempt_ref);
        self.finished.insert(attempt_ref);
        self.send(RunnerMessage::Ended { attempt_ref, outcome: Box::new(outcome) })
    }

    /// The header that acknowledges a message.
    pub fn header(&self, message: &ToRunner, at: Millis) -> Option<RunnerHeader> {
        let (runner, incarnation) = (self.id, self.incarnation);
        match message {
            ToRunner::Message { session, sequence, .. } => {
                Some(RunnerHeader { runner, incarnation, session: *session, received: *sequence, at })
            }
            ToRunner::Committed { .. } | ToRunner::Renewed { .. } => None,
        }
    }

    /// Handles a message; returns the immediate answers.
    pub fn receive(&mut self, message: ToRunner) -> Vec<FromRunner> {
        match message {
            ToRunner::Committed { sequence, .. } => {
                self.outbox.retain(|message| message.sequence > sequence);
                Vec::new()
            }
            ToRunner::Renewed { .. } => {
                self.renewals += 1;
                Vec::new()
            }
            ToRunner::Message { message, .. } => self.obey(message),
        }
    }

    pub fn obey(&mut self, message: ShardMessage) -> Vec<FromRunner> {
        match message {
            ShardMessage::Run { attempt_ref, .. } => {
                if !self.finished.contains(&attempt_ref) {
                    self.in_flight.insert(attempt_ref);
                }
                Vec::new()
            }
            ShardMessage::Stop { attempt_ref } if self.in_flight.contains(&attempt_ref) => {
                self.to_stop.insert(attempt_ref);
                Vec::new()
            }
            ShardMessage::Stop { attempt_ref } if self.finished.contains(&attempt_ref) => Vec::new(),
            ShardMessage::Stop { attempt_ref } => vec![self.end(attempt_ref, End::Stopped)],
            ShardMessage::Inventory { request } => {
                let mut messages: Vec<FromRunner> = self.outbox.iter().cloned().collect();
                messages.push(self.register(request));
                messages
            }
        }
    }
}
