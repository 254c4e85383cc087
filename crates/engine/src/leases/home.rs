//! The shard that grants slots: who has how many, who waits, and who is to give back.

use std::collections::BTreeMap;

use model::codec;
use model::id::{Epoch, ShardId};
use model::time::Millis;

use crate::leases::fair::{Entrant, shares};
use crate::leases::message::{Ask, Grant, Message, Recall, Record};
use crate::leases::{CHECK, CHECK_CONTENDED, Context, Outbox, RETRY, Settled, TURN, WANT_LIFETIME};

/// What the home knows of another shard.
#[derive(Debug)]
struct Remote {
    /// The newest ask that was heard.
    epoch: Epoch,
    seq: u64,
    /// It has at most this.
    total: u32,
    want: u32,
    want_until: Millis,
    turn: u64,
    turn_until: Millis,
    /// It is to come down to this.
    cap: Option<u32>,
    cap_told: Option<u32>,
    /// Absent for what was read back after a restart, until the first look at it.
    heard_at: Option<Millis>,
    /// Unanswered since.
    recalled_at: Option<Millis>,
    /// It is to be told its total.
    owed: bool,
    /// There is a record of it on disk, and whether it says something else.
    stored: bool,
    changed: bool,
}

impl Remote {
    fn new(epoch: Epoch, turn: u64) -> Self {
        Self {
            epoch,
            seq: 0,
            total: 0,
            want: 0,
            want_until: Millis(0),
            turn,
            turn_until: Millis(0),
            cap: None,
            cap_told: None,
            heard_at: None,
            recalled_at: None,
            owed: false,
            stored: false,
            changed: false,
        }
    }

    fn is_short(&self) -> bool {
        self.want > self.total
    }

    fn is_over(&self) -> bool {
        self.cap.is_some_and(|cap| cap < self.total)
    }

    fn has_news(&self) -> bool {
        self.is_over() && self.cap_told.is_none_or(|told| self.cap < Some(told))
    }

    /// When it is to be asked how it stands. What it holds is asked after even if it seems all right: it may have been
    /// restarted since, and know nothing of what an earlier epoch was granted.
    fn recall_at(&self, contended: bool, now: Millis) -> Option<Millis> {
        let heard_at = self.heard_at.unwrap_or(now);
        if self.total == 0 {
            return None;
        }
        Some(match self.recalled_at {
            _ if self.has_news() => now,
            Some(at) if contended => at + RETRY,
            Some(at) => at + CHECK,
            None if contended => heard_at + CHECK_CONTENDED,
            None => heard_at + CHECK,
        })
    }
}

/// One scope as seen by its home. The home's own use is derived from its jobs and needs no record.
#[derive(Debug)]
pub(super) struct Home {
    limit: Option<u32>,
    used: u32,
    waiting: u32,
    /// Up to here the home's own jobs may go while others wait: what they have, but no more than their share.
    own_total: u32,
    own_turn: u64,
    own_turn_until: Millis,
    remotes: BTreeMap<ShardId, Remote>,
    /// The sum of the others' totals.
    remote_total: u64,
    remotes_short: bool,
    contended: bool,
    /// Counts who was given something.
    turn: u64,
}

impl Home {
    pub fn new() -> Self {
        Self {
            limit: None,
            used: 0,
            waiting: 0,
            own_total: 0,
            own_turn: 0,
            own_turn_until: Millis(0),
            remotes: BTreeMap::new(),
            remote_total: 0,
            remotes_short: false,
            contended: false,
            turn: 0,
        }
    }

    pub fn restore_record(&mut self, shard: ShardId, record: Record) {
        let mut remote = Remote::new(record.epoch, 0);
        remote.seq = record.seq;
        remote.total = record.total;
        remote.want = record.total;
        remote.stored = true;
        self.remote_total += u64::from(record.total);
        if let Some(old) = self.remotes.insert(shard, remote) {
            self.remote_total -= u64::from(old.total);
        }
    }

    pub fn restore(&mut self, used: u32) {
        self.used = used;
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    pub fn granted_to_others(&self) -> u64 {
        self.remote_total
    }

    fn has_room(&self) -> bool {
        self.would_take(self.limit.unwrap_or(0))
    }

    /// Whether [`Home::take`] would say yes under this limit.
    pub fn would_take(&self, limit: u32) -> bool {
        let below_limit = u64::from(self.used) + self.remote_total < u64::from(limit);
        below_limit && (self.used < self.own_total || !self.remotes_short)
    }

    pub fn can_serve(&self) -> bool {
        self.waiting > 0 && self.has_room()
    }

    /// Whether others are concerned.
    pub fn learn_limit(&mut self, limit: u32) -> bool {
        self.limit.replace(limit) != Some(limit) && !self.remotes.is_empty()
    }

    pub fn take(&mut self) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.used += 1;
            self.turn += 1;
            self.own_turn = self.turn;
        }
        has_room
    }

    pub fn give_back(&mut self) {
        debug_assert!(self.used > 0, "a slot was taken before it is given back");
        self.used = self.used.saturating_sub(1);
    }

    pub fn set_waiting(&mut self, waiting: u32) -> bool {
        std::mem::replace(&mut self.waiting, waiting) != waiting
    }

    pub fn knows(&self, shard: ShardId) -> bool {
        self.remotes.contains_key(&shard)
    }

    /// Whether the ask is news; if not, nothing has changed.
    ///
    /// What it says to hold counts even if there is no record of it. It may be a late word about what was given back
    /// before a restart of this home; then the record is of what nobody has, until the holder is asked. To believe too
    /// much is safe, and the holder knows best should records have been lost.
    pub fn hear_ask(&mut self, from: ShardId, ask: &Ask, now: Millis) -> bool {
        self.turn += 1;
        let turn = self.turn;
        // A newcomer stands behind all that wait, or coming and going would get it ahead of them.
        let remote = self.remotes.entry(from).or_insert_with(|| Remote::new(ask.epoch, turn));
        if (ask.epoch, ask.seq) <= (remote.epoch, remote.seq) {
            return false;
        }
        self.remote_total = self.remote_total - u64::from(remote.total) + u64::from(ask.held);
        remote.epoch = ask.epoch;
        remote.seq = ask.seq;
        remote.total = ask.held;
        remote.want = ask.want;
        remote.want_until = now + WANT_LIFETIME;
        remote.heard_at = Some(now);
        remote.recalled_at = None;
        remote.owed = true;
        remote.changed = true;
        self.limit = ask.limit.or(self.limit);
        true
    }

    /// Gives what is free to those who wait, and reckons who is to give back. Doing it twice changes nothing.
    pub fn share_out(&mut self, now: Millis) {
        if self.remotes.is_empty() {
            (self.remotes_short, self.contended) = (false, false);
            return;
        }
        for remote in self.remotes.values_mut() {
            remote.heard_at.get_or_insert(now);
            // One that has not repeated its wish may be gone.
            if remote.want > remote.total && remote.want_until <= now {
                remote.want = remote.total;
            }
        }
        self.own_total = 0;
        if let Some(limit) = self.limit {
            self.give(limit, now);
        }
        self.remotes_short = self.remotes.values().any(Remote::is_short);
        let own_total = self.own_total.max(self.used);
        let own_short = self.used.saturating_add(self.waiting) > own_total;
        let taken = u64::from(own_total) + self.remote_total;
        self.contended = self.remotes_short || own_short || self.limit.is_some_and(|limit| taken > u64::from(limit));
        if !self.contended {
            self.remotes.values_mut().for_each(|remote| remote.cap = None);
        }
    }

    /// Everyone who wants slots, the home's own jobs first. Whoever has its turn goes before all that wait for theirs.
    fn entrants(&self, now: Millis) -> Vec<Entrant> {
        let turn = |until: Millis, turn: u64| if now < until { 0 } else { turn };
        let own_want = self.used.saturating_add(self.waiting);
        let own = Entrant { want: own_want, total: self.used, turn: turn(self.own_turn_until, self.own_turn) };
        let others = self.remotes.values().map(|remote| {
            let until = if remote.total > 0 { remote.turn_until } else { Millis(0) };
            Entrant { want: remote.want, total: remote.total, turn: turn(until, remote.turn) }
        });
        std::iter::once(own).chain(others).collect()
    }

    fn give(&mut self, limit: u32, now: Millis) {
        let entrants = self.entrants(now);
        let targets = shares(limit, &entrants);
        let taken = u64::from(self.used) + self.remote_total;
        // What is free is at most the limit, so it fits.
        let free = u64::from(limit).saturating_sub(taken) as u32;
        let lacking: Vec<Entrant> = entrants
            .iter()
            .zip(&targets)
            .map(|(entrant, target)| Entrant {
                want: target.saturating_sub(entrant.total),
                total: 0,
                turn: entrant.turn,
            })
            .collect();
        let raises = shares(free, &lacking);
        self.own_total = targets[0].min(self.used + raises[0]);
        if entrants[0].want == 0 {
            self.own_turn_until = Millis(0);
        } else if raises[0] > 0 && self.own_turn_until <= now {
            self.own_turn_until = now + TURN;
        }
        for (index, remote) in (1..).zip(self.remotes.values_mut()) {
            remote.cap = Some(targets[index]);
            if raises[index] > 0 {
                remote.total += raises[index];
                self.remote_total += u64::from(raises[index]);
                self.turn += 1;
                remote.turn = self.turn;
                if remote.turn_until <= now {
                    remote.turn_until = now + TURN;
                }
                remote.owed = true;
                remote.changed = true;
            }
        }
    }

    /// Writes and says what there is to write and to say.
    pub fn settle(&mut self, context: &mut Context<'_>, outbox: &mut Outbox) -> Settled {
        let now = context.now;
        self.share_out(now);
        let contended = self.contended;
        let turn_ends = |until: Millis| (contended && now < until).then_some(until);
        let mut wake_at = turn_ends(self.own_turn_until);
        self.remotes.retain(|shard, remote| {
            remote.write(*shard, context, outbox);
            remote.speak(*shard, contended, context, outbox);
            let stays = remote.total > 0 || remote.want > 0;
            if stays {
                let wish_ends = remote.is_short().then_some(remote.want_until);
                let recall_at = remote.recall_at(contended, now);
                wake_at = [wake_at, wish_ends, recall_at, turn_ends(remote.turn_until)].into_iter().flatten().min();
            } else {
                context.forget(*shard, remote.epoch, remote.seq);
            }
            stays
        });
        Settled { wake_at, is_idle: self.remotes.is_empty() && self.used == 0 && self.waiting == 0 }
    }
}

impl Remote {
    fn write(&mut self, shard: ShardId, context: &Context<'_>, outbox: &mut Outbox) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let key = context.scope.ledger_key(shard);
        if self.total > 0 {
            let record = Record { epoch: self.epoch, seq: self.seq, total: self.total };
            outbox.writes.push((key, Some(codec::encode(&record))));
            self.stored = true;
        } else if std::mem::take(&mut self.stored) {
            outbox.writes.push((key, None));
        }
    }

    fn speak(&mut self, shard: ShardId, contended: bool, context: &Context<'_>, outbox: &mut Outbox) {
        let Context { scope, now, .. } = *context;
        let (epoch, seq, total, cap) = (self.epoch, self.seq, self.total, self.cap);
        if std::mem::take(&mut self.owed) {
            self.cap_told = cap;
            outbox.messages.push((shard, Message::Grant(Grant { scope, epoch, seq, total, cap })));
        } else if self.recall_at(contended, now).is_some_and(|at| at <= now) {
            self.cap_told = cap;
            self.recalled_at = Some(now);
            outbox.messages.push((shard, Message::Recall(Recall { scope, epoch, seq, cap })));
        }
    }
}
