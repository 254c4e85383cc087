//! Ids: opaque strings in the API, 64-bit integers inside.
//!
//! An id has 42 bits of milliseconds since 2024, a 12-bit counter and one of 1,024 slots. Ids sort by creation, are
//! unique in a cluster without coordination, and determine the owning shard. The number of shards can change by moving
//! slots.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};

use crate::time::Millis;

/// Milliseconds between the Unix epoch and 2024-01-01T00:00:00Z.
const ID_EPOCH_MS: u64 = 1_704_067_200_000;
const SLOT_BITS: u32 = 10;
const COUNTER_BITS: u32 = 12;

/// Number of slots in the id space.
pub const SLOTS: u16 = 1 << SLOT_BITS;

/// A partition of the id space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// The slot of any number: the number modulo [`SLOTS`].
    pub fn of(hash: u64) -> Self {
        Self((hash % u64::from(SLOTS)) as u16)
    }

    pub fn number(self) -> u16 {
        self.0
    }
}

/// Number of a shard within its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ShardId(#[n(0)] pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Assignment of slots to shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    count: u16,
}

impl Shards {
    /// `count` shards, each with every `count`-th slot. `count` is 1 to [`SLOTS`].
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

    /// The shard's default slot for objects without a slot of their own.
    pub fn home_slot(self, shard: ShardId) -> Slot {
        Slot(shard.0 % SLOTS)
    }
}

/// Counts the owners of a shard. Only the newest may commit. 0: there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
#[cbor(transparent)]
pub struct Epoch(#[n(0)] pub u64);

/// Epochs of one generation.
const EPOCHS_PER_GENERATION_BITS: u32 = 32;

impl Epoch {
    /// Number of failovers of the store before this epoch began. 0 for a store that loses nothing.
    pub fn generation(self) -> u64 {
        self.0 >> EPOCHS_PER_GENERATION_BITS
    }

    /// Position of this epoch within its generation.
    pub fn within_generation(self) -> u64 {
        self.0 & ((1 << EPOCHS_PER_GENERATION_BITS) - 1)
    }

    /// The epoch of the next owner. Larger than every epoch of an earlier generation, including those that a failover
    /// has lost.
    pub fn next(self, generation: u64) -> Self {
        Self((self.0 + 1).max((generation << EPOCHS_PER_GENERATION_BITS) + 1))
    }
}

/// Id generator of one shard. Ids increase strictly, even if the clock stops or goes back.
#[derive(Debug, Clone, Default)]
pub struct IdSource {
    last: u64,
}

impl IdSource {
    /// Continues after `last`, the largest id issued so far.
    pub fn after(last: u64) -> Self {
        Self { last: last >> SLOT_BITS }
    }

    pub fn next(&mut self, now: Millis, slot: Slot) -> u64 {
        let clock = now.0.saturating_sub(ID_EPOCH_MS) << COUNTER_BITS;
        self.last = clock.max(self.last + 1);
        (self.last << SLOT_BITS) | u64::from(slot.0)
    }
}

/// The timestamp within an id of an [`IdSource`]. Never earlier than the time of issue.
pub fn time_of(number: u64) -> Millis {
    Millis((number >> (SLOT_BITS + COUNTER_BITS)) + ID_EPOCH_MS)
}

/// The difference of ids whose timestamps differ that much.
pub fn span(time: Millis) -> u64 {
    time.0 << (SLOT_BITS + COUNTER_BITS)
}

/// The first id with this timestamp.
pub fn first_at(time: Millis) -> u64 {
    span(time.saturating_sub(Millis(ID_EPOCH_MS)))
}

/// Error of parsing an id.
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
        // 13 × 5 bits are 65: the top bit of the first character must be 0.
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

            /// Big-endian bytes: keys sort like ids.
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
    /// Id of a job.
    JobId, "job_");
id!(
    /// Id of a queue.
    QueueId, "q_");
id!(
    /// Id of a workflow.
    WorkflowId, "wf_");
id!(
    /// Id of a schedule.
    ScheduleId, "sch_");
id!(
    /// Id of a node; stored in its data directory.
    NodeId, "node_");
id!(
    /// Id of a runner. The runner of a node has the node's number.
    RunnerId, "runner_");

/// Counts the starts of a node or runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Incarnation(#[n(0)] pub u64);

/// Number of an attempt of a job, from 1. With the job's id it is the fencing token of all runner messages.
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
    /// Before the first attempt.
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
    fn ids_sort_like_their_texts_and_contain_their_slot() {
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
        assert_eq!(time_of(last.0), Millis(ID_EPOCH_MS + 900), "the clock went back, the id did not");
        assert_eq!(time_of(last.0 + span(Millis(7))), Millis(ID_EPOCH_MS + 907));
        assert_eq!(time_of(first_at(Millis(ID_EPOCH_MS + 5))), Millis(ID_EPOCH_MS + 5));
    }

    #[test]
    fn an_id_of_another_kind_is_reported_as_the_wrong_kind() {
        let queue = QueueId(9).to_string();
        assert!(matches!(queue.parse::<JobId>(), Err(ParseIdError::WrongKind(..))));
        assert!(matches!("job_1".parse::<JobId>(), Err(ParseIdError::Malformed(..))));
    }

    #[test]
    fn epochs_increase_within_and_across_generations() {
        let (mut last, mut epochs) = (Epoch(0), Vec::new());
        for generation in [0, 0, 1, 1, 3, 2] {
            last = last.next(generation);
            epochs.push((last.generation(), last.within_generation()));
        }
        assert_eq!(epochs, [(0, 1), (0, 2), (1, 1), (1, 2), (3, 1), (3, 2)]);
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
        fn ids_round_trip_through_their_text(number: u64) {
            proptest::prop_assert_eq!(JobId(number).to_string().parse::<JobId>(), Ok(JobId(number)));
        }

        #[test]
        fn any_text_is_rejected_or_round_trips(text in "(job_)?[0-9a-z]{0,16}") {
            if let Ok(id) = text.parse::<JobId>() {
                proptest::prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
