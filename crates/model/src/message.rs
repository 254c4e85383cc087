//! Messages between shards and runners.
//!
//! They cross a channel inside one process today and carry what a network needs: attempt, incarnation, and a sequence
//! per (runner, incarnation, shard). At-least-once delivery has an exactly-once effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};

use crate::id::{Attempt, Epoch, Incarnation, JobId, RunnerId, ShardId};
use crate::job::Outcome;
use crate::spec::ExecutorKind;
use crate::time::Millis;
use crate::verdict::Constraints;

/// A job and the number of its attempt: the fencing token of everything a runner reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct AttemptRef {
    #[n(0)]
    pub job: JobId,
    #[n(1)]
    pub attempt: Attempt,
}

/// Slots of a runner for one shard, by executor.
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
    pub fn of(self, executor: ExecutorKind) -> u32 {
        match executor {
            ExecutorKind::Process => self.process,
            ExecutorKind::Echo => self.echo,
            ExecutorKind::Wasm => self.wasm,
        }
    }
}

/// A runner's attributes, for placement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    pub pools: BTreeSet<String>,
    /// Without the capabilities of its pools.
    pub capabilities: BTreeSet<String>,
    pub labels: BTreeMap<String, String>,
}

/// Utilisation of a runner's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    pub cpu_percent: u8,
    pub gpu_percent: u8,
}

/// From a shard to a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToRunner {
    /// Dispatch of an attempt. Sent again after a crash; ignored if the runner knows the attempt.
    Run {
        attempt_ref: AttemptRef,
        spec: Bytes,
        /// Constraints of the policy.
        constraints: Option<Box<Constraints>>,
    },
    /// Stop the attempt and confirm. An unknown attempt is confirmed as stopped.
    Stop { attempt_ref: AttemptRef },
    /// Acknowledges all messages up to this sequence: they are committed.
    Committed { sequence: u64 },
    /// Retransmit everything that is not acknowledged, then send the attempts in flight.
    Inventory { request: u64 },
}

/// Sender of a message to a runner. Messages of an older epoch are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardEpoch {
    pub shard: ShardId,
    pub epoch: Epoch,
}

/// From a runner to one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FromRunner {
    pub runner: RunnerId,
    pub incarnation: Incarnation,
    /// Counts this runner's messages to this shard, from 1. The first of an incarnation is [`RunnerMessage::Register`].
    pub sequence: u64,
    pub message: RunnerMessage,
}

/// Message of a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerMessage {
    /// Registration with capacity and attempts in flight. The first message of every incarnation, repeated when the
    /// capacity changes and on request.
    Register {
        /// Less than the attempts in flight: no dispatch until slots are free again.
        capacity: Capacity,
        profile: Arc<Profile>,
        /// An attempt is in flight until its end is sent. After a restart this includes attempts of earlier
        /// incarnations that are running or have ended; those not listed are lost.
        in_flight: Vec<AttemptRef>,
        /// The [`ToRunner::Inventory`] this answers; 0 if unsolicited.
        request: u64,
        /// Oldest sequence that can be retransmitted. Older messages the shard lacks are lost.
        oldest_kept: u64,
    },
    /// The attempt has a slot and is being set up. Omitted where the start follows at once.
    Accepted {
        attempt_ref: AttemptRef,
        at: Millis,
    },
    /// The attempt's program was started.
    Started {
        attempt_ref: AttemptRef,
        at: Millis,
    },
    Ended {
        attempt_ref: AttemptRef,
        at: Millis,
        outcome: Box<Outcome>,
    },
}

/// The last message of a runner that a shard has applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct RunnerCursor {
    #[n(0)]
    pub incarnation: Incarnation,
    #[n(1)]
    pub sequence: u64,
}
