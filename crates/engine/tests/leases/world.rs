//! A few shards with disks, an unreliable network, and the invariants after every event.

use std::collections::BTreeMap;

use engine::leases::{Leases, LimitKind, Message, Outbox, Record, Scope};
use model::codec;
use model::id::{Epoch, ShardId, Shards};
use model::time::Millis;

/// Time of a crash within a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    Never,
    BeforeCommit,
    BeforeMessages,
    AfterMessages,
}

/// Committed state of a shard.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    pub ledger: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Jobs with a slot.
    pub used: u32,
    /// Jobs that wait for a slot.
    pub waiting: u32,
}

/// A shard's memory, with uncommitted changes.
#[derive(Debug)]
struct Memory {
    leases: Leases,
    used: u32,
    waiting: u32,
}

#[derive(Debug, Default)]
struct ShardState {
    disk: Disk,
    memory: Option<Memory>,
    epoch: u64,
    /// Jobs started so far.
    started: u64,
}

pub struct World {
    pub scope: Scope,
    pub shards: Shards,
    pub now: Millis,
    pub limit: u32,
    /// The largest limit so far.
    pub limit_max: u32,
    states: Vec<ShardState>,
    /// Sender, receiver, message.
    pub network: Vec<(usize, usize, Message)>,
}

impl World {
    pub fn new(shards: u16, tenant: &str, limit: u32) -> Self {
        let scope = Scope::of_tenant(LimitKind::Running, tenant);
        Self {
            scope,
            shards: Shards::new(shards).expect("a number of shards"),
            now: Millis(1_000_000),
            limit,
            limit_max: limit,
            states: (0..shards).map(|_| ShardState::default()).collect(),
            network: Vec::new(),
        }
    }

    pub fn count(&self) -> usize {
        self.states.len()
    }

    pub fn home(&self) -> usize {
        usize::from(self.scope.home(self.shards).0)
    }

    /// A shard that is not the home.
    pub fn other(&self) -> usize {
        (self.home() + 1) % self.count()
    }

    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
        self.limit_max = self.limit_max.max(limit);
    }

    pub fn started(&self, shard: usize) -> u64 {
        self.states[shard].started
    }

    pub fn used(&self) -> Vec<u32> {
        self.states.iter().map(|state| state.disk.used).collect()
    }

    pub fn used_in_all(&self) -> u32 {
        self.used().iter().sum()
    }

    pub fn crash(&mut self, shard: usize) {
        self.states[shard].memory = None;
    }

    fn restart(&mut self, shard: usize) {
        let (shards, scope, now) = (self.shards, self.scope, self.now);
        let state = &mut self.states[shard];
        state.epoch += 1;
        let mut leases = Leases::new(ShardId(shard as u16), shards, Epoch(state.epoch));
        for (key, value) in &state.disk.ledger {
            leases.restore_ledger(key, value).expect("the ledger of the home can be read");
        }
        if state.disk.used > 0 {
            leases.restore_use(scope, state.disk.used);
        }
        leases.tick(now);
        let mut memory = Memory { leases, used: state.disk.used, waiting: state.disk.waiting };
        state.started += u64::from(memory.start_jobs(scope, self.limit));
        state.memory = Some(memory);
    }

    /// One step of a shard: receives the messages at the network positions `delivered`, ends `ends` jobs, gets
    /// `arrivals` new ones, and keeps at most `keeps` waiting jobs.
    pub fn step(&mut self, shard: usize, delivered: &[usize], ends: u32, arrivals: u32, keeps: u32, crash: Crash) {
        if self.states[shard].memory.is_none() {
            self.restart(shard);
        }
        let messages = self.arrived(shard, delivered);
        let (scope, limit, now) = (self.scope, self.limit, self.now);
        let state = &mut self.states[shard];
        let memory = state.memory.as_mut().expect("the shard is running");
        memory.leases.tick(now);
        for (from, message) in &messages {
            memory.leases.handle(ShardId(*from as u16), message);
        }
        for _ in 0..ends.min(memory.used) {
            memory.used -= 1;
            memory.leases.give_back(scope);
        }
        memory.waiting = memory.waiting.saturating_add(arrivals).min(keeps.max(arrivals));
        // Waiting jobs try to start on arrival, and when the scope reports freed slots.
        let mut started = if arrivals > 0 { memory.start_jobs(scope, limit) } else { 0 };
        memory.leases.set_waiting(scope, limit, memory.waiting);
        if memory.leases.freed().contains(&scope) {
            started += memory.start_jobs(scope, limit);
        }
        let mut outbox = Outbox::default();
        memory.leases.flush(&mut outbox);
        assert_eq!(memory.leases.used(scope), memory.used);
        if crash == Crash::BeforeCommit {
            state.memory = None;
            return;
        }
        state.started += u64::from(started);
        state.disk.used = memory.used;
        state.disk.waiting = memory.waiting;
        for (key, value) in outbox.writes {
            match value {
                Some(value) => state.disk.ledger.insert(key.to_vec(), value),
                None => state.disk.ledger.remove(key.as_slice()),
            };
        }
        if crash != Crash::Never {
            state.memory = None;
        }
        if crash != Crash::BeforeMessages {
            let messages = outbox.messages.into_iter().map(|(to, message)| (shard, usize::from(to.0), message));
            self.network.extend(messages);
        }
    }

    /// Takes the chosen messages for `shard` off the network, with an encoding round trip.
    fn arrived(&mut self, shard: usize, delivered: &[usize]) -> Vec<(usize, Message)> {
        let mut messages = Vec::new();
        for index in delivered {
            let for_it: Vec<usize> = (0..self.network.len()).filter(|index| self.network[*index].1 == shard).collect();
            if for_it.is_empty() {
                break;
            }
            let (from, _, message) = self.network.remove(for_it[index % for_it.len()]);
            messages.push((from, codec::decode(&codec::encode(&message)).expect("messages can be decoded")));
        }
        messages
    }

    /// Slots granted to a shard by the home's records.
    pub fn recorded(&self, shard: usize) -> u32 {
        let key = self.scope.ledger_key(ShardId(shard as u16));
        let value = self.states[self.home()].disk.ledger.get(key.as_slice());
        value.map_or(0, |value| codec::decode::<Record>(value).expect("records can be read").total)
    }

    /// Slots a shard may use without a request; for the home, its slots in use.
    fn usable(&self, shard: usize) -> u32 {
        let state = &self.states[shard];
        let granted = state.memory.as_ref().map_or(0, |memory| memory.leases.granted(self.scope));
        granted.max(state.disk.used)
    }

    pub fn invariants(&self) {
        let home = self.home();
        assert!(self.used_in_all() <= self.limit_max, "{:?} in use, limit {}", self.used(), self.limit_max);
        // Not the sum of the records: a late request to a restarted home may leave a record of slots that no holder
        // has. It grants nothing, and the holder corrects it at the next recall.
        let usable: u32 = (0..self.count()).map(|shard| self.usable(shard)).sum();
        assert!(usable <= self.limit_max, "{usable} usable slots, limit {}", self.limit_max);
        for (shard, state) in self.states.iter().enumerate().filter(|(shard, _)| *shard != home) {
            assert!(state.disk.used <= self.recorded(shard), "shard {shard} uses more than the home has recorded");
            if let Some(memory) = &state.memory {
                assert!(
                    self.usable(shard) <= self.recorded(shard),
                    "shard {shard} may use more than the home has recorded"
                );
                assert!(memory.used <= self.usable(shard));
            }
        }
    }

    /// A step of every shard with all messages and without faults. Each ends up to `ends` jobs.
    pub fn round(&mut self, ends: u32, arrivals: u32, keeps: u32) {
        for shard in 0..self.count() {
            let delivered = vec![0; self.network.len()];
            self.step(shard, &delivered, ends, arrivals, keeps, Crash::Never);
            self.invariants();
        }
    }

    /// Time of the next tick, if any.
    pub fn next_event(&self) -> Option<Millis> {
        let soon = self.now + Millis(1);
        if !self.network.is_empty() || self.states.iter().any(|state| state.memory.is_none()) {
            return Some(soon);
        }
        let ticks = self.states.iter().filter_map(|state| state.memory.as_ref()?.leases.next_tick());
        ticks.min().map(|at| at.max(soon))
    }

    /// Rounds at the due times, until `done` holds or `within` has passed. No jobs arrive or end.
    pub fn settle(&mut self, within: Millis, keeps: u32, done: impl Fn(&Self) -> bool) -> bool {
        let deadline = self.now + within;
        while !done(self) {
            match self.next_event() {
                Some(at) if at <= deadline => self.now = at,
                Some(_) | None => return false,
            }
            self.round(0, 0, keeps);
        }
        true
    }

    /// Whether no disk has records and no memory has scopes.
    pub fn is_empty(&self) -> bool {
        self.states.iter().all(|state| {
            let memory = state.memory.as_ref().is_some_and(|memory| memory.leases.scopes() == 0);
            memory && state.disk.ledger.is_empty() && state.disk.used == 0
        })
    }
}

impl Memory {
    fn start_jobs(&mut self, scope: Scope, limit: u32) -> u32 {
        let mut started = 0;
        while self.waiting > 0 && self.leases.take(scope, limit) {
            self.waiting -= 1;
            self.used += 1;
            started += 1;
        }
        self.leases.set_waiting(scope, limit, self.waiting);
        started
    }
}
