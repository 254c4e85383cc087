//! What a shard keeps of one scope: its part in it, and when to look at it.

use model::id::{Epoch, ShardId};
use model::time::Millis;

use crate::leases::Outbox;
use crate::leases::holder::Holder;
use crate::leases::home::Home;
use crate::leases::scope::Scope;
use crate::leases::tokens::{TokenHolder, TokenHome};
use crate::shard::Map;

/// What a scope needs to know to settle.
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

    /// Keeps, of all a shard's words about what is forgotten now, the newest.
    pub fn forget(&mut self, shard: ShardId, epoch: Epoch, seq: u64) {
        let newest = self.forgotten.entry(shard).or_insert((epoch, seq));
        *newest = (*newest).max((epoch, seq));
    }
}

/// How a scope stands after it has said what there was to say.
pub(super) struct Settled {
    pub wake_at: Option<Millis>,
    /// It can be forgotten.
    pub is_idle: bool,
}

/// A shard's part in a scope.
#[derive(Debug)]
pub(super) enum Part {
    Home(Box<Home>),
    Holder(Box<Holder>),
    TokenHome(Box<TokenHome>),
    TokenHolder(Box<TokenHolder>),
}

/// A scope in memory.
#[derive(Debug)]
pub(super) struct Entry {
    pub part: Part,
    /// It is in the list of those to settle.
    pub dirty: bool,
    /// It has changed since the last look at who may try again.
    pub unlooked: bool,
    pub wake_at: Option<Millis>,
}

impl Part {
    pub fn can_serve(&mut self, now: Millis) -> bool {
        match self {
            Self::Home(home) => home.can_serve(),
            Self::Holder(holder) => holder.can_serve(),
            Self::TokenHome(home) => home.can_serve(now),
            Self::TokenHolder(holder) => holder.can_serve(now),
        }
    }

    pub fn settle(&mut self, context: &mut Context<'_>, outbox: &mut Outbox) -> Settled {
        match self {
            Self::Home(home) => home.settle(context, outbox),
            Self::Holder(holder) => holder.settle(context, outbox),
            Self::TokenHome(home) => home.settle(context, outbox),
            Self::TokenHolder(holder) => holder.settle(context, outbox),
        }
    }
}
