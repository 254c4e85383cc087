//! What shards and runners say to each other.
//!
//! Today the words go over a channel inside one process; they carry all that a network needs:
//! attempt, incarnation, and a sequence per (runner, incarnation, shard), so that at-least-once
//! delivery has exactly-once effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};

use crate::id::{Attempt, Epoch, Incarnation, JobId, RunnerId, ShardId};
use crate::job::Outcome;
use crate::spec::Lane;
use crate::time::Millis;
use crate::verdict::Constraints;

/// A job and one try at it: the fencing token of everything a runner says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Ticket {
    #[n(0)]
    pub job: JobId,
    #[n(1)]
    pub attempt: Attempt,
}

/// How many attempts of each kind a runner takes from a shard at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Capacity {
    #[n(0)]
    pub process: u32,
    #[n(1)]
    pub echo: u32,
    #[cbor(n(2), default)]
    pub wasm: u32,
}

impl Capacity {
    pub fn of(self, lane: Lane) -> u32 {
        match lane {
            Lane::Process => self.process,
            Lane::Echo => self.echo,
            Lane::Wasm => self.wasm,
        }
    }
}

/// What a runner is, for those who place jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    pub pools: BTreeSet<String>,
    /// Its own; those of its pools come on top.
    pub capabilities: BTreeSet<String>,
    pub labels: BTreeMap<String, String>,
}

/// How busy a runner's machine is, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    pub cpu_percent: u8,
    pub gpu_percent: u8,
}

/// From a shard to a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToRunner {
    /// Run this. Said again after a crash; a runner that knows the ticket ignores it.
    Run {
        ticket: Ticket,
        spec: Bytes,
        /// What the policy allows it at the most.
        constraints: Option<Box<Constraints>>,
    },
    /// Stop it and confirm. A ticket that the runner does not know is confirmed as stopped.
    Stop { ticket: Ticket },
    /// Everything up to this sequence is committed and may be forgotten.
    Committed { sequence: u64 },
    /// Say again everything that is not known to be committed, then what you have in hand.
    Inventory { question: u64 },
}

/// The sender of a message to a runner: an older epoch's words are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardFace {
    pub shard: ShardId,
    pub epoch: Epoch,
}

/// From a runner to one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FromRunner {
    pub runner: RunnerId,
    pub incarnation: Incarnation,
    /// Counts this runner's messages to this shard, from 1. The first of an incarnation is [`RunnerWord::Here`].
    pub sequence: u64,
    pub word: RunnerWord,
}

/// What a runner says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerWord {
    /// Here I am, with this much room and these attempts in hand. The first word of every incarnation, and said
    /// again whenever there is more room or less.
    Here {
        /// Less than what is in hand means: nothing more until there is room again.
        capacity: Capacity,
        profile: Arc<Profile>,
        /// What has ended is in hand until its end has been said: after a restart a runner names what an earlier
        /// incarnation took and it finds alive, or finds the end of, and says only then what became of it. What it
        /// does not name of an earlier incarnation is lost.
        holding: Vec<Ticket>,
        /// The [`ToRunner::Inventory`] this answers; 0 when nobody asked.
        question: u64,
        /// The oldest word that can still be said again. A shard that lacks an older one will never get it.
        oldest_kept: u64,
    },
    Started {
        ticket: Ticket,
        at: Millis,
    },
    Ended {
        ticket: Ticket,
        at: Millis,
        outcome: Box<Outcome>,
    },
}

/// How far a shard has applied a runner's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct RunnerCursor {
    #[n(0)]
    pub incarnation: Incarnation,
    #[n(1)]
    pub sequence: u64,
}
