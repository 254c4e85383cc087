//! Audit log: decisions of the policy and operations of people, hash-chained.
//!
//! Each shard has its own chain. An entry is stored after its hash, which covers the entry and the previous hash. The
//! newest hash is enough to detect changed or missing older entries. The oldest entries may be removed: a signed
//! [`Checkpoint`] then takes their place at the beginning of the chain.

mod checkpoint;

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};

use crate::codec::{self, DecodeError};
use crate::id::{JobId, QueueId};
use crate::time::Millis;
use crate::verdict::PolicyVersion;

pub use checkpoint::{Checkpoint, Invalid, PublicKey, Signature, SignedCheckpoint};

macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Audited action. Numbers and texts are on disk and in the API: never change one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
        #[cbor(index_only)]
        pub enum Action {
            $($(#[$doc])* #[n($number)] $name,)*
        }

        impl Action {
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

actions! {
    Allowed = 0, "allowed";
    Constrained = 1, "constrained";
    ApprovalAsked = 2, "approval_asked";
    Denied = 3, "denied";
    Throttled = 4, "throttled";
    /// Allowed without a verdict: the policy could not be evaluated and the server is configured to fail open.
    FailedOpen = 5, "failed_open";
    Approved = 6, "approved";
    Rejected = 7, "rejected";
    ApprovalExpired = 8, "approval_expired";
    OutputAllowed = 9, "output_allowed";
    OutputQuarantined = 10, "output_quarantined";
    OutputDenied = 11, "output_denied";
    OutputRedacted = 12, "output_redacted";
    /// Shown without a scan: the result could not be scanned and its topic fails open.
    OutputUnchecked = 13, "output_unchecked";
    Released = 14, "released";
    Cancelled = 15, "cancelled";
    Retracted = 16, "retracted";
    Retried = 17, "retried";
    Removed = 18, "removed";
    QueueDrained = 19, "queue_drained";
    QueueCancelled = 20, "queue_cancelled";
    QueueRemoved = 21, "queue_removed";
    PolicyChanged = 22, "policy_changed";
    DeadLetterPurged = 23, "letter_purged";
    /// The original of a redacted result was read.
    OriginalRead = 24, "original_read";
    WorkflowCancelled = 25, "workflow_cancelled";
    WorkflowPaused = 26, "workflow_paused";
    WorkflowResumed = 27, "workflow_resumed";
    WorkflowRerun = 28, "workflow_rerun";
    WorkflowRemoved = 29, "workflow_removed";
    ScheduleCreated = 30, "schedule_created";
    SchedulePaused = 31, "schedule_paused";
    ScheduleResumed = 32, "schedule_resumed";
    ScheduleRemoved = 33, "schedule_removed";
    ScheduleTriggered = 34, "schedule_triggered";
    /// The oldest entries of the log were removed after their retention.
    AuditShortened = 35, "audit_shortened";
    /// The job ended because its node was given up.
    Abandoned = 36, "abandoned";
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AuditEntry {
    /// Counts the entries of its shard, from 1.
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub at: Millis,
    #[n(2)]
    pub action: Action,
    /// The acting person. Absent: Outlast itself.
    #[n(3)]
    pub by: Option<String>,
    #[n(4)]
    pub job: Option<JobId>,
    #[n(5)]
    pub queue: Option<QueueId>,
    #[n(6)]
    pub rule: Option<String>,
    #[n(7)]
    pub policy: Option<PolicyVersion>,
    /// The given reason, or the workflow or schedule acted on.
    #[n(8)]
    pub message: Option<String>,
}

impl AuditEntry {
    /// An entry with only its action. The number is set by [`Head::append`], the time by the caller.
    pub fn of(action: Action) -> Self {
        Self {
            number: 0,
            at: Millis(0),
            action,
            by: None,
            job: None,
            queue: None,
            rule: None,
            policy: None,
            message: None,
        }
    }
}

/// Hash of an entry and all entries before it.
#[derive(Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Link(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 32]);

impl Link {
    /// Initial value, before the first entry.
    pub const START: Self = Self([0; 32]);

    fn after(self, entry: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher.update(entry);
        Self(*hasher.finalize().as_bytes())
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Link {
    type Err = InvalidHex;

    fn from_str(text: &str) -> Result<Self, InvalidHex> {
        parse_hex(text).map(Self)
    }
}

/// Parse error of a link, key or signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {digits} hexadecimal digits")]
pub struct InvalidHex {
    pub digits: usize,
}

fn parse_hex<const N: usize>(text: &str) -> Result<[u8; N], InvalidHex> {
    let mut bytes = [0; N];
    let invalid = InvalidHex { digits: 2 * N };
    if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(invalid);
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| invalid)?;
    }
    Ok(bytes)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({self})")
    }
}

/// Head of a chain: the number of its newest entry and the newest hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Head {
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub link: Link,
}

impl Head {
    pub const START: Self = Self { number: 0, link: Link::START };

    /// Numbers the entry, writes its stored form to `buffer` and advances the head.
    pub fn append(&mut self, entry: &mut AuditEntry, buffer: &mut Vec<u8>) {
        entry.number = self.number + 1;
        let begin = buffer.len();
        buffer.extend_from_slice(&[0; 32]);
        codec::encode_into(entry, buffer);
        let link = self.link.after(&buffer[begin + 32..]);
        buffer[begin..begin + 32].copy_from_slice(&link.0);
        *self = Self { number: entry.number, link };
    }

    /// Verifies and decodes the next entry and advances the head. The head is unchanged on error.
    pub fn follow(&mut self, stored: &[u8]) -> Result<AuditEntry, Broken> {
        let number = self.number + 1;
        let (link, bytes) = stored.split_at_checked(32).ok_or(Broken::Unreadable { number })?;
        let entry: AuditEntry = codec::decode(bytes).map_err(|_| Broken::Unreadable { number })?;
        if entry.number != number {
            return Err(Broken::Missing { number, found: entry.number });
        }
        let expected = self.link.after(bytes);
        if expected.0 != link {
            return Err(Broken::Changed { number });
        }
        *self = Self { number, link: expected };
        Ok(entry)
    }
}

/// Decodes a stored entry without verifying the chain.
pub fn decode(stored: &[u8]) -> Result<(Link, AuditEntry), DecodeError> {
    let (link, bytes) = stored.split_first_chunk::<32>().ok_or(DecodeError::Truncated)?;
    Ok((Link(*link), codec::decode(bytes)?))
}

/// Verification error of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("entry {number} cannot be read")]
    Unreadable { number: u64 },
    #[error("entry {number} is missing: entry {found} follows instead")]
    Missing { number: u64, found: u64 },
    #[error("entry {number}, or one before it, was changed")]
    Changed { number: u64 },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(length: u64) -> (Head, Vec<Vec<u8>>) {
        let mut head = Head::START;
        let stored = (0..length)
            .map(|at| {
                let mut buffer = Vec::new();
                let mut entry = AuditEntry { job: Some(JobId(at)), ..AuditEntry::of(Action::Allowed) };
                head.append(&mut entry, &mut buffer);
                buffer
            })
            .collect();
        (head, stored)
    }

    fn verify(stored: &[Vec<u8>]) -> Result<Head, Broken> {
        let mut head = Head::START;
        stored.iter().try_for_each(|entry| head.follow(entry).map(drop))?;
        Ok(head)
    }

    #[test]
    fn an_intact_chain_verifies_up_to_its_head() {
        let (head, stored) = chain(10);
        assert_eq!(verify(&stored), Ok(head));
        assert_eq!(decode(&stored[9]).unwrap().0, head.link);
    }

    #[test]
    fn changed_and_missing_entries_are_detected() {
        let (_, mut stored) = chain(5);
        stored.remove(2);
        assert_eq!(verify(&stored), Err(Broken::Missing { number: 3, found: 4 }));
        let (_, stored) = chain(5);
        for byte in 0..stored[2].len() {
            let mut changed = stored.clone();
            changed[2][byte] ^= 1;
            assert!(verify(&changed).is_err(), "a change of byte {byte} is not detected");
        }
        let (_, mut stored) = chain(5);
        stored[3].truncate(3);
        assert_eq!(verify(&stored), Err(Broken::Unreadable { number: 4 }));
    }

    #[test]
    fn every_action_has_a_unique_text() {
        let mut texts: Vec<_> = Action::ALL.iter().map(|action| action.as_str()).collect();
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), Action::ALL.len());
    }
}
