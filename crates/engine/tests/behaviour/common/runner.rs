//! A runner that keeps to the protocol and does nothing by itself: the test says what becomes of attempts.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use model::id::{Incarnation, RunnerId};
use model::job::{End, Outcome};
use model::json::Json;
use model::message::{Capacity, FromRunner, Profile, RunnerWord, Ticket, ToRunner};
use model::time::Millis;

#[derive(Debug)]
pub struct Runner {
    id: RunnerId,
    pub incarnation: Incarnation,
    capacity: Capacity,
    pub profile: Arc<Profile>,
    sequence: u64,
    /// What is not known to be committed.
    outbox: VecDeque<FromRunner>,
    pub in_hand: BTreeSet<Ticket>,
    started: BTreeSet<Ticket>,
    pub to_stop: BTreeSet<Ticket>,
    finished: BTreeSet<Ticket>,
}

impl Runner {
    pub fn new(id: RunnerId, incarnation: Incarnation, capacity: Capacity) -> Self {
        Self {
            id,
            incarnation,
            capacity,
            profile: Arc::default(),
            sequence: 0,
            outbox: VecDeque::new(),
            in_hand: BTreeSet::new(),
            started: BTreeSet::new(),
            to_stop: BTreeSet::new(),
            finished: BTreeSet::new(),
        }
    }

    /// The next incarnation, which finds these attempts alive.
    pub fn restarted(&self, capacity: Capacity, keeps: &[Ticket]) -> Self {
        let mut next = Self::new(self.id, Incarnation(self.incarnation.0 + 1), capacity);
        next.profile = self.profile.clone();
        next.in_hand = keeps.iter().copied().collect();
        next.started = self.started.iter().copied().filter(|ticket| keeps.contains(ticket)).collect();
        next
    }

    fn say(&mut self, word: RunnerWord) -> FromRunner {
        self.sequence += 1;
        let said = FromRunner { runner: self.id, incarnation: self.incarnation, sequence: self.sequence, word };
        self.outbox.push_back(said.clone());
        said
    }

    pub fn here(&mut self, question: u64) -> FromRunner {
        let oldest_kept = self.outbox.front().map_or(self.sequence + 1, |oldest| oldest.sequence);
        let holding = self.in_hand.iter().copied().collect();
        let (capacity, profile) = (self.capacity, self.profile.clone());
        self.say(RunnerWord::Here { capacity, profile, holding, question, oldest_kept })
    }

    pub fn set_capacity(&mut self, capacity: Capacity) {
        self.capacity = capacity;
    }

    pub fn start(&mut self, ticket: Ticket, at: Millis) -> FromRunner {
        self.started.insert(ticket);
        self.say(RunnerWord::Started { ticket, at })
    }

    pub fn has_started(&self, ticket: Ticket) -> bool {
        self.started.contains(&ticket)
    }

    pub fn end(&mut self, ticket: Ticket, at: Millis, end: End) -> FromRunner {
        self.end_with(ticket, at, Outcome { result: Some(Json::of(&ticket.attempt.0)), ..Outcome::of(end) })
    }

    pub fn end_with(&mut self, ticket: Ticket, at: Millis, outcome: Outcome) -> FromRunner {
        self.in_hand.remove(&ticket);
        self.to_stop.remove(&ticket);
        self.finished.insert(ticket);
        self.say(RunnerWord::Ended { ticket, at, outcome: Box::new(outcome) })
    }

    /// What it answers at once.
    pub fn hear(&mut self, message: ToRunner, now: Millis) -> Vec<FromRunner> {
        match message {
            ToRunner::Run { ticket, .. } => {
                if !self.finished.contains(&ticket) {
                    self.in_hand.insert(ticket);
                }
                Vec::new()
            }
            ToRunner::Stop { ticket } if self.in_hand.contains(&ticket) => {
                self.to_stop.insert(ticket);
                Vec::new()
            }
            ToRunner::Stop { ticket } if self.finished.contains(&ticket) => Vec::new(),
            ToRunner::Stop { ticket } => vec![self.end(ticket, now, End::Stopped)],
            ToRunner::Committed { sequence } => {
                self.outbox.retain(|word| word.sequence > sequence);
                Vec::new()
            }
            ToRunner::Inventory { question } => {
                let mut words: Vec<FromRunner> = self.outbox.iter().cloned().collect();
                words.push(self.here(question));
                words
            }
        }
    }
}
