//! Queues: the jobs of one client session, with limits, counters, drain and cancel.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::id::{QueueId, Slot};
use crate::key::Day;
use crate::state::State;
use crate::time::Millis;

/// State of a queue. Transitions: active to draining, either to cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum QueueState {
    #[default]
    #[n(0)]
    Active,
    /// Rejects new jobs, finishes the existing ones.
    #[n(1)]
    Draining,
    /// Rejects new jobs, cancels the existing ones.
    #[n(2)]
    Cancelled,
}

impl QueueState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Secret that gives access to a queue: 128 random bits and the slot, for routing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct QueueToken {
    #[cbor(n(0), with = "minicbor::bytes")]
    secret: [u8; 16],
    #[n(1)]
    slot: u16,
}

impl QueueToken {
    pub fn new(secret: [u8; 16], slot: Slot) -> Self {
        Self { secret, slot: slot.number() }
    }

    pub(crate) fn secret(self) -> [u8; 16] {
        self.secret
    }

    pub fn slot(self) -> Slot {
        Slot::of(u64::from(self.slot))
    }
}

impl fmt::Display for QueueToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qt_{:03x}", self.slot)?;
        self.secret.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Error of parsing a queue reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither the id (`q_…`) nor the token (`qt_…`) of a queue")]
pub struct BadQueueRef(String);

/// Reference to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum QueueRef {
    #[n(0)]
    Id(#[n(0)] QueueId),
    #[n(1)]
    Token(#[n(0)] QueueToken),
}

impl QueueRef {
    pub fn slot(self) -> Slot {
        match self {
            Self::Id(id) => id.slot(),
            Self::Token(token) => token.slot(),
        }
    }
}

impl fmt::Display for QueueRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Token(token) => token.fmt(f),
        }
    }
}

impl FromStr for QueueRef {
    type Err = BadQueueRef;

    fn from_str(text: &str) -> Result<Self, BadQueueRef> {
        let bad = || BadQueueRef(text.to_owned());
        let Some(token) = text.strip_prefix("qt_") else {
            return text.parse().map(Self::Id).map_err(|_| bad());
        };
        if token.len() != 35 || !token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let slot = u16::from_str_radix(&token[..3], 16).map_err(|_| bad())?;
        let secret = u128::from_str_radix(&token[3..], 16).map_err(|_| bad())?.to_be_bytes();
        Ok(Self::Token(QueueToken { secret, slot }))
    }
}

impl Serialize for QueueRef {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QueueRef {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Number of jobs of a queue by terminal state. Rescheduled jobs count as active again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Counters {
    /// Non-terminal jobs.
    #[n(0)]
    pub active: u64,
    #[n(1)]
    pub succeeded: u64,
    #[n(2)]
    pub failed: u64,
    #[n(3)]
    pub timed_out: u64,
    #[n(4)]
    pub cancelled: u64,
    #[n(5)]
    pub denied: u64,
    #[n(6)]
    pub quarantined: u64,
    #[n(7)]
    pub abandoned: u64,
}

impl Counters {
    /// The counter of jobs in `state`.
    pub fn of(&mut self, state: State) -> &mut u64 {
        match state {
            State::Pending
            | State::Blocked
            | State::ApprovalRequired
            | State::Scheduled
            | State::Dispatched
            | State::Running
            | State::Cancelling
            | State::Scanning => &mut self.active,
            State::Succeeded => &mut self.succeeded,
            State::Failed => &mut self.failed,
            State::TimedOut => &mut self.timed_out,
            State::Cancelled => &mut self.cancelled,
            State::Denied => &mut self.denied,
            State::Quarantined => &mut self.quarantined,
            State::Abandoned => &mut self.abandoned,
        }
    }

    /// Moves one job from the counter of `from` to that of `to`.
    pub fn shift(&mut self, from: State, to: State) {
        let old = self.of(from);
        debug_assert!(*old > 0, "no job is counted as {from}");
        *old = old.saturating_sub(1);
        *self.of(to) += 1;
    }
}

/// Record of a queue, on disk and in memory.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Queue {
    #[n(0)]
    pub id: QueueId,
    /// Absent for implicit queues.
    #[n(1)]
    pub token: Option<QueueToken>,
    #[n(2)]
    pub tenant: String,
    #[n(3)]
    pub tag: String,
    #[n(4)]
    pub state: QueueState,
    /// Default retry limit of its jobs.
    #[n(5)]
    pub max_retries: u32,
    /// Maximum number of its jobs in flight. Absent: no limit.
    #[n(6)]
    pub max_running: Option<u32>,
    #[n(7)]
    pub created_at: Millis,
    /// Sequence number of the next job.
    #[n(8)]
    pub next_seq: u64,
    #[n(9)]
    pub counters: Counters,
    /// Time since when the queue has no active job.
    #[n(10)]
    pub idle_since: Millis,
    /// Queue of the tenant's jobs that name none. It does not expire and cannot be removed.
    #[n(11)]
    pub implicit: bool,
    /// Idempotency keys that the tenant has used. Counted in the implicit queue only.
    #[n(12)]
    pub keys: KeyCount,
}

/// Number of idempotency keys used on the newest day and on the day before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct KeyCount {
    #[n(0)]
    pub day: u16,
    #[n(1)]
    pub today: u64,
    #[n(2)]
    pub yesterday: u64,
}

impl KeyCount {
    /// The count as of `day`: shifts today's count to yesterday's on the next day, and drops both later.
    pub fn on(self, day: Day) -> Self {
        match day.0.saturating_sub(self.day) {
            0 => self,
            1 => Self { day: day.0, today: 0, yesterday: self.today },
            _ => Self { day: day.0, today: 0, yesterday: 0 },
        }
    }

    pub fn total(self) -> u64 {
        self.today + self.yesterday
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_reference_is_an_id_or_a_token() {
        let id = QueueRef::Id(QueueId(77));
        let token = QueueRef::Token(QueueToken::new([7; 16], Slot::of(1023)));
        for reference in [id, token] {
            assert_eq!(reference.to_string().parse(), Ok(reference));
        }
        assert_eq!(token.slot(), Slot::of(1023));
        for bad in ["", "q_", "job_0000000000000", "qt_00", "qt_+++00000000000000000000000000000000"] {
            assert!(bad.parse::<QueueRef>().is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parsing_any_text_as_a_queue_reference_does_not_panic(text in "(q_|qt_)?.{0,40}") {
            let _ = text.parse::<QueueRef>();
        }
    }
}
