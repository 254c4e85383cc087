//! Limits that hold across shards: a tenant's home shard grants slots and tokens to the others.
//!
//! A plain data structure, one for each shard. It knows nothing of jobs; the shard tells it what is taken and given
//! back. A step goes like this:
//!
//! 1. [`Leases::tick`] with the time, always first;
//! 2. [`Leases::handle`] for each [`Message`] that has come, and [`Leases::take`], [`Leases::give_back`] and
//!    [`Leases::set_waiting`] as jobs come and go, in any order;
//! 3. [`Leases::freed`]: the scopes whose waiters may try again. For each, `take` until it says no or nobody waits,
//!    then `set_waiting` with how many still do;
//! 4. [`Leases::flush`], once: the writes go into the step's batch (`Keyspace::Grants`), together with the records of
//!    the jobs that took and gave back;
//! 5. the commit, fenced by the epoch, **also where the batch is empty but there are messages**: one who has been
//!    superseded must not speak;
//! 6. only then the messages. Any of them may be lost.
//!
//! The next step is due at [`Leases::next_tick`] at the latest. When a commit fails, all of this memory is thrown away
//! with the shard's. After a start: [`Leases::new`], [`Leases::restore_ledger`] for every record, then
//! [`Leases::restore_use`] for every scope with jobs in it, as derived from the jobs' records; then steps.
//!
//! **Slots.** Why no more than the limit is ever in use: a holder uses at most what it has been granted; the home's
//! record, committed before a grant leaves, is never below what any epoch of the holder believes to have; the home
//! grants only while its own use and all records together stay below the limit. A record is lowered only by the
//! holder's own word (an absolute number), and each word is fenced by the holder's epoch and a sequence that is in
//! the record too, so that a late one cannot undo a newer one even after a restart of the home. Whoever has lost its
//! memory is asked ([`Recall`]): holders that say nothing are asked after from time to time, and sooner when others
//! wait. A limit is what the latest ask said it is; when it is lowered below what is in use, nothing is granted until
//! it fits. While shards do not agree on a limit yet, it may go back and forth between the two values.
//!
//! **Tokens** are handed out, at most the limit in any second, and expire. In any second all shards together use at
//! most twice the limit, the home's own jobs alone at most the limit; see [`tokens`]. For a second after its
//! start a home hands out none.
//!
//! **Fair.** When not all wishes can be met, each wishing shard's share is equal; those above it get nothing new and
//! are told to come down to it as their slots become free. With fewer slots than shards they take turns.

use std::collections::BTreeSet;

use model::codec::{self, DecodeError};
use model::id::{Epoch, ShardId, Shards};
use model::time::Millis;

use crate::shard::Map;

mod fair;
mod holder;
mod home;
mod message;
mod part;
mod scope;
pub mod tokens;
mod window;

use holder::Holder;
use home::Home;
pub use message::{Ask, Grant, Message, Recall, Record};
use part::{Context, Entry, Part, Settled};
pub use scope::{Kind, LEDGER_KEY_BYTES, Scope};
use tokens::TokenHome;
use window::TOKEN_WINDOW;

/// An ask for slots without an answer is repeated after this long, with a new number; so is a recall while others wait.
pub const RETRY: Millis = Millis::from_secs(1);
/// A wish that was answered but not met is repeated after this long: the home may have been restarted, and forget it.
pub const REFRESH: Millis = Millis::from_secs(5);
/// The home forgets a wish that was not repeated after this long.
pub const WANT_LIFETIME: Millis = Millis::from_secs(15);
/// Unused slots that nobody waits for are kept for one to two of these: most jobs then start without asking.
pub const LINGER: Millis = Millis::from_secs(1);
/// With fewer slots than shards that want one, whoever gets one keeps it for this long at least.
pub const TURN: Millis = Millis::from_secs(1);
/// A holder that has said nothing for this long is asked how it stands.
pub const CHECK: Millis = Millis::from_secs(60);
/// The same while others wait for what it has.
pub const CHECK_CONTENDED: Millis = Millis::from_secs(5);
/// How many scopes one tick wakes. The others are woken by the next, which is due at once.
pub const WAKES_PER_TICK_MAX: usize = 10_000;
/// Beyond this many scopes in memory, asks of other shards about further ones are not heard. They are repeated.
pub const SCOPES_MAX: usize = 1_000_000;

/// What a step leads to. The writes go into the step's batch, the messages leave after its commit.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Records of `Keyspace::Grants`; without a value: to be deleted.
    pub writes: Vec<([u8; LEDGER_KEY_BYTES], Option<Vec<u8>>)>,
    pub messages: Vec<(ShardId, Message)>,
}

/// All limits that one shard takes part in.
#[derive(Debug)]
pub struct Leases {
    shard: ShardId,
    epoch: Epoch,
    shards: Shards,
    now: Millis,
    started_at: Option<Millis>,
    last_seq: u64,
    entries: Map<Scope, Entry>,
    dirty: Vec<Scope>,
    freed: Vec<Scope>,
    wakes: BTreeSet<(Millis, Scope)>,
    /// The newest word of each shard among those about scopes that were forgotten since. Older words about a scope that
    /// is not known may be late ones, and are not heard: an ask that is not answered is repeated.
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

    /// Reads back a record of `Keyspace::Grants`.
    pub fn restore_ledger(&mut self, key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        let (scope, shard) = Scope::from_ledger_key(key)?;
        let record = codec::decode::<Record>(value)?;
        match &mut self.restored(scope).part {
            Part::Home(home) => home.restore_record(shard, record),
            Part::Holder(_) | Part::TokenHome(_) | Part::TokenHolder(_) => {
                return Err(DecodeError::Malformed("a grant is recorded by a shard that is not the home".into()));
            }
        }
        self.wake(scope, Some(Millis(0)));
        Ok(())
    }

    /// So many slots of the scope are in use, as this shard's own records tell. Tokens are not in use.
    pub fn restore_use(&mut self, scope: Scope, used: u32) {
        match &mut self.restored(scope).part {
            Part::Home(home) => home.restore(used),
            Part::Holder(holder) => holder.restore(used),
            Part::TokenHome(_) | Part::TokenHolder(_) => {}
        }
        self.wake(scope, Some(Millis(0)));
    }

    /// The first call of every step: what time it is. A time before the last one counts as that.
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

    /// When the next step is due at the latest. Not after now: at once.
    pub fn next_tick(&self) -> Option<Millis> {
        if self.dirty.is_empty() && self.freed.is_empty() {
            self.wakes.first().map(|(at, _)| *at)
        } else {
            Some(self.now)
        }
    }

    /// Takes one, if there is one: it counts as in use, or as used up. Else say how many wait, or none will come.
    pub fn take(&mut self, scope: Scope, limit: u32) -> bool {
        let now = self.now;
        let (taken, changed) = match &mut self.entry(scope).part {
            Part::Home(home) => {
                let changed = home.learn_limit(limit);
                (home.take(), changed)
            }
            Part::Holder(holder) => {
                let changed = holder.learn_limit(limit);
                (holder.take(), changed)
            }
            Part::TokenHome(home) => (home.take(limit, now), true),
            Part::TokenHolder(holder) => (holder.take(limit, now), true),
        };
        if changed {
            self.touch(scope);
        }
        taken
    }

    /// Whether [`Leases::take`] would say yes.
    pub fn can_take(&self, scope: Scope, limit: u32) -> bool {
        match self.entries.get(&scope).map(|entry| &entry.part) {
            Some(Part::Home(home)) => home.would_take(limit),
            Some(Part::Holder(holder)) => holder.would_take(limit),
            Some(Part::TokenHome(_) | Part::TokenHolder(_)) => false,
            None => limit > 0 && !scope.kind().is_used_up() && scope.home(self.shards) == self.shard,
        }
    }

    /// Whether this shard knows by itself that there is nothing left: others need not be asked.
    pub fn is_home(&self, scope: Scope) -> bool {
        scope.home(self.shards) == self.shard
    }

    /// Whether it has only just begun, and hands out no tokens yet.
    pub fn is_opening(&self) -> bool {
        self.started_at.is_none_or(|started| self.now < started + TOKEN_WINDOW)
    }

    /// Gives back one slot that was taken.
    pub fn give_back(&mut self, scope: Scope) {
        debug_assert!(!scope.kind().is_used_up(), "tokens are used up");
        let Some(entry) = self.entries.get_mut(&scope) else { return };
        match &mut entry.part {
            Part::Home(home) => home.give_back(),
            Part::Holder(holder) => holder.give_back(),
            Part::TokenHome(_) | Part::TokenHolder(_) => return,
        }
        self.touch(scope);
    }

    /// How many more would be taken now if there were as many: an absolute number. Say it again when it changes, and
    /// when the limit does. They hear of their chance by [`Leases::freed`].
    pub fn set_waiting(&mut self, scope: Scope, limit: u32, waiting: u32) {
        if waiting == 0 && !self.entries.contains_key(&scope) {
            return;
        }
        let changed = match &mut self.entry(scope).part {
            Part::Home(home) => home.learn_limit(limit) | home.set_waiting(waiting),
            Part::Holder(holder) => holder.learn_limit(limit) | holder.set_waiting(waiting),
            Part::TokenHome(home) => home.set_waiting(limit, waiting),
            Part::TokenHolder(holder) => holder.set_waiting(limit, waiting),
        };
        if changed {
            self.touch(scope);
        }
    }

    /// A word of another shard. What is late, doubled or not for this shard changes nothing.
    pub fn handle(&mut self, from: ShardId, message: &Message) {
        let scope = message.scope();
        let home = scope.home(self.shards);
        if from == self.shard || from.0 >= self.shards.count() {
            return;
        }
        match message {
            Message::Ask(ask) if home == self.shard => self.hear_ask(from, ask),
            Message::Grant(grant) if home == from && grant.epoch == self.epoch => self.hear_grant(grant),
            Message::Recall(recall) if home == from && recall.epoch <= self.epoch => self.hear_recall(recall),
            Message::Ask(_) | Message::Grant(_) | Message::Recall(_) => {}
        }
    }

    fn hear_ask(&mut self, from: ShardId, ask: &Ask) {
        let is_full = self.entries.len() >= self.scopes_max && !self.entries.contains_key(&ask.scope);
        let is_late = self.forgotten.get(&from).is_some_and(|newest| (ask.epoch, ask.seq) <= *newest);
        let now = self.now;
        if is_full {
            return;
        }
        let changed = match &mut self.entry(ask.scope).part {
            Part::Home(home) => (!is_late || home.knows(from)) && home.hear_ask(from, ask, now),
            Part::TokenHome(home) => home.hear_ask(from, ask, now),
            Part::Holder(_) | Part::TokenHolder(_) => false,
        };
        if changed {
            self.touch(ask.scope);
        }
    }

    fn hear_grant(&mut self, grant: &Grant) {
        let Some(entry) = self.entries.get_mut(&grant.scope) else { return };
        match &mut entry.part {
            Part::Holder(holder) => holder.hear_grant(grant),
            Part::TokenHolder(holder) => holder.hear_grant(grant),
            Part::Home(_) | Part::TokenHome(_) => return,
        }
        self.touch(grant.scope);
    }

    /// A scope that is not known is answered as well: the home has a record of what nobody has.
    fn hear_recall(&mut self, recall: &Recall) {
        let epoch = self.epoch;
        if recall.scope.kind().is_used_up() {
            return;
        }
        if let Part::Holder(holder) = &mut self.entry(recall.scope).part {
            holder.hear_recall(recall, epoch);
            self.touch(recall.scope);
        }
    }

    /// Scopes that have something for those who wait, each once since it last changed.
    pub fn freed(&mut self) -> Vec<Scope> {
        for scope in &self.dirty {
            let Some(entry) = self.entries.get_mut(scope).filter(|entry| entry.unlooked) else { continue };
            entry.unlooked = false;
            if let Part::Home(home) = &mut entry.part {
                home.share_out(self.now);
            }
            if entry.part.can_serve(self.now) {
                self.freed.push(*scope);
            }
        }
        std::mem::take(&mut self.freed)
    }

    /// Ends a step: what has changed is written and said. Call it once, before the commit.
    pub fn flush(&mut self, outbox: &mut Outbox) {
        for scope in std::mem::take(&mut self.dirty) {
            let Some(entry) = self.entries.get_mut(&scope) else { continue };
            entry.dirty = false;
            let served = !std::mem::take(&mut entry.unlooked) && entry.part.can_serve(self.now);
            let mut context = Context {
                scope,
                home: scope.home(self.shards),
                epoch: self.epoch,
                now: self.now,
                last_seq: &mut self.last_seq,
                forgotten: &mut self.forgotten,
            };
            let settled = entry.part.settle(&mut context, outbox);
            if !served && entry.part.can_serve(self.now) {
                self.freed.push(scope);
            }
            self.wake(scope, settled.wake_at.map(|at| at.max(self.now + Millis(1))));
            if settled.is_idle {
                self.wake(scope, None);
                self.entries.remove(&scope);
            }
        }
    }

    /// How many of the scope's slots this shard uses: to be compared with what its records say.
    pub fn used(&self, scope: Scope) -> u32 {
        match self.entries.get(&scope).map(|entry| &entry.part) {
            Some(Part::Home(home)) => home.used(),
            Some(Part::Holder(holder)) => holder.used(),
            Some(Part::TokenHome(_) | Part::TokenHolder(_)) | None => 0,
        }
    }

    /// How many slots this shard believes to have from another.
    pub fn granted(&self, scope: Scope) -> u32 {
        match self.entries.get(&scope).map(|entry| &entry.part) {
            Some(Part::Holder(holder)) => holder.granted(),
            Some(Part::Home(_) | Part::TokenHome(_) | Part::TokenHolder(_)) | None => 0,
        }
    }

    /// How many slots this shard has granted to others.
    pub fn granted_to_others(&self, scope: Scope) -> u64 {
        match self.entries.get(&scope).map(|entry| &entry.part) {
            Some(Part::Home(home)) => home.granted_to_others(),
            Some(Part::Holder(_) | Part::TokenHome(_) | Part::TokenHolder(_)) | None => 0,
        }
    }

    /// How many scopes are in memory. One that nobody uses and nobody waits for is forgotten.
    pub fn scopes(&self) -> usize {
        self.entries.len()
    }

    /// The entry of a scope; a new one is settled at the end of the step, so that it is forgotten if nothing comes of it.
    fn entry(&mut self, scope: Scope) -> &mut Entry {
        if !self.entries.contains_key(&scope) {
            self.restored(scope);
            self.touch(scope);
        }
        self.restored(scope)
    }

    /// The entry of a scope; a new one is not settled yet, for after a restart there are too many for one step.
    fn restored(&mut self, scope: Scope) -> &mut Entry {
        let at_home = scope.home(self.shards) == self.shard;
        let opens_at = self.started_at.unwrap_or(self.now) + TOKEN_WINDOW;
        self.entries.entry(scope).or_insert_with(|| {
            let part = match (scope.kind().is_used_up(), at_home) {
                (false, true) => Part::Home(Box::new(Home::new())),
                (false, false) => Part::Holder(Box::new(Holder::new())),
                (true, true) => Part::TokenHome(Box::new(TokenHome::new(opens_at))),
                (true, false) => Part::TokenHolder(Box::default()),
            };
            Entry { part, dirty: false, unlooked: false, wake_at: None }
        })
    }

    fn touch(&mut self, scope: Scope) {
        let Some(entry) = self.entries.get_mut(&scope) else { return };
        entry.unlooked = true;
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
        let scopes = (0..).map(|number| Scope::of_tenant(Kind::Running, &format!("tenant {number}")));
        scopes.filter(move |scope| scope.home(shards) == shard)
    }

    #[test]
    fn beyond_the_limit_no_further_scopes_of_others_are_heard_of() {
        let mut leases = Leases::new(ShardId(0), Shards::new(SHARDS).unwrap(), Epoch(1));
        leases.scopes_max = 3;
        leases.tick(Millis(1));
        let mut ask = |scope, seq| {
            let ask = Ask { scope, epoch: Epoch(1), seq, held: 0, want: 1, limit: Some(1) };
            leases.handle(ShardId(1), &Message::Ask(ask));
            let mut outbox = Outbox::default();
            leases.flush(&mut outbox);
            outbox.messages.len()
        };
        let scopes: Vec<Scope> = scopes_of(ShardId(0)).take(4).collect();
        assert_eq!([ask(scopes[0], 1), ask(scopes[1], 2), ask(scopes[2], 3)], [1; 3]);
        assert_eq!(ask(scopes[3], 4), 0, "one too many");
        assert_eq!(ask(scopes[2], 5), 1, "but those that are known are heard");
    }

    #[test]
    fn a_late_word_about_what_was_forgotten_is_not_heard() {
        let mut leases = Leases::new(ShardId(0), Shards::new(SHARDS).unwrap(), Epoch(1));
        leases.tick(Millis(1));
        let scope = scopes_of(ShardId(0)).next().unwrap();
        let mut outbox = Outbox::default();
        for (seq, want) in [(2, 0), (1, 5)] {
            let ask = Ask { scope, epoch: Epoch(1), seq, held: 0, want, limit: Some(5) };
            leases.handle(ShardId(1), &Message::Ask(ask));
            leases.flush(&mut outbox);
        }
        assert_eq!((outbox.messages.len(), outbox.writes.len(), leases.scopes()), (1, 0, 0));
    }

    #[test]
    fn a_step_looks_only_at_scopes_that_changed() {
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
