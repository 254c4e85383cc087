//! Time. Always an input: this crate never reads a clock.

use std::fmt;
use std::ops::{Add, Sub};

use minicbor::{Decode, Encode};

/// Milliseconds since the Unix epoch or of a steady clock, or a duration in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
#[cbor(transparent)]
pub struct Millis(#[n(0)] pub u64);

impl Millis {
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1000)
    }

    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Millis {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Millis {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

/// The two clocks of a machine, read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Wall clock, which may jump. Recorded times, deadlines, delays and calendars use it.
    pub wall: Millis,
    /// Monotonic clock with an arbitrary origin. Timeouts, liveness and retransmission use it.
    pub steady: Millis,
}

impl Now {
    /// Both clocks show the same time.
    pub fn both(time: Millis) -> Self {
        Self { wall: time, steady: time }
    }
}

/// A point in time. Text form: RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
#[cbor(transparent)]
pub struct Timestamp(#[n(0)] pub Millis);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(i64::try_from(self.0.0).unwrap_or(i64::MAX)) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "+{} ms", self.0.0),
        }
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let time: jiff::Timestamp = text.parse().map_err(|_| {
            serde::de::Error::custom(format!("`{text}` is not a time; write it like 2026-01-31T12:00:00Z"))
        })?;
        let millis = u64::try_from(time.as_millisecond())
            .map_err(|_| serde::de::Error::custom(format!("`{text}` lies before 1970")))?;
        Ok(Self(Millis(millis)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_rfc_3339_in_utc() {
        let time = Timestamp(Millis(1_767_225_600_123));
        assert_eq!(time.to_string(), "2026-01-01T00:00:00.123Z");
        let read: Timestamp = serde_json::from_str("\"2026-01-01T01:00:00.123+01:00\"").unwrap();
        assert_eq!(read, time);
        assert!(serde_json::from_str::<Timestamp>("\"yesterday\"").is_err());
    }
}
