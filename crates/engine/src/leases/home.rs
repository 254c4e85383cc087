//! The home's side of a scope: grants slots to holders and recalls them.

use std::collections::BTreeMap;

use model::codec;
use model::id::{Epoch, ShardId};
use model::time::Millis;

use crate::leases::fair::{Claimant, shares};
use crate::leases::message::{Grant, LeaseRequest, Message, Recall, Record};
use crate::leases::{CHECK, CHECK_CONTENDED, Context, FlushResult, MIN_HOLD, Outbox, RETRY, WANT_LIFETIME};

/// A holder as the home sees it.
#[derive(Debug)]
struct Remote {
    /// Epoch and number of the newest request.
    epoch: Epoch,
    seq: u64,
    /// Upper bound of the slots it holds.
    total: u32,
    want: u32,
    want_until: Millis,
    /// Logical time of the last grant, or of the first request.
    last_served: u64,
    min_hold_until: Millis,
    /// Slots beyond this are to be returned.
    cap: Option<u32>,
    cap_sent: Option<u32>,
    /// Time of the newest request. Absent for restored records until the first distribution.
    received_at: Option<Millis>,
    /// Time of the unanswered recall.
    recalled_at: Option<Millis>,
    /// A grant message is due.
    reply_due: bool,
    /// A record is on disk.
    stored: bool,
    /// The record on disk is outdated.
    changed: bool,
}

impl Remote {
    fn new(epoch: Epoch, last_served: u64) -> Self {
        Self {
            epoch,
            seq: 0,
            total: 0,
            want: 0,
            want_until: Millis(0),
            last_served,
            min_hold_until: Millis(0),
            cap: None,
            cap_sent: None,
            received_at: None,
            recalled_at: None,
            reply_due: false,
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

    fn has_new_cap(&self) -> bool {
        self.is_over() && self.cap_sent.is_none_or(|sent| self.cap < Some(sent))
    }

    /// When the next recall is due. Holders are recalled even if nothing seems wrong: after a restart a holder does not
    /// know what an earlier epoch was granted.
    fn recall_at(&self, contended: bool, now: Millis) -> Option<Millis> {
        let received_at = self.received_at.unwrap_or(now);
        if self.total == 0 {
            return None;
        }
        Some(match self.recalled_at {
            _ if self.has_new_cap() => now,
            Some(at) if contended => at + RETRY,
            Some(at) => at + CHECK,
            None if contended => received_at + CHECK_CONTENDED,
            None => received_at + CHECK,
        })
    }
}

/// A scope on its home. The home's own use is derived from its jobs and needs no record.
#[derive(Debug)]
pub(super) struct Home {
    limit: Option<u32>,
    used: u32,
    waiting: u32,
    /// Bound of the home's own use while others wait: its share, as far as slots are free.
    own_total: u32,
    own_last_served: u64,
    own_min_hold_until: Millis,
    remotes: BTreeMap<ShardId, Remote>,
    /// Sum of all `Remote::total`.
    remote_total: u64,
    remotes_short: bool,
    contended: bool,
    /// Logical clock of `last_served`.
    clock: u64,
}

impl Home {
    pub fn new() -> Self {
        Self {
            limit: None,
            used: 0,
            waiting: 0,
            own_total: 0,
            own_last_served: 0,
            own_min_hold_until: Millis(0),
            remotes: BTreeMap::new(),
            remote_total: 0,
            remotes_short: false,
            contended: false,
            clock: 0,
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

    /// Whether [`Home::take`] would succeed under this limit.
    pub fn would_take(&self, limit: u32) -> bool {
        let below_limit = u64::from(self.used) + self.remote_total < u64::from(limit);
        below_limit && (self.used < self.own_total || !self.remotes_short)
    }

    pub fn can_serve(&self) -> bool {
        self.waiting > 0 && self.has_room()
    }

    /// Returns whether the change affects holders.
    pub fn learn_limit(&mut self, limit: u32) -> bool {
        self.limit.replace(limit) != Some(limit) && !self.remotes.is_empty()
    }

    pub fn take(&mut self) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.used += 1;
            self.clock += 1;
            self.own_last_served = self.clock;
        }
        has_room
    }

    pub fn give_back(&mut self) {
        debug_assert!(self.used > 0, "a slot is given back that was not taken");
        self.used = self.used.saturating_sub(1);
    }

    pub fn set_waiting(&mut self, waiting: u32) -> bool {
        std::mem::replace(&mut self.waiting, waiting) != waiting
    }

    pub fn knows(&self, shard: ShardId) -> bool {
        self.remotes.contains_key(&shard)
    }

    /// Returns whether the request is new. Old requests have no effect.
    ///
    /// The reported `held` counts even without a record of it. A late message may report slots returned before a
    /// restart of this home; then the record is too high until the next recall. Too high is safe, and after a loss of
    /// records the holder's number is right.
    pub fn receive_request(&mut self, from: ShardId, request: &LeaseRequest, now: Millis) -> bool {
        self.clock += 1;
        let clock = self.clock;
        // A new holder queues behind all waiting ones. Otherwise it could jump ahead by leaving and returning.
        let remote = self.remotes.entry(from).or_insert_with(|| Remote::new(request.epoch, clock));
        if (request.epoch, request.seq) <= (remote.epoch, remote.seq) {
            return false;
        }
        self.remote_total = self.remote_total - u64::from(remote.total) + u64::from(request.held);
        remote.epoch = request.epoch;
        remote.seq = request.seq;
        remote.total = request.held;
        remote.want = request.want;
        remote.want_until = now + WANT_LIFETIME;
        remote.received_at = Some(now);
        remote.recalled_at = None;
        remote.reply_due = true;
        remote.changed = true;
        self.limit = request.limit.or(self.limit);
        true
    }

    /// Grants free slots to waiting holders and computes the caps. Idempotent.
    pub fn distribute(&mut self, now: Millis) {
        if self.remotes.is_empty() {
            (self.remotes_short, self.contended) = (false, false);
            return;
        }
        for remote in self.remotes.values_mut() {
            remote.received_at.get_or_insert(now);
            // The holder has not repeated its demand: it may be gone.
            if remote.want > remote.total && remote.want_until <= now {
                remote.want = remote.total;
            }
        }
        self.own_total = 0;
        if let Some(limit) = self.limit {
            self.distribute_slots(limit, now);
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

    /// All claimants, the home itself first. Those within their minimum hold time precede all others.
    fn claimants(&self, now: Millis) -> Vec<Claimant> {
        let order = |until: Millis, last_served: u64| if now < until { 0 } else { last_served };
        let own_want = self.used.saturating_add(self.waiting);
        let own = Claimant {
            want: own_want,
            total: self.used,
            last_served: order(self.own_min_hold_until, self.own_last_served),
        };
        let others = self.remotes.values().map(|remote| {
            let until = if remote.total > 0 { remote.min_hold_until } else { Millis(0) };
            Claimant { want: remote.want, total: remote.total, last_served: order(until, remote.last_served) }
        });
        std::iter::once(own).chain(others).collect()
    }

    fn distribute_slots(&mut self, limit: u32, now: Millis) {
        let claimants = self.claimants(now);
        let targets = shares(limit, &claimants);
        let taken = u64::from(self.used) + self.remote_total;
        // At most the limit, so it fits.
        let free = u64::from(limit).saturating_sub(taken) as u32;
        let lacking: Vec<Claimant> = claimants
            .iter()
            .zip(&targets)
            .map(|(claimant, target)| Claimant {
                want: target.saturating_sub(claimant.total),
                total: 0,
                last_served: claimant.last_served,
            })
            .collect();
        let raises = shares(free, &lacking);
        self.own_total = targets[0].min(self.used + raises[0]);
        if claimants[0].want == 0 {
            self.own_min_hold_until = Millis(0);
        } else if raises[0] > 0 && self.own_min_hold_until <= now {
            self.own_min_hold_until = now + MIN_HOLD;
        }
        for (index, remote) in (1..).zip(self.remotes.values_mut()) {
            remote.cap = Some(targets[index]);
            if raises[index] > 0 {
                remote.total += raises[index];
                self.remote_total += u64::from(raises[index]);
                self.clock += 1;
                remote.last_served = self.clock;
                if remote.min_hold_until <= now {
                    remote.min_hold_until = now + MIN_HOLD;
                }
                remote.reply_due = true;
                remote.changed = true;
            }
        }
    }

    /// Writes changed records and sends due grants and recalls.
    pub fn flush(&mut self, context: &mut Context<'_>, outbox: &mut Outbox) -> FlushResult {
        let now = context.now;
        self.distribute(now);
        let contended = self.contended;
        let hold_ends = |until: Millis| (contended && now < until).then_some(until);
        let mut wake_at = hold_ends(self.own_min_hold_until);
        self.remotes.retain(|shard, remote| {
            remote.write(*shard, context, outbox);
            remote.send(*shard, contended, context, outbox);
            let is_needed = remote.total > 0 || remote.want > 0;
            if is_needed {
                let want_expires_at = remote.is_short().then_some(remote.want_until);
                let recall_at = remote.recall_at(contended, now);
                wake_at =
                    [wake_at, want_expires_at, recall_at, hold_ends(remote.min_hold_until)].into_iter().flatten().min();
            } else {
                context.forget(*shard, remote.epoch, remote.seq);
            }
            is_needed
        });
        FlushResult { wake_at, is_idle: self.remotes.is_empty() && self.used == 0 && self.waiting == 0 }
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

    fn send(&mut self, shard: ShardId, contended: bool, context: &Context<'_>, outbox: &mut Outbox) {
        let Context { scope, now, .. } = *context;
        let (epoch, seq, total, cap) = (self.epoch, self.seq, self.total, self.cap);
        if std::mem::take(&mut self.reply_due) {
            self.cap_sent = cap;
            outbox.messages.push((shard, Message::Grant(Grant { scope, epoch, seq, total, cap })));
        } else if self.recall_at(contended, now).is_some_and(|at| at <= now) {
            self.cap_sent = cap;
            self.recalled_at = Some(now);
            outbox.messages.push((shard, Message::Recall(Recall { scope, epoch, seq, cap })));
        }
    }
}
