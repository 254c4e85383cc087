//! Messages between shards and runners.
//!
//! They cross a channel inside one process today and carry what a network needs: attempt, incarnation, session, and
//! sequences in both directions. Crate `link` has the rules: at-least-once delivery has an exactly-once effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};

use crate::id::{Attempt, Epoch, Incarnation, JobId, RunnerId};
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

/// A conversation of one owner of a shard with a runner. A newer one replaces it; messages of older ones are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    pub epoch: Epoch,
    /// Counts the sessions of this owner with all runners.
    pub number: u64,
}

/// From a shard to a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToRunner {
    Message {
        session: Session,
        /// Counts the messages of the session, from 1.
        sequence: u64,
        /// Newest time of the runner's clock that the shard knew when it sent the message first.
        heard: Millis,
        message: ShardMessage,
    },
    /// Acknowledges all messages up to this sequence: they are committed.
    Committed { session: Session, sequence: u64 },
}

impl ToRunner {
    pub fn session(&self) -> Session {
        match self {
            Self::Message { session, .. } | Self::Committed { session, .. } => *session,
        }
    }

    pub fn message(&self) -> Option<&ShardMessage> {
        match self {
            Self::Message { message, .. } => Some(message),
            Self::Committed { .. } => None,
        }
    }
}

/// Message of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardMessage {
    /// Dispatch of an attempt.
    Run {
        attempt_ref: AttemptRef,
        /// The runner declines a dispatch that arrives later than this after the time in [`ToRunner::Message::heard`]:
        /// by then the shard may have given the attempt up.
        valid_for: Millis,
        spec: Bytes,
        /// Constraints of the policy.
        constraints: Option<Box<Constraints>>,
    },
    /// Stop the attempt and confirm. An unknown attempt is confirmed as stopped.
    Stop { attempt_ref: AttemptRef },
    /// Retransmit everything that is not acknowledged, then send the attempts in flight.
    Inventory { request: u64 },
}

/// What a runner sends at once to one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerFrame {
    pub header: RunnerHeader,
    pub messages: Vec<FromRunner>,
}

/// Acknowledgement and sign of life of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnerHeader {
    pub runner: RunnerId,
    pub incarnation: Incarnation,
    /// Newest session that the runner knows.
    pub session: Session,
    /// Last message that it has received in that session.
    pub received: u64,
    /// Time on the runner's steady clock.
    pub at: Millis,
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
        /// incarnations that are running or have ended; those not listed are lost. Sorted.
        in_flight: Vec<ReportedAttempt>,
        /// The [`ShardMessage::Inventory`] this answers; 0 if unsolicited.
        request: u64,
        /// Oldest sequence that can be retransmitted. Older messages the shard lacks are lost.
        oldest_kept: u64,
    },
    /// The attempt has a slot and is being set up. Omitted where the start follows at once.
    Accepted {
        attempt_ref: AttemptRef,
    },
    /// The attempt's program was started.
    Started {
        attempt_ref: AttemptRef,
        at: Millis,
    },
    Ended {
        attempt_ref: AttemptRef,
        outcome: Box<Outcome>,
    },
}

/// An attempt in flight, as its runner reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedAttempt {
    pub attempt_ref: AttemptRef,
    /// How long its program has been running. Absent if it has not started.
    pub running_for: Option<Millis>,
}

/// The last message of a runner that a shard has applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct RunnerCursor {
    #[n(0)]
    pub incarnation: Incarnation,
    #[n(1)]
    pub sequence: u64,
}
