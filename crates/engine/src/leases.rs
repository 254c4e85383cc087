//! Limits that hold across shards: a tenant's home shard grants slots and tokens to the other shards.
//!
//! A plain data structure, one per shard. It does not know jobs: the shard reports what is taken and given back. One
//! step:
//!
//! 1. [`Leases::tick`] with the time, always first;
//! 2. [`Leases::handle`] for each received [`Message`], and [`Leases::take`], [`Leases::give_back`] and
//!    [`Leases::set_waiting`] for jobs, in any order;
//! 3. [`Leases::freed`]: the scopes whose waiters may retry. For each, `take` until it returns false or nothing waits,
//!    then `set_waiting` with the number still waiting;
//! 4. [`Leases::flush`], once: the writes go into the step's batch (`Keyspace::Grants`), together with the records of
//!    the jobs that took and gave back;
//! 5. the commit, fenced by the epoch; without writes, a confirmation that the epoch is still the newest: a superseded
//!    owner must not send any message;
//! 6. only then the messages. Any of them may be lost.
//!
//! The next step is due at [`Leases::next_tick`] at the latest. After a failed commit this memory is discarded with the
//! shard's. After a start: [`Leases::new`], [`Leases::restore_ledger`] for every record, then [`Leases::restore_use`]
//! for every scope with jobs, derived from the jobs' records; then steps.
//!
//! **Slots.** Use never exceeds the limit: a holder uses at most what it was granted; the home commits its record
//! before it sends the grant, so that the record is never below what the holder, in any epoch, believes it was granted;
//! the home grants only while its own use plus all records stay within the limit. Only the holder's own message, an
//! absolute number, lowers a record. Each message is fenced by the holder's epoch and a sequence number, both part of
//! the record, so that a late message cannot override a newer one even after a restart of the home. A holder that lost
//! its memory is found by a [`Recall`]: silent holders are checked from time to time, and sooner while others wait. The
//! limit is the one in the latest request. If it is lowered below the use, nothing is granted until the use has
//! dropped. While shards disagree on a limit, it may alternate between the two values.
//!
//! **Tokens** are handed out, at most the limit in any second, and expire. In any second all shards together use at
//! most twice the limit, the home's own jobs alone at most the limit; see [`tokens`]. In the first second after its
//! start a home hands out none.
//!
//! **Fairness.** If demand exceeds the limit, all requesting shards get equal shares. Shards above their share get no
//! new slots and must return the excess as slots become free. With fewer slots than shards, the slots rotate.

use std::collections::BTreeSet;

use model::codec::{self, DecodeError};
use model::id::{Epoch, ShardId, Shards};
use model::time::Millis;

use crate::shard::Map;

mod fair;
mod holder;
mod home;
mod message;
mod role;
mod scope;
pub mod tokens;
mod window;

use holder::Holder;
use home::Home;
pub use message::{Grant, LeaseRequest, Message, Recall, Record};
use role::{Context, FlushResult, Role, ScopeState};
pub use scope::{LEDGER_KEY_BYTES, LimitKind, Scope};
use tokens::TokenHome;
use window::TOKEN_WINDOW;

/// An unanswered request for slots is repeated after this time, with a new number; so is a recall while others wait.
pub const RETRY: Millis = Millis::from_secs(1);
/// A demand that was answered but not met is repeated after this time: a restarted home has forgotten it.
pub const REFRESH: Millis = Millis::from_secs(5);
/// The home drops a demand that was not repeated for this time.
pub const WANT_LIFETIME: Millis = Millis::from_secs(15);
/// Unused slots that no shard waits for are kept for one to two of these periods: most jobs then need no request.
pub const LINGER: Millis = Millis::from_secs(1);
/// With fewer slots than shards that demand one, a shard keeps its slot for at least this time.
pub const MIN_HOLD: Millis = Millis::from_secs(1);
/// A holder that was silent for this time is recalled.
pub const CHECK: Millis = Millis::from_secs(60);
/// The same while others wait for its slots.
pub const CHECK_CONTENDED: Millis = Millis::from_secs(5);
/// Maximum number of scopes woken by one tick. The rest follow in the next tick, which is due at once.
pub const WAKES_PER_TICK_MAX: usize = 10_000;
/// Beyond this number of scopes in memory, requests about further ones are ignored. Holders repeat them.
pub const SCOPES_MAX: usize = 1_000_000;

/// Output of a step. The writes go into the step's batch; the messages are sent after its commit.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Records of `Keyspace::Grants`; no value: delete.
    pub writes: Vec<([u8; LEDGER_KEY_BYTES], Option<Vec<u8>>)>,
    pub messages: Vec<(ShardId, Message)>,
}

/// All limits that a shard is home or holder of.
#[derive(Debug)]
pub struct Leases {
    shard: ShardId,
    epoch: Epoch,
    shards: Shards,
    now: Millis,
    started_at: Option<Millis>,
    last_seq: u64,
    entries: Map<Scope, ScopeState>,
    dirty: Vec<Scope>,
    freed: Vec<Scope>,
    wakes: BTreeSet<(Millis, Scope)>,
    /// Newest message of each shard about any scope dropped since. Older messages about an unknown scope may be late
    /// and are ignored; unanswered requests are repeated.
    forgotten: Map<ShardId, (Epoch, u64)>,
    scopes_max: usize,
}

impl Leases {
    pub fn new(shard: ShardId, shards: Shards, epoch: Epoch) -> Self {
        Self {
            shard,
            epoch,
            shards,
            now: Millis(0),
            started_at: None,
            last_seq: 0,
            entries: Map::default(),
            dirty: Vec::new(),
            freed: Vec::new(),
            wakes: BTreeSet::new(),
            forgotten: Map::default(),
            scopes_max: SCOPES_MAX,
        }
    }

    /// Restores a record of `Keyspace::Grants`.
    pub fn restore_ledger(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        let (scope, shard) = Scope::from_ledger_key(key)?;
        let record = codec::decode::<Record>(value)?;
        match &mut self.entry_untouched(scope).role {
            Role::Home(home) => home.restore_record(shard, record),
            Role::Holder(_) | Role::TokenHome(_) | Role::TokenHolder(_) => {
                return Err(DecodeError::Malformed("grant record on a shard that is not the home".into()));
            }
        }
        self.wake(scope, Some(Millis(0)));
        Ok(())
    }

    /// Restores the number of slots in use, derived from this shard's records. Not for tokens.
    pub fn restore_use(&mut self, scope: Scope, used: u32) {
        match &mut self.entry_untouched(scope).role {
            Role::Home(home) => home.restore(used),
            Role::Holder(holder) => holder.restore(used),
            Role::TokenHome(_) | Role::TokenHolder(_) => {}
        }
        self.wake(scope, Some(Millis(0)));
    }

    /// The first call of every step. Time never goes back.
    pub fn tick(&mut self, now: Millis) {
        self.now = self.now.max(now);
        self.started_at.get_or_insert(self.now);
        for _ in 0..WAKES_PER_TICK_MAX {
            let Some(first) = self.wakes.first().filter(|(at, _)| *at <= self.now).copied() else { break };
            self.wakes.remove(&first);
            if let Some(entry) = self.entries.get_mut(&first.1) {
                entry.wake_at = None;
                self.touch(first.1);
            }
        }
    }

    /// Deadline of the next step. A time not after now: at once.
    pub fn next_tick(&self) -> Option<Millis> {
        if self.dirty.is_empty() && self.freed.is_empty() {
            self.wakes.first().map(|(at, _)| *at)
        } else {
            Some(self.now)
        }
    }

    /// Takes a slot or a token, if available. Otherwise call [`Leases::set_waiting`], or none will be requested.
    pub fn take(&mut self, scope: Scope, limit: u32) -> bool {
        let now = self.now;
        let (taken, changed) = match &mut self.entry(scope).role {
            Role::Home(home) => {
                let changed = home.learn_limit(limit);
                (home.take(), changed)
            }
            Role::Holder(holder) => {
                let changed = holder.learn_limit(limit);
                (holder.take(), changed)
            }
            Role::TokenHome(home) => (home.take(limit, now), true),
            Role::TokenHolder(holder) => (holder.take(limit, now), true),
        };
        if changed {
            self.touch(scope);
        }
        taken
    }

    /// Whether [`Leases::take`] would succeed.
    pub fn can_take(&self, scope: Scope, limit: u32) -> bool {
        match self.entries.get(&scope).map(|entry| &entry.role) {
            Some(Role::Home(home)) => home.would_take(limit),
            Some(Role::Holder(holder)) => holder.would_take(limit),
            Some(Role::TokenHome(_) | Role::TokenHolder(_)) => false,
            None => limit > 0 && !scope.kind().is_token() && scope.home(self.shards) == self.shard,
        }
    }

    /// Whether this shard is the home of the scope: it needs no other shard to decide.
    pub fn is_home(&self, scope: Scope) -> bool {
        scope.home(self.shards) == self.shard
    }

    /// The first second after a start, in which no tokens are handed out.
    pub fn is_warming_up(&self) -> bool {
        self.started_at.is_none_or(|started| self.now < started + TOKEN_WINDOW)
    }

    /// Gives back a slot.
    pub fn give_back(&mut self, scope: Scope) {
        debug_assert!(!scope.kind().is_token(), "tokens are not given back");
        let Some(entry) = self.entries.get_mut(&scope) else { return };
        match &mut entry.role {
            Role::Home(home) => home.give_back(),
            Role::Holder(holder) => holder.give_back(),
            Role::TokenHome(_) | Role::TokenHolder(_) => return,
        }
        self.touch(scope);
    }

    /// Sets the number of waiting jobs, an absolute number. Call it again when the number or the limit changes.
    /// [`Leases::freed`] reports when they may retry.
    pub fn set_waiting(&mut self, scope: Scope, limit: u32, waiting: u32) {
        if waiting == 0 && !self.entries.contains_key(&scope) {
            return;
        }
        let changed = match &mut self.entry(scope).role {
            Role::Home(home) => home.learn_limit(limit) | home.set_waiting(waiting),
            Role::Holder(holder) => holder.learn_limit(limit) | holder.set_waiting(waiting),
            Role::TokenHome(home) => home.set_waiting(limit, waiting),
            Role::TokenHolder(holder) => holder.set_waiting(limit, waiting),
        };
        if changed {
            self.touch(scope);
        }
    }

    /// Handles a message of another shard. Late, duplicate and misdirected messages have no effect.
    pub fn handle(&mut self, from: ShardId, message: &Message) {
        let scope = message.scope();
        let home = scope.home(self.shards);
        if from == self.shard || from.0 >= self.shards.count() {
            return;
        }
        match message {
            // The past that an owner of an earlier generation reports about may be lost: its successor reports anew.
            Message::Request(request) if request.epoch.generation() < self.epoch.generation() => {}
            Message::Request(request) if home == self.shard => self.receive_request(from, request),
            Message::Grant(grant) if home == from && grant.epoch == self.epoch => self.receive_grant(grant),
            Message::Recall(recall) if home == from && recall.epoch <= self.epoch => self.receive_recall(recall),
            Message::Request(_) | Message::Grant(_) | Message::Recall(_) => {}
        }
    }

    fn receive_request(&mut self, from: ShardId, request: &LeaseRequest) {
        let is_full = self.entries.len() >= self.scopes_max && !self.entries.contains_key(&request.scope);
        let is_late = self.forgotten.get(&from).is_some_and(|newest| (request.epoch, request.seq) <= *newest);
        let now = self.now;
        if is_full {
            return;
        }
        let changed = match &mut self.entry(request.scope).role {
            Role::Home(home) => (!is_late || home.knows(from)) && home.receive_request(from, request, now),
            Role::TokenHome(home) => home.receive_request(from, request, now),
            Role::Holder(_) | Role::TokenHolder(_) => false,
        };
        if changed {
            self.touch(request.scope);
        }
    }

    fn receive_grant(&mut self, grant: &Grant) {
        let Some(entry) = self.entries.get_mut(&grant.scope) else { return };
        match &mut entry.role {
            Role::Holder(holder) => holder.receive_grant(grant),
            Role::TokenHolder(holder) => holder.receive_grant(grant),
            Role::Home(_) | Role::TokenHome(_) => return,
        }
        self.touch(grant.scope);
    }

    /// An unknown scope is answered as well: the home has a record of slots that no shard holds.
    fn receive_recall(&mut self, recall: &Recall) {
        let epoch = self.epoch;
        if recall.scope.kind().is_token() {
            return;
        }
        if let Role::Holder(holder) = &mut self.entry(recall.scope).role {
            holder.receive_recall(recall, epoch);
            self.touch(recall.scope);
        }
    }

    /// Scopes whose waiters can be served, each once per change.
    pub fn freed(&mut self) -> Vec<Scope> {
        for scope in &self.dirty {
            let Some(entry) = self.entries.get_mut(scope).filter(|entry| entry.serve_pending) else { continue };
            entry.serve_pending = false;
            if let Role::Home(home) = &mut entry.role {
                home.distribute(self.now);
            }
            if entry.role.can_serve(self.now) {
                self.freed.push(*scope);
            }
        }
        std::mem::take(&mut self.freed)
    }

    /// Ends a step: collects writes and messages of all changed scopes. Call it once, before the commit.
    pub fn flush(&mut self, outbox: &mut Outbox) {
        for scope in std::mem::take(&mut self.dirty) {
            let Some(entry) = self.entries.get_mut(&scope) else { continue };
            entry.dirty = false;
            let served = !std::mem::take(&mut entry.serve_pending) && entry.role.can_serve(self.now);
            let mut context = Context {
                scope,
                home: scope.home(self.shards),
                epoch: self.epoch,
                now: self.now,
                last_seq: &mut self.last_seq,
                forgotten: &mut self.forgotten,
            };
            let result = entry.role.flush(&mut context, outbox);
            if !served && entry.role.can_serve(self.now) {
                self.freed.push(scope);
            }
            self.wake(scope, result.wake_at.map(|at| at.max(self.now + Millis(1))));
            if result.is_idle {
                self.wake(scope, None);
                self.entries.remove(&scope);
            }
        }
    }

    /// Slots of the scope in use on this shard, for comparison with its records.
    pub fn used(&self, scope: Scope) -> u32 {
        match self.entries.get(&scope).map(|entry| &entry.role) {
            Some(Role::Home(home)) => home.used(),
            Some(Role::Holder(holder)) => holder.used(),
            Some(Role::TokenHome(_) | Role::TokenHolder(_)) | None => 0,
        }
    }

    /// Slots granted to this shard by the home, as far as it knows.
    pub fn granted(&self, scope: Scope) -> u32 {
        match self.entries.get(&scope).map(|entry| &entry.role) {
            Some(Role::Holder(holder)) => holder.granted(),
            Some(Role::Home(_) | Role::TokenHome(_) | Role::TokenHolder(_)) | None => 0,
        }
    }

    /// Slots granted by this shard to others.
    pub fn granted_to_others(&self, scope: Scope) -> u64 {
        match self.entries.get(&scope).map(|entry| &entry.role) {
            Some(Role::Home(home)) => home.granted_to_others(),
            Some(Role::Holder(_) | Role::TokenHome(_) | Role::TokenHolder(_)) | None => 0,
        }
    }

    /// Number of scopes in memory. Idle scopes are dropped.
    pub fn scopes(&self) -> usize {
        self.entries.len()
    }

    /// The state of a scope. A new one is flushed at the end of the step, so that it is dropped if it stays idle.
    fn entry(&mut self, scope: Scope) -> &mut ScopeState {
        if !self.entries.contains_key(&scope) {
            self.entry_untouched(scope);
            self.touch(scope);
        }
        self.entry_untouched(scope)
    }

    /// The state of a scope. A new one is not flushed: after a restart there are too many for one step.
    fn entry_untouched(&mut self, scope: Scope) -> &mut ScopeState {
        let at_home = scope.home(self.shards) == self.shard;
        let opens_at = self.started_at.unwrap_or(self.now) + TOKEN_WINDOW;
        self.entries.entry(scope).or_insert_with(|| {
            let role = match (scope.kind().is_token(), at_home) {
                (false, true) => Role::Home(Box::new(Home::new())),
                (false, false) => Role::Holder(Box::new(Holder::new())),
                (true, true) => Role::TokenHome(Box::new(TokenHome::new(opens_at))),
                (true, false) => Role::TokenHolder(Box::default()),
            };
            ScopeState { role, dirty: false, serve_pending: false, wake_at: None }
        })
    }

    fn touch(&mut self, scope: Scope) {
        let Some(entry) = self.entries.get_mut(&scope) else { return };
        entry.serve_pending = true;
        if !entry.dirty {
            entry.dirty = true;
            self.dirty.push(scope);
        }
    }

    fn wake(&mut self, scope: Scope, at: Option<Millis>) {
        let Some(entry) = self.entries.get_mut(&scope).filter(|entry| entry.wake_at != at) else { return };
        if let Some(old) = std::mem::replace(&mut entry.wake_at, at) {
            self.wakes.remove(&(old, scope));
        }
        self.wakes.extend(at.map(|at| (at, scope)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARDS: u16 = 2;

    /// Scopes of which `shard` is the home.
    fn scopes_of(shard: ShardId) -> impl Iterator<Item = Scope> {
        let shards = Shards::new(SHARDS).unwrap();
        let scopes = (0..).map(|number| Scope::of_tenant(LimitKind::Running, &format!("tenant {number}")));
        scopes.filter(move |scope| scope.home(shards) == shard)
    }

    #[test]
    fn beyond_the_limit_requests_about_new_scopes_are_ignored() {
        let mut leases = Leases::new(ShardId(0), Shards::new(SHARDS).unwrap(), Epoch(1));
        leases.scopes_max = 3;
        leases.tick(Millis(1));
        let mut send = |scope, seq| {
            let request = LeaseRequest { scope, epoch: Epoch(1), seq, held: 0, want: 1, limit: Some(1) };
            leases.handle(ShardId(1), &Message::Request(request));
            let mut outbox = Outbox::default();
            leases.flush(&mut outbox);
            outbox.messages.len()
        };
        let scopes: Vec<Scope> = scopes_of(ShardId(0)).take(4).collect();
        assert_eq!([send(scopes[0], 1), send(scopes[1], 2), send(scopes[2], 3)], [1; 3]);
        assert_eq!(send(scopes[3], 4), 0, "one scope too many");
        assert_eq!(send(scopes[2], 5), 1, "known scopes are served");
    }

    #[test]
    fn a_late_message_about_a_dropped_scope_is_ignored() {
        let mut leases = Leases::new(ShardId(0), Shards::new(SHARDS).unwrap(), Epoch(1));
        leases.tick(Millis(1));
        let scope = scopes_of(ShardId(0)).next().unwrap();
        let mut outbox = Outbox::default();
        for (seq, want) in [(2, 0), (1, 5)] {
            let request = LeaseRequest { scope, epoch: Epoch(1), seq, held: 0, want, limit: Some(5) };
            leases.handle(ShardId(1), &Message::Request(request));
            leases.flush(&mut outbox);
        }
        assert_eq!((outbox.messages.len(), outbox.writes.len(), leases.scopes()), (1, 0, 0));
    }

    /// After a failover of the store the holder may have more than it had reported, in a past that is lost.
    #[test]
    fn a_late_message_from_before_a_failover_is_ignored() {
        let epoch = Epoch(4).next(1);
        let mut leases = Leases::new(ShardId(0), Shards::new(SHARDS).unwrap(), epoch);
        leases.tick(Millis(1));
        let scope = scopes_of(ShardId(0)).next().unwrap();
        let mut send = |epoch, seq| {
            let request = LeaseRequest { scope, epoch, seq, held: 0, want: 1, limit: Some(1) };
            leases.handle(ShardId(1), &Message::Request(request));
            let mut outbox = Outbox::default();
            leases.flush(&mut outbox);
            outbox.messages.len()
        };
        assert_eq!(send(Epoch(9), 5), 0);
        assert_eq!(send(epoch, 1), 1);
    }

    #[test]
    fn a_step_processes_only_changed_scopes() {
        let mut leases = Leases::new(ShardId(0), Shards::new(SHARDS).unwrap(), Epoch(1));
        leases.tick(Millis(1));
        let scopes: Vec<Scope> = scopes_of(ShardId(0)).take(1_000).collect();
        let mut outbox = Outbox::default();
        for scope in &scopes {
            assert!(leases.take(*scope, 5));
        }
        leases.flush(&mut outbox);
        assert_eq!((leases.dirty.len(), leases.wakes.len(), leases.scopes()), (0, 0, 1_000));
        leases.give_back(scopes[7]);
        assert_eq!(leases.dirty, [scopes[7]]);
        leases.flush(&mut outbox);
        assert_eq!(leases.scopes(), 999);
    }
}
