//! A few shards with disks, a network that does everything a network may do, and what must hold after every event.

use std::collections::BTreeMap;

use engine::leases::{Kind, Leases, Message, Outbox, Record, Scope};
use model::codec;
use model::id::{Epoch, ShardId, Shards};
use model::time::Millis;

/// When a shard dies in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    Never,
    BeforeCommit,
    BeforeMessages,
    AfterMessages,
}

/// What is on a shard's disk.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    pub ledger: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Jobs with a slot.
    pub used: u32,
    /// Jobs that wait for one.
    pub waiting: u32,
}

/// A shard's memory. What is not committed yet is here only.
#[derive(Debug)]
struct Memory {
    leases: Leases,
    used: u32,
    waiting: u32,
}

#[derive(Debug, Default)]
struct Place {
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
    /// The largest limit there has been.
    pub limit_max: u32,
    places: Vec<Place>,
    /// From, to, what.
    pub network: Vec<(usize, usize, Message)>,
}

impl World {
    pub fn new(shards: u16, tenant: &str, limit: u32) -> Self {
        let scope = Scope::of_tenant(Kind::Running, tenant);
        Self {
            scope,
            shards: Shards::new(shards).expect("a number of shards"),
            now: Millis(1_000_000),
            limit,
            limit_max: limit,
            places: (0..shards).map(|_| Place::default()).collect(),
            network: Vec::new(),
        }
    }

    pub fn count(&self) -> usize {
        self.places.len()
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
        self.places[shard].started
    }

    pub fn used(&self) -> Vec<u32> {
        self.places.iter().map(|place| place.disk.used).collect()
    }

    pub fn used_in_all(&self) -> u32 {
        self.used().iter().sum()
    }

    pub fn crash(&mut self, shard: usize) {
        self.places[shard].memory = None;
    }

    fn restart(&mut self, shard: usize) {
        let (shards, scope, now) = (self.shards, self.scope, self.now);
        let place = &mut self.places[shard];
        place.epoch += 1;
        let mut leases = Leases::new(ShardId(shard as u16), shards, Epoch(place.epoch));
        for (key, value) in &place.disk.ledger {
            leases.restore_ledger(key, value).expect("it was written by a home");
        }
        if place.disk.used > 0 {
            leases.restore_use(scope, place.disk.used);
        }
        leases.tick(now);
        let mut memory = Memory { leases, used: place.disk.used, waiting: place.disk.waiting };
        place.started += u64::from(memory.start_jobs(scope, self.limit));
        place.memory = Some(memory);
    }

    /// One step of a shard: hears `heard` (places in the network), ends `ends` jobs, gets `comes` new ones, and drops
    /// all but `keeps` of those that wait.
    pub fn step(&mut self, shard: usize, heard: &[usize], ends: u32, comes: u32, keeps: u32, crash: Crash) {
        if self.places[shard].memory.is_none() {
            self.restart(shard);
        }
        let words = self.arrived(shard, heard);
        let (scope, limit, now) = (self.scope, self.limit, self.now);
        let place = &mut self.places[shard];
        let memory = place.memory.as_mut().expect("it was restarted if it was down");
        memory.leases.tick(now);
        for (from, word) in &words {
            memory.leases.handle(ShardId(*from as u16), word);
        }
        for _ in 0..ends.min(memory.used) {
            memory.used -= 1;
            memory.leases.give_back(scope);
        }
        memory.waiting = memory.waiting.saturating_add(comes).min(keeps.max(comes));
        // Those that wait look again only when they come, and when they are told that there is something.
        let mut started = if comes > 0 { memory.start_jobs(scope, limit) } else { 0 };
        memory.leases.set_waiting(scope, limit, memory.waiting);
        if memory.leases.freed().contains(&scope) {
            started += memory.start_jobs(scope, limit);
        }
        let mut outbox = Outbox::default();
        memory.leases.flush(&mut outbox);
        assert_eq!(memory.leases.used(scope), memory.used);
        if crash == Crash::BeforeCommit {
            place.memory = None;
            return;
        }
        place.started += u64::from(started);
        place.disk.used = memory.used;
        place.disk.waiting = memory.waiting;
        for (key, value) in outbox.writes {
            match value {
                Some(value) => place.disk.ledger.insert(key.to_vec(), value),
                None => place.disk.ledger.remove(key.as_slice()),
            };
        }
        if crash != Crash::Never {
            place.memory = None;
        }
        if crash != Crash::BeforeMessages {
            let words = outbox.messages.into_iter().map(|(to, word)| (shard, usize::from(to.0), word));
            self.network.extend(words);
        }
    }

    /// Takes those of the chosen words that are for `shard` off the network, through their encoding.
    fn arrived(&mut self, shard: usize, heard: &[usize]) -> Vec<(usize, Message)> {
        let mut words = Vec::new();
        for index in heard {
            let for_it: Vec<usize> = (0..self.network.len()).filter(|index| self.network[*index].1 == shard).collect();
            if for_it.is_empty() {
                break;
            }
            let (from, _, word) = self.network.remove(for_it[index % for_it.len()]);
            words.push((from, codec::decode(&codec::encode(&word)).expect("words survive the way")));
        }
        words
    }

    /// What the home's disk says that a shard was granted.
    pub fn recorded(&self, shard: usize) -> u32 {
        let key = self.scope.ledger_key(ShardId(shard as u16));
        let value = self.places[self.home()].disk.ledger.get(key.as_slice());
        value.map_or(0, |value| codec::decode::<Record>(value).expect("records can be read").total)
    }

    /// How many slots a shard may use without asking anyone; the home only what it does use.
    fn believed(&self, shard: usize) -> u32 {
        let place = &self.places[shard];
        let granted = place.memory.as_ref().map_or(0, |memory| memory.leases.granted(self.scope));
        granted.max(place.disk.used)
    }

    pub fn invariants(&self) {
        let home = self.home();
        assert!(self.used_in_all() <= self.limit_max, "{:?} in use, limit {}", self.used(), self.limit_max);
        // Not the sum of the records: a late ask, heard by a home that has forgotten newer ones, may leave one of what
        // nobody has. It grants nothing to anyone, and the holder puts it right when it is asked.
        let believed: u32 = (0..self.count()).map(|shard| self.believed(shard)).sum();
        assert!(believed <= self.limit_max, "{believed} believed in, limit {}", self.limit_max);
        for (shard, place) in self.places.iter().enumerate().filter(|(shard, _)| *shard != home) {
            assert!(place.disk.used <= self.recorded(shard), "shard {shard} uses more than the home knows of");
            if let Some(memory) = &place.memory {
                assert!(self.believed(shard) <= self.recorded(shard), "shard {shard} believes in too much");
                assert!(memory.used <= self.believed(shard));
            }
        }
    }

    /// All shards take a step with all that has arrived, and nothing goes wrong. Each ends up to `ends` jobs.
    pub fn round(&mut self, ends: u32, comes: u32, keeps: u32) {
        for shard in 0..self.count() {
            let heard = vec![0; self.network.len()];
            self.step(shard, &heard, ends, comes, keeps, Crash::Never);
            self.invariants();
        }
    }

    /// When something is due next, if ever.
    pub fn next_event(&self) -> Option<Millis> {
        let soon = self.now + Millis(1);
        if !self.network.is_empty() || self.places.iter().any(|place| place.memory.is_none()) {
            return Some(soon);
        }
        let ticks = self.places.iter().filter_map(|place| place.memory.as_ref()?.leases.next_tick());
        ticks.min().map(|at| at.max(soon))
    }

    /// Rounds at the times when something is due, until `done` or until `within` has passed. No jobs come or end.
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

    /// Nothing is on any disk, and nothing but the count of words in any memory.
    pub fn is_empty(&self) -> bool {
        self.places.iter().all(|place| {
            let memory = place.memory.as_ref().is_some_and(|memory| memory.leases.scopes() == 0);
            memory && place.disk.ledger.is_empty() && place.disk.used == 0
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
