//! What a policy says of a job on its way in and of its result on its way out, and what a person says when the policy
//! asks for one.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::id::Attempt;
use crate::spec::{Digest, Sandbox};
use crate::time::Millis;

/// Which set of rules has spoken: a hash of their content. Two sets that say the same in the same words are one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct PolicyVersion(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

impl PolicyVersion {
    /// The version of a set of rules with this content.
    pub fn of(content: &[u8]) -> Self {
        let mut version = [0; 16];
        version.copy_from_slice(&blake3::hash(content).as_bytes()[..16]);
        Self(version)
    }
}

impl fmt::Display for PolicyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PolicyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicyVersion({self})")
    }
}

impl Serialize for PolicyVersion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for PolicyVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not the version of a policy: that is 32 hexadecimal digits");
        let mut version = [0; 16];
        if text.len() != 32 || !text.is_ascii() {
            return Err(wrong());
        }
        for (at, byte) in version.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(version))
    }
}

impl<'de> Deserialize<'de> for PolicyVersion {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Limits that a policy puts on a job it allows. Absent means: no more than the job itself asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Constraints {
    /// Of one attempt.
    #[n(0)]
    pub max_runtime: Option<Millis>,
    #[n(1)]
    pub max_retries: Option<u32>,
    /// All files together that it leaves behind.
    #[n(2)]
    pub max_artifact_bytes: Option<u64>,
    /// How many jobs of its tenant that the same rule has allowed may be with runners at once.
    #[n(3)]
    pub max_concurrent: Option<u32>,
    /// At least this far from its host.
    #[n(4)]
    pub sandbox: Option<Sandbox>,
    /// `false` takes the network away from it; `true` leaves it what its node gives it.
    #[n(5)]
    pub network: Option<bool>,
}

/// A policy's answer.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Verdict {
    #[n(0)]
    Allow,
    #[n(1)]
    AllowWith(#[n(0)] Constraints),
    #[n(2)]
    RequireApproval,
    #[n(3)]
    Deny,
    /// Not now: ask again after this time. Uses no budget.
    #[n(4)]
    Throttle(#[n(0)] Millis),
}

impl Verdict {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::AllowWith(_) => "allow_with_constraints",
            Self::RequireApproval => "require_approval",
            Self::Deny => "deny",
            Self::Throttle(_) => "throttle",
        }
    }
}

/// A verdict with where it came from, as the job's history keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Decision {
    #[n(0)]
    pub at: Millis,
    #[n(1)]
    pub verdict: Verdict,
    /// The rule that spoke.
    #[n(2)]
    pub rule: String,
    #[n(3)]
    pub message: Option<String>,
    /// The set of rules it belongs to. Absent in records of servers that had none.
    #[n(4)]
    pub policy: Option<PolicyVersion>,
    /// With [`Verdict::RequireApproval`]: what limits the job once it is approved. Other rules than the one that asks
    /// may have put them on it, and an approval is not meant to lift those.
    #[n(5)]
    pub constraints: Option<Box<Constraints>>,
}

/// A person's word on a job, good for this very content and the rule that asked.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Approval {
    #[n(0)]
    pub at: Millis,
    #[n(1)]
    pub by: String,
    #[n(2)]
    pub approved: bool,
    #[n(3)]
    pub comment: Option<String>,
    #[n(4)]
    pub digest: Digest,
    #[n(5)]
    pub rule: String,
}

/// When the policy looks at a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the job counts as succeeded, at what is known about its result.
    #[n(0)]
    Metadata,
    /// At the result itself.
    #[n(1)]
    Content,
}

/// A policy's answer about a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
pub enum OutputVerdict {
    #[n(0)]
    Allow,
    /// Nobody gets it until an operator has looked.
    #[n(1)]
    Quarantine,
    /// The same, said more firmly.
    #[n(2)]
    Deny,
    /// A copy without what was found takes its place.
    #[n(3)]
    Redact,
}

impl OutputVerdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Quarantine => "quarantine",
            Self::Deny => "deny",
            Self::Redact => "redact",
        }
    }

    /// Whether the result may be seen.
    pub fn lets_pass(self) -> bool {
        match self {
            Self::Allow | Self::Redact => true,
            Self::Quarantine | Self::Deny => false,
        }
    }
}

/// What the scanners found, without the thing itself: a secret does not belong into a record.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
pub struct FindingCount {
    /// The pattern's name.
    #[n(0)]
    pub pattern: String,
    /// `result`, `log` or the path of a file.
    #[n(1)]
    pub place: String,
    #[n(2)]
    pub count: u32,
}

/// A verdict on a result, as the job's history keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OutputDecision {
    #[n(0)]
    pub at: Millis,
    #[n(1)]
    pub phase: Phase,
    #[n(2)]
    pub verdict: OutputVerdict,
    #[n(3)]
    pub rule: String,
    #[n(4)]
    pub message: Option<String>,
    #[n(5)]
    pub policy: Option<PolicyVersion>,
    /// At most [`crate::limits::FINDINGS_MAX`].
    #[cbor(n(6), skip_if = "Vec::is_empty")]
    pub findings: Vec<FindingCount>,
    /// Whose result it is about. Filled in where it is put on record.
    #[cbor(n(7), default)]
    pub attempt: Attempt,
}
