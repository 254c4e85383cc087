//! A scope in memory: the shard's role in it, and its timer.

use model::id::{Epoch, ShardId};
use model::time::Millis;

use crate::leases::Outbox;
use crate::leases::holder::Holder;
use crate::leases::home::Home;
use crate::leases::scope::Scope;
use crate::leases::tokens::{TokenHolder, TokenHome};
use crate::shard::Map;

/// Context of a scope's flush.
pub(super) struct Context<'a> {
    pub scope: Scope,
    pub home: ShardId,
    pub epoch: Epoch,
    pub now: Millis,
    pub last_seq: &'a mut u64,
    pub forgotten: &'a mut Map<ShardId, (Epoch, u64)>,
}

impl Context<'_> {
    pub fn next_seq(&mut self) -> u64 {
        *self.last_seq += 1;
        *self.last_seq
    }

    /// Remembers the newest message of a shard about dropped scopes.
    pub fn forget(&mut self, shard: ShardId, epoch: Epoch, seq: u64) {
        let newest = self.forgotten.entry(shard).or_insert((epoch, seq));
        *newest = (*newest).max((epoch, seq));
    }
}

/// State of a scope after a flush.
pub(super) struct FlushResult {
    pub wake_at: Option<Millis>,
    /// It can be dropped.
    pub is_idle: bool,
}

/// A shard's role in a scope.
#[derive(Debug)]
pub(super) enum Role {
    Home(Box<Home>),
    Holder(Box<Holder>),
    TokenHome(Box<TokenHome>),
    TokenHolder(Box<TokenHolder>),
}

/// A scope in memory.
#[derive(Debug)]
pub(super) struct ScopeState {
    pub role: Role,
    /// It is in the list of scopes to flush.
    pub dirty: bool,
    /// Changed since waiters were last served.
    pub serve_pending: bool,
    pub wake_at: Option<Millis>,
}

impl Role {
    pub fn can_serve(&mut self, now: Millis) -> bool {
        match self {
            Self::Home(home) => home.can_serve(),
            Self::Holder(holder) => holder.can_serve(),
            Self::TokenHome(home) => home.can_serve(now),
            Self::TokenHolder(holder) => holder.can_serve(now),
        }
    }

    pub fn flush(&mut self, context: &mut Context<'_>, outbox: &mut Outbox) -> FlushResult {
        match self {
            Self::Home(home) => home.flush(context, outbox),
            Self::Holder(holder) => holder.flush(context, outbox),
            Self::TokenHome(home) => home.flush(context, outbox),
            Self::TokenHolder(holder) => holder.flush(context, outbox),
        }
    }
}
