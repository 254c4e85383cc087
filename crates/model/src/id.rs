//! Ids: opaque words outside, small integers inside.
//!
//! A job or queue id is 64 bits: 42 bits of milliseconds since 2024, a 12-bit counter and one of
//! 1,024 slots. So ids sort by creation, are unique in a cluster without asking anyone, and tell
//! which shard owns them; the number of shards can change by moving slots.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};

use crate::time::Millis;

/// Milliseconds between the Unix epoch and 2024-01-01T00:00:00Z.
const ID_EPOCH_MS: u64 = 1_704_067_200_000;
const SLOT_BITS: u32 = 10;
const COUNTER_BITS: u32 = 12;

/// How many slots ids are spread over.
pub const SLOTS: u16 = 1 << SLOT_BITS;

/// One of the 1,024 parts of the id space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// The slot of a hash: any number will do, it is taken modulo [`SLOTS`].
    pub fn of(hash: u64) -> Self {
        Self((hash % u64::from(SLOTS)) as u16)
    }

    pub fn number(self) -> u16 {
        self.0
    }
}

/// A shard's number within its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ShardId(#[n(0)] pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Which shard owns which slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    count: u16,
}

impl Shards {
    /// `count` shards, each owning every `count`-th slot. At least one, at most [`SLOTS`].
    pub fn new(count: u16) -> Option<Self> {
        (1..=SLOTS).contains(&count).then_some(Self { count })
    }

    pub fn count(self) -> u16 {
        self.count
    }

    pub fn all(self) -> impl Iterator<Item = ShardId> {
        (0..self.count).map(ShardId)
    }

    pub fn owner(self, slot: Slot) -> ShardId {
        ShardId(slot.0 % self.count)
    }

    /// The slot a shard gives to what has no other reason to be in one.
    pub fn home_slot(self, shard: ShardId) -> Slot {
        Slot(shard.0 % SLOTS)
    }
}

/// The ownership number of a shard: only the newest one may commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Epoch(#[n(0)] pub u64);

/// Hands out the 64-bit numbers of one shard, each larger than the last even if the clock stands still or goes back.
#[derive(Debug, Clone, Default)]
pub struct IdSource {
    last: u64,
}

impl IdSource {
    /// Continues after `last`, the largest number known to have been handed out.
    pub fn after(last: u64) -> Self {
        Self { last: last >> SLOT_BITS }
    }

    pub fn next(&mut self, now: Millis, slot: Slot) -> u64 {
        let clock = now.0.saturating_sub(ID_EPOCH_MS) << COUNTER_BITS;
        self.last = clock.max(self.last + 1);
        (self.last << SLOT_BITS) | u64::from(slot.0)
    }
}

/// The time that a number handed out by an [`IdSource`] carries: not before it was handed out.
pub fn time_of(number: u64) -> Millis {
    Millis((number >> (SLOT_BITS + COUNTER_BITS)) + ID_EPOCH_MS)
}

/// Why a text is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseIdError {
    #[error("`{0}` is not an id: ids look like `{1}…`")]
    WrongKind(String, &'static str),
    #[error("`{0}` is not a complete id: it should have {ID_CHARS} letters and digits after its prefix")]
    Malformed(String),
}

const ID_CHARS: usize = 13;
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

fn write_base32(number: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0u8; ID_CHARS];
    for (index, place) in text.iter_mut().enumerate() {
        let shift = 5 * (ID_CHARS - 1 - index) as u32;
        *place = ALPHABET[((number >> shift) & 31) as usize];
    }
    f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
}

fn parse_base32(text: &str) -> Option<u64> {
    if text.len() != ID_CHARS {
        return None;
    }
    text.bytes().try_fold(0u64, |number, byte| {
        let digit = ALPHABET.iter().position(|letter| *letter == byte)? as u64;
        // 13 × 5 bits are one more than 64: the first letter must leave its top bit free.
        if number >> 59 != 0 {
            return None;
        }
        Some((number << 5) | digit)
    })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
        #[cbor(transparent)]
        pub struct $name(#[n(0)] pub u64);

        impl $name {
            pub const PREFIX: &str = $prefix;

            pub fn slot(self) -> Slot {
                Slot::of(self.0)
            }

            /// The bytes that sort as the ids do.
            pub fn key(self) -> [u8; 8] {
                self.0.to_be_bytes()
            }

            pub fn from_key(key: &[u8]) -> Option<Self> {
                Some(Self(u64::from_be_bytes(key.try_into().ok()?)))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                write_base32(self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let number = text.strip_prefix($prefix).ok_or_else(|| ParseIdError::WrongKind(text.to_owned(), $prefix))?;
                parse_base32(number).map(Self).ok_or_else(|| ParseIdError::Malformed(text.to_owned()))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// A unit of work.
    JobId, "job_");
id!(
    /// The jobs of one client session.
    QueueId, "q_");
id!(
    /// One run of a workflow.
    WorkflowId, "wf_");
id!(
    /// What starts workflows by the clock.
    ScheduleId, "sch_");
id!(
    /// One server process's place; kept in its data directory.
    NodeId, "node_");
id!(
    /// A container that runs attempts. On one node it has the node's number.
    RunnerId, "runner_");

/// Counts the starts of a node or runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Incarnation(#[n(0)] pub u64);

/// The number of a try at a job, from 1. With the job's id it fences everything a runner says.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Encode,
    Decode,
    serde::Serialize,
    serde::Deserialize,
)]
#[cbor(transparent)]
#[serde(transparent)]
pub struct Attempt(#[n(0)] pub u32);

impl Attempt {
    /// Before the first try.
    pub const NONE: Self = Self(0);

    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_as_their_texts_do_and_carry_their_slot() {
        let mut source = IdSource::default();
        let slot = Slot::of(77);
        let mut last = JobId(0);
        for now in [5, 5, 5, 900, 3] {
            let id = JobId(source.next(Millis(ID_EPOCH_MS + now), slot));
            assert!(id > last);
            assert!(id.to_string() > last.to_string());
            assert_eq!(id.slot(), slot);
            last = id;
        }
        assert!(IdSource::after(last.0).next(Millis(0), slot) > last.0);
        assert_eq!(time_of(last.0), Millis(ID_EPOCH_MS + 900), "the clock had gone back, the number had not");
    }

    #[test]
    fn an_id_of_another_kind_is_named_as_such() {
        let queue = QueueId(9).to_string();
        assert!(matches!(queue.parse::<JobId>(), Err(ParseIdError::WrongKind(..))));
        assert!(matches!("job_1".parse::<JobId>(), Err(ParseIdError::Malformed(..))));
    }

    #[test]
    fn every_slot_has_one_owner() {
        for count in [1, 4, 16] {
            let shards = Shards::new(count).unwrap();
            for number in 0..SLOTS {
                assert!(shards.owner(Slot(number)).0 < count);
            }
            for shard in shards.all() {
                assert_eq!(shards.owner(shards.home_slot(shard)), shard);
            }
        }
        assert_eq!(Shards::new(0), None);
    }

    proptest::proptest! {
        #[test]
        fn ids_survive_their_text(number: u64) {
            proptest::prop_assert_eq!(JobId(number).to_string().parse::<JobId>(), Ok(JobId(number)));
        }

        #[test]
        fn any_text_is_refused_or_round_trips(text in "(job_)?[0-9a-z]{0,16}") {
            if let Ok(id) = text.parse::<JobId>() {
                proptest::prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
