//! Tokens: used up, not given back. There are no records: lost tokens are replaced in the next second.
//!
//! The home hands out at most the limit in any second. A holder must use a token within a second of its *request*, so
//! it is used less than a second after it was handed out, on any clock that runs at the right speed. The tokens that
//! all shards use in one second were therefore handed out within two seconds: never more than twice the limit.

use std::collections::BTreeMap;

use model::id::{Epoch, ShardId};
use model::time::Millis;

use crate::leases::fair::{Claimant, shares};
use crate::leases::message::{Grant, LeaseRequest, Message};
use crate::leases::window::{TOKEN_WINDOW, Window};
use crate::leases::{Context, FlushResult, Outbox};

/// Tokens expire this long after their request.
pub const TOKEN_LIFETIME: Millis = TOKEN_WINDOW;
/// A request for tokens is repeated after this time. Below [`TOKEN_LIFETIME`], so that an answer finds its request.
pub const TOKEN_RETRY: Millis = Millis(500);
/// The home drops a request that was not repeated for this time.
pub const TOKEN_REQUEST_LIFETIME: Millis = Millis(750);
/// Minimum interval between distributions while tokens are short, to avoid handing them out one by one.
pub const TOKEN_PAUSE: Millis = Millis(50);

/// Available tokens with a common expiry.
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

/// A scope on a shard that is not its home.
#[derive(Debug, Default)]
pub(super) struct TokenHolder {
    waiting: u32,
    limit: Option<u32>,
    /// Available tokens, in request order.
    chunks: Vec<Chunk>,
    /// Unanswered requests with their times. An answer may arrive after its request was repeated, and still counts.
    /// Requests are [`TOKEN_RETRY`] apart and dropped after [`TOKEN_LIFETIME`], so there are few.
    pending_requests: Vec<(u64, Millis)>,
}

impl TokenHolder {
    pub fn take(&mut self, limit: u32, now: Millis) -> bool {
        self.limit = Some(limit);
        self.chunks.iter_mut().any(|chunk| chunk.take(now))
    }

    fn has_no_tokens(&self, now: Millis) -> bool {
        self.chunks.iter().all(|chunk| chunk.left(now) == 0)
    }

    pub fn can_serve(&self, now: Millis) -> bool {
        self.waiting > 0 && !self.has_no_tokens(now)
    }

    pub fn set_waiting(&mut self, limit: u32, waiting: u32) -> bool {
        self.limit = Some(limit);
        std::mem::replace(&mut self.waiting, waiting) != waiting
    }

    /// A grant counts once; its tokens expire.
    pub fn receive_grant(&mut self, grant: &Grant) {
        if let Some(index) = self.pending_requests.iter().position(|(seq, _)| *seq == grant.seq) {
            let (_, requested_at) = self.pending_requests.remove(index);
            self.chunks.push(Chunk { left: grant.total, until: requested_at + TOKEN_LIFETIME });
        }
    }

    pub fn flush(&mut self, context: &mut Context<'_>, outbox: &mut Outbox) -> FlushResult {
        let now = context.now;
        self.pending_requests.retain(|(_, at)| now < *at + TOKEN_LIFETIME);
        self.chunks.retain(|chunk| chunk.left(now) > 0);
        let repeat_at = self.pending_requests.last().map(|(_, at)| *at + TOKEN_RETRY);
        if self.waiting > 0 && self.chunks.is_empty() && repeat_at.is_none_or(|at| at <= now) {
            let seq = context.next_seq();
            self.pending_requests.push((seq, now));
            let Context { scope, epoch, .. } = *context;
            let request = LeaseRequest { scope, epoch, seq, held: 0, want: self.waiting, limit: self.limit };
            outbox.messages.push((context.home, Message::Request(request)));
        }
        let wants = self.waiting > 0 && self.chunks.is_empty();
        let repeat_at = self.pending_requests.last().map(|(_, at)| *at + TOKEN_RETRY).filter(|_| wants);
        let expires = self.chunks.iter().map(|chunk| chunk.until);
        let is_idle = self.waiting == 0 && self.chunks.is_empty();
        FlushResult { wake_at: repeat_at.into_iter().chain(expires).min(), is_idle }
    }
}

/// A shard that waits for tokens.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    epoch: Epoch,
    seq: u64,
    want: u32,
    until: Millis,
    last_served: u64,
}

/// A scope on its home.
#[derive(Debug, Default)]
pub(super) struct TokenHome {
    limit: u32,
    window: Window,
    /// No tokens before this time: an earlier epoch of this home may have handed out the full limit.
    opens_at: Millis,
    waiting: u32,
    /// Tokens reserved for the home's own jobs while others wait.
    chunk: Chunk,
    own_last_served: u64,
    waiters: BTreeMap<ShardId, Waiter>,
    /// Newest request of each shard, to ignore duplicates.
    newest_requests: BTreeMap<ShardId, (Epoch, u64)>,
    distributed_at: Option<Millis>,
    /// Logical clock of `last_served`.
    clock: u64,
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

    pub fn receive_request(&mut self, from: ShardId, request: &LeaseRequest, now: Millis) -> bool {
        if self.newest_requests.get(&from).is_some_and(|newest| (request.epoch, request.seq) <= *newest) {
            return false;
        }
        self.newest_requests.insert(from, (request.epoch, request.seq));
        self.limit = request.limit.unwrap_or(self.limit);
        self.clock += 1;
        let last_served = self.waiters.get(&from).map_or(self.clock, |waiter| waiter.last_served);
        let until = now + TOKEN_REQUEST_LIFETIME;
        self.waiters
            .insert(from, Waiter { epoch: request.epoch, seq: request.seq, want: request.want, until, last_served });
        true
    }

    /// Distributes free tokens among the waiting shards.
    fn distribute(&mut self, context: &Context<'_>, outbox: &mut Outbox) {
        let now = context.now;
        self.waiters.retain(|_, waiter| now < waiter.until && waiter.want > 0);
        // Only without a current chunk: older tokens must not get the expiry of new ones.
        let own_want = if self.chunk.left(now) > 0 { 0 } else { self.waiting };
        let wanted = self.waiters.values().map(|waiter| u64::from(waiter.want)).sum::<u64>() + u64::from(own_want);
        let free = self.free(now);
        let pauses = self.distributed_at.is_some_and(|at| now < at + TOKEN_PAUSE) && wanted > u64::from(free);
        // Without other shards, the home's own jobs take free tokens directly.
        if self.waiters.is_empty() || free == 0 || pauses {
            return;
        }
        let own = Claimant { want: own_want, total: 0, last_served: self.own_last_served };
        let others = self.waiters.values().map(|waiter| Claimant {
            want: waiter.want,
            total: 0,
            last_served: waiter.last_served,
        });
        let parts = shares(free, &std::iter::once(own).chain(others).collect::<Vec<_>>());
        self.distributed_at = Some(now);
        self.window.hand_out(parts.iter().sum(), now);
        if parts[0] > 0 {
            self.chunk = Chunk { left: parts[0], until: now + TOKEN_LIFETIME };
            self.clock += 1;
            self.own_last_served = self.clock;
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

    pub fn flush(&mut self, context: &mut Context<'_>, outbox: &mut Outbox) -> FlushResult {
        let now = context.now;
        self.distribute(context, outbox);
        let wanted = self.waiting > 0 || !self.waiters.is_empty();
        let more_at = if now < self.opens_at {
            Some(self.opens_at)
        } else if self.free(now) > 0 {
            self.distributed_at.filter(|_| !self.waiters.is_empty()).map(|at| at + TOKEN_PAUSE)
        } else {
            self.window.next_free()
        };
        let more_at = match self.distributed_at {
            Some(at) if !self.waiters.is_empty() => more_at.map(|more| more.max(at + TOKEN_PAUSE)),
            Some(_) | None => more_at,
        };
        let want_expires_at = self.waiters.values().map(|waiter| waiter.until).min();
        // The window is empty a second after the last token.
        let wake_at = if wanted { more_at } else { self.window.empty_at() };
        let is_idle = !wanted && self.window.is_empty();
        FlushResult { wake_at: wake_at.into_iter().chain(want_expires_at).min(), is_idle }
    }
}
