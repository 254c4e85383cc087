//! Messages between shards and runners.
//!
//! Within a node they cross a channel, to other nodes the network: they carry attempt, incarnation, session, and
//! sequences in both directions. Crate `link` has the rules: at-least-once delivery has an exactly-once effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};

use crate::id::{Attempt, Epoch, Incarnation, JobId, RunnerId};
use crate::job::Outcome;
use crate::limits;
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Profile {
    #[n(0)]
    pub pools: BTreeSet<String>,
    /// Without the capabilities of its pools.
    #[n(1)]
    pub capabilities: BTreeSet<String>,
    #[n(2)]
    pub labels: BTreeMap<String, String>,
    /// Attempts with a lease are killed when it runs out. Earlier versions do not know leases.
    #[cbor(n(3), default)]
    pub keeps_leases: bool,
}

impl Profile {
    /// Whether the numbers and sizes of its attributes are permitted.
    pub fn is_within_limits(&self) -> bool {
        let is_name = |name: &String| name.len() <= limits::NAME_BYTES_MAX;
        let is_value = |value: &String| value.len() <= limits::LABEL_VALUE_BYTES_MAX;
        self.pools.len() <= limits::REQUIRES_MAX
            && self.capabilities.len() <= limits::REQUIRES_MAX
            && self.labels.len() <= limits::LABELS_MAX
            && self.pools.iter().chain(&self.capabilities).chain(self.labels.keys()).all(is_name)
            && self.labels.values().all(is_value)
    }
}

/// Utilisation of a runner's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Load {
    #[n(0)]
    pub cpu_percent: u8,
    #[n(1)]
    pub gpu_percent: u8,
}

/// A conversation of one owner of a shard with a runner. A newer one replaces it; messages of older ones are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Session {
    #[n(0)]
    pub epoch: Epoch,
    /// Counts the sessions of this owner with all runners.
    #[n(1)]
    pub number: u64,
}

/// From a shard to a runner.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum ToRunner {
    #[n(0)]
    Message {
        #[n(0)]
        session: Session,
        /// Counts the messages of the session, from 1.
        #[n(1)]
        sequence: u64,
        /// Newest time of the runner's clock that the shard knew when it sent the message first.
        #[n(2)]
        heard: Millis,
        #[n(3)]
        message: ShardMessage,
    },
    /// Acknowledges all messages up to this sequence: they are committed.
    #[n(1)]
    Committed {
        #[n(0)]
        session: Session,
        #[n(1)]
        sequence: u64,
    },
    /// Renews the leases of the attempts from this shard. May be lost: the next one covers it. Sent only to runners that
    /// keep leases.
    #[n(2)]
    Renewed {
        #[n(0)]
        session: Session,
        /// Newest time of the runner's clock that the shard knows.
        #[n(1)]
        heard: Millis,
    },
}

impl ToRunner {
    pub fn session(&self) -> Session {
        match self {
            Self::Message { session, .. } | Self::Committed { session, .. } | Self::Renewed { session, .. } => *session,
        }
    }

    pub fn message(&self) -> Option<&ShardMessage> {
        match self {
            Self::Message { message, .. } => Some(message),
            Self::Committed { .. } | Self::Renewed { .. } => None,
        }
    }
}

/// Message of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum ShardMessage {
    /// Dispatch of an attempt.
    #[n(0)]
    Run {
        #[n(0)]
        attempt_ref: AttemptRef,
        /// The runner declines a dispatch that arrives later than this after the time in [`ToRunner::Message::heard`]:
        /// by then the shard may have given the attempt up.
        #[n(1)]
        valid_for: Millis,
        #[cbor(n(2), with = "crate::codec::shared_bytes")]
        spec: Bytes,
        /// Constraints of the policy.
        #[n(3)]
        constraints: Option<Box<Constraints>>,
        /// Present for exclusive jobs: the attempt must have ended this long after the newest time of the runner's clock
        /// that the shard is known to have heard.
        #[n(4)]
        lease: Option<Millis>,
    },
    /// Stop the attempt and confirm. An unknown attempt is confirmed as stopped.
    #[n(1)]
    Stop {
        #[n(0)]
        attempt_ref: AttemptRef,
    },
    /// Retransmit everything that is not acknowledged, then send the attempts in flight.
    #[n(2)]
    Inventory {
        #[n(0)]
        request: u64,
    },
}

/// What a runner sends at once to one shard.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RunnerFrame {
    #[n(0)]
    pub header: RunnerHeader,
    #[n(1)]
    pub messages: Vec<FromRunner>,
}

/// Acknowledgement and sign of life of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct RunnerHeader {
    #[n(0)]
    pub runner: RunnerId,
    #[n(1)]
    pub incarnation: Incarnation,
    /// Newest session that the runner knows.
    #[n(2)]
    pub session: Session,
    /// Last message that it has received in that session.
    #[n(3)]
    pub received: u64,
    /// Time on the runner's steady clock.
    #[n(4)]
    pub at: Millis,
}

/// From a runner to one shard.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FromRunner {
    #[n(0)]
    pub runner: RunnerId,
    #[n(1)]
    pub incarnation: Incarnation,
    /// Counts this runner's messages to this shard, from 1. The first of an incarnation is [`RunnerMessage::Register`].
    #[n(2)]
    pub sequence: u64,
    #[n(3)]
    pub message: RunnerMessage,
}

/// Message of a runner.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum RunnerMessage {
    /// Registration with capacity and attempts in flight. The first message of every incarnation, repeated when the
    /// capacity changes and on request.
    #[n(0)]
    Register {
        /// Less than the attempts in flight: no dispatch until slots are free again.
        #[n(0)]
        capacity: Capacity,
        #[cbor(n(1), with = "shared_profile")]
        profile: Arc<Profile>,
        /// An attempt is in flight until its end is sent. After a restart this includes attempts of earlier
        /// incarnations that are running or have ended; those not listed are lost. Sorted.
        #[n(2)]
        in_flight: Vec<ReportedAttempt>,
        /// The [`ShardMessage::Inventory`] this answers; 0 if unsolicited.
        #[n(3)]
        request: u64,
        /// Oldest sequence that can be retransmitted. Older messages the shard lacks are lost.
        #[n(4)]
        oldest_kept: u64,
    },
    /// The attempt has a slot and is being set up. Omitted where the start follows at once.
    #[n(1)]
    Accepted {
        #[n(0)]
        attempt_ref: AttemptRef,
    },
    /// The attempt's program was started.
    #[n(2)]
    Started {
        #[n(0)]
        attempt_ref: AttemptRef,
        #[n(1)]
        at: Millis,
    },
    #[n(3)]
    Ended {
        #[n(0)]
        attempt_ref: AttemptRef,
        #[n(1)]
        outcome: Box<Outcome>,
    },
}

/// An attempt in flight, as its runner reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReportedAttempt {
    #[n(0)]
    pub attempt_ref: AttemptRef,
    /// How long its program has been running. Absent if it has not started.
    #[n(1)]
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

mod shared_profile {
    use std::sync::Arc;

    use minicbor::{Decode, Decoder, Encode, Encoder};

    use super::Profile;

    pub fn encode<C, W: minicbor::encode::Write>(
        profile: &Arc<Profile>,
        e: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        profile.as_ref().encode(e, context)
    }

    pub fn decode<'b, C>(d: &mut Decoder<'b>, context: &mut C) -> Result<Arc<Profile>, minicbor::decode::Error> {
        Profile::decode(d, context).map(Arc::new)
    }
}
