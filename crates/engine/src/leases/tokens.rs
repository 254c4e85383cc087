//! Tokens: what is used up rather than given back. No records: what is lost is made up for by the next second.
//!
//! The home hands out at most the limit in any second. A holder must use what it got within a second of having *asked*,
//! so a token is used less than a second after it was handed out, by any clock that runs at the right speed. What all
//! shards use in any second was therefore handed out within two: never more than twice the limit.

use std::collections::BTreeMap;

use model::id::{Epoch, ShardId};
use model::time::Millis;

use crate::leases::fair::{Entrant, shares};
use crate::leases::message::{Ask, Grant, Message};
use crate::leases::window::{TOKEN_WINDOW, Window};
use crate::leases::{Context, Outbox, Settled};

/// Tokens are of no use this long after they were asked for.
pub const TOKEN_LIFETIME: Millis = TOKEN_WINDOW;
/// An ask for tokens is repeated after this long. Below [`TOKEN_LIFETIME`], so that an answer finds its ask.
pub const TOKEN_RETRY: Millis = Millis(500);
/// The home forgets an ask that was not repeated after this long.
pub const TOKEN_ASK_LIFETIME: Millis = Millis(750);
/// When there are not enough, they are handed out this often, not one by one.
pub const TOKEN_PAUSE: Millis = Millis(50);

/// Tokens in hand.
#[derive(Debug, Clone, Copy, Default)]
struct Chunk {
    left: u32,
    until: Millis,
}

impl Chunk {
    fn left(self, now: Millis) -> u32 {
        if now < self.until { self.left } else { 0 }
    }

    fn take(&mut self, now: Millis) -> bool {
        let some = self.left(now) > 0;
        self.left -= u32::from(some);
        some
    }
}

/// One scope as seen by a shard that is not its home.
#[derive(Debug, Default)]
pub(super) struct TokenHolder {
    waiting: u32,
    limit: Option<u32>,
    /// What is in hand, in the order of the asks.
    chunks: Vec<Chunk>,
    /// Asks without an answer, with their times. An answer may cross the repeated ask, and is as good. They are as far
    /// apart as [`TOKEN_RETRY`] and are forgotten after [`TOKEN_LIFETIME`], so there are few.
    asks: Vec<(u64, Millis)>,
}

impl TokenHolder {
    pub fn take(&mut self, limit: u32, now: Millis) -> bool {
        self.limit = Some(limit);
        self.chunks.iter_mut().any(|chunk| chunk.take(now))
    }

    fn is_empty_handed(&self, now: Millis) -> bool {
        self.chunks.iter().all(|chunk| chunk.left(now) == 0)
    }

    pub fn can_serve(&self, now: Millis) -> bool {
        self.waiting > 0 && !self.is_empty_handed(now)
    }

    pub fn set_waiting(&mut self, limit: u32, waiting: u32) -> bool {
        self.limit = Some(limit);
        std::mem::replace(&mut self.waiting, waiting) != waiting
    }

    /// An answer counts once, and its tokens only within their lifetime.
    pub fn hear_grant(&mut self, grant: &Grant) {
        if let Some(place) = self.asks.iter().position(|(seq, _)| *seq == grant.seq) {
            let (_, asked_at) = self.asks.remove(place);
            self.chunks.push(Chunk { left: grant.total, until: asked_at + TOKEN_LIFETIME });
        }
    }

    pub fn settle(&mut self, context: &mut Context<'_>, outbox: &mut Outbox) -> Settled {
        let now = context.now;
        self.asks.retain(|(_, at)| now < *at + TOKEN_LIFETIME);
        self.chunks.retain(|chunk| chunk.left(now) > 0);
        let repeat_at = self.asks.last().map(|(_, at)| *at + TOKEN_RETRY);
        if self.waiting > 0 && self.chunks.is_empty() && repeat_at.is_none_or(|at| at <= now) {
            let seq = context.next_seq();
            self.asks.push((seq, now));
            let Context { scope, epoch, .. } = *context;
            let ask = Ask { scope, epoch, seq, held: 0, want: self.waiting, limit: self.limit };
            outbox.messages.push((context.home, Message::Ask(ask)));
        }
        let wants = self.waiting > 0 && self.chunks.is_empty();
        let repeat_at = self.asks.last().map(|(_, at)| *at + TOKEN_RETRY).filter(|_| wants);
        let expires = self.chunks.iter().map(|chunk| chunk.until);
        let is_idle = self.waiting == 0 && self.chunks.is_empty();
        Settled { wake_at: repeat_at.into_iter().chain(expires).min(), is_idle }
    }
}

/// A shard that waits for tokens.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    epoch: Epoch,
    seq: u64,
    want: u32,
    until: Millis,
    turn: u64,
}

/// One scope as seen by its home.
#[derive(Debug, Default)]
pub(super) struct TokenHome {
    limit: u32,
    window: Window,
    /// Before this nothing is handed out: an earlier epoch of this home may have handed out all there was.
    opens_at: Millis,
    waiting: u32,
    /// Tokens set aside for the home's own jobs while others wait.
    chunk: Chunk,
    own_turn: u64,
    waiters: BTreeMap<ShardId, Waiter>,
    /// The newest ask of each shard, so that one that comes twice is served once.
    heard: BTreeMap<ShardId, (Epoch, u64)>,
    shared_out_at: Option<Millis>,
    turn: u64,
}

impl TokenHome {
    pub fn new(opens_at: Millis) -> Self {
        Self { opens_at, ..Self::default() }
    }

    fn free(&mut self, now: Millis) -> u32 {
        if now < self.opens_at { 0 } else { self.window.free(self.limit, now) }
    }

    pub fn take(&mut self, limit: u32, now: Millis) -> bool {
        self.limit = limit;
        if self.chunk.take(now) {
            return true;
        }
        let free = self.waiters.is_empty() && self.free(now) > 0;
        if free {
            self.window.hand_out(1, now);
        }
        free
    }

    pub fn can_serve(&mut self, now: Millis) -> bool {
        self.waiting > 0 && (self.chunk.left(now) > 0 || self.waiters.is_empty() && self.free(now) > 0)
    }

    pub fn set_waiting(&mut self, limit: u32, waiting: u32) -> bool {
        self.limit = limit;
        std::mem::replace(&mut self.waiting, waiting) != waiting
    }

    pub fn hear_ask(&mut self, from: ShardId, ask: &Ask, now: Millis) -> bool {
        if self.heard.get(&from).is_some_and(|heard| (ask.epoch, ask.seq) <= *heard) {
            return false;
        }
        self.heard.insert(from, (ask.epoch, ask.seq));
        self.limit = ask.limit.unwrap_or(self.limit);
        self.turn += 1;
        let turn = self.waiters.get(&from).map_or(self.turn, |waiter| waiter.turn);
        let until = now + TOKEN_ASK_LIFETIME;
        self.waiters.insert(from, Waiter { epoch: ask.epoch, seq: ask.seq, want: ask.want, until, turn });
        true
    }

    /// Hands out what is free among those who wait.
    fn share_out(&mut self, context: &Context<'_>, outbox: &mut Outbox) {
        let now = context.now;
        self.waiters.retain(|_, waiter| now < waiter.until && waiter.want > 0);
        // Only with empty hands, or older tokens would live on with the new ones.
        let own_want = if self.chunk.left(now) > 0 { 0 } else { self.waiting };
        let wanted = self.waiters.values().map(|waiter| u64::from(waiter.want)).sum::<u64>() + u64::from(own_want);
        let free = self.free(now);
        let pauses = self.shared_out_at.is_some_and(|at| now < at + TOKEN_PAUSE) && wanted > u64::from(free);
        // Alone, the home's own jobs take what is free as they come.
        if self.waiters.is_empty() || free == 0 || pauses {
            return;
        }
        let own = Entrant { want: own_want, total: 0, turn: self.own_turn };
        let others = self.waiters.values().map(|waiter| Entrant { want: waiter.want, total: 0, turn: waiter.turn });
        let parts = shares(free, &std::iter::once(own).chain(others).collect::<Vec<_>>());
        self.shared_out_at = Some(now);
        self.window.hand_out(parts.iter().sum(), now);
        if parts[0] > 0 {
            self.chunk = Chunk { left: parts[0], until: now + TOKEN_LIFETIME };
            self.turn += 1;
            self.own_turn = self.turn;
        }
        let mut parts = parts.into_iter().skip(1);
        self.waiters.retain(|shard, waiter| {
            let total = parts.next().unwrap_or(0);
            if total > 0 {
                let Waiter { epoch, seq, .. } = *waiter;
                let grant = Grant { scope: context.scope, epoch, seq, total, cap: None };
                outbox.messages.push((*shard, Message::Grant(grant)));
            }
            total == 0
        });
    }

    pub fn settle(&mut self, context: &mut Context<'_>, outbox: &mut Outbox) -> Settled {
        let now = context.now;
        self.share_out(context, outbox);
        let wanted = self.waiting > 0 || !self.waiters.is_empty();
        let more_at = if now < self.opens_at {
            Some(self.opens_at)
        } else if self.free(now) > 0 {
            self.shared_out_at.filter(|_| !self.waiters.is_empty()).map(|at| at + TOKEN_PAUSE)
        } else {
            self.window.next_free()
        };
        let more_at = match self.shared_out_at {
            Some(at) if !self.waiters.is_empty() => more_at.map(|more| more.max(at + TOKEN_PAUSE)),
            Some(_) | None => more_at,
        };
        let wish_ends = self.waiters.values().map(|waiter| waiter.until).min();
        // What was handed out is forgotten when its second is over.
        let looks = if wanted { more_at } else { self.window.quiet_at() };
        let is_idle = !wanted && self.window.is_empty();
        Settled { wake_at: looks.into_iter().chain(wish_ends).min(), is_idle }
    }
}
