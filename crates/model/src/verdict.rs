//! Verdicts and decisions of the policy on jobs and on results, and approvals.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::id::Attempt;
use crate::spec::{Digest, Sandbox};
use crate::time::Millis;

/// Version of a policy: a hash of its content. Equal content has the same version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct PolicyVersion(#[cbor(n(0), with = "minicbor::bytes")] pub [u8; 16]);

impl PolicyVersion {
    /// Version of the policy with this content.
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
        let wrong = || format!("`{text}` is not a policy version: a policy version has 32 hexadecimal digits");
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

/// Limits that a policy attaches to an allowed job. Absent: the limit of the job's spec.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Constraints {
    /// Per attempt.
    #[n(0)]
    pub max_runtime: Option<Millis>,
    #[n(1)]
    pub max_retries: Option<u32>,
    /// Total size of the artifacts.
    #[n(2)]
    pub max_artifact_bytes: Option<u64>,
    /// Maximum number of jobs in flight, per tenant and deciding rule.
    #[n(3)]
    pub max_concurrent: Option<u32>,
    /// Minimum isolation level.
    #[n(4)]
    pub sandbox: Option<Sandbox>,
    /// `false`: no network access. `true`: the node's default.
    #[n(5)]
    pub network: Option<bool>,
}

/// A policy's verdict on a job.
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
    /// Not before this time; evaluated again then. Uses no retry budget.
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

/// A verdict with its rule and policy version, as recorded in the job's history.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Decision {
    #[n(0)]
    pub at: Millis,
    #[n(1)]
    pub verdict: Verdict,
    /// The deciding rule.
    #[n(2)]
    pub rule: String,
    #[n(3)]
    pub message: Option<String>,
    /// Version of the policy. Absent if the server had no policy.
    #[n(4)]
    pub policy: Option<PolicyVersion>,
    /// With [`Verdict::RequireApproval`]: constraints that apply after the approval. They may come from other rules
    /// than the deciding one; an approval does not lift them.
    #[n(5)]
    pub constraints: Option<Box<Constraints>>,
}

/// A person's answer to a job that requires approval. Bound to the spec's digest and the requiring rule.
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

/// Phase of the output policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Phase {
    /// Metadata check, before the job is succeeded.
    #[n(0)]
    Metadata,
    /// Content scan.
    #[n(1)]
    Content,
}

/// A policy's verdict on a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum OutputVerdict {
    #[n(0)]
    Allow,
    /// The result is withheld until an operator releases it.
    #[n(1)]
    Quarantine,
    /// Same effect as `quarantine`, recorded as a denial.
    #[n(2)]
    Deny,
    /// A redacted copy replaces the result.
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

    /// Whether the result, or its redacted copy, is shown.
    pub fn lets_pass(self) -> bool {
        match self {
            Self::Allow | Self::Redact => true,
            Self::Quarantine | Self::Deny => false,
        }
    }
}

/// Matches of a scan pattern. The matched text is not stored: it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FindingCount {
    /// Name of the pattern.
    #[n(0)]
    pub pattern: String,
    /// `result`, `log` or the path of an artifact.
    #[n(1)]
    pub place: String,
    #[n(2)]
    pub count: u32,
}

/// A verdict on a result, as recorded in the job's history.
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
    /// Attempt that produced the result. Set when the decision is recorded.
    #[cbor(n(7), default)]
    pub attempt: Attempt,
}
